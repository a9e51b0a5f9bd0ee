"""What threads do together on the simulator: barriers, shuffles, votes, shared memory, atomic instructions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import hlojit.runtime
import numpy as np
import pytest
from hlojit.llvm.text import Val
from hlojit.simt.builder import SimtBuilder

from .simulated import Handmade, at

KINDS = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8}


def dtype_of(kind: str) -> str:
    return np.dtype(KINDS[kind]).str


def word(b: SimtBuilder, value: int) -> Val:
    return b.constant("i32", value)


def block_sum(threads: int) -> Callable[..., None]:
    """The sum of as many elements as there are threads, by halves through shared memory in a loop, in every thread."""

    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        shared = b.shared("f32", threads)
        mine = at(b, shared, "f32", b.thread)
        first = b.add(b.mul(b.block, word(b, threads)), b.thread)
        b.store(b.load("f32", at(b, x, "f32", first)), mine)
        loop = b.begin_loop(
            b.constant("i64", 0), b.constant("i64", threads.bit_length() - 1), carried=[word(b, threads // 2)]
        )
        (half,) = loop.carried
        b.barrier()

        def add() -> None:
            other = b.load("f32", at(b, shared, "f32", b.add(b.thread, half)))
            b.store(b.fadd(b.load("f32", mine), other), mine)

        b.when(b.icmp("ult", b.thread, half), add)
        b.end_loop(loop, [b.lshr(half, word(b, 1))])
        b.barrier()
        b.store(b.load("f32", shared), at(b, y, "f32", first))

    return body


@pytest.mark.parametrize("threads", [1, 32, 64, 256, 1024])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_block_adds_up_its_elements(threads: int, workers: int) -> None:
    blocks = 9
    kernel = Handmade(block_sum(threads), [("f4", blocks * threads)] * 2, threads=threads)
    x = np.arange(blocks * threads, dtype=np.float32) % 97
    kernel.array(0)[:] = x
    before = hlojit.runtime.get_threads()
    hlojit.runtime.set_threads(workers)
    try:
        kernel.launch(blocks)
    finally:
        hlojit.runtime.set_threads(before)
    np.testing.assert_array_equal(
        kernel.array(1).reshape(blocks, threads).T, [x.reshape(blocks, threads).sum(1)] * threads
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warp", [32, 64, 16])
def test_a_warp_adds_up_by_a_butterfly(kind: str, warp: int) -> None:
    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        value = b.load(kind, at(b, x, kind, b.thread))
        mask = warp // 2
        while mask:
            other = b.shuffle_xor(value, mask)
            value = b.fadd(value, other) if kind in ("f32", "f64") else b.add(value, other)
            mask //= 2
        b.store(value, at(b, y, kind, b.thread))

    kernel = Handmade(body, [(dtype_of(kind), 128)] * 2, threads=128, warp=warp)
    x = np.random.default_rng(0).integers(-100, 100, 128).astype(KINDS[kind])
    kernel.array(0)[:] = x
    kernel.launch()
    sums = x.reshape(-1, warp).sum(1, dtype=KINDS[kind])
    np.testing.assert_array_equal(kernel.array(1), np.repeat(sums, warp))


def test_a_scan_by_indexed_shuffles_in_a_loop() -> None:
    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        lane = b.and_(b.thread, word(b, 31))
        value = b.load("i64", at(b, x, "i64", b.thread))
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", 5), carried=[value, word(b, 1)])
        value, distance = loop.carried
        other = b.shuffle_from(value, b.sub(lane, distance))
        added = b.select(b.icmp("uge", lane, distance), b.add(value, other), value)
        value, _ = b.end_loop(loop, [added, b.shl(distance, word(b, 1))])
        b.store(value, at(b, y, "i64", b.thread))

    kernel = Handmade(body, [("i8", 64), ("i8", 64)])
    x = np.random.default_rng(1).integers(-(2**40), 2**40, 64)
    kernel.array(0)[:] = x
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(1).reshape(2, 32), np.cumsum(x.reshape(2, 32), 1))


@pytest.mark.parametrize(("warp", "kind"), [(32, "i32"), (64, "i64")])
def test_votes(warp: int, kind: str) -> None:
    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        odd = b.trunc(b.load("i32", at(b, x, "i32", b.thread)), "i1")
        b.store(b.ballot(odd), at(b, y, kind, b.thread))

    kernel = Handmade(body, [("i4", 128), (dtype_of(kind), 128)], threads=128, warp=warp)
    x = np.random.default_rng(2).integers(0, 1000, 128)
    kernel.array(0)[:] = x
    kernel.launch()
    votes = ((x.reshape(-1, warp) & 1).astype(np.uint64) << np.arange(warp, dtype=np.uint64)).sum(1, dtype=np.uint64)
    np.testing.assert_array_equal(kernel.array(1).astype(np.uint64) & np.uint64(2**warp - 1), np.repeat(votes, warp))


def test_a_tile_is_transposed_through_shared_memory() -> None:
    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        tile = b.shared("i8", 32 * 33)
        column, row = b.and_(b.thread, word(b, 31)), b.lshr(b.thread, word(b, 5))
        for step in range(0, 32, 8):
            down = b.add(row, word(b, step))
            value = b.load("i8", at(b, x, "i8", b.add(b.mul(down, word(b, 32)), column)))
            b.store(value, at(b, tile, "i8", b.add(b.mul(down, word(b, 33)), column)))
        b.barrier()
        for step in range(0, 32, 8):
            down = b.add(row, word(b, step))
            value = b.load("i8", at(b, tile, "i8", b.add(b.mul(column, word(b, 33)), down)))
            b.store(value, at(b, y, "i8", b.add(b.mul(down, word(b, 32)), column)))

    kernel = Handmade(body, [("i1", 1024)] * 2, threads=256)
    x = np.random.default_rng(3).integers(-128, 128, (32, 32)).astype(np.int8)
    kernel.array(0)[:] = x.ravel()
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(1).reshape(32, 32), x.T)


def test_lanes_of_a_warp_exchange_through_shared_memory() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        shared = b.shared("i32", 64)
        b.store(b.thread, at(b, shared, "i32", b.thread))
        b.sync_warp()
        b.store(b.load("i32", at(b, shared, "i32", b.xor(b.thread, word(b, 1)))), at(b, y, "i32", b.thread))

    kernel = Handmade(body, [("i4", 64)])
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(0), np.arange(64) ^ 1)


def test_a_histogram_by_atomic_instructions() -> None:
    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        counts = b.shared("i32", 8)
        b.when(b.icmp("ult", b.thread, word(b, 8)), lambda: b.store(word(b, 0), at(b, counts, "i32", b.thread)))
        b.barrier()
        first = b.add(b.mul(b.block, word(b, 64)), b.thread)
        b.atomic("add", at(b, counts, "i32", b.load("i32", at(b, x, "i32", first))), word(b, 1))
        b.barrier()

        def add() -> None:
            b.atomic("add", at(b, y, "i32", b.thread), b.load("i32", at(b, counts, "i32", b.thread)))

        b.when(b.icmp("ult", b.thread, word(b, 8)), add)

    kernel = Handmade(body, [("i4", 640), ("i4", 8)])
    kernel.array(0)[:] = x = np.random.default_rng(4).integers(0, 8, 640)
    kernel.array(1)[:] = 0
    kernel.launch(10)
    np.testing.assert_array_equal(kernel.array(1), np.bincount(x, minlength=8))


def test_a_lock_free_maximum() -> None:
    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        value = b.load("i32", at(b, x, "i32", b.thread))
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", 64), carried=[b.constant("i32", -1)])
        seen = b.compare_exchange(
            y, loop.carried[0], b.select(b.icmp("sgt", value, loop.carried[0]), value, loop.carried[0])
        )
        b.end_loop(loop, [seen])

    kernel = Handmade(body, [("i4", 64), ("i4", 1)])
    kernel.array(0)[:] = x = np.random.default_rng(5).permutation(64)
    kernel.array(1)[:] = -1
    kernel.launch()
    assert kernel.array(1)[0] == x.max()


def test_the_stack_of_a_thread_outlives_its_waiting() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        own, last = b.array("i32", 8), b.local("i32")
        for number in range(8):
            b.store(b.mul(b.thread, word(b, number)), at(b, own, "i32", word(b, number)))
        b.store(b.thread, last)
        b.barrier()
        total = b.load("i32", last)
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", 8), carried=[total])
        b.sync_warp()
        (total,) = b.end_loop(loop, [b.add(loop.carried[0], b.load("i32", at(b, own, "i32", loop.index)))])
        b.store(total, at(b, y, "i32", b.thread))

    kernel = Handmade(body, [("i4", 64)])
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(0), np.arange(64) * 29)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_what_nobody_has_written_to_shared_memory_is_nan(kind: str) -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.store(b.load(kind, at(b, b.shared(kind, 64), kind, b.thread)), at(b, y, kind, b.thread))

    kernel = Handmade(body, [(dtype_of(kind), 64)])
    kernel.launch()
    assert np.isnan(kernel.array(0)).all()


def test_shared_memory_of_the_block_before_is_not_seen() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        place = at(b, b.shared("f32", 64), "f32", b.thread)
        index = b.add(b.mul(b.block, word(b, 64)), b.thread)
        b.store(b.load("f32", place), at(b, y, "f32", index))
        b.store(b.constant("f32", 1.0), place)

    kernel = Handmade(body, [("f4", 640)])
    kernel.launch(10)
    assert np.isnan(kernel.array(0)).all()


def test_many_launches_give_their_memory_back() -> None:
    kernel = Handmade(block_sum(32), [("f4", 32)] * 2, threads=32)
    kernel.array(0)[:] = 1
    kernel.launch()
    before = hlojit.runtime.statistics()
    for _ in range(10_000):
        kernel.launch()
    after = hlojit.runtime.statistics()
    assert after.bytes_in_use == before.bytes_in_use and after.bytes_mapped == before.bytes_mapped
    assert kernel.array(1)[0] == 32


def test_several_python_threads_launch_at_once() -> None:
    kernel = Handmade(block_sum(64), [("f4", 640)] * 2)
    x = np.arange(640, dtype=np.float32)
    kernel.array(0)[:] = x
    kernels = [Handmade(block_sum(64), [("f4", 640)] * 2) for _ in range(3)]
    for each in kernels:
        each.array(0)[:] = x
    barrier = threading.Barrier(4)
    wrong: list[str] = []

    def run(kernel: Handmade) -> None:
        barrier.wait()
        for _ in range(50):
            kernel.launch(10)
        if not np.array_equal(kernel.array(1), np.repeat(x.reshape(10, 64).sum(1), 64)):
            wrong.append("results differ")

    runners = [threading.Thread(target=run, args=(each,)) for each in (kernel, *kernels)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert not wrong

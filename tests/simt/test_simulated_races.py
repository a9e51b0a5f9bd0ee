"""Accesses that nothing orders, told by the simulator: in shared memory, in buffers, between blocks."""

from __future__ import annotations

from collections.abc import Callable

import hlojit.runtime
import numpy as np
import pytest
from hlojit.llvm.text import Val
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.simulator.faults import KernelFaultError
from hlojit.simt.simulator.records import FaultKind

from .faults import Body, everybody_writes, fault, said, word
from .simulated import Handmade, at

# ------------------------------------------------------------------------------------------------- races


def exchanged(wait: Callable[[SimtBuilder], None], distance: int) -> Body:
    def body(b: SimtBuilder, y: Val) -> None:
        memory = b.shared("i32", 64)
        b.store(b.thread, at(b, memory, "i32", b.thread))
        wait(b)
        b.store(b.load("i32", at(b, memory, "i32", b.xor(b.thread, word(b, distance)))), at(b, y, "i32", b.thread))

    return body


def test_a_missing_barrier() -> None:
    error = fault(exchanged(lambda b: None, 1), [("i4", 64)])
    said(error, FaultKind.SHARED_RACE, "store of shared memory", "races with the load of shared memory", "by thread 0")


def test_waiting_of_a_warp_is_not_enough_for_a_block() -> None:
    said(fault(exchanged(SimtBuilder.sync_warp, 32), [("i4", 64)]), FaultKind.SHARED_RACE)


def test_a_shuffle_orders_no_memory() -> None:
    def wait(b: SimtBuilder) -> None:
        b.shuffle_xor(b.thread, 1)

    said(fault(exchanged(wait, 1), [("i4", 64)]), FaultKind.SHARED_RACE)


def test_reading_what_is_about_to_be_overwritten() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        memory = b.shared("i32", 1)
        b.when(b.icmp("eq", b.thread, word(b, 0)), lambda: b.store(b.thread, memory))
        b.barrier()
        b.store(b.load("i32", memory), at(b, y, "i32", b.thread))
        b.when(b.icmp("eq", b.thread, word(b, 63)), lambda: b.store(b.thread, memory))

    said(fault(body, [("i4", 64)]), FaultKind.SHARED_RACE, "thread 63: store", "load")


@pytest.mark.parametrize("writer", [0, 31, 32, 63])
def test_whoever_reads_before(writer: int) -> None:
    """The writer is of the first readers' warp or of the last ones', and among the readers or not."""

    def body(b: SimtBuilder, y: Val) -> None:
        memory = b.shared("i32", 1)
        for half in (0, 1):
            b.store(b.load("i32", memory), at(b, y, "i32", b.add(b.thread, word(b, 64 * half))))
        b.shuffle_xor(b.thread, 1)
        b.when(b.icmp("eq", b.thread, word(b, writer)), lambda: b.store(b.thread, memory))

    said(fault(body, [("i4", 128)]), FaultKind.SHARED_RACE, f"thread {writer}: store")


def test_the_only_reader_may_write() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        place = at(b, b.shared("i32", 64), "i32", b.thread)
        b.store(b.load("i32", place), at(b, y, "i32", b.thread))
        b.store(b.thread, place)
        b.store(b.load("i32", place), at(b, y, "i32", b.thread))

    kernel = Handmade(body, [("i4", 64)])
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(0), np.arange(64))


def test_atomic_and_plain_updates_race() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        memory = b.shared("i32", 1)
        b.atomic("add", memory, word(b, 1))
        b.when(b.icmp("eq", b.thread, word(b, 0)), lambda: b.store(b.load("i32", memory), y))

    error = fault(body, [("i4", 1)])
    said(error, FaultKind.SHARED_RACE, "thread 1: atomic update", "load")

    def last(b: SimtBuilder, y: Val) -> None:
        memory = b.shared("i32", 1)
        b.atomic("add", memory, word(b, 1))
        b.shuffle_xor(b.thread, 1)
        b.when(b.icmp("eq", b.thread, word(b, 63)), lambda: b.store(b.load("i32", memory), y))

    said(fault(last, [("i4", 1)]), FaultKind.SHARED_RACE, "thread 63: load", "atomic update")


def test_neighbouring_bytes_are_no_race() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        place = at(b, b.shared("i8", 64), "i8", b.thread)
        b.store(b.trunc(b.thread, "i8"), place)
        b.store(b.load("i8", place), at(b, y, "i8", b.thread))

    kernel = Handmade(body, [("i1", 64)])
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(0), np.arange(64))


def test_two_threads_write_one_element_of_a_result() -> None:
    error = fault(everybody_writes, [("i4", 64)])
    said(
        error,
        FaultKind.BUFFER_RACE,
        "thread 1: store of buffer 0 at byte 0 races with thread 0 of block 0, which wrote",
    )


def test_races_in_buffers_need_not_be_looked_for() -> None:
    kernel = Handmade(everybody_writes, [("i4", 64)])
    kernel.launch(check_races=False)


def test_two_blocks_write_one_element_of_a_result() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.store(b.thread, at(b, y, "i32", b.thread))

    error = fault(body, [("i4", 64)], blocks=100)
    said(error, FaultKind.BUFFER_RACE, "of block")


def all_write(b: SimtBuilder, y: Val) -> None:
    b.store(b.thread, at(b, y, "i32", b.thread))


def first_writes_what_others_read(b: SimtBuilder, y: Val) -> None:
    mine = at(b, y, "i32", b.add(b.mul(b.block, word(b, 64)), b.thread))
    is_first = b.icmp("eq", b.block, word(b, 0))
    b.choose(is_first, lambda: b.store(b.thread, mine), lambda: b.store(b.load("i32", at(b, y, "i32", b.thread)), mine))


@pytest.mark.parametrize("body", [all_write, first_writes_what_others_read])
def test_blocks_that_run_at_once_are_found_out_every_time(body: Body) -> None:
    kernel = Handmade(body, [("i4", 256)])
    before = hlojit.runtime.get_threads()
    hlojit.runtime.set_threads(4)
    try:
        for _ in range(50):
            with pytest.raises(KernelFaultError):
                kernel.launch(4)
    finally:
        hlojit.runtime.set_threads(before)


def test_vectors_of_results_that_overlap() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.store(Val("splat (float 1.0)", "f32", 4), at(b, y, "f32", b.mul(b.thread, word(b, 3))))

    error = fault(body, [("f4", 4 + 3 * 63)])
    said(error, FaultKind.BUFFER_RACE, "thread 1: store of buffer 0 at byte 12 races with thread 0")


def test_a_barrier_lies_between_two_writers() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.store(b.thread, at(b, y, "i32", b.thread))
        b.store(b.thread, at(b, y, "i32", b.thread))
        b.barrier()
        b.store(b.thread, at(b, y, "i32", b.xor(b.thread, word(b, 63))))

    kernel = Handmade(body, [("i4", 64)])
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(0), np.arange(64)[::-1])


def test_a_block_reads_what_another_one_wrote() -> None:
    """Blocks one after the other would find what they look for."""

    def body(b: SimtBuilder, y: Val) -> None:
        place = at(b, y, "i32", b.add(b.mul(b.block, word(b, 64)), b.thread))
        b.store(b.thread, place)
        earlier = b.select(b.icmp("eq", b.block, word(b, 3)), b.thread, b.add(b.mul(b.block, word(b, 64)), b.thread))
        b.store(b.add(b.load("i32", at(b, y, "i32", earlier)), word(b, 1)), place)

    error = fault(body, [("i4", 640)], blocks=10)
    said(
        error,
        FaultKind.BUFFER_RACE,
        "block 3",
        "load of buffer 0 at byte 0 races with thread 0 of block 0, which wrote",
    )


@pytest.mark.parametrize("writer", [0, 31, 32, 63, 64, 255])
def test_whoever_reads_a_buffer_before_it_is_written(writer: int) -> None:
    """Of the same thread, warp, block or another one."""

    def body(b: SimtBuilder, y: Val) -> None:
        mine = b.add(b.mul(b.block, word(b, 64)), b.thread)
        b.store(b.load("i32", y), at(b, y, "i32", b.add(mine, word(b, 1))))
        b.shuffle_xor(b.thread, 1)
        b.when(b.icmp("eq", mine, word(b, writer)), lambda: b.store(b.thread, y))

    error = fault(body, [("i4", 257)], blocks=4)
    said(error, FaultKind.BUFFER_RACE, "buffer 0 at byte 0")


@pytest.mark.parametrize("waits", [False, True])
def test_threads_of_a_block_exchange_through_a_buffer(waits: bool) -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.store(b.thread, at(b, y, "i32", b.thread))
        if waits:
            b.barrier()
        other = b.load("i32", at(b, y, "i32", b.xor(b.thread, word(b, 63))))
        if waits:
            b.barrier()
        b.store(other, at(b, y, "i32", b.thread))

    if not waits:
        said(fault(body, [("i4", 64)]), FaultKind.BUFFER_RACE, "which read the same element")
        return
    kernel = Handmade(body, [("i4", 64)])
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(0), np.arange(64)[::-1])


def test_a_counter_that_is_read_in_the_launch_that_counts() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.atomic("add", y, word(b, 1))
        b.shuffle_xor(b.thread, 1)
        last = b.and_(b.icmp("eq", b.block, word(b, 9)), b.icmp("eq", b.thread, word(b, 63)))
        b.when(last, lambda: b.store(b.load("i32", y), at(b, y, "i32", word(b, 1))))

    said(
        fault(body, [("i4", 2)], blocks=10),
        FaultKind.BUFFER_RACE,
        "load of buffer 0 at byte 0 races with threads of several blocks",
    )


@pytest.mark.parametrize("distance", [0, 1])
def test_a_result_in_the_memory_of_an_operand(distance: int) -> None:
    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        mine = b.add(b.mul(b.block, word(b, 64)), b.thread)
        source = b.and_(b.add(mine, word(b, distance)), word(b, 255))
        b.store(b.add(b.load("i32", at(b, x, "i32", source)), word(b, 1)), at(b, y, "i32", mine))

    kernel = Handmade(body, [("i4", 256)] * 2)
    address = kernel.memory[0].address
    if distance:
        with pytest.raises(KernelFaultError) as found:
            kernel.module.launch("kernel", [address, address], 4, 64)
        said(found.value, FaultKind.BUFFER_RACE, "which read the same element")
        return
    kernel.module.launch("kernel", [address, address], 4, 64)
    assert (kernel.array(0) == 1).all()

"""Kernels that are wrong on purpose: the simulator says what, where and who, writes nothing out of range, and goes on."""

from __future__ import annotations

import signal
import threading
import time

import hlojit.runtime
import numpy as np
import pytest
from hlojit.ir.errors import HlojitError
from hlojit.llvm.text import Val
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.simulator.faults import KernelFaultError
from hlojit.simt.simulator.records import FaultKind

from .faults import Body, everybody_writes, fault, said, word
from .simulated import Handmade, at

# ------------------------------------------------------------------------------------------------- meetings


def test_a_barrier_that_some_threads_never_reach() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.when(b.icmp("ult", b.thread, word(b, 32)), b.barrier)
        b.store(b.thread, at(b, y, "i32", b.thread))

    error = fault(body, [("i4", 64)])
    said(error, FaultKind.DIVERGED, "block 0, thread 0: waits at barrier 1, where thread 32 never comes: it has ended")


def test_a_barrier_in_divergent_code() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.choose(b.icmp("ult", b.thread, word(b, 5)), b.barrier, b.barrier)

    said(
        fault(body, [("i4", 64)]),
        FaultKind.DIVERGED,
        "thread 5: waits at barrier 2",
        "thread 0 never comes: it is at barrier 1",
    )


def test_warps_at_different_barriers() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.choose(b.icmp("ult", b.thread, word(b, 32)), b.barrier, b.barrier)

    said(fault(body, [("i4", 64)], blocks=3), FaultKind.DIVERGED, "thread 32: waits at barrier 2", "barrier 1")


def test_a_shuffle_that_some_lanes_never_reach() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.when(
            b.icmp("ne", b.thread, word(b, 7)),
            lambda: b.store(b.shuffle_xor(b.thread, 1), at(b, y, "i32", b.thread)),
        )

    said(
        fault(body, [("i4", 64)]),
        FaultKind.DIVERGED,
        "thread 0: waits at shuffle 1, where thread 7 never comes: it has ended",
    )


def test_lanes_at_a_shuffle_and_a_barrier() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        def vote() -> None:
            b.ballot(b.constant("i1", 1))

        b.choose(b.icmp("eq", b.thread, word(b, 3)), b.barrier, vote)

    said(fault(body, [("i4", 64)]), FaultKind.DIVERGED, "barrier 1", "vote 1")


def test_a_shuffle_in_a_loop_that_lanes_leave_at_different_times() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        end = b.add(b.zext(b.and_(b.thread, word(b, 1)), "i64"), b.constant("i64", 2))
        loop = b.begin_loop(b.constant("i64", 0), end, carried=[b.thread])
        value = b.shuffle_xor(loop.carried[0], 1)
        (value,) = b.end_loop(loop, [value])
        b.store(value, at(b, y, "i32", b.thread))

    said(
        fault(body, [("i4", 32)], threads=32),
        FaultKind.DIVERGED,
        "thread 1: waits at shuffle 1",
        "thread 0",
        "has ended",
    )


def test_a_warp_with_too_few_threads() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.store(b.shuffle_xor(b.thread, 1), at(b, y, "i32", b.thread))

    said(fault(body, [("i4", 40)], threads=40), FaultKind.PARTIAL_WARP, "shuffle 1", "threads 32 to 39 only")


def test_a_barrier_needs_no_whole_warp() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        shared = b.shared("i32", 40)
        b.store(b.thread, at(b, shared, "i32", b.thread))
        b.barrier()
        b.store(b.load("i32", at(b, shared, "i32", b.sub(word(b, 39), b.thread))), at(b, y, "i32", b.thread))

    kernel = Handmade(body, [("i4", 40)], threads=40)
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(0), np.arange(40)[::-1])


# ------------------------------------------------------------------------------------------------- ranges


def scalar_load(b: SimtBuilder, x: Val, y: Val, index: Val) -> None:
    b.store(b.load("f32", at(b, x, "f32", index)), at(b, y, "f32", b.thread))


def scalar_store(b: SimtBuilder, x: Val, y: Val, index: Val) -> None:
    b.store(b.constant("f32", 1.0), at(b, x, "f32", index))


def vector_load(b: SimtBuilder, x: Val, y: Val, index: Val) -> None:
    b.lanes = 4
    value = b.load("f32", at(b, x, "f32", index), vector=True)
    b.lanes = 1
    b.store(b.extract(value, 0), at(b, y, "f32", b.thread))


def vector_store(b: SimtBuilder, x: Val, y: Val, index: Val) -> None:
    b.store(Val("splat (float 1.0)", "f32", 4), at(b, x, "f32", index))


def gather(b: SimtBuilder, x: Val, y: Val, index: Val) -> None:
    b.lanes = 4
    offsets = b.add(b.splat(b.zext(index, "i64")), b.lane_indices())
    value = b.gather("f32", b.element_pointer(x, "f32", offsets))
    b.lanes = 1
    b.store(b.extract(value, 0), at(b, y, "f32", b.thread))


def scatter(b: SimtBuilder, x: Val, y: Val, index: Val) -> None:
    b.lanes = 4
    offsets = b.add(b.splat(b.zext(index, "i64")), b.lane_indices())
    b.scatter(b.constant("f32", 1.0), b.element_pointer(x, "f32", offsets))
    b.lanes = 1


def atomic(b: SimtBuilder, x: Val, y: Val, index: Val) -> None:
    b.atomic("fadd", at(b, x, "f32", index), b.constant("f32", 1.0))


def shared(b: SimtBuilder, x: Val, y: Val, index: Val) -> None:
    b.shared("f32", 16)
    memory = b.shared("f32", 100)
    b.shared("f32", 16)
    b.store(b.constant("f32", 1.0), at(b, memory, "f32", index))


ACCESSES = [scalar_load, scalar_store, vector_load, vector_store, gather, scatter, atomic, shared]


@pytest.mark.parametrize("access", ACCESSES, ids=lambda access: access.__name__)
@pytest.mark.parametrize("index", [100, -1, 98, 2**31 - 1])
def test_an_access_outside_of_its_memory(access: Body, index: int) -> None:
    """100 elements are there: 98 is inside of scalar accesses and outside of those of four."""

    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        wrong = b.icmp("eq", b.thread, word(b, 33))
        # Not a literal, so that the address is made at run time.
        access(b, x, y, b.select(wrong, word(b, index), b.thread))

    lanes = 1 if access in (scalar_load, scalar_store, atomic, shared) else 4
    kernel = Handmade(body, [("f4", 100), ("f4", 64)], results=1)
    if index == 98 and lanes == 1:
        kernel.launch()
        return
    with pytest.raises(KernelFaultError) as found:
        kernel.launch()
    what = "shared memory from byte 64 on (100 x f32)" if access is shared else "buffer 0"
    said(found.value, FaultKind.OUTSIDE, "block 0, thread 33", what, "outside of it")
    first = {98: 400 if access in (gather, scatter) else 392, 100: 400}.get(index)
    assert first is None or f"at byte {first}," in str(found.value)


@pytest.mark.parametrize("is_store", [False, True])
def test_lanes_that_are_masked_off_may_lie_outside(is_store: bool) -> None:
    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        b.lanes = 4
        first = b.mul(b.zext(b.thread, "i64"), b.constant("i64", 4))
        inside = b.icmp("ult", b.add(b.splat(first), b.lane_indices()), b.constant("i64", 98))
        pointer = b.element_pointer(y if is_store else x, "f32", first)
        if is_store:
            b.masked_store(b.splat(b.constant("f32", 1.0)), pointer, inside)
        else:
            b.masked_store(b.masked_load("f32", pointer, inside), b.element_pointer(y, "f32", first), inside)
        b.lanes = 1

    kernel = Handmade(body, [("f4", 98), ("f4", 98)])
    kernel.array(0)[:] = np.arange(98)
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(1), np.ones(98) if is_store else np.arange(98))


def test_a_lane_that_is_not_masked_off_may_not() -> None:
    def body(b: SimtBuilder, x: Val) -> None:
        b.lanes = 4
        first = b.mul(b.zext(b.thread, "i64"), b.constant("i64", 4))
        inside = b.icmp("ult", b.add(b.splat(first), b.lane_indices()), b.constant("i64", 99))
        b.masked_store(b.splat(b.constant("f32", 1.0)), b.element_pointer(x, "f32", first), inside)
        b.lanes = 1

    said(fault(body, [("f4", 98)]), FaultKind.OUTSIDE, "thread 24", "store of buffer 0 at byte 392")


def test_the_first_fault_of_many_is_told_and_the_next_launch_is_well() -> None:
    def body(b: SimtBuilder, x: Val) -> None:
        index = b.add(b.mul(b.block, word(b, 64)), b.thread)
        b.store(b.constant("f32", 1.0), at(b, x, "f32", index))

    kernel = Handmade(body, [("f4", 64)])
    with pytest.raises(KernelFaultError) as found:
        kernel.launch(1000)
    assert found.value.block > 0
    kernel.launch(1)
    assert (kernel.array(0) == 1).all()


def test_an_address_that_is_no_multiple_of_what_is_promised() -> None:
    """A processor would end the process."""

    def body(b: SimtBuilder, x: Val, y: Val) -> None:
        b.lanes = 4
        value = b.load("f32", at(b, x, "f32", b.thread), vector=True, align=16)
        b.lanes = 1
        b.store(b.extract(value, 0), at(b, y, "f32", b.thread))

    error = fault(body, [("f4", 100), ("f4", 64)])
    said(error, FaultKind.MISALIGNED, "thread 1: load of buffer 0 at byte 4, which is no multiple")


def test_an_address_in_shared_memory_too() -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        b.shared("i8", 1)
        memory = b.shared("f32", 256)
        pointer = at(b, memory, "f32", b.add(b.mul(b.thread, word(b, 4)), b.and_(b.thread, word(b, 2))))
        b.store(Val("splat (float 1.0)", "f32", 4), pointer, align=16)

    said(
        fault(body, [("f4", 1)]), FaultKind.MISALIGNED, "thread 2: store of shared memory from byte 16 on", "at byte 40"
    )


# ------------------------------------------------------------------------------------------------- launches


def nothing(b: SimtBuilder, y: Val) -> None:
    b.barrier()


def test_a_launch_that_does_not_fit_the_kernel() -> None:
    kernel = Handmade(nothing, [("i4", 64)])
    address = kernel.memory[0].address
    with pytest.raises(KernelFaultError, match=r"made for blocks of 64 threads .* launched with 128 threads"):
        kernel.module.launch("kernel", [address], 1, 128)
    with pytest.raises(HlojitError, match=r"has 1 buffers, 2 addresses were given"):
        kernel.module.launch("kernel", [address, address], 1, 64)
    with pytest.raises(HlojitError, match=r"buffer 0 lies at 0x\w+, which is no multiple of 256 bytes"):
        kernel.module.launch("kernel", [address + 4], 1, 64)
    with pytest.raises(HlojitError, match=r"2,147,483,648 blocks; a launch has at most 2,147,483,647"):
        kernel.module.launch("kernel", [address], 1 << 31, 64)
    kernel.module.launch("kernel", [address], 0, 64)


@pytest.mark.parametrize("where", ["shared memory", "stack"])
def test_more_memory_than_there_is(where: str) -> None:
    def body(b: SimtBuilder, y: Val) -> None:
        memory = b.shared("i8", 1 << 40) if where == "shared memory" else b.array("i8", 1 << 40)
        b.store(b.trunc(b.thread, "i8"), at(b, memory, "i8", b.thread))
        b.barrier()
        b.store(b.load("i8", at(b, memory, "i8", b.thread)), at(b, y, "i8", b.thread))

    kernel = Handmade(body, [("i1", 64)])
    before = hlojit.runtime.statistics().bytes_in_use
    with pytest.raises(hlojit.ExecutionError, match=r"kernel kernel: the simulator has no memory for [\d,]{17,} bytes"):
        kernel.launch(3)
    assert hlojit.runtime.statistics().bytes_in_use == before


def test_the_message_names_the_instruction_that_the_launch_is() -> None:
    kernel = Handmade(everybody_writes, [("i4", 64)])
    with pytest.raises(KernelFaultError, match=r"kernel kernel \(hlojit.fusion at model.mlir:3:7\), block 0, thread 1"):
        kernel.launch(what="hlojit.fusion at model.mlir:3:7")


def endless(b: SimtBuilder, y: Val) -> None:
    loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", 200), carried=[b.thread])
    value = b.shuffle_xor(loop.carried[0], 1)
    b.end_loop(loop, [value])


def waiting_for_each_other(b: SimtBuilder, y: Val) -> None:
    loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", 1 << 40))
    b.barrier()
    b.end_loop(loop)


@pytest.mark.parametrize(("body", "blocks"), [(endless, 10_000_000), (waiting_for_each_other, 1)])
def test_interrupted_between_blocks_and_at_barriers(body: Body, blocks: int) -> None:
    kernel = Handmade(body, [("i4", 64)])
    before = hlojit.runtime.statistics().bytes_in_use
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            kernel.launch(blocks)
    finally:
        timer.cancel()
    assert hlojit.runtime.statistics().bytes_in_use == before


def test_other_python_threads_run_meanwhile() -> None:
    kernel = Handmade(endless, [("i4", 64)])
    turns = 0
    over = threading.Event()

    def count() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    kernel.launch(300)
    over.set()
    counter.join()
    assert turns > 3

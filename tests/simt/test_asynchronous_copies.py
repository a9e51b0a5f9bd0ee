"""Copies into shared memory that go on while their thread does: what the simulator finds, and what PTX says they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hlojit.cuda.assemblers.assembler import entry_name
from hlojit.cuda.assemblers.choice import NAMES, assembler
from hlojit.cuda.nvptx import SM_80, SM_90, NvptxDialect
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.text import Val
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.simt.amdgpu import GFX90A, AmdgpuDialect
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Dialect, Memory
from hlojit.simt.simulator.faults import KernelFaultError
from hlojit.simt.simulator.records import FaultKind

from ..cuda.ptx_machine import PtxMachine
from .simulated import Handmade, at

THREADS, STEPS, STAGES, LANES = 64, 5, 3, 4
STEP = THREADS * LANES
EXISTING = STEPS * STEP - 30
"""Elements of the source; what lies behind them is copied as zeros."""


def reversed_steps(b: SimtBuilder, source: Val, result: Val, without: str = "", stages: int = STAGES) -> None:
    """Every step of a buffer through shared memory, read by other threads than those that copied it."""
    shared = b.shared("f32", stages * STEP)
    thread = b.zext(b.thread, "i64")
    piece = b.mul(thread, b.constant("i64", LANES))

    def copy(step: Val) -> None:
        place = b.add(b.mul(step, b.constant("i64", STEP)), piece)
        exists = b.icmp("slt", place, b.constant("i64", EXISTING - EXISTING % LANES))
        slot = b.add(b.mul(b.urem(step, b.constant("i64", stages)), b.constant("i64", STEP)), piece)
        there = b.select(exists, place, b.constant("i64", 0))
        b.copy_async("f32", LANES, at(b, shared, "f32", slot), at(b, source, "f32", there), exists)
        if without != "commit":
            b.commit_copies()

    for step in range(STAGES - 1):
        copy(b.constant("i64", step))
    loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", STEPS), 1)
    if without != "wait":
        b.wait_for_copies(STAGES - 2 if without != "enough waiting" else STAGES - 1)
    if without != "barrier":
        b.barrier()
    following = b.add(loop.index, b.constant("i64", STAGES - 1))
    copy(following)
    slot = b.mul(b.urem(loop.index, b.constant("i64", stages)), b.constant("i64", STEP))
    for number in range(LANES):
        element = b.add(thread, b.constant("i64", number * THREADS))
        other = b.sub(b.constant("i64", STEP - 1), element)
        value = b.load("f32", at(b, shared, "f32", b.add(slot, other)))
        place = b.add(b.mul(loop.index, b.constant("i64", STEP)), element)
        b.store(value, at(b, result, "f32", place))
    b.end_loop(loop)


def expected(source: Any) -> Any:
    known = np.where(np.arange(STEPS * STEP) < EXISTING - EXISTING % LANES, source, 0)
    return known.reshape(STEPS, STEP)[:, ::-1].reshape(-1)


def simulated(without: str = "", stages: int = STAGES) -> Handmade:
    count = STEPS * STEP

    def body(b: SimtBuilder, source: Val, result: Val) -> None:
        reversed_steps(b, source, result, without, stages)

    kernel = Handmade(body, [("f4", count), ("f4", count)], threads=THREADS)
    kernel.array(0)[:] = np.arange(1, count + 1)
    return kernel


def test_copies_arrive_when_they_are_waited_for() -> None:
    kernel = simulated()
    kernel.launch()
    np.testing.assert_array_equal(kernel.array(1), expected(kernel.array(0)))


@pytest.mark.parametrize("without", ["wait", "enough waiting", "commit", "barrier"])
def test_what_is_touched_too_early_is_found(without: str) -> None:
    with pytest.raises(KernelFaultError, match=r"races with .* has not waited for it") as found:
        simulated(without).launch()
    assert found.value.kind is FaultKind.SHARED_RACE


def test_a_stage_that_is_still_read_is_not_copied_into() -> None:
    """With one stage less, a step is copied to where others read the one before."""
    with pytest.raises(KernelFaultError, match="asynchronous copy into shared memory"):
        simulated(stages=STAGES - 1).launch()


@pytest.mark.parametrize("waits", [False, True])
def test_a_threads_own_copy_is_not_there_before_it_waits(waits: bool) -> None:
    def body(b: SimtBuilder, source: Val, result: Val) -> None:
        shared = b.shared("i32", 64)
        thread = b.zext(b.thread, "i64")
        b.copy_async("i32", 1, at(b, shared, "i32", thread), at(b, source, "i32", thread))
        b.commit_copies()
        if waits:
            b.wait_for_copies(0)
        b.store(b.load("i32", at(b, shared, "i32", thread)), at(b, result, "i32", thread))

    kernel = Handmade(body, [("i4", 64), ("i4", 64)])
    kernel.array(0)[:] = np.arange(64)
    if waits:
        kernel.launch()
        np.testing.assert_array_equal(kernel.array(1), kernel.array(0))
    else:
        with pytest.raises(KernelFaultError, match="has not waited"):
            kernel.launch()


@pytest.mark.parametrize(
    ("step", "count", "message"),
    [
        (1, 128, "asynchronous copy into shared memory.* at byte 4, which is no multiple"),
        (2, 64, "load of buffer 0.* at byte 256, outside"),
        (2, 128, "asynchronous copy into shared memory.* at byte 400, outside"),
    ],
)
def test_copies_are_checked_like_other_accesses(step: int, count: int, message: str) -> None:
    def body(b: SimtBuilder, source: Val, result: Val) -> None:
        thread = b.zext(b.thread, "i64")
        place = at(b, b.shared("i32", 100), "i32", b.mul(thread, b.constant("i64", step)))
        b.copy_async("i32", 2, place, at(b, source, "i32", b.mul(thread, b.constant("i64", 2))))

    with pytest.raises(KernelFaultError, match=message):
        Handmade(body, [("i4", count), ("i4", 1)]).launch()


def test_too_many_copies_under_way() -> None:
    def body(b: SimtBuilder, source: Val, result: Val) -> None:
        shared = b.shared("i32", 129)
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", 129))
        b.copy_async("i32", 1, at(b, shared, "i32", loop.index), source)
        b.commit_copies()
        b.end_loop(loop)

    with pytest.raises(KernelFaultError, match="128 copies of the thread are under way"):
        Handmade(body, [("i4", 1), ("i4", 1)], threads=1).launch()


def written(dialect: Dialect) -> KernelCode:
    b = SimtBuilder(dialect)
    nbytes = 4 * STEPS * STEP
    with b.kernel("kernel", [Memory("x", nbytes, 4), Memory("y", nbytes, 4, is_written=True)], THREADS) as addresses:
        reversed_steps(b, *addresses)
    return kernel_code(b, (Phase("kernel", 1, 1.0, THREADS, b.shared_bytes),))


@pytest.mark.parametrize("name", NAMES)
def test_ptx(name: str) -> None:
    target = SM_80 if name == "numba" else SM_90
    code = written(NvptxDialect())
    ptx = assembler(name).ptx(code, target)
    assert "cp.async.cg.shared.global" in ptx and "cp.async.wait_group" in ptx
    source = np.arange(1, STEPS * STEP + 1, dtype="f4")
    result = np.zeros_like(source)
    machine = PtxMachine(ptx)
    machine.run(
        entry_name("kernel"),
        blocks=1,
        threads=THREADS,
        buffers=[source, result],
        shared_bytes=code.phases[0].shared_bytes,
    )
    np.testing.assert_array_equal(result, expected(source))


def test_machines_without_them_load_and_store() -> None:
    code = written(AmdgpuDialect(64))
    assert "cp.async" not in code.ir and "addrspace(3)" in code.ir
    from hlojit.machine_code.object_code import compile_to_object

    assert compile_to_object(code.ir, GFX90A, pipeline="threads")

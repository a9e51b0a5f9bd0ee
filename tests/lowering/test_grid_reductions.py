"""Grids of reductions: threads, pieces and chunks follow from shape and types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hlojit.cuda.nvptx import A100, H200
from hlojit.ir.graph import Instruction
from hlojit.ir.types import tensor
from hlojit.lowering.body import Body
from hlojit.lowering.grid_reduction_plan import (
    ColumnGrid,
    RowGrid,
    coalesced,
    grid_row_plan,
    reduction_columns,
    reduction_rows,
    row_kernel_rows,
)
from hlojit.lowering.reduction_plan import make_plan, reductions_of
from hlojit.lowering.row_plan import Loop, RowPlan
from hlojit.lowering.target import X86_64_V3

SHAPES = [(8192, 1024), (1, 2), (3, 5), (7, 31), (2, 50257), (1, 100003), (1000, 127), (70, 128), (1, 1 << 24)]


def reduction(lab: Any, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "f32") -> Instruction:
    def build(b: Any, x: Any) -> Any:
        return b.reduce([x], [b.constant(0, tensor((), dtype))], b.combiner("add", dtype), dimensions=axes)

    found: Instruction = lab.make_fusion(build, tensor(shape, dtype))
    return found


def rows_of(instruction: Instruction, machine: Any = H200) -> RowGrid:
    body = Body.of(instruction)
    return reduction_rows(body, make_plan(body, reductions_of(body)), machine)


def columns_of(instruction: Instruction) -> ColumnGrid:
    body = Body.of(instruction)
    return reduction_columns(body, make_plan(body, reductions_of(body)), H200)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "i8"])
def test_threads_cover_every_row(lab: Any, shape: tuple[int, int], dtype: str) -> None:
    grid = rows_of(reduction(lab, shape, (1,), dtype))
    assert grid.rows * grid.outer * grid.extent == shape[0] * shape[1]
    assert grid.team & (grid.team - 1) == 0 and grid.threads % 32 == 0 and grid.threads <= 1024
    assert grid.extent % grid.lanes == 0 or shape[0] == 1 or grid.reference is not None
    assert grid.chunks * grid.span >= grid.pieces > (grid.chunks - 1) * grid.span
    assert grid.blocks * grid.teams >= grid.rows * grid.chunks
    assert grid.unroll & (grid.unroll - 1) == 0 and grid.unroll <= max(1, grid.rounds)


@pytest.mark.parametrize(
    ("dtype", "lanes"), [("f32", 4), ("bf16", 8), ("f64", 2), ("i8", 16), ("f8E5M2", 16), ("i64", 2)]
)
def test_pieces_are_sixteen_bytes(lab: Any, dtype: str, lanes: int) -> None:
    assert rows_of(reduction(lab, (8192, 1024), (1,), dtype)).lanes == lanes
    assert columns_of(reduction(lab, (8192, 1024), (0,), dtype)).lanes == lanes


def test_short_rows_share_a_warp_and_long_ones_take_several(lab: Any) -> None:
    teams = {extent: rows_of(reduction(lab, (1 << 16, extent), (1,))).team for extent in (4, 32, 128, 1024, 4096)}
    assert teams == {4: 1, 32: 8, 128: 32, 1024: 32, 4096: 128}


def test_few_long_rows_are_cut_into_chunks(lab: Any) -> None:
    grid = rows_of(reduction(lab, (2, 1 << 24), (1,)))
    assert grid.chunks > 100 and grid.chunk % grid.team == 0
    columns = columns_of(reduction(lab, (1 << 20, 12), (0,)))
    assert columns.chunks > 100 and columns.chunks * columns.chunk >= 1 << 20


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_order_does_not_depend_on_how_many_processors_there_are(lab: Any, shape: tuple[int, int]) -> None:
    one = reduction(lab, shape, (1,))
    assert rows_of(one, A100) == rows_of(one, H200)


def test_threads_lie_along_what_is_contiguous_in_memory(lab: Any) -> None:
    def build(b: Any, x: Any) -> Any:
        zero = b.constant(0.0, tensor((), "f32"))
        return b.reduce([b.transpose(x, (1, 0))], [zero], b.combiner("add", "f32"), dimensions=(1,))

    body = Body.of(lab.make_fusion(build, tensor((8192, 1024), "f32")))
    plan = make_plan(body, reductions_of(body))
    assert plan.by_rows and not coalesced(body, plan).by_rows
    grid = reduction_columns(body, coalesced(body, plan), H200)
    assert (grid.extent, grid.reduced, grid.lanes) == (1024, 8192, 4)


def test_unknown_regions_take_one_thread_a_result(lab: Any) -> None:
    def build(b: Any, x: Any) -> Any:
        scalar = tensor((), "f32")
        region = b.region([scalar, scalar], lambda b, a, c: b.subtract(c, a))
        return b.reduce([x], [b.constant(0.0, scalar)], region, dimensions=(1,))

    grid = rows_of(lab.make_fusion(build, tensor((3, 100000), "f32")))
    assert (grid.team, grid.lanes, grid.chunks) == (1, 1, 1)


def softmax(b: Any, x: Any) -> Any:
    type = x.tensor_type
    scalar = tensor((), type.element_type)
    largest = b.reduce([x], [b.constant(-np.inf, scalar)], b.combiner("maximum", type.element_type), dimensions=(1,))
    power = b.exponential(b.subtract(x, b.broadcast_in_dim(largest, type.shape, (0,))))
    total = b.reduce([power], [b.constant(0.0, scalar)], b.combiner("add", type.element_type), dimensions=(1,))
    return b.divide(power, b.broadcast_in_dim(total, type.shape, (0,)))


def test_a_softmax_has_one_plan_for_all_targets(lab: Any) -> None:
    """What is looped and what is kept is decided in one place; only where it is kept differs."""
    body = Body.of(lab.make_fusion(softmax, tensor((4096, 1024), "f32")))
    processor = RowPlan(body, X86_64_V3.machine.second.size // 8)
    grid = grid_row_plan(body, H200)

    def values(loop: Loop) -> Any:
        kept = [key for key in loop.kept if key[0] not in body.parameters]
        fetched = [key for key in loop.fetched if key[0] not in body.parameters]
        return loop.reductions, kept, fetched

    assert [values(loop) for loop in processor.loops] == [values(loop) for loop in grid.loops]
    assert [len(values(loop)[1]) for loop in grid.loops] == [0, 1, 0], "the exponentials are kept"
    assert (processor.rows, processor.extent, processor.stored) == (grid.rows, grid.extent, grid.stored)
    assert [key[0] for key in grid.loops[0].kept] == list(body.parameters), "memory is far: the input is kept as well"


@pytest.mark.parametrize(
    ("extent", "resident"), [(64, True), (1000, True), (8192, True), (16384, True), (32768, False)]
)
def test_rows_stay_in_registers_as_long_as_they_fit(lab: Any, extent: int, resident: bool) -> None:
    body = Body.of(lab.make_fusion(softmax, tensor((1000, extent), "f32")))
    grid = row_kernel_rows(grid_row_plan(body, H200), H200)
    assert grid.resident == resident
    assert not resident or grid.rounds * grid.lanes <= min(24, H200.registers // grid.team - 40)
    assert grid.threads * grid.at_once >= 1024, "half of a multiprocessor's threads have registers"

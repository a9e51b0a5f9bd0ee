"""Kernels of threads that read across the grain: the plan of tiles, and the accesses that it becomes."""

from __future__ import annotations

import re

import hlojit
import pytest
from hlojit.compiler import lower
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.nvptx import SM_90, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.lowering.body import Body
from hlojit.lowering.grid_tile_plan import GridTilePlan, plan_grid_tiles, shared_bytes
from hlojit.lowering.loop_plan import plan_space
from hlojit.lowering.space import Space
from hlojit.lowering.tile_plan import find_tiles
from hlojit.simt.tiles import emit_tiles


def transposed_sum(rows: int, columns: int, dtype: str) -> GridTilePlan:
    source, result = f"tensor<{rows}x{columns}x{dtype}>", f"tensor<{columns}x{rows}x{dtype}>"
    text = f"""
    func.func @main(%x: {source}, %y: {result}) -> {result} {{
      %0 = stablehlo.transpose %x, dims = [1, 0] : ({source}) -> {result}
      %1 = stablehlo.add %0, %y : {result}
      return %1 : {result}
    }}"""
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    (fusion,) = [each for each in module.walk() if each.name == "hlojit.fusion"]
    body = Body.of(fusion)
    space, facts = plan_space(body, Space.of_shape(body.roots[0].tensor_type.shape), body.roots)
    found = find_tiles(space, facts)
    assert found is not None and SM_90.grid is not None
    plan = plan_grid_tiles(body, SM_90.grid, space, facts, found)
    assert plan is not None
    return plan


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 4), ("bf16", 8), ("i8", 16), ("f64", 2)])
def test_both_sides_take_sixteen_bytes_at_once(dtype: str, lanes: int) -> None:
    plan = transposed_sum(4096, 8192, dtype)
    assert plan.load_lanes == (lanes,) and plan.lanes == lanes
    assert plan.blocks == 4096 * 8192 // plan.side**2 and plan.is_whole


def test_the_operand_that_is_transposed_is_not_overwritten() -> None:
    assert transposed_sum(4096, 4096, "f32").in_place == ((1, 0),)


def test_extents_that_are_no_whole_pieces_are_read_in_narrower_ones() -> None:
    plan = transposed_sum(1000, 333, "f32")
    assert plan.load_lanes == (1,) and plan.lanes == 4 and not plan.is_whole


def test_tiles_fit_into_shared_memory() -> None:
    plan = transposed_sum(4096, 4096, "f64")
    assert shared_bytes(plan.loads, plan.side) == 64 * 65 * 8


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "f64"])
def test_tiles_become_wide_accesses_around_one_barrier(dtype: str) -> None:
    ptx = assembler("llvm").ptx(emit_tiles(transposed_sum(4096, 8192, dtype), SM_90, NvptxDialect(), "kernel"), SM_90)
    assert len(re.findall(r"bar\.sync", ptx)) == 1 and "call" not in ptx and ".local" not in ptx
    wide = r"global\.(v4\.b32|v2\.b64)"
    assert re.search(f"ld.{wide}", ptx) and re.search(f"st.{wide}", ptx)
    assert not re.search(r"(ld|st)\.global\.(b8|b16|b32|b64)\b", ptx), "nothing narrower"

"""Elementwise kernels of threads: the plan of the grid, and the PTX that LLVM's own target makes of it."""

from __future__ import annotations

import re

import hlojit
import pytest
from hlojit.compiler import lower
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.nvptx import SM_80, SM_90, SM_100, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.lowering.body import Body
from hlojit.lowering.grid_plan import GridPlan, plan_grid
from hlojit.lowering.loop_plan import plan_space
from hlojit.lowering.space import Space
from hlojit.lowering.target import Target
from hlojit.simt.elementwise import emit_elementwise


def fused(text: str) -> Body:
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    (fusion,) = [each for each in module.walk() if each.name == "hlojit.fusion"]
    return Body.of(fusion)


def chain(shape: str, dtype: str = "f32") -> Body:
    kind = f"tensor<{shape}x{dtype}>"
    return fused(f"""
    func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{
      %0 = stablehlo.multiply %x, %y : {kind}
      %1 = stablehlo.add %0, %x : {kind}
      return %1 : {kind}
    }}""")


def plan(body: Body, target: Target = SM_90) -> GridPlan:
    assert target.grid is not None
    return plan_grid(body, target.grid, *plan_space(body, Space.of_shape(body.roots[0].tensor_type.shape), body.roots))


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 4), ("bf16", 8), ("f64", 2), ("i8", 16)])
def test_a_thread_takes_sixteen_bytes_at_once(dtype: str, lanes: int) -> None:
    made = plan(chain("8192x8192", dtype))
    assert made.lanes == lanes and made.threads == 256
    assert made.blocks * made.threads * made.unroll * made.lanes == 8192 * 8192


def test_rows_that_are_no_whole_pieces_are_taken_as_one() -> None:
    row = "tensor<8191xf32>", "tensor<8192x8191xf32>"
    body = fused(f"""
    func.func @main(%x: {row[1]}, %y: {row[0]}) -> {row[1]} {{
      %0 = stablehlo.broadcast_in_dim %y, dims = [1] : ({row[0]}) -> {row[1]}
      %1 = stablehlo.add %x, %0 : {row[1]}
      return %1 : {row[1]}
    }}""")
    made = plan(body)
    assert (made.rows, made.extent, made.lanes, made.tail) == (1, 8192 * 8191, 4, 0)


def test_one_row_keeps_wide_pieces_and_its_last_elements_are_single() -> None:
    made = plan(chain("100000007"))
    assert (made.lanes, made.tail, made.units) == (4, 3, 25000001 + 3)


def test_a_small_grid_fills_the_machine_before_it_fills_threads() -> None:
    made = plan(chain("64x128"))
    assert made.lanes == made.unroll == 1 and made.blocks == 32


@pytest.mark.parametrize("target", [SM_80, SM_90, SM_100], ids=lambda target: target.cpu)
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8E4M3FN", "i64", "i32", "i8"])
def test_pieces_become_wide_accesses(target: Target, dtype: str) -> None:
    body = chain("100000007", dtype)
    ptx = assembler("llvm").ptx(emit_elementwise(body, target, NvptxDialect(), "kernel"), target)
    assert f".target {target.cpu}" in ptx
    assert not re.search(r"\bcall\b", ptx), "nobody defines what would be called"
    assert ".local" not in ptx, "nothing lies in memory that could be in registers"
    assert re.search(r"ld\.global\.(v4\.b32|v2\.b64)", ptx) and re.search(r"st\.global\.(v4\.b32|v2\.b64)", ptx)
    assert "fma" not in ptx or dtype not in ("f32", "f64"), "a product and a sum round twice"

"""sort on machines with threads: tiles, merging passes, and the code that they become."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.nvptx import SM_90, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.graph import Instruction
from hlojit.lowering.sort_plan import GridSortPlan
from hlojit.simt.kernels import emit_kernel

Array = np.ndarray[Any, Any]


def sort(shape: str, dimension: int) -> Instruction:
    kinds = f"tensor<{shape}xf32>", f"tensor<{shape}xi32>"
    text = f"""
    func.func @main(%x: {kinds[0]}, %i: {kinds[1]}) -> ({kinds[0]}, {kinds[1]}) {{
      %0:2 = "stablehlo.sort"(%x, %i) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
        %1 = stablehlo.compare LT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }}) {{dimension = {dimension} : i64, is_stable = true}} : ({kinds[0]}, {kinds[1]}) -> ({kinds[0]}, {kinds[1]})
      return %0#0, %0#1 : {kinds[0]}, {kinds[1]}
    }}"""
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    return next(iter(module.main.body))


def plan(shape: str, dimension: int) -> GridSortPlan:
    assert SM_90.grid is not None
    return GridSortPlan.of(sort(shape, dimension), SM_90.grid)


def test_short_lines_are_one_tile_and_need_no_workspace() -> None:
    made = plan("100x700", 1)
    assert (made.tile, made.tiles, made.widths, made.workspace_bytes) == (1024, 1, (), 0)
    assert plan("3x5", 1).tile == 8 and plan("3x5", 1).threads == 32


def test_long_lines_are_merged_back_and_forth() -> None:
    made = plan("50000x3", 0)
    assert made.widths == (1024, 2048, 4096, 8192, 16384, 32768) and made.inner == 3
    assert made.workspace_bytes >= 2 * 2 * 150000 * 4
    assert plan("2000", 0).workspace_bytes < 2 * 2 * 2000 * 4, "one pass needs one area"


@pytest.mark.parametrize(("shape", "dimension"), [("100x700", 1), ("50000x3", 0)])
def test_passes_become_code_without_calls_and_stack(shape: str, dimension: int) -> None:
    code = emit_kernel(sort(shape, dimension), SM_90, NvptxDialect(), "kernel")
    ptx = assembler("llvm").ptx(code, SM_90)
    assert ptx.count(".entry") == len(code.phases) == 1 + 3 * len(plan(shape, dimension).widths)
    assert "call" not in ptx and ".local" not in ptx


def keys_of(text: str, x: Array, monkeypatch: pytest.MonkeyPatch) -> Array:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    return np.asarray(hlojit.compile(text, backend="cuda")(x))


def compared(length: int, lines: int, direction: str) -> str:
    kind = f"tensor<{lines}x{length}xf32>"
    return f"""
    func.func @main(%x: {kind}) -> {kind} {{
      %0 = "stablehlo.sort"(%x) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.compare {direction}, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }}) {{dimension = 1 : i64, is_stable = true}} : ({kind}) -> {kind}
      return %0 : {kind}
    }}"""


@pytest.mark.parametrize(("length", "lines"), [(1, 3), (2, 5), (31, 4), (1024, 2), (1025, 3), (5000, 2)])
def test_lines_are_sorted(length: int, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(length).integers(-50, 50, (lines, length)).astype("f4")
    np.testing.assert_array_equal(keys_of(compared(length, lines, "LT"), x, monkeypatch), np.sort(x, axis=1))


@pytest.mark.parametrize("length", [200, 1024, 4999])
@pytest.mark.parametrize("direction", ["LT", "GE", "NE", "EQ"])
def test_a_comparator_that_is_no_order_loses_nothing(
    length: int, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(length)
    x = random.standard_normal((2, length)).astype("f4")
    x[random.random(x.shape) < 0.1] = np.nan
    x.view("u4")[np.isnan(x)] += random.integers(0, 1 << 20, int(np.isnan(x).sum())).astype("u4")
    found = keys_of(compared(length, 2, direction), x, monkeypatch)
    np.testing.assert_array_equal(np.sort(found.view("u4"), axis=1), np.sort(x.view("u4"), axis=1))


@pytest.mark.parametrize(("length", "lines"), [(16, 3), (1000, 2), (2047, 1), (2048, 2), (2050, 3)])
def test_pieces_of_lines_that_are_merged(length: int, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Carried operands of one and of eight bytes; lines that do and do not begin with whole pieces."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    kinds = [f"tensor<{lines}x{length}x{element}>" for element in ("f32", "i1", "f64", "i8")]
    text = f"""
    func.func @main(%x: {kinds[0]}, %y: {kinds[1]}, %z: {kinds[2]}, %w: {kinds[3]}) -> ({", ".join(kinds)}) {{
      %0:4 = "stablehlo.sort"(%x, %y, %z, %w) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i1>, %d: tensor<i1>, %e: tensor<f64>, %f: tensor<f64>,
           %g: tensor<i8>, %h: tensor<i8>):
        %1 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }}) {{dimension = 1 : i64, is_stable = true}} : ({", ".join(kinds)}) -> ({", ".join(kinds)})
      return %0#0, %0#1, %0#2, %0#3 : {", ".join(kinds)}
    }}"""
    random = np.random.default_rng(length)
    arrays = [random.integers(-5, 6, (lines, length)).astype(dtype) for dtype in ("f4", "?", "f8", "i1")]
    order = np.argsort(arrays[0], axis=1, kind="stable")
    for found, array in zip(hlojit.compile(text, backend="cuda")(*arrays), arrays):
        np.testing.assert_array_equal(found, np.take_along_axis(array, order, 1))

"""Pieces whose elements come from several places: concatenated, padded, sliced."""

from __future__ import annotations

import re

import hlojit
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.nvptx import SM_90, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.simt.kernels import emit_kernel


def concatenated(rows: int, first: int, second: int) -> str:
    x, y, z = (f"tensor<{rows}x{columns}xf32>" for columns in (first, second, first + second))
    return f"""
    func.func @main(%x: {x}, %y: {y}) -> {z} {{
      %0 = stablehlo.concatenate %x, %y, dim = 1 : ({x}, {y}) -> {z}
      return %0 : {z}
    }}"""


def padded(rows: int, columns: int) -> str:
    x, y = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows + 4}x{columns + 8}xf32>"
    return f"""
    func.func @main(%x: {x}, %z: tensor<f32>) -> {y} {{
      %0 = stablehlo.pad %x, %z, low = [1, 4], high = [3, 4], interior = [0, 0] : ({x}, tensor<f32>) -> {y}
      return %0 : {y}
    }}"""


def test_a_piece_that_comes_from_one_place_is_one_access() -> None:
    module = lower(hlojit.parse(concatenated(4096, 1024, 1024)), registry().backend("cpu"), CompileOptions())
    ptx = assembler("llvm").ptx(emit_kernel(next(iter(module.main.body)), SM_90, NvptxDialect(), "kernel"), SM_90)
    assert "ld.global.v4.b32" in ptx and not re.search(r"ld\.global\.b32", ptx)


@pytest.mark.parametrize(
    "text",
    [concatenated(300, 1024, 1024), concatenated(300, 1026, 1022), concatenated(300, 1023, 1026), padded(600, 500)],
    ids=["even", "across pieces", "odd", "padded"],
)
def test_pieces_of_several_places(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    executable = hlojit.compile(text, backend="cuda")
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(each.shape).astype("f4") for each in executable.input_types)
    if y.ndim:
        expected = np.concatenate([x, y], axis=1)
    else:
        expected = np.pad(x, ((1, 3), (4, 4)), constant_values=y)
    np.testing.assert_array_equal(np.asarray(executable(x, y)), expected)

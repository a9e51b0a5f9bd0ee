"""Matrix instructions as both assemblers write them, interpreted: small whole numbers, whose sums are exact in any order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from .test_ptx_meaning import ASSEMBLERS, DTYPES, interpreted


@ASSEMBLERS
@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("bf16", "bf16", "f32"),
        ("f16", "f16", "f16"),
        ("f16", "bf16", "f32"),
        ("i8", "i8", "i32"),
        ("ui8", "ui8", "ui32"),
        ("f8E4M3FN", "bf16", "f32"),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_products(name: str, left: str, right: str, result: str, transposed: bool) -> None:
    m, n, k = 70, 90, 50
    a, b = (f"{k}x{m}", f"{n}x{k}") if transposed else (f"{m}x{k}", f"{k}x{n}")
    dims = "[0] x [1]" if transposed else "[1] x [0]"
    text = f"""
    func.func @main(%x: tensor<{a}x{left}>, %y: tensor<{b}x{right}>) -> tensor<{m}x{n}x{result}> {{
      %0 = stablehlo.dot_general %x, %y, contracting_dims = {dims}
        : (tensor<{a}x{left}>, tensor<{b}x{right}>) -> tensor<{m}x{n}x{result}>
      return %0 : tensor<{m}x{n}x{result}>
    }}"""
    draw = np.random.default_rng(9)
    low = 0 if right.startswith("ui") else -7
    shapes = [tuple(map(int, each.split("x"))) for each in (a, b)]
    x, y = (
        draw.integers(low, 7, shape).astype(DTYPES.get(element, ml_dtypes.bfloat16))
        for shape, element in zip(shapes, (left, right))
    )
    interpreted(text, name, x, y)


@ASSEMBLERS
def test_a_convolution(name: str) -> None:
    text = """
    func.func @main(%x: tensor<2x7x6x16xbf16>, %y: tensor<3x3x16x24xbf16>) -> tensor<2x7x6x24xf32> {
      %0 = stablehlo.convolution(%x, %y) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<2x7x6x16xbf16>, tensor<3x3x16x24xbf16>) -> tensor<2x7x6x24xf32>
      return %0 : tensor<2x7x6x24xf32>
    }"""
    draw = np.random.default_rng(9)
    interpreted(
        text,
        name,
        *(draw.integers(-4, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((2, 7, 6, 16), (3, 3, 16, 24))),
    )

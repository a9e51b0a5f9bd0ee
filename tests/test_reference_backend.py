"""The reference back end through the driver: results cross the boundary in every element type."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest

SMALL = {"i2": ml_dtypes.int2, "ui2": ml_dtypes.uint2, "i4": ml_dtypes.int4, "ui4": ml_dtypes.uint4}
BACKENDS = ("reference", "cpu")


def wrapped(number: int, element: str) -> int:
    bits = int(element.lstrip("ui"))
    number &= (1 << bits) - 1
    return number - (1 << bits) if element[0] == "i" and number >> (bits - 1) else number


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("element", SMALL)
@pytest.mark.parametrize(
    ("mnemonic", "function"),
    [
        ("add", operator.add),
        ("subtract", operator.sub),
        ("multiply", operator.mul),
        ("maximum", max),
        ("xor", operator.xor),
    ],
)
def test_integers_of_less_than_a_byte(
    mnemonic: str, function: Callable[[int, int], int], element: str, backend: str
) -> None:
    numbers = [wrapped(code, element) for code in range(1 << int(element.lstrip("ui")))]
    pairs = [(a, b) for a in numbers for b in numbers]
    text = f"""
    func.func @main(%x: tensor<{len(pairs)}x{element}>, %y: tensor<{len(pairs)}x{element}>)
        -> (tensor<{len(pairs)}x{element}>, tensor<{element}>) {{
      %0 = stablehlo.{mnemonic} %x, %y : tensor<{len(pairs)}x{element}>
      %c = stablehlo.constant dense<{numbers[-1]}> : tensor<{element}>
      return %0, %c : tensor<{len(pairs)}x{element}>, tensor<{element}>
    }}
    """
    x, y = (np.array(side, SMALL[element]) for side in zip(*pairs))
    result, constant = hlojit.compile(text, backend=backend)(x, y)
    assert result.dtype == constant.dtype == np.dtype(SMALL[element])
    assert result.astype(int).tolist() == [wrapped(function(a, b), element) for a, b in pairs]
    assert int(constant) == numbers[-1]


# gather without coordinates: every slice begins at the operand's first element


def gather(operand: str, indices: str, result: str, numbers: str, sizes: str) -> str:
    return f"""
    func.func @main(%x: {operand}, %i: {indices}) -> {result} {{
      %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<{numbers}>,
        slice_sizes = array<i64: {sizes}>}}> : ({operand}, {indices}) -> {result}
      return %0 : {result}
    }}
    """


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_gather_by_an_empty_index_vector(count: int, backend: str) -> None:
    x = np.arange(12, dtype="f4").reshape(4, 3)
    cases: list[tuple[str, Any]] = [
        (
            gather(
                "tensor<4x3xf32>",
                f"tensor<{count}x0xi32>",
                f"tensor<{count}x2x3xf32>",
                "offset_dims = [1, 2], index_vector_dim = 1",
                "2, 3",
            ),
            np.broadcast_to(x[:2], (count, 2, 3)),
        ),
        (
            gather(
                "tensor<4x3xf32>",
                f"tensor<{count}x0xi32>",
                f"tensor<{count}xf32>",
                "collapsed_slice_dims = [0, 1], index_vector_dim = 1",
                "1, 1",
            ),
            np.broadcast_to(x[0, 0], (count,)),
        ),
    ]
    for text, expected in cases:
        np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(x, np.zeros((count, 0), "i4")), expected)

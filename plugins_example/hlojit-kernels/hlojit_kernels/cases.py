"""How hlojit's conformance kit tries what the package brings: shapes, configurations, programs, and what is right by NumPy."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir import TensorType, tensor
from hlojit.testing import Case, Tolerance

from hlojit_kernels.foreign import smoothed
from hlojit_kernels.sqlite import SQLITE_CALLS

Array = np.ndarray[Any, Any]

SOFTMAX_TEXT = """
!matrix = tensor<64x100xf32>
!column = tensor<64xf32>
func.func @main(%x: !matrix) -> !matrix {
  %0 = stablehlo.composite "kernels.softmax" %x {decomposition = @softmax} : (!matrix) -> !matrix
  return %0 : !matrix
}
func.func private @softmax(%x: !matrix) -> !matrix {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (!matrix, tensor<f32>) -> !column
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (!column) -> !matrix
  %2 = stablehlo.subtract %x, %1 : !matrix
  %3 = stablehlo.exponential %2 : !matrix
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : (!matrix, tensor<f32>) -> !column
  %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (!column) -> !matrix
  %6 = stablehlo.divide %3, %5 : !matrix
  return %6 : !matrix
}
"""

HAMMING_TEXT = """
!words = tensor<64x5xi64>
!counts = tensor<64xi64>
func.func @main(%x: !words, %y: !words) -> !counts {
  %0 = stablehlo.composite "kernels.hamming" %x, %y {decomposition = @hamming} : (!words, !words) -> !counts
  return %0 : !counts
}
func.func private @hamming(%x: !words, %y: !words) -> !counts {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %0 = stablehlo.xor %x, %y : !words
  %1 = stablehlo.popcnt %0 : !words
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1] : (!words, tensor<i64>) -> !counts
  return %2 : !counts
}
"""

ATTENTION_TEXT = """
!part = tensor<24x16xf32>
!scores = tensor<24x24xf32>
!column = tensor<24xf32>
func.func @main(%q: !part, %k: !part, %v: !part) -> !part {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %four = stablehlo.constant dense<4.0> : !scores
  %0 = stablehlo.dot_general %q, %k, contracting_dims = [1] x [1] : (!part, !part) -> !scores
  %1 = stablehlo.divide %0, %four : !scores
  %2 = stablehlo.reduce(%1 init: %low) applies stablehlo.maximum across dimensions = [1] : (!scores, tensor<f32>) -> !column
  %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (!column) -> !scores
  %4 = stablehlo.subtract %1, %3 : !scores
  %5 = stablehlo.exponential %4 : !scores
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [1] : (!scores, tensor<f32>) -> !column
  %7 = stablehlo.broadcast_in_dim %6, dims = [0] : (!column) -> !scores
  %8 = stablehlo.divide %5, %7 : !scores
  %9 = stablehlo.dot_general %8, %v, contracting_dims = [1] x [0] : (!scores, !part) -> !part
  return %9 : !part
}
"""


def ordinary(types: Sequence[TensorType], random: np.random.Generator) -> list[Array]:
    """Numbers without infinities, which lie in no bin and whose means are none."""
    return [random.standard_normal(each.shape, "f4") for each in types]


def quantized(x: Array, *, step: float, levels: int) -> tuple[Array, Array]:
    """By NumPy."""
    code = np.where(np.isnan(x), 0.0, np.clip(np.rint(x / np.float64(step)), 0, levels - 1))
    return code, x - code * step


def counted(x: Array, *, bins: int, low: float, high: float) -> Array:
    """By NumPy, which puts numbers beside an edge where their quotient says, too."""
    return np.histogram(x, bins, (low, high))[0]


def normed(x: Array, weight: Array, *, epsilon: float) -> Array:
    """By NumPy, in double precision."""
    wide = x.astype("f8")
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * weight


SQLITE = [
    Case(
        "kernels.sqlite",
        operands=["f64"],
        shapes=[(17,), (1,)],
        config={"query": "select c0 * 2 from t order by rowid", "types": "f8"},
        arguments=lambda types, random: [random.standard_normal(each.shape) for each in types],
        oracle=lambda x: 2 * x,
    ),
    Case("kernels.sqlite_version", operands=[[]], shapes=[[]], results=[tensor((), "i32")]),
]

CASES = [
    Case(
        "kernels.quantize",
        operands=["f32"],
        results=["i32", "f32"],
        config={"step": 0.5, "levels": 8},
        arguments=ordinary,
        oracle=quantized,
    ),
    Case(
        "kernels.polynomial",
        operands=["f32"],
        config={"coefficients": [0.5, 0.0, -1.0]},
        arguments=ordinary,
        oracle=lambda x, *, coefficients: np.polyval(coefficients, x.astype("f8")),
        tolerance=Tolerance(ulps=4, zeros=True, scaled=True),
    ),
    Case(
        "kernels.histogram",
        operands=["f32"],
        shapes=[(65,), (5, 7), (0,), ()],
        config={"bins": 8, "low": -2.0, "high": 2.0},
        arguments=ordinary,
        oracle=counted,
    ),
    Case(
        "kernels.crc32",
        operands=["ui8"],
        shapes=[(5, 7), (1, 64), (0, 3), (3, 0)],
        oracle=lambda rows: np.array([zlib.crc32(row.tobytes()) for row in rows], np.uint32),
    ),
    Case(
        "kernels.rms_norm",
        operands=["f32", "f32"],
        shapes=[[(5, 7), (7,)], [(2, 3, 17), (17,)], [(1, 1), (1,)]],
        config={"epsilon": 1e-3},
        arguments=ordinary,
        oracle=normed,
    ),
    Case("kernels.bessel_j0", operands=["f32"]),
    Case(
        "kernels.swap_bytes",
        operands=["ui8"],
        shapes=[(64,), (3, 2), (0,)],
        oracle=lambda x: x.reshape(-1, 2)[:, ::-1].reshape(x.shape),
    ),
    Case(
        "kernels.smooth",
        operands=["f32"],
        shapes=[(65,), (5, 7), (3, 0)],
        config={"decay": 0.5},
        oracle=lambda x: smoothed(x, 0.5),
    ),
    Case(
        "kernels.rotate",
        backends=["reference"],
        operands=["f32"],
        shapes=[(65,), (1000,)],
        oracle=lambda x: np.roll(x, 1),
    ),
    *(SQLITE if SQLITE_CALLS else []),
    Case("kernels.attention", programs=[ATTENTION_TEXT], isolate=False),
    Case("kernels.softmax", programs=[SOFTMAX_TEXT]),
    Case("kernels.hamming", programs=[HAMMING_TEXT]),
    Case("kernels.cuda_softmax", programs=[SOFTMAX_TEXT]),
]

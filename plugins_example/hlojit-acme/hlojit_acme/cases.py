"""What hlojit's conformance kit is told: programs with what a kernel takes over, and what a pass rewrites."""

from __future__ import annotations

from hlojit.testing import Case

SOFTMAX_TEXT = """
!matrix = tensor<8x16xf32>
!column = tensor<8xf32>
func.func @main(%x: !matrix) -> !matrix {
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

DIVISION_TEXT = """
func.func @main(%x: tensor<5x7xf32>, %y: tensor<3xf64>) -> (tensor<5x7xf32>, tensor<5x7xf32>, tensor<3xf64>) {
  %eighth = stablehlo.constant dense<-0.125> : tensor<f32>
  %spread = stablehlo.broadcast_in_dim %eighth, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
  %three = stablehlo.constant dense<3.0> : tensor<5x7xf32>
  %two = stablehlo.constant dense<2.0> : tensor<3xf64>
  %0 = stablehlo.divide %x, %spread : tensor<5x7xf32>
  %1 = stablehlo.divide %x, %three : tensor<5x7xf32>
  %2 = stablehlo.divide %y, %two : tensor<3xf64>
  return %0, %1, %2 : tensor<5x7xf32>, tensor<5x7xf32>, tensor<3xf64>
}
"""

PRODUCT_TEXTS = [
    f"""
func.func @main(%x: tensor<{left}xf32>, %y: tensor<{right}xf32>) -> tensor<{result}xf32> {{
  %0 = stablehlo.dot_general %x, %y, {dimensions} : (tensor<{left}xf32>, tensor<{right}xf32>) -> tensor<{result}xf32>
  return %0 : tensor<{result}xf32>
}}
"""
    for left, right, result, dimensions in (
        ("5x7", "7x3", "5x3", "contracting_dims = [1] x [0]"),
        ("16x32", "32x16", "16x16", "contracting_dims = [1] x [0]"),
        ("17x33", "17x1", "33x1", "contracting_dims = [0] x [0]"),
        ("40", "40x20", "20", "contracting_dims = [0] x [0]"),
        ("3x5x7", "3x7x4", "3x5x4", "batching_dims = [0] x [0], contracting_dims = [2] x [1]"),
    )
]
"""Products beside whole tiles, of vectors, with batches, and transposed ones."""

CASES = [
    Case("acme.softmax", programs=[SOFTMAX_TEXT]),
    Case("acme-division-by-constant", programs=[DIVISION_TEXT]),
    Case("acme-tile", programs=PRODUCT_TEXTS),
]

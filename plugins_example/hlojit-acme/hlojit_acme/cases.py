"""What hlojit's conformance kit is told: a program with the softmax that the kernel takes over."""

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

CASES = [Case("acme.softmax", programs=[SOFTMAX_TEXT])]

"""Programs in which attributes and sizes decide: what ignores one of them, or is for the usual sizes only, shows here.

Arrays are square where a wrong dimension would have another type otherwise; what is compared are numbers of which some are equal.
"""

from __future__ import annotations

from typing import Final

_DIRECTIONS: Final = ("EQ", "NE", "LT", "LE", "GT", "GE")
_COMPARED: Final = "(tensor<9x9x{0}>, tensor<9x9x{0}>) -> tensor<9x9xi1>"


def _comparisons(element: str) -> str:
    """Of a square with itself transposed: equal on the diagonal."""
    kind = f"tensor<9x9x{element}>"
    lines = [f"  %{name} = stablehlo.compare {name}, %x, %t : {_COMPARED.format(element)}" for name in _DIRECTIONS]
    values, types = ", ".join(f"%{name}" for name in _DIRECTIONS), ", ".join(["tensor<9x9xi1>"] * len(_DIRECTIONS))
    return "\n".join(
        [
            f"func.func @main(%x: {kind}) -> ({types}) {{",
            f"  %t = stablehlo.transpose %x, dims = [1, 0] : ({kind}) -> {kind}",
            *lines,
            f"  return {values} : {types}",
            "}",
        ]
    )


ATTRIBUTES: Final[dict[str, str]] = {
    "attributes: comparisons": _comparisons("f32"),
    "attributes: comparisons of integers": _comparisons("i32"),
    "attributes: dimensions of squares": """
func.func @main(%x: tensor<6x6xf32>, %v: tensor<6xf32>) -> (tensor<6x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>,
    tensor<6xf32>, tensor<6xf32>, tensor<6x6xf32>, tensor<6x6xf32>) {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %rows = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<6xf32>) -> tensor<6x6xf32>
  %columns = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<6xf32>) -> tensor<6x6xf32>
  %turned = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %0 = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [0] : (tensor<6x6xf32>, tensor<f32>) -> tensor<6xf32>
  %1 = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1] : (tensor<6x6xf32>, tensor<f32>) -> tensor<6xf32>
  %up = stablehlo.reverse %x, dims = [0] : tensor<6x6xf32>
  %left = stablehlo.reverse %x, dims = [1] : tensor<6x6xf32>
  return %rows, %columns, %turned, %t, %0, %1, %up, %left : tensor<6x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6x6xf32>, tensor<6x6xf32>
}""",
    "attributes: counts and orders": """
func.func @main(%x: tensor<6x6xi32>) -> (tensor<6x6xi32>, tensor<6x6xi32>, tensor<6x6xi32>, tensor<6x6xi32>) {
  %i = stablehlo.iota dim = 0 : tensor<6x6xi32>
  %j = stablehlo.iota dim = 1 : tensor<6x6xi32>
  %a = stablehlo.subtract %x, %i : tensor<6x6xi32>
  %b = stablehlo.subtract %x, %j : tensor<6x6xi32>
  %down = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %c = stablehlo.compare LT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<6x6xi32>) -> tensor<6x6xi32>
  %along = "stablehlo.sort"(%x) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %c = stablehlo.compare GT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<6x6xi32>) -> tensor<6x6xi32>
  return %a, %b, %down, %along : tensor<6x6xi32>, tensor<6x6xi32>, tensor<6x6xi32>, tensor<6x6xi32>
}""",
    "attributes: strides and edges": """
func.func @main(%x: tensor<7x12xf32>, %u: tensor<2x3xf32>, %z: tensor<f32>, %i: tensor<i32>) -> (tensor<3x4xf32>, tensor<12x12xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<7x12xf32>) {
  %large = stablehlo.constant dense<100> : tensor<i32>
  %below = stablehlo.constant dense<-3> : tensor<i32>
  %s = stablehlo.slice %x [1:7:2, 0:12:3] : (tensor<7x12xf32>) -> tensor<3x4xf32>
  %p = stablehlo.pad %x, %z, low = [-1, 2], high = [1, -2], interior = [1, 0] : (tensor<7x12xf32>, tensor<f32>) -> tensor<13x12xf32>
  %c = stablehlo.slice %p [1:13, 0:12] : (tensor<13x12xf32>) -> tensor<12x12xf32>
  %d = stablehlo.dynamic_slice %x, %large, %below, sizes = [2, 3] : (tensor<7x12xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
  %e = stablehlo.dynamic_slice %x, %i, %i, sizes = [2, 3] : (tensor<7x12xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
  %f = stablehlo.dynamic_update_slice %x, %u, %i, %large : (tensor<7x12xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<7x12xf32>
  return %s, %c, %d, %e, %f : tensor<3x4xf32>, tensor<12x12xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<7x12xf32>
}""",
    "attributes: windows": """
func.func @main(%x: tensor<8x9xf32>) -> (tensor<4x3xf32>, tensor<4x9xf32>) {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %a = "stablehlo.reduce_window"(%x, %least) <{window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 2, 3>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %m = stablehlo.maximum %p, %q : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<8x9xf32>, tensor<f32>) -> tensor<4x3xf32>
  %b = "stablehlo.reduce_window"(%x, %least) <{window_dimensions = array<i64: 3, 1>, window_dilations = array<i64: 2, 1>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %m = stablehlo.maximum %p, %q : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<8x9xf32>, tensor<f32>) -> tensor<4x9xf32>
  return %a, %b : tensor<4x3xf32>, tensor<4x9xf32>
}""",
    "attributes: sizes of one": """
func.func @main(%x: tensor<1x5xf32>, %y: tensor<5x1xf32>, %z: tensor<1x1xf32>) -> (tensor<5x5xf32>, tensor<1x5xf32>, tensor<5x1xf32>, tensor<1x1xf32>, tensor<1xf32>, tensor<2x5xf32>) {
  %zero = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %a = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<1x5xf32>) -> tensor<5x5xf32>
  %b = stablehlo.broadcast_in_dim %y, dims = [0, 1] : (tensor<5x1xf32>) -> tensor<5x5xf32>
  %c = stablehlo.subtract %a, %b : tensor<5x5xf32>
  %t = stablehlo.transpose %y, dims = [1, 0] : (tensor<5x1xf32>) -> tensor<1x5xf32>
  %d = stablehlo.subtract %x, %t : tensor<1x5xf32>
  %u = stablehlo.reshape %x : (tensor<1x5xf32>) -> tensor<5x1xf32>
  %e = stablehlo.divide %y, %u : tensor<5x1xf32>
  %first = stablehlo.slice %x [0:1, 4:5] : (tensor<1x5xf32>) -> tensor<1x1xf32>
  %f = stablehlo.subtract %z, %first : tensor<1x1xf32>
  %g = stablehlo.reduce(%f init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<1x1xf32>, tensor<f32>) -> tensor<1xf32>
  %h = stablehlo.concatenate %x, %d, dim = 0 : (tensor<1x5xf32>, tensor<1x5xf32>) -> tensor<2x5xf32>
  return %c, %d, %e, %f, %g, %h : tensor<5x5xf32>, tensor<1x5xf32>, tensor<5x1xf32>, tensor<1x1xf32>, tensor<1xf32>, tensor<2x5xf32>
}""",
    "attributes: scalars": """
func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>, tensor<i1>) {
  %a = stablehlo.subtract %x, %y : tensor<f32>
  %b = stablehlo.divide %x, %y : tensor<f32>
  %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %d = stablehlo.select %c, %a, %x : tensor<i1>, tensor<f32>
  return %a, %b, %d, %c : tensor<f32>, tensor<f32>, tensor<f32>, tensor<i1>
}""",
    "attributes: no rows": """
func.func @main(%x: tensor<0x3xf32>, %y: tensor<2x3xf32>) -> (tensor<3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %one = stablehlo.constant dense<1.000000e+00> : tensor<f32>
  %a = stablehlo.reduce(%x init: %one) applies stablehlo.maximum across dimensions = [0] : (tensor<0x3xf32>, tensor<f32>) -> tensor<3xf32>
  %b = stablehlo.concatenate %x, %y, dim = 0 : (tensor<0x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %y) : tensor<i32>, tensor<2x3xf32> cond {
    %c = stablehlo.compare LT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %next = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %next : tensor<i32>
    %w = stablehlo.negate %v : tensor<2x3xf32>
    stablehlo.return %j, %w : tensor<i32>, tensor<2x3xf32>
  }
  return %a, %b, %r#1 : tensor<3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}""",
}

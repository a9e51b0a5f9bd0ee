"""Small real programs as text: what networks, solvers and data processing are made of."""

from __future__ import annotations

from typing import Final

_REGION_ADD = """({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  })"""

PROGRAMS: Final[dict[str, str]] = {
    "softmax": """
func.func @main(%x: tensor<4x33xf32>) -> tensor<4x33xf32> {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1] : (tensor<4x33xf32>, tensor<f32>) -> tensor<4xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<4xf32>) -> tensor<4x33xf32>
  %d = stablehlo.subtract %x, %mb : tensor<4x33xf32>
  %e = stablehlo.exponential %d : tensor<4x33xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x33xf32>, tensor<f32>) -> tensor<4xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4xf32>) -> tensor<4x33xf32>
  %r = stablehlo.divide %e, %sb : tensor<4x33xf32>
  return %r : tensor<4x33xf32>
}""",
    "layer norm": """
func.func @main(%x: tensor<6x40xf32>, %scale: tensor<40xf32>, %shift: tensor<40xf32>) -> tensor<6x40xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<4.000000e+01> : tensor<6xf32>
  %eps = stablehlo.constant dense<1.000000e-05> : tensor<6xf32>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<6x40xf32>, tensor<f32>) -> tensor<6xf32>
  %m = stablehlo.divide %s, %n : tensor<6xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<6xf32>) -> tensor<6x40xf32>
  %d = stablehlo.subtract %x, %mb : tensor<6x40xf32>
  %q = stablehlo.multiply %d, %d : tensor<6x40xf32>
  %v = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<6x40xf32>, tensor<f32>) -> tensor<6xf32>
  %w = stablehlo.divide %v, %n : tensor<6xf32>
  %u = stablehlo.add %w, %eps : tensor<6xf32>
  %i = stablehlo.rsqrt %u : tensor<6xf32>
  %ib = stablehlo.broadcast_in_dim %i, dims = [0] : (tensor<6xf32>) -> tensor<6x40xf32>
  %sc = stablehlo.broadcast_in_dim %scale, dims = [1] : (tensor<40xf32>) -> tensor<6x40xf32>
  %sh = stablehlo.broadcast_in_dim %shift, dims = [1] : (tensor<40xf32>) -> tensor<6x40xf32>
  %a = stablehlo.multiply %d, %ib : tensor<6x40xf32>
  %b = stablehlo.multiply %a, %sc : tensor<6x40xf32>
  %r = stablehlo.add %b, %sh : tensor<6x40xf32>
  return %r : tensor<6x40xf32>
}""",
    "two layers": """
func.func @main(%x: tensor<5x17xf32>, %w1: tensor<17x24xf32>, %b1: tensor<24xf32>, %w2: tensor<24x3xf32>) -> tensor<5x3xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<5x24xf32>
  %h = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0] : (tensor<5x17xf32>, tensor<17x24xf32>) -> tensor<5x24xf32>
  %b = stablehlo.broadcast_in_dim %b1, dims = [1] : (tensor<24xf32>) -> tensor<5x24xf32>
  %s = stablehlo.add %h, %b : tensor<5x24xf32>
  %r = stablehlo.maximum %s, %z : tensor<5x24xf32>
  %o = stablehlo.dot_general %r, %w2, contracting_dims = [1] x [0] : (tensor<5x24xf32>, tensor<24x3xf32>) -> tensor<5x3xf32>
  return %o : tensor<5x3xf32>
}""",
    "attention": """
func.func @main(%q: tensor<2x7x8xf32>, %k: tensor<2x9x8xf32>, %v: tensor<2x9x8xf32>) -> tensor<2x7x8xf32> {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %scale = stablehlo.constant dense<0.353553385> : tensor<2x7x9xf32>
  %l = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x7x8xf32>, tensor<2x9x8xf32>) -> tensor<2x7x9xf32>
  %s = stablehlo.multiply %l, %scale : tensor<2x7x9xf32>
  %m = stablehlo.reduce(%s init: %least) applies stablehlo.maximum across dimensions = [2] : (tensor<2x7x9xf32>, tensor<f32>) -> tensor<2x7xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0, 1] : (tensor<2x7xf32>) -> tensor<2x7x9xf32>
  %d = stablehlo.subtract %s, %mb : tensor<2x7x9xf32>
  %e = stablehlo.exponential %d : tensor<2x7x9xf32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x7x9xf32>, tensor<f32>) -> tensor<2x7xf32>
  %tb = stablehlo.broadcast_in_dim %t, dims = [0, 1] : (tensor<2x7xf32>) -> tensor<2x7x9xf32>
  %p = stablehlo.divide %e, %tb : tensor<2x7x9xf32>
  %o = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x7x9xf32>, tensor<2x9x8xf32>) -> tensor<2x7x8xf32>
  return %o : tensor<2x7x8xf32>
}""",
    "convolution and pooling": f"""
func.func @main(%x: tensor<1x8x8x3xf32>, %w: tensor<3x3x3x4xf32>) -> tensor<1x4x4x4xf32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %floor = stablehlo.constant dense<0.0> : tensor<1x8x8x4xf32>
  %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x8x8x4xf32>
  %r = stablehlo.maximum %c, %floor : tensor<1x8x8x4xf32>
  %p = "stablehlo.reduce_window"(%r, %zero) {_REGION_ADD} {{window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}} : (tensor<1x8x8x4xf32>, tensor<f32>) -> tensor<1x4x4x4xf32>
  return %p : tensor<1x4x4x4xf32>
}}""",
    "embedding and its gradient": f"""
func.func @main(%table: tensor<11x6xf32>, %at: tensor<9xi32>, %g: tensor<9x6xf32>) -> (tensor<9x6xf32>, tensor<11x6xf32>) {{
  %i = stablehlo.reshape %at : (tensor<9xi32>) -> tensor<9x1xi32>
  %e = "stablehlo.gather"(%table, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 6>}}> : (tensor<11x6xf32>, tensor<9x1xi32>) -> tensor<9x6xf32>
  %z = stablehlo.constant dense<0.0> : tensor<11x6xf32>
  %d = "stablehlo.scatter"(%z, %i, %g) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> {_REGION_ADD} : (tensor<11x6xf32>, tensor<9x1xi32>, tensor<9x6xf32>) -> tensor<11x6xf32>
  return %e, %d : tensor<9x6xf32>, tensor<11x6xf32>
}}""",
    "ranks": """
func.func @main(%x: tensor<50xf32>) -> (tensor<50xf32>, tensor<50xi32>) {
  %n = stablehlo.iota dim = 0 : tensor<50xi32>
  %r:2 = "stablehlo.sort"(%x, %n) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %p = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<50xf32>, tensor<50xi32>) -> (tensor<50xf32>, tensor<50xi32>)
  return %r#0, %r#1 : tensor<50xf32>, tensor<50xi32>
}""",
    "ranks among equals": """
func.func @main(%x: tensor<60xi32>) -> (tensor<60xi32>, tensor<60xi32>) {
  %n = stablehlo.iota dim = 0 : tensor<60xi32>
  %r:2 = "stablehlo.sort"(%x, %n) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>):
    %p = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<60xi32>, tensor<60xi32>) -> (tensor<60xi32>, tensor<60xi32>)
  return %r#0, %r#1 : tensor<60xi32>, tensor<60xi32>
}""",
    "functions": """
func.func @main(%x: tensor<9x5xf32>, %y: tensor<9x5xf32>) -> (tensor<9x5xf32>, tensor<9x5xf32>, tensor<9x5xf32>, tensor<9x5xi1>) {
  %one = stablehlo.constant dense<1.25> : tensor<9x5xf32>
  %a = stablehlo.abs %x : tensor<9x5xf32>
  %p = stablehlo.add %a, %one : tensor<9x5xf32>
  %0 = stablehlo.tanh %x : tensor<9x5xf32>
  %1 = stablehlo.log %p : tensor<9x5xf32>
  %2 = stablehlo.logistic %y : tensor<9x5xf32>
  %3 = stablehlo.sine %x : tensor<9x5xf32>
  %4 = stablehlo.cosine %y : tensor<9x5xf32>
  %5 = stablehlo.atan2 %y, %p : tensor<9x5xf32>
  %6 = stablehlo.power %p, %y : tensor<9x5xf32>
  %7 = stablehlo.log_plus_one %p : tensor<9x5xf32>
  %8 = stablehlo.exponential_minus_one %x : tensor<9x5xf32>
  %9 = stablehlo.cbrt %y : tensor<9x5xf32>
  %10 = stablehlo.remainder %y, %p : tensor<9x5xf32>
  %11 = stablehlo.floor %x : tensor<9x5xf32>
  %12 = stablehlo.ceil %y : tensor<9x5xf32>
  %13 = stablehlo.round_nearest_even %x : tensor<9x5xf32>
  %14 = stablehlo.clamp %0, %y, %p : tensor<9x5xf32>
  %15 = stablehlo.is_finite %x : (tensor<9x5xf32>) -> tensor<9x5xi1>
  %16 = stablehlo.add %0, %1 : tensor<9x5xf32>
  %17 = stablehlo.multiply %2, %3 : tensor<9x5xf32>
  %18 = stablehlo.subtract %4, %5 : tensor<9x5xf32>
  %19 = stablehlo.multiply %16, %17 : tensor<9x5xf32>
  %20 = stablehlo.add %18, %6 : tensor<9x5xf32>
  %21 = stablehlo.add %7, %8 : tensor<9x5xf32>
  %22 = stablehlo.subtract %21, %9 : tensor<9x5xf32>
  %23 = stablehlo.add %20, %10 : tensor<9x5xf32>
  %24 = stablehlo.subtract %11, %12 : tensor<9x5xf32>
  %25 = stablehlo.add %24, %13 : tensor<9x5xf32>
  %26 = stablehlo.add %25, %14 : tensor<9x5xf32>
  %27 = stablehlo.add %19, %22 : tensor<9x5xf32>
  return %27, %23, %26, %15 : tensor<9x5xf32>, tensor<9x5xf32>, tensor<9x5xf32>, tensor<9x5xi1>
}""",
    "a count": """
func.func @main(%x: tensor<6xi32>) -> (tensor<i32>, tensor<6xi32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<6xi32> cond {
    %c = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.broadcast_in_dim %j, dims = [] : (tensor<i32>) -> tensor<6xi32>
    %w = stablehlo.multiply %v, %b : tensor<6xi32>
    %u = stablehlo.popcnt %w : tensor<6xi32>
    %s = stablehlo.add %w, %u : tensor<6xi32>
    stablehlo.return %j, %s : tensor<i32>, tensor<6xi32>
  }
  return %r#0, %r#1 : tensor<i32>, tensor<6xi32>
}""",
    "square roots by Newton": """
func.func @main(%x: tensor<21xf64>) -> tensor<21xf64> {
  %one = stablehlo.constant dense<1.0> : tensor<21xf64>
  %half = stablehlo.constant dense<0.5> : tensor<21xf64>
  %a = stablehlo.abs %x : tensor<21xf64>
  %s = stablehlo.add %a, %one : tensor<21xf64>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %s) : tensor<i32>, tensor<21xf64> cond {
    %n = stablehlo.constant dense<6> : tensor<i32>
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %k = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %k : tensor<i32>
    %q = stablehlo.divide %s, %y : tensor<21xf64>
    %t = stablehlo.add %y, %q : tensor<21xf64>
    %u = stablehlo.multiply %t, %half : tensor<21xf64>
    stablehlo.return %j, %u : tensor<i32>, tensor<21xf64>
  }
  return %r#1 : tensor<21xf64>
}""",
    "hash": """
func.func @main(%x: tensor<100xui32>) -> (tensor<100xui32>, tensor<ui32>) {
  %a = stablehlo.constant dense<13> : tensor<100xui32>
  %b = stablehlo.constant dense<17> : tensor<100xui32>
  %c = stablehlo.constant dense<5> : tensor<100xui32>
  %m = stablehlo.constant dense<2654435769> : tensor<100xui32>
  %0 = stablehlo.shift_left %x, %a : tensor<100xui32>
  %1 = stablehlo.xor %x, %0 : tensor<100xui32>
  %2 = stablehlo.shift_right_logical %1, %b : tensor<100xui32>
  %3 = stablehlo.xor %1, %2 : tensor<100xui32>
  %4 = stablehlo.shift_left %3, %c : tensor<100xui32>
  %5 = stablehlo.xor %3, %4 : tensor<100xui32>
  %6 = stablehlo.multiply %5, %m : tensor<100xui32>
  %z = stablehlo.constant dense<0> : tensor<ui32>
  %7 = stablehlo.reduce(%6 init: %z) applies stablehlo.xor across dimensions = [0] : (tensor<100xui32>, tensor<ui32>) -> tensor<ui32>
  return %6, %7 : tensor<100xui32>, tensor<ui32>
}""",
    "Adam": """
func.func @main(%p: tensor<30xf32>, %m: tensor<30xf32>, %v: tensor<30xf32>, %g: tensor<30xf32>) -> (tensor<30xf32>, tensor<30xf32>, tensor<30xf32>) {
  %b1 = stablehlo.constant dense<0.9> : tensor<30xf32>
  %c1 = stablehlo.constant dense<0.1> : tensor<30xf32>
  %b2 = stablehlo.constant dense<0.999> : tensor<30xf32>
  %c2 = stablehlo.constant dense<1.000000e-03> : tensor<30xf32>
  %eps = stablehlo.constant dense<1.000000e-08> : tensor<30xf32>
  %rate = stablehlo.constant dense<1.000000e-02> : tensor<30xf32>
  %0 = stablehlo.multiply %m, %b1 : tensor<30xf32>
  %1 = stablehlo.multiply %g, %c1 : tensor<30xf32>
  %2 = stablehlo.add %0, %1 : tensor<30xf32>
  %3 = stablehlo.abs %v : tensor<30xf32>
  %4 = stablehlo.multiply %3, %b2 : tensor<30xf32>
  %5 = stablehlo.multiply %g, %g : tensor<30xf32>
  %6 = stablehlo.multiply %5, %c2 : tensor<30xf32>
  %7 = stablehlo.add %4, %6 : tensor<30xf32>
  %8 = stablehlo.sqrt %7 : tensor<30xf32>
  %9 = stablehlo.add %8, %eps : tensor<30xf32>
  %10 = stablehlo.divide %2, %9 : tensor<30xf32>
  %11 = stablehlo.multiply %10, %rate : tensor<30xf32>
  %12 = stablehlo.subtract %p, %11 : tensor<30xf32>
  return %12, %2, %7 : tensor<30xf32>, tensor<30xf32>, tensor<30xf32>
}""",
    "a cache of keys": """
func.func @main(%cache: tensor<16x4xbf16>, %k: tensor<1x4xbf16>, %n: tensor<i32>) -> (tensor<16x4xbf16>, tensor<3x4xbf16>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %c = stablehlo.dynamic_update_slice %cache, %k, %n, %zero : (tensor<16x4xbf16>, tensor<1x4xbf16>, tensor<i32>, tensor<i32>) -> tensor<16x4xbf16>
  %w = stablehlo.dynamic_slice %c, %n, %zero, sizes = [3, 4] : (tensor<16x4xbf16>, tensor<i32>, tensor<i32>) -> tensor<3x4xbf16>
  return %c, %w : tensor<16x4xbf16>, tensor<3x4xbf16>
}""",
    "a choice": """
func.func @main(%x: tensor<12xf32>, %n: tensor<i32>) -> tensor<12xf32> {
  %r = "stablehlo.case"(%n) ({
    %0 = stablehlo.negate %x : tensor<12xf32>
    stablehlo.return %0 : tensor<12xf32>
  }, {
    %1 = stablehlo.reverse %x, dims = [0] : tensor<12xf32>
    stablehlo.return %1 : tensor<12xf32>
  }, {
    stablehlo.return %x : tensor<12xf32>
  }) : (tensor<i32>) -> tensor<12xf32>
  return %r : tensor<12xf32>
}""",
    "quantized weights": """
func.func @main(%x: tensor<3x20xf32>, %w: tensor<20x5xi8>, %s: tensor<5xf32>) -> tensor<3x5xf32> {
  %f = stablehlo.convert %w : (tensor<20x5xi8>) -> tensor<20x5xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<5xf32>) -> tensor<20x5xf32>
  %d = stablehlo.multiply %f, %b : tensor<20x5xf32>
  %r = stablehlo.dot_general %x, %d, contracting_dims = [1] x [0] : (tensor<3x20xf32>, tensor<20x5xf32>) -> tensor<3x5xf32>
  return %r : tensor<3x5xf32>
}""",
    "running sums": f"""
func.func @main(%x: tensor<31xf32>) -> tensor<31xf32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %zero) {_REGION_ADD} {{window_dimensions = array<i64: 31>, padding = dense<[[30, 0]]> : tensor<1x2xi64>}} : (tensor<31xf32>, tensor<f32>) -> tensor<31xf32>
  return %r : tensor<31xf32>
}}""",
    "rotations": """
func.func @main(%x: tensor<6x10xf32>) -> tensor<10x6xf32> {
  %a = stablehlo.slice %x [0:6, 0:5] : (tensor<6x10xf32>) -> tensor<6x5xf32>
  %b = stablehlo.slice %x [0:6, 5:10] : (tensor<6x10xf32>) -> tensor<6x5xf32>
  %n = stablehlo.negate %b : tensor<6x5xf32>
  %r = stablehlo.concatenate %n, %a, dim = 1 : (tensor<6x5xf32>, tensor<6x5xf32>) -> tensor<6x10xf32>
  %s = stablehlo.add %x, %r : tensor<6x10xf32>
  %t = stablehlo.transpose %s, dims = [1, 0] : (tensor<6x10xf32>) -> tensor<10x6xf32>
  return %t : tensor<10x6xf32>
}""",
}
"""By name."""

"""The layer of ``hlojit_mx.layer`` as StableHLO text, whose types say in which format the matrices are."""

from __future__ import annotations

import math

PROGRAM = """\
!number = tensor<f32>
!x = tensor<{tokens}x{width}xf32>
!row = tensor<{width}xf32>
!tokens = tensor<{tokens}xf32>
!parts = tensor<{tokens}x{three}xf32>
!split = tensor<{tokens}x3x{heads}x{size}xf32>
!one_of_three = tensor<{tokens}x1x{heads}x{size}xf32>
!part = tensor<{tokens}x{heads}x{size}xf32>
!heads = tensor<{heads}x{tokens}x{size}xf32>
!head_rows = tensor<{heads}x{tokens}xf32>
!scores = tensor<{heads}x{tokens}x{tokens}xf32>
!index = tensor<{heads}x{tokens}x{tokens}xi32>
!mask = tensor<{heads}x{tokens}x{tokens}xi1>
!wide = tensor<{tokens}x{four}xf32>
!attention = tensor<{three}x{width}x{name}>
!projection = tensor<{width}x{width}x{name}>
!up = tensor<{four}x{width}x{name}>
!down = tensor<{width}x{four}x{name}>

func.func private @normalized(%x: !x, %gain: !row, %bias: !row) -> !x {{
  %zero = stablehlo.constant dense<0.0> : !number
  %count = stablehlo.constant dense<{width}.0> : !tokens
  %least = stablehlo.constant dense<1.0e-05> : !tokens
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (!x, !number) -> !tokens
  %1 = stablehlo.divide %0, %count : !tokens
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (!tokens) -> !x
  %3 = stablehlo.subtract %x, %2 : !x
  %4 = stablehlo.multiply %3, %3 : !x
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [1] : (!x, !number) -> !tokens
  %6 = stablehlo.divide %5, %count : !tokens
  %7 = stablehlo.add %6, %least : !tokens
  %8 = stablehlo.rsqrt %7 : !tokens
  %9 = stablehlo.broadcast_in_dim %8, dims = [0] : (!tokens) -> !x
  %10 = stablehlo.multiply %3, %9 : !x
  %11 = stablehlo.broadcast_in_dim %gain, dims = [1] : (!row) -> !x
  %12 = stablehlo.multiply %10, %11 : !x
  %13 = stablehlo.broadcast_in_dim %bias, dims = [1] : (!row) -> !x
  %14 = stablehlo.add %12, %13 : !x
  return %14 : !x
}}

func.func @main(%x: !x, %attention: !attention, %projection: !projection, %up: !up, %down: !down,
                %gain1: !row, %bias1: !row, %gain2: !row, %bias2: !row) -> !x {{
  %zero = stablehlo.constant dense<0.0> : !number
  %lowest = stablehlo.constant dense<0xFF800000> : !number
  %half = stablehlo.constant dense<0.5> : !wide
  %one = stablehlo.constant dense<1.0> : !wide
  %cubic = stablehlo.constant dense<0.044715> : !wide
  %inner = stablehlo.constant dense<{inner}> : !wide
  %n1 = func.call @normalized(%x, %gain1, %bias1) : (!x, !row, !row) -> !x
  %0 = stablehlo.dot_general %n1, %attention, contracting_dims = [1] x [1] : (!x, !attention) -> !parts
  %1 = stablehlo.reshape %0 : (!parts) -> !split
  %2 = stablehlo.slice %1 [0:{tokens}, 0:1, 0:{heads}, 0:{size}] : (!split) -> !one_of_three
  %3 = stablehlo.slice %1 [0:{tokens}, 1:2, 0:{heads}, 0:{size}] : (!split) -> !one_of_three
  %4 = stablehlo.slice %1 [0:{tokens}, 2:3, 0:{heads}, 0:{size}] : (!split) -> !one_of_three
  %query = stablehlo.reshape %2 : (!one_of_three) -> !part
  %key = stablehlo.reshape %3 : (!one_of_three) -> !part
  %value = stablehlo.reshape %4 : (!one_of_three) -> !part
  %5 = stablehlo.dot_general %query, %key, batching_dims = [1] x [1], contracting_dims = [2] x [2] : (!part, !part) -> !scores
  %scale = stablehlo.constant dense<{scale}> : !scores
  %6 = stablehlo.multiply %5, %scale : !scores
  %row = stablehlo.iota dim = 1 : !index
  %column = stablehlo.iota dim = 2 : !index
  %seen = stablehlo.compare GE, %row, %column : (!index, !index) -> !mask
  %never = stablehlo.constant dense<-1.0e+09> : !scores
  %7 = stablehlo.select %seen, %6, %never : !mask, !scores
  %8 = stablehlo.reduce(%7 init: %lowest) applies stablehlo.maximum across dimensions = [2] : (!scores, !number) -> !head_rows
  %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (!head_rows) -> !scores
  %10 = stablehlo.subtract %7, %9 : !scores
  %11 = stablehlo.exponential %10 : !scores
  %12 = stablehlo.reduce(%11 init: %zero) applies stablehlo.add across dimensions = [2] : (!scores, !number) -> !head_rows
  %13 = stablehlo.broadcast_in_dim %12, dims = [0, 1] : (!head_rows) -> !scores
  %14 = stablehlo.divide %11, %13 : !scores
  %15 = stablehlo.dot_general %14, %value, batching_dims = [0] x [1], contracting_dims = [2] x [0] : (!scores, !part) -> !heads
  %16 = stablehlo.transpose %15, dims = [1, 0, 2] : (!heads) -> !part
  %17 = stablehlo.reshape %16 : (!part) -> !x
  %18 = stablehlo.dot_general %17, %projection, contracting_dims = [1] x [1] : (!x, !projection) -> !x
  %middle = stablehlo.add %x, %18 : !x

  %n2 = func.call @normalized(%middle, %gain2, %bias2) : (!x, !row, !row) -> !x
  %19 = stablehlo.dot_general %n2, %up, contracting_dims = [1] x [1] : (!x, !up) -> !wide
  %20 = stablehlo.multiply %19, %19 : !wide
  %21 = stablehlo.multiply %20, %19 : !wide
  %22 = stablehlo.multiply %21, %cubic : !wide
  %23 = stablehlo.add %19, %22 : !wide
  %24 = stablehlo.multiply %23, %inner : !wide
  %25 = stablehlo.tanh %24 : !wide
  %26 = stablehlo.add %25, %one : !wide
  %27 = stablehlo.multiply %19, %half : !wide
  %28 = stablehlo.multiply %27, %26 : !wide
  %29 = stablehlo.dot_general %28, %down, contracting_dims = [1] x [1] : (!wide, !down) -> !x
  %30 = stablehlo.add %middle, %29 : !x
  return %30 : !x
}}
"""


def layer_text(name: str, tokens: int, width: int, heads: int) -> str:
    """A program of x, four matrices of element type ``name``, and gain and bias of both normalizations."""
    size = width // heads
    return PROGRAM.format(
        name=name,
        tokens=tokens,
        width=width,
        heads=heads,
        size=size,
        three=3 * width,
        four=4 * width,
        scale=1 / math.sqrt(size),
        inner=math.sqrt(2 / math.pi),
    )

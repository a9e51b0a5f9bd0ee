"""Windows and convolutions of programs that are compiled once for all sizes."""

from __future__ import annotations

from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate

SYMBOLIC = {"dynamic_shapes": "symbolic"}


def agree(text: str, calls: Any, tolerance: float = 0.0) -> None:
    """One compilation gives for all calls what the interpreter does for each."""
    executable = hlojit.compile(text, options=SYMBOLIC)
    assert executable.dynamic_shapes == "symbolic", executable.why
    module = hlojit.parse(text)
    for inputs in calls:
        results = executable(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        for result, expected in zip(results, evaluate(module, *inputs), strict=True):
            assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
            wide = np.float64 if result.dtype.kind not in "iub" else result.dtype
            np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance)


def numbers(dtype: Any, *shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-9, 10, shape).astype(dtype)


def reduce_window(type: str, result: str, attributes: str, op: str = "add", init: str = "0") -> str:
    element = type.rpartition("x")[2][:-1]
    return f"""
func.func @main(%x: {type}) -> {result} {{
  %i = stablehlo.constant dense<{init}> : tensor<{element}>
  %0 = "stablehlo.reduce_window"(%x, %i) ({{
    ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
      %s = stablehlo.{op} %a, %b : tensor<{element}>
      stablehlo.return %s : tensor<{element}>
  }}) {{{attributes}}} : ({type}, tensor<{element}>) -> {result}
  return %0 : {result}
}}"""


def array(*each: int) -> str:
    return f"array<i64: {', '.join(map(str, each))}>"


def pairs(*each: tuple[int, int]) -> str:
    return f"dense<{[list(pair) for pair in each]}> : tensor<{len(each)}x2xi64>"


WINDOWS = {
    "pooling": f"window_dimensions = {array(1, 2, 3, 1)}, window_strides = {array(1, 2, 2, 1)}",
    "inner": f"window_dimensions = {array(1, 1, 1, 3)}",
    "padded": f"window_dimensions = {array(1, 3, 2, 2)}, padding = {pairs((0, 0), (1, 1), (0, 1), (2, 0))}",
    "dilated": f"window_dimensions = {array(1, 2, 2, 1)}, window_dilations = {array(1, 2, 3, 1)}, base_dilations = {array(1, 3, 1, 2)}",
    "cut": f"window_dimensions = {array(2, 2, 1, 1)}, padding = {pairs((-1, 0), (0, -1), (-1, -1), (0, 0))}, base_dilations = {array(1, 2, 1, 1)}",
    "all": f"window_dimensions = {array(2, 2, 2, 2)}, window_strides = {array(2, 1, 3, 2)}, window_dilations = {array(1, 2, 1, 2)}, "
    f"base_dilations = {array(2, 1, 3, 1)}, padding = {pairs((1, 0), (2, -1), (0, 4), (-1, 3))}",
}  # fmt: skip
SHAPES = ((1, 4, 6, 16), (2, 7, 5, 19), (3, 9, 8, 1), (1, 1, 1, 2), (0, 4, 4, 4), (2, 3, 0, 5))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize(("element", "dtype", "init"), [("f32", "f4", "2.0"), ("i8", "i1", "1")])
def test_windows(name: str, element: str, dtype: str, init: str) -> None:
    kind = f"tensor<?x?x?x?x{element}>"
    text = reduce_window(kind, kind, WINDOWS[name], init=init)
    agree(text, [[numbers(dtype, *shape)] for shape in SHAPES])


@pytest.mark.parametrize("op", ["maximum", "minimum", "multiply"])
def test_windows_of_other_computations(op: str) -> None:
    text = reduce_window("tensor<?x12xf32>", "tensor<?x10xf32>", f"window_dimensions = {array(2, 3)}", op, "1.0")
    agree(text, [[numbers("f4", rows, 12)] for rows in (2, 5, 40)])


def test_windows_of_several_operands_and_of_what_is_computed() -> None:
    text = f"""
func.func @main(%x: tensor<?x6xf32>, %y: tensor<?x6xi32>) -> (tensor<?x3xf32>, tensor<?x3xi32>) {{
  %i = stablehlo.constant dense<-100.0> : tensor<f32>
  %j = stablehlo.constant dense<7> : tensor<i32>
  %e = stablehlo.negate %x : tensor<?x6xf32>
  %0:2 = "stablehlo.reduce_window"(%e, %y, %i, %j) ({{
    ^bb0(%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>):
      %p = stablehlo.compare GE, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %v = stablehlo.select %p, %a, %c : tensor<i1>, tensor<f32>
      %n = stablehlo.select %p, %b, %d : tensor<i1>, tensor<i32>
      stablehlo.return %v, %n : tensor<f32>, tensor<i32>
  }}) {{window_dimensions = {array(2, 2)}, window_strides = {array(1, 2)}, padding = {pairs((1, 0), (0, 0))}}}
    : (tensor<?x6xf32>, tensor<?x6xi32>, tensor<f32>, tensor<i32>) -> (tensor<?x3xf32>, tensor<?x3xi32>)
  %1 = stablehlo.add %0#0, %0#0 : tensor<?x3xf32>
  return %1, %0#1 : tensor<?x3xf32>, tensor<?x3xi32>
}}"""
    agree(text, [[numbers("f4", n, 6), numbers("i4", n, 6)] for n in (1, 4, 33)])


def convolution(lhs: str, rhs: str, result: str, names: str, window: str, groups: tuple[int, int] = (1, 1)) -> str:
    return f"""
func.func @main(%x: {lhs}, %w: {rhs}) -> {result} {{
  %0 = stablehlo.convolution(%x, %w) dim_numbers = {names}, window = {{{window}}}
    {{feature_group_count = {groups[0]} : i64, batch_group_count = {groups[1]} : i64}} : ({lhs}, {rhs}) -> {result}
  return %0 : {result}
}}"""


NHWC = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
NCHW = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
PADDED = "stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]"
PLAIN = "stride = [2, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 2], reverse = [false, true]"
SPREAD = "stride = [1, 2], pad = [[2, 1], [-1, 3]], lhs_dilate = [2, 3], rhs_dilate = [2, 1], reverse = [true, false]"


@pytest.mark.parametrize("window", [PADDED, PLAIN, SPREAD])
@pytest.mark.parametrize("names", [NHWC, NCHW])
@pytest.mark.parametrize("element", ["f32", "bf16", "i32"])
def test_convolutions(names: str, window: str, element: str) -> None:
    open_ = f"tensor<?x?x?x?x{element}>"
    kernel = (3, 2, 5, 18) if names is NHWC else (18, 5, 3, 2)
    weights = f"tensor<{'x'.join(map(str, kernel))}x{element}>"
    text = convolution(open_, weights, open_, names, window)
    dtype = {"f32": "f4", "bf16": ml_dtypes.bfloat16, "i32": "i4"}[element]
    shapes = [(2, 6, 9, 5), (1, 5, 5, 5), (0, 6, 6, 5), (3, 17, 8, 5)]
    if names is NCHW:
        shapes = [(n, c, h, w) for n, h, w, c in shapes]
    agree(
        text, [[numbers(dtype, *shape), numbers(dtype, *kernel)] for shape in shapes], 1e-2 if element == "bf16" else 0
    )


@pytest.mark.parametrize("groups", [(3, 1), (6, 1), (1, 3)])
def test_convolutions_in_groups(groups: tuple[int, int]) -> None:
    open_ = "tensor<?x?x?x6xf32>"
    result = "tensor<?x?x?x18xf32>"
    text = convolution(open_, f"tensor<3x2x{6 // groups[0]}x18xf32>", result, NHWC, PADDED, groups)
    calls = [
        [numbers("f4", 3 * n, h, w, 6), numbers("f4", 3, 2, 6 // groups[0], 18)] for n, h, w in ((1, 4, 5), (2, 3, 3))
    ]
    agree(text, calls)


def test_kernels_of_open_sizes_and_what_does_not_fit() -> None:
    open_ = "tensor<?x?x?x?xf32>"
    text = convolution(open_, open_, open_, NHWC, PLAIN)
    agree(text, [[numbers("f4", 2, 9, 9, c), numbers("f4", k, 2, c, 4)] for c, k in ((3, 3), (1, 2))])
    executable = hlojit.compile(text, options=SYMBOLIC)
    with pytest.raises(hlojit.ArgumentError, match=r"3 \(argument 0, dimension 3\)|4 \(argument 1, dimension 2\)"):
        executable(numbers("f4", 2, 9, 9, 3), numbers("f4", 2, 2, 4, 4))


def test_an_infinite_weight_beyond_the_image_is_not_a_number() -> None:
    """What surrounds the image are zeros, which are multiplied like its elements."""
    open_ = "tensor<?x?x?x?xf32>"
    weights = np.full((3, 3, 1, 1), np.inf, "f4")
    text = convolution(open_, open_, open_, NHWC, PADDED)
    agree(text, [[np.ones((1, 4, 4, 1), "f4"), weights]])

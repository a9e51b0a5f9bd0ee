"""Extents, slices, windows and operands of size 0, and indices at every end: nothing beyond an operand is read.

Every argument ends where a page begins that may not be read; results are compared with the reference's.
"""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.llvm.builder import LlvmBuilder
from hlojit.llvm.loops import lane_mask

from .conftest import Guarded

Array = np.ndarray[Any, Any]


def guarded(array: Array) -> tuple[Array, Guarded]:
    """The array in memory that ends at a page that may not be touched, and that memory."""
    buffer = Guarded(array.tobytes())
    start = buffer.length - buffer.size
    found = np.frombuffer(buffer.memory, array.dtype, array.size, start).reshape(array.shape)
    return found, buffer


def gather(operand: str, indices: str, result: str, numbers: str, sizes: str, index: str = "i32") -> str:
    """A program of one gather of f32."""
    types = f"tensor<{operand}xf32>, tensor<{indices}x{index}>"
    return f"""
    func.func @main(%x: tensor<{operand}xf32>, %i: tensor<{indices}x{index}>) -> tensor<{result}xf32> {{
      %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<{numbers}>,
        slice_sizes = array<i64: {sizes}>}}> : ({types}) -> tensor<{result}xf32>
      return %0 : tensor<{result}xf32>
    }}"""


ROWS = "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
COLLAPSED = "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
BATCHED = (
    "collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], "
    "start_index_map = [1], index_vector_dim = 2"
)


def unary(body: str, operand: str, result: str, rest: str = "") -> str:
    """A program of one op on one argument, ``%x``."""
    return f"""
    func.func @main(%x: tensor<{operand}>{rest}) -> tensor<{result}> {{
      {body}
      return %r : tensor<{result}>
    }}"""


def scatter(operand: str, indices: str, updates: str, numbers: str) -> str:
    """A program of one scatter-add of f32."""
    return f"""
    func.func @main(%x: tensor<{operand}>, %i: tensor<{indices}>, %u: tensor<{updates}>) -> tensor<{operand}> {{
      %r = "stablehlo.scatter"(%x, %i, %u) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) {{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}
        : (tensor<{operand}>, tensor<{indices}>, tensor<{updates}>) -> tensor<{operand}>
      return %r : tensor<{operand}>
    }}"""


def window(operand: str, result: str, attributes: str) -> str:
    """A program of one reduce_window of f32 with init 0."""
    return unary(
        f"""%c = stablehlo.constant dense<0.0> : tensor<f32>
      %r = "stablehlo.reduce_window"(%x, %c) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) {{{attributes}}} : (tensor<{operand}>, tensor<f32>) -> tensor<{result}>""",
        operand,
        result,
    )


def line(n: int, *rest: int) -> Array:
    """1, 2, 3, ... as f32."""
    shape = (n, *rest)
    return np.arange(1, 1 + np.prod(shape, dtype=int), dtype="f4").reshape(shape)


def integers(*values: int) -> Array:
    return np.array(values, "i4")


ENDS = np.array([[-(2**31)], [-1], [0], [4], [5], [6], [2**31 - 1]], "i4")

PROGRAMS: dict[str, tuple[Any, ...]] = {
    "gather-collapsed-0": (gather("5", "7x1", "7", COLLAPSED, "0"), line(5), ENDS),
    "gather-collapsed-0-of-nothing": (gather("0", "7x1", "7", COLLAPSED, "0"), line(0), ENDS),
    "gather-row-of-0": (gather("5x4", "7x1", "7x4", ROWS, "0, 4"), line(5, 4), ENDS),
    "gather-rows-without-columns": (gather("5x0", "7x1", "7x0", ROWS, "1, 0"), line(5, 0), ENDS),
    "gather-no-index": (gather("5", "0x1", "0", COLLAPSED, "1"), line(5), ENDS[:0]),
    "gather-ends": (gather("5", "7x1", "7", COLLAPSED, "1"), line(5), ENDS),
    "gather-ends-ui32": (gather("5", "7x1", "7", COLLAPSED, "1", "ui32"), line(5), ENDS.view("u4")),
    "gather-batched-0": (gather("3x5", "3x7x1", "3x7", BATCHED, "0, 0"), line(3, 5), np.stack([ENDS] * 3)),
    "gather-empty-index-vector": (
        gather("5", "7x0", "7x5", "offset_dims = [1], index_vector_dim = 1", "5"), line(5), np.zeros((7, 0), "i4")),
    "gather-empty-index-vector-collapsed-0": (
        gather("5", "7x0", "7", "collapsed_slice_dims = [0], index_vector_dim = 1", "0"), line(5), np.zeros((7, 0), "i4")),
    "dynamic-slice-0": (unary(
        "%r = stablehlo.dynamic_slice %x, %i, sizes = [0] : (tensor<5xf32>, tensor<i32>) -> tensor<0xf32>",
        "5xf32", "0xf32", ", %i: tensor<i32>"), line(5), np.array(9, "i4")),
    "dynamic-slice-of-nothing": (unary(
        "%r = stablehlo.dynamic_slice %x, %i, sizes = [0] : (tensor<0xf32>, tensor<i32>) -> tensor<0xf32>",
        "0xf32", "0xf32", ", %i: tensor<i32>"), line(0), np.array(9, "i4")),
    "dynamic-update-slice-0": (unary(
        "%r = stablehlo.dynamic_update_slice %x, %u, %i : (tensor<5xf32>, tensor<0xf32>, tensor<i32>) -> tensor<5xf32>",
        "5xf32", "5xf32", ", %u: tensor<0xf32>, %i: tensor<i32>"), line(5), line(0), np.array(9, "i4")),
    "dynamic-update-slice-0x3": (unary(
        "%r = stablehlo.dynamic_update_slice %x, %u, %i, %i "
        ": (tensor<5x3xf32>, tensor<0x3xf32>, tensor<i32>, tensor<i32>) -> tensor<5x3xf32>",
        "5x3xf32", "5x3xf32", ", %u: tensor<0x3xf32>, %i: tensor<i32>"), line(5, 3), line(0, 3), np.array(9, "i4")),
    "scatter-no-updates": (scatter(
        "5xf32", "0x1xi32", "0xf32", "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"),
        line(5), ENDS[:0], line(0)),
    "scatter-ends": (scatter(
        "5xf32", "7x1xi32", "7xf32", "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"),
        line(5), ENDS, line(7)),
    "scatter-window-0": (scatter(
        "5xf32", "7x1xi32", "7x0xf32", "update_window_dims = [1], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"),
        line(5), ENDS, line(7, 0)),
    "scatter-window-3x0": (scatter(
        "5x4xf32", "7x1xi32", "7x3x0xf32",
        "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"),
        line(5, 4), ENDS, line(7, 3, 0)),
    "scatter-into-nothing": (scatter(
        "0xf32", "7x1xi32", "7xf32", "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"),
        line(0), ENDS, line(7)),
    "scatter-empty-index-vector": (scatter(
        "5xf32", "7x0xi32", "7x5xf32", "update_window_dims = [1], index_vector_dim = 1"),
        line(5), np.zeros((7, 0), "i4"), line(7, 5)),
    "reduce-nothing": (unary(
        "%c = stablehlo.constant dense<7.0> : tensor<f32>\n%r = stablehlo.reduce(%x init: %c) applies stablehlo.add "
        "across dimensions = [1] : (tensor<5x0xf32>, tensor<f32>) -> tensor<5xf32>", "5x0xf32", "5xf32"), line(5, 0)),
    "reduce-nothing-outside": (unary(
        "%c = stablehlo.constant dense<7.0> : tensor<f32>\n%r = stablehlo.reduce(%x init: %c) applies stablehlo.maximum "
        "across dimensions = [0] : (tensor<0x5xf32>, tensor<f32>) -> tensor<5xf32>", "0x5xf32", "5xf32"), line(0, 5)),
    "window-of-nothing": (window("0xf32", "3xf32",
        "window_dimensions = array<i64: 2>, padding = dense<[[2, 2]]> : tensor<1x2xi64>"), line(0)),
    "window-of-nothing-dilated": (window("0xf32", "3xf32",
        "window_dimensions = array<i64: 2>, base_dilations = array<i64: 3>, padding = dense<[[2, 2]]> : tensor<1x2xi64>"),
        line(0)),
    "window-cut": (window("5xf32", "2xf32",
        "window_dimensions = array<i64: 2>, padding = dense<[[-1, -1]]> : tensor<1x2xi64>"), line(5)),
    "window-beside": (window("5xf32", "8xf32",
        "window_dimensions = array<i64: 2>, padding = dense<[[9, -5]]> : tensor<1x2xi64>"), line(5)),
    "pad-cut": (unary("%c = stablehlo.constant dense<7.0> : tensor<f32>\n"
        "%r = stablehlo.pad %x, %c, low = [-2], high = [-2], interior = [0] : (tensor<5xf32>, tensor<f32>) -> tensor<1xf32>",
        "5xf32", "1xf32"), line(5)),
    "pad-cut-all-and-more": (unary("%c = stablehlo.constant dense<7.0> : tensor<f32>\n"
        "%r = stablehlo.pad %x, %c, low = [-7], high = [6], interior = [0] : (tensor<5xf32>, tensor<f32>) -> tensor<4xf32>",
        "5xf32", "4xf32"), line(5)),
    "pad-nothing": (unary("%c = stablehlo.constant dense<7.0> : tensor<f32>\n"
        "%r = stablehlo.pad %x, %c, low = [2], high = [2], interior = [3] : (tensor<0xf32>, tensor<f32>) -> tensor<4xf32>",
        "0xf32", "4xf32"), line(0)),
    "pad-cut-interior": (unary("%c = stablehlo.constant dense<7.0> : tensor<f32>\n"
        "%r = stablehlo.pad %x, %c, low = [-4], high = [-1], interior = [2] : (tensor<5xf32>, tensor<f32>) -> tensor<8xf32>",
        "5xf32", "8xf32"), line(5)),
    "concatenate-nothing": (unary(
        "%r = stablehlo.concatenate %x, %y, %x, dim = 0 : (tensor<0xf32>, tensor<5xf32>, tensor<0xf32>) -> tensor<5xf32>",
        "0xf32", "5xf32", ", %y: tensor<5xf32>"), line(0), line(5)),
    "reverse-nothing": (unary(
        "%r = stablehlo.reverse %x, dims = [0] : tensor<0x3xf32>", "0x3xf32", "0x3xf32"), line(0, 3)),
    "sort-nothing": (unary("""%r = "stablehlo.sort"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %s : tensor<i1>
      }) {dimension = 0 : i64} : (tensor<0x3xf32>) -> tensor<0x3xf32>""", "0x3xf32", "0x3xf32"), line(0, 3)),
    "sort-no-lines": (unary("""%r = "stablehlo.sort"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %s : tensor<i1>
      }) {dimension = 0 : i64} : (tensor<3x0xf32>) -> tensor<3x0xf32>""", "3x0xf32", "3x0xf32"), line(3, 0)),
    "sort-one": (unary("""%r = "stablehlo.sort"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %s : tensor<i1>
      }) {dimension = 0 : i64} : (tensor<1x3xf32>) -> tensor<1x3xf32>""", "1x3xf32", "1x3xf32"), line(1, 3)),
    "dot-contracts-nothing": (unary(
        "%r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<3x0xf32>, tensor<0x5xf32>) -> tensor<3x5xf32>",
        "3x0xf32", "3x5xf32", ", %y: tensor<0x5xf32>"), line(3, 0), line(0, 5)),
    "dot-no-rows": (unary(
        "%r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<0x4xf32>, tensor<4x5xf32>) -> tensor<0x5xf32>",
        "0x4xf32", "0x5xf32", ", %y: tensor<4x5xf32>"), line(0, 4), line(4, 5)),
    "dot-no-batch": (unary(
        "%r = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1] "
        ": (tensor<0x3x4xf32>, tensor<0x4x5xf32>) -> tensor<0x3x5xf32>",
        "0x3x4xf32", "0x3x5xf32", ", %y: tensor<0x4x5xf32>"), line(0, 3, 4), line(0, 4, 5)),
    "convolution-no-channels": (unary(
        "%r = stablehlo.convolution(%x, %y) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        ": (tensor<2x5x0xf32>, tensor<3x0x4xf32>) -> tensor<2x5x4xf32>",
        "2x5x0xf32", "2x5x4xf32", ", %y: tensor<3x0x4xf32>"), line(2, 5, 0), line(3, 0, 4)),
    "convolution-no-width": (unary(
        "%r = stablehlo.convolution(%x, %y) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[2, 2]]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        ": (tensor<2x0x3xf32>, tensor<3x3x4xf32>) -> tensor<2x2x4xf32>",
        "2x0x3xf32", "2x2x4xf32", ", %y: tensor<3x3x4xf32>"), line(2, 0, 3), line(3, 3, 4)),
    "convolution-cut": (unary(
        "%r = stablehlo.convolution(%x, %y) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[-2, 4]]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        ": (tensor<2x5x3xf32>, tensor<3x3x4xf32>) -> tensor<2x5x4xf32>",
        "2x5x3xf32", "2x5x4xf32", ", %y: tensor<3x3x4xf32>"), line(2, 5, 3), line(3, 3, 4)),
    "convolution-beyond": (unary(
        "%r = stablehlo.convolution(%x, %y) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[-7, 6]]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        ": (tensor<2x5x3xf32>, tensor<3x3x4xf32>) -> tensor<2x2x4xf32>",
        "2x5x3xf32", "2x2x4xf32", ", %y: tensor<3x3x4xf32>"), line(2, 5, 3), line(3, 3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_beyond_an_operand_is_read(name: str) -> None:
    text, *arguments = PROGRAMS[name]
    held = [guarded(argument) for argument in arguments]
    executable = hlojit.compile(text)
    result = executable(*(array for array, _ in held))
    expected = hlojit.compile(text, backend="reference")(*arguments)
    np.testing.assert_array_equal(result, expected)
    for _, buffer in held:
        buffer.check()


def test_slices_of_nothing_in_a_collapsed_dimension_take_the_nearest_element() -> None:
    """The specification allows the size 0 and leaves open what the elements are."""
    text, x, indices = PROGRAMS["gather-collapsed-0"]
    for backend in ("cpu", "reference"):
        assert hlojit.compile(text, backend=backend)(x, indices).tolist() == [1, 1, 1, 5, 5, 5, 5]


def test_lookup_in_a_table_reads_no_lane_that_takes_no_part() -> None:
    """Lanes behind the end of a row may have an index beyond the table."""
    b = LlvmBuilder(lanes=4)
    with b.function("kernel", [("i32", "n")]) as (n,):
        b.mask = lane_mask(3, 4)
        b.lookup("f32", (1.0, 2.0, 3.0), b.add(b.lane_indices("i32"), n))
    assert "<4 x i1> <i1 true, i1 true, i1 true, i1 false>" in b.module_text()

"""Typed views say what the text says, with the defaults of attributes that are left out."""

from __future__ import annotations

from typing import Any

import hlojit
import pytest
from hlojit.ir.graph import Instruction
from hlojit.ir.ops import views


def first(text: str, arguments: str, result: str) -> Instruction:
    module = hlojit.parse(f"func.func @main({arguments}) -> {result} {{ %0 = {text} return %0 : {result} }}")
    found = module.main.body.first
    assert found is not None
    return found


X = "%x: tensor<4x6xf32>"
CASES: list[tuple[str, str, str, Any, dict[str, Any]]] = [
    ("stablehlo.slice %x [1:3, 0:6:2] : (tensor<4x6xf32>) -> tensor<2x3xf32>", X, "tensor<2x3xf32>", views.SliceView,
     {"starts": (1, 0), "limits": (3, 6), "strides": (1, 2), "ranges": ((1, 3, 1), (0, 6, 2))}),
    ("stablehlo.pad %x, %v, low = [1, -1], high = [0, 2], interior = [0, 1] : (tensor<4x6xf32>, tensor<f32>) -> tensor<5x12xf32>",
     X + ", %v: tensor<f32>", "tensor<5x12xf32>", views.PadView,
     {"low": (1, -1), "high": (0, 2), "interior": (0, 1), "ranges": ((1, 0, 0), (-1, 2, 1))}),
    ("stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>", X, "tensor<6x4xf32>", views.TransposeView,
     {"permutation": (1, 0)}),
    ("stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<4x6xf32>) -> tensor<4x5x6xf32>", X, "tensor<4x5x6xf32>",
     views.BroadcastView, {"dimensions": (0, 2)}),
    ("stablehlo.compare LT, %x, %x, TOTALORDER : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>", X, "tensor<4x6xi1>",
     views.CompareView, {"direction": "LT", "mirrored": "GT", "is_total_order": True}),
    ("stablehlo.compare GE, %x, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>", X, "tensor<4x6xi1>",
     views.CompareView, {"direction": "GE", "mirrored": "LE", "order": "NOTYPE", "is_total_order": False}),
    ("stablehlo.iota dim = 1 : tensor<4x6xi32>", "", "tensor<4x6xi32>", views.IotaView, {"dimension": 1}),
    ("stablehlo.concatenate %x, %x, dim = 1 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x12xf32>", X, "tensor<4x12xf32>",
     views.DimensionView, {"dimension": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "arguments", "result", "view", "expected"), CASES, ids=lambda case: str(case)[:30])
def test_a_view_says_what_the_text_says(
    text: str, arguments: str, result: str, view: Any, expected: dict[str, Any]
) -> None:
    found = view.of(first(text, arguments, result))
    assert {name: getattr(found, name) for name in expected} == expected


def test_the_view_of_a_convolution_fills_in_defaults() -> None:
    types = "(tensor<1x8x8x2xf32>, tensor<3x3x2x4xf32>) -> tensor<1x6x6x4xf32>"
    numbers = "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {%s} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
    arguments = "%x: tensor<1x8x8x2xf32>, %w: tensor<3x3x2x4xf32>"
    plain = views.ConvolutionView.of(
        first(f"stablehlo.convolution(%x, %w) {numbers % ''} : {types}", arguments, "tensor<1x6x6x4xf32>")
    )
    assert plain.numbers.input_spatial == (1, 2) and (plain.feature_groups, plain.batch_groups) == (1, 1)
    assert (plain.strides, plain.lhs_dilation, plain.rhs_dilation) == ((1, 1), (1, 1), (1, 1))
    assert plain.padding == ((0, 0), (0, 0)) and plain.reversal == (False, False)
    written = "stride = [2, 1], pad = [[1, 0], [0, 1]], rhs_dilate = [1, 2], reverse = [true, false]"
    types = types.replace("1x6x6x4", "1x4x5x4")
    full = views.ConvolutionView.of(
        first(f"stablehlo.convolution(%x, %w) {numbers % written} : {types}", arguments, "tensor<1x4x5x4xf32>")
    )
    assert (full.strides, full.padding) == ((2, 1), ((1, 0), (0, 1)))
    assert (full.rhs_dilation, full.reversal) == ((1, 2), (True, False))


def test_the_view_of_windows_fills_in_defaults() -> None:
    text = """"stablehlo.reduce_window"(%x, %v) <{window_dimensions = array<i64: 1, 3>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %1 : tensor<f32>
    }) : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x4xf32>"""
    view = views.WindowView.of(first(text, f"{X}, %v: tensor<f32>", "tensor<4x4xf32>"))
    assert view == views.WindowView((1, 3), (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))


def test_a_sort_counts_from_the_end_by_default() -> None:
    assert views.SortView(-1).position(3) == 2 and views.SortView(1).position(3) == 1

"""Programs that break what is checked of quantized elements, where no table of calls does."""

from __future__ import annotations

from .programs import Broken, call

CONVOLUTION = (
    "batch_group_count = 1 : i64, feature_group_count = 1 : i64, "
    "dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>"
)
DOT = "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>"

ROWS = [
    Broken("stablehlo.dot_general", "I1", call("stablehlo.dot_general", "t22 q22", "q22", DOT), "must not be quantized per axis"),
    *(
        Broken(f"stablehlo.{name}", "I1", call(f"stablehlo.{name}", operands, "q2881", CONVOLUTION), "must not be quantized per axis")
        for name, operands in (("convolution", "t2881 q1111"), ("dynamic_conv", "t2881 q1111 l22"))
    ),
    Broken("quant.scast", "types", call("quant.scast", "q2", "f2"), "that of its stored integers"),
    Broken("quant.scast", "shape", call("quant.scast", "q2", "y3"), "different shapes"),
]  # fmt: skip

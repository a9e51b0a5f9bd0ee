"""Cumulative sums and products of narrow floats on the CPU."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.formats import element_type


@pytest.mark.parametrize("element", ["bf16", "f16", "f8E4M3FN"])
@pytest.mark.parametrize("op, combine", [("add", np.add), ("multiply", np.multiply)])
@pytest.mark.parametrize("shape, dimension", [((8, 9), 0), ((8, 9), 1), ((3, 70, 33), 1)])
def test_every_result_of_a_scan_is_rounded_once(
    element: str, op: str, combine: Any, shape: tuple[int, ...], dimension: int
) -> None:
    """Each result is that of a reduction by itself: the next one continues in f32, from what is not rounded."""
    dtype = element_type(element).dtype
    assert dtype is not None
    values = np.random.default_rng(0).uniform(0.5, 1.25, shape).astype(dtype)
    extents = [shape[dimension] if d == dimension else 1 for d in range(len(shape))]
    padding = [[shape[dimension] - 1 if d == dimension else 0, 0] for d in range(len(shape))]
    type_ = f"tensor<{'x'.join(map(str, shape))}x{element}>"
    executable = hlojit.compile(f"""
      func.func @main(%x: {type_}) -> {type_} {{
        %init = stablehlo.constant dense<{float(op == "multiply")}> : tensor<{element}>
        %0 = "stablehlo.reduce_window"(%x, %init) ({{
          ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
            %1 = stablehlo.{op} %a, %b : tensor<{element}>
            stablehlo.return %1 : tensor<{element}>
        }}) {{window_dimensions = array<i64: {str(extents)[1:-1]}>, padding = dense<{padding}> : tensor<{len(shape)}x2xi64>}}
          : ({type_}, tensor<{element}>) -> {type_}
        return %0 : {type_}
      }}""")
    lines = np.moveaxis(values, dimension, 0)
    running = [lines[0].astype("f4")]
    for line in lines[1:]:
        running.append(combine(running[-1], line.astype("f4")))
    wanted = [each.astype(dtype) for each in running]
    found = executable(values).astype("f4")
    np.testing.assert_array_equal(found, np.moveaxis(np.stack(wanted), 0, dimension).astype("f4"))

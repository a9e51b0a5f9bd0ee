"""Collectives of quantized numbers."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest

Q = "!quant.uniform<i8:f32, 0.0625:-3>"
OPS = {
    "collective_permute": ("source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>", [[-3, -3], [1, 2]]),
    "collective_broadcast": ("replica_groups = dense<[[1]]> : tensor<1x1xi64>", [[-3, -3], [3, 4]]),
}


@pytest.mark.parametrize("name", OPS)
def test_who_is_sent_nothing_has_zeros(every: str, name: str) -> None:
    """Of quantized elements, the zero point."""
    attributes, expected = OPS[name]
    text = f"""func.func @main(%a: tensor<2x{Q}>) -> tensor<2x{Q}> {{
  %r = "stablehlo.{name}"(%a) {{{attributes}}} : (tensor<2x{Q}>) -> tensor<2x{Q}>
  return %r : tensor<2x{Q}>
}}"""
    executable = hlojit.compile(text, backend=every, num_replicas=2)
    results = executable([[np.array([1, 2], np.int8)], [np.array([3, 4], np.int8)]])
    found = [np.asarray(each[0] if isinstance(each, (list, tuple)) else each) for each in results]
    np.testing.assert_array_equal(found, expected)


def test_sums_of_quantized_numbers(every: str) -> None:
    """``all_reduce`` adds the numbers."""
    scalar = f"tensor<{Q}>"
    text = f"""func.func @main(%a: tensor<2x{Q}>) -> tensor<2x{Q}> {{
  %r = "stablehlo.all_reduce"(%a) ({{
  ^bb0(%x: {scalar}, %y: {scalar}):
    %s = stablehlo.add %x, %y : {scalar}
    stablehlo.return %s : {scalar}
  }}) {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<2x{Q}>) -> tensor<2x{Q}>
  return %r : tensor<2x{Q}>
}}"""
    executable = hlojit.compile(text, backend=every, num_replicas=2)
    results = executable([[np.array([1, 100], np.int8)], [np.array([3, 90], np.int8)]])
    for each in results:
        np.testing.assert_array_equal(np.asarray(each[0] if isinstance(each, (list, tuple)) else each), [7, 127])

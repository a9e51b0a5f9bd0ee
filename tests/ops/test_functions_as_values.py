"""Functions of a module as values: ``func.constant`` and ``func.call_indirect``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.errors import UnsupportedError

DIRECT = """
func.func private @twice(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.add %a, %a : tensor<3xf32>
  return %0 : tensor<3xf32>
}
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %f = func.constant @twice : (tensor<3xf32>) -> tensor<3xf32>
  %0 = func.call_indirect %f(%x) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
"""
PASSED_ON = """
func.func private @parts(%a: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %0 = stablehlo.add %a, %a : tensor<3xf32>
  return %a, %0 : tensor<3xf32>, tensor<3xf32>
}
func.func private @apply(%f: (tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>), %x: tensor<3xf32>) -> tensor<3xf32> {
  %0:2 = func.call_indirect %f(%x) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %1 = stablehlo.multiply %0#0, %0#1 : tensor<3xf32>
  return %1 : tensor<3xf32>
}
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %f = func.constant @parts : (tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %0 = func.call @apply(%f, %x) : ((tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>), tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("text", "function"), [(DIRECT, lambda x: x + x), (PASSED_ON, lambda x: x * (x + x))])
def test_what_is_called_may_be_a_value(backend: str, text: str, function: Callable[[Any], Any]) -> None:
    x = np.array([1.5, -2, 3], "f4")
    np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(x), function(x))


LOOP = (
    DIRECT[: DIRECT.index("  %0 = func.call_indirect")]
    + """
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<4> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<3xf32>
    cond {
      %p = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %w = func.call_indirect %f(%v) : (tensor<3xf32>) -> tensor<3xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %w : tensor<i32>, tensor<3xf32>
    }
  return %r#1 : tensor<3xf32>
}
"""
)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_in_a_loop(backend: str) -> None:
    x = np.array([1.5, -2, 3], "f4")
    np.testing.assert_array_equal(hlojit.compile(LOOP, backend=backend)(x), 16 * x)


def test_a_function_from_outside_is_refused() -> None:
    text = """
func.func @main(%f: (tensor<3xf32>) -> tensor<3xf32>, %x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = func.call_indirect %f(%x) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
"""
    with pytest.raises(UnsupportedError, match="func.call_indirect is not supported"):
        hlojit.compile(text)

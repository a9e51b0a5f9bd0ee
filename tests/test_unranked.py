"""Tensors without rank in programs of CHLO: they are compiled for the shapes that they are called with."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
import scipy.special
from hlojit.compiler import CompileOptions
from hlojit.ir.errors import HlojitError

PROGRAM = """
func.func @main(%x: tensor<*xf32>, %y: tensor<*xf32>) -> (tensor<*xf32>, tensor<*xi1>) {
  %0 = chlo.broadcast_add %x, %y : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  %1 = chlo.erf %0 : tensor<*xf32> -> tensor<*xf32>
  %2 = chlo.broadcast_compare %1, %y {comparison_direction = #chlo<comparison_direction LT>}
    : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xi1>
  return %0, %2 : tensor<*xf32>, tensor<*xi1>
}
"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_every_rank_is_compiled_when_it_comes(backend: str) -> None:
    executable = hlojit.compile(PROGRAM, backend=backend)
    for left, right in (((), ()), ((3,), ()), ((2, 3), (3,)), ((4, 1, 3), (2, 1)), ((2, 3), (2, 3))):
        x, y = np.full(left, 1.5, np.float32), np.arange(np.prod(right), dtype=np.float32).reshape(right)
        total, less = executable(x, y)
        np.testing.assert_array_equal(np.asarray(total), x + y, strict=True)
        np.testing.assert_array_equal(np.asarray(less), scipy.special.erf(x + y) < y, strict=True)
    assert len(executable.specializations) == 5


def test_shapes_that_do_not_fit_are_refused() -> None:
    executable = hlojit.compile(PROGRAM)
    with pytest.raises(HlojitError, match="cannot be broadcast"):
        executable(np.zeros(3, np.float32), np.zeros(2, np.float32))
    with pytest.raises(HlojitError, match="float64"):
        executable(np.zeros(3, np.float64), np.zeros(3, np.float32))


def test_for_all_sizes_at_once_ranks_must_be_known() -> None:
    executable = hlojit.compile(PROGRAM, options=CompileOptions(dynamic_shapes="symbolic"))
    assert executable.dynamic_shapes == "specialize" and "rank" in executable.why
    total, _ = executable(np.ones((2, 2), np.float32), np.float32(1))
    np.testing.assert_array_equal(np.asarray(total), np.full((2, 2), 2, np.float32))

"""Programs that leave sizes open on machines with threads: compiled for each combination of shapes, on the simulator."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest

SOFTMAX = """
func.func @main(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
  %b = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
  %r = stablehlo.reshape %a : (tensor<i32>) -> tensor<1xi32>
  %c = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.concatenate %r, %c, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
  %mb = stablehlo.dynamic_broadcast_in_dim %m, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  %d = stablehlo.subtract %x, %mb : tensor<?x?xf32>
  %e = stablehlo.exponential %d : tensor<?x?xf32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
  %tb = stablehlo.dynamic_broadcast_in_dim %t, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  %q = stablehlo.divide %e, %tb : tensor<?x?xf32>
  return %q : tensor<?x?xf32>
}
"""
BOUNDED = """
func.func @main(%x: tensor<8xf32>, %n: tensor<i32>) -> (tensor<?xf32, #stablehlo.bounds<8>>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<8xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<8>>
  %0 = stablehlo.negate %s : tensor<?xf32, #stablehlo.bounds<8>>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf32, #stablehlo.bounds<8>>, tensor<f32>) -> tensor<f32>
  return %0, %1 : tensor<?xf32, #stablehlo.bounds<8>>, tensor<f32>
}
"""


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")


def softmax(x: Any) -> Any:
    exponentials = np.exp(x - x.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


@pytest.mark.parametrize("how", ["specialize", "symbolic"])
def test_each_shape_has_kernels_of_its_own(how: str) -> None:
    executable = hlojit.compile(SOFTMAX, backend="cuda", options={"dynamic_shapes": how})
    assert executable.dynamic_shapes == "specialize"
    assert bool(executable.why) == (how == "symbolic")
    for shape in ((3, 5), (2, 33)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(np.asarray(executable(x)), softmax(x), rtol=1e-5)
    assert len(executable.specializations) == 2


def test_results_whose_size_only_the_run_tells() -> None:
    executable = hlojit.compile(BOUNDED, backend="cuda")
    x = np.arange(8, dtype=np.float32)
    for n in (0, 3, 8):
        part, total = executable(x, np.int32(n))
        np.testing.assert_array_equal(np.asarray(part), -x[:n])
        assert float(total) == -x[:n].sum()

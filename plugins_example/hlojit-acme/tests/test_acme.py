"""Acme's own tests, run as a vendor would run them: against an installed hlojit and this installed package."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.extensions import registry

SOFTPLUS = """
func.func @main(%x: tensor<4x1000xf32>, %y: tensor<4x1000xf32>) -> tensor<4x1000xf32> {
  %0 = stablehlo.add %x, %y : tensor<4x1000xf32>
  %1 = stablehlo.custom_call @acme.softplus(%0) : (tensor<4x1000xf32>) -> tensor<4x1000xf32>
  %2 = stablehlo.multiply %1, %y : tensor<4x1000xf32>
  return %2 : tensor<4x1000xf32>
}
"""


def test_plugin_is_found_by_its_entry_point() -> None:
    record = registry().load().records["acme"]
    assert record.package == "hlojit-acme" and not record.error and record.identity


@pytest.fixture(autouse=True)
def _simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")


@pytest.mark.parametrize("backend", ["cpu", "reference", "acme", "cuda"])
def test_custom_call_computes_softplus(backend: str) -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 4, 1000)).astype("f4") * 20
    result = hlojit.compile(SOFTPLUS, backend=backend)(x, y)
    np.testing.assert_allclose(result, np.logaddexp(0, (x + y).astype("f8")) * y, rtol=2e-6, atol=1e-6)


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes from the cache on disk has no text to look at."""
    monkeypatch.setenv("HLOJIT_CACHE", "off")


def test_custom_call_is_one_vectorized_loop() -> None:
    executable = hlojit.compile(SOFTPLUS, backend="cpu")
    launches = executable.spec.program.launches()
    assert len(launches) == 1, "the call is fused with the addition and the multiplication"


@pytest.mark.parametrize("backend", ["cpu", "reference", "cuda"])
def test_format_converts_adds_reduces_and_multiplies(backend: str) -> None:
    text = """
    func.func @main(%a: tensor<8x16xf32>, %b: tensor<16x8xf32>) -> (tensor<8x8xacme8>, tensor<8x8xf32>, tensor<8xf32>) {
      %0 = stablehlo.convert %a : (tensor<8x16xf32>) -> tensor<8x16xacme8>
      %1 = stablehlo.convert %b : (tensor<16x8xf32>) -> tensor<16x8xacme8>
      %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0]
        : (tensor<8x16xacme8>, tensor<16x8xacme8>) -> tensor<8x8xacme8>
      %3 = stablehlo.add %2, %2 : tensor<8x8xacme8>
      %c = stablehlo.constant dense<0.0> : tensor<acme8>
      %4 = stablehlo.reduce(%3 init: %c) applies stablehlo.maximum across dimensions = [1]
        : (tensor<8x8xacme8>, tensor<acme8>) -> tensor<8xacme8>
      %5 = stablehlo.convert %3 : (tensor<8x8xacme8>) -> tensor<8x8xf32>
      %6 = stablehlo.convert %4 : (tensor<8xacme8>) -> tensor<8xf32>
      return %3, %5, %6 : tensor<8x8xacme8>, tensor<8x8xf32>, tensor<8xf32>
    }
    """
    a, b = np.random.default_rng(1).integers(-2, 3, (2, 128)).astype("f4") / 16
    a, b = a.reshape(8, 16), b.reshape(16, 8)
    encoded, total, largest = hlojit.compile(text, backend=backend)(a, b)
    # Small multiples of 1/256: products and sums are exact in f32, one rounding to 4 significant bits remains.
    product = rounded(a @ b)
    np.testing.assert_array_equal(total, rounded(2 * product))
    np.testing.assert_array_equal(largest, np.maximum(rounded(2 * product).max(1), 0))
    assert isinstance(encoded, hlojit.Array) and encoded.storage.dtype == np.uint8


def rounded(values: np.ndarray) -> np.ndarray:
    """Round to acme8 by exact arithmetic: 4 significant bits, the smallest step 2**-11, the largest number 120/128 * 2."""
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(values), 2.0**-60))), 1 - 9)
    step = 2.0 ** (exponent - 3)
    return np.round(values / step) * step


def test_pass_turns_division_into_multiplication() -> None:
    text = """
    func.func @main(%x: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>) {
      %c = stablehlo.constant dense<4.0> : tensor<5xf32>
      %d = stablehlo.constant dense<3.0> : tensor<5xf32>
      %0 = stablehlo.divide %x, %c : tensor<5xf32>
      %1 = stablehlo.divide %x, %d : tensor<5xf32>
      return %0, %1 : tensor<5xf32>, tensor<5xf32>
    }
    """
    from hlojit_acme.plugin import DivisionByConstant

    module = hlojit.parse(text)
    assert DivisionByConstant().run(module)
    hlojit.verify(module)
    assert str(module).count("stablehlo.divide") == 1 and "stablehlo.multiply" in str(module)
    x = np.array([1, -3, 1e-30, 7, np.inf], "f4")
    for ours, exact in zip(hlojit.compile(text)(x), (x / np.float32(4), x / np.float32(3))):
        np.testing.assert_array_equal(ours, exact)


def test_backend_declines_f64_with_its_reason() -> None:
    text = "func.func @main(%x: tensor<5xf64>) -> tensor<5xf64> {\n%0 = stablehlo.add %x, %x : tensor<5xf64>\nreturn %0 : tensor<5xf64>\n}"
    with pytest.raises(
        hlojit.UnsupportedError,
        match=r"stablehlo.add is not supported by the back end 'acme': the device has no f64 unit",
    ):
        hlojit.compile(text, backend="acme")


def test_backend_keeps_the_largest_k_and_takes_other_higher_ops_apart() -> None:
    text = """
    func.func @main(%x: tensor<8xf32>) -> tensor<3xf32> {
      %0:2 = chlo.top_k(%x, k = 3) : tensor<8xf32> -> (tensor<3xf32>, tensor<3xi32>)
      %1 = "chlo.square"(%0#0) : (tensor<3xf32>) -> tensor<3xf32>
      return %1 : tensor<3xf32>
    }
    """
    lowered = str(hlojit.lower(text, backend="acme"))
    assert "chlo.top_k" in lowered and "stablehlo.sort" not in lowered and "chlo.square" not in lowered
    x = np.linspace(-1, 2, 8, dtype="f4")
    np.testing.assert_array_equal(hlojit.compile(text, backend="acme")(x), x[:-4:-1] ** 2)

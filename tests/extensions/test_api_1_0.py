"""A plugin written for version 1.0 of the hooks, frozen as it was, goes on working: ``tests/frozen/hlojit_acme_1_0``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

PLUGIN = Path(__file__).resolve().parents[1] / "frozen" / "hlojit_acme_1_0" / "plugin.py"

SOFTPLUS = """
func.func @main(%x: tensor<4x1000xf32>, %y: tensor<4x1000xf32>) -> tensor<4x1000xf32> {
  %0 = stablehlo.add %x, %y : tensor<4x1000xf32>
  %1 = stablehlo.custom_call @acme.softplus(%0) : (tensor<4x1000xf32>) -> tensor<4x1000xf32>
  %2 = stablehlo.multiply %1, %y : tensor<4x1000xf32>
  return %2 : tensor<4x1000xf32>
}
"""
HIGHER = """
func.func @main(%x: tensor<8xf32>) -> (tensor<3xf32>, tensor<8xf32>) {
  %0:2 = chlo.top_k(%x, k = 3) : tensor<8xf32> -> (tensor<3xf32>, tensor<3xi32>)
  %1 = stablehlo.composite "acme.twice" %x {decomposition = @twice} : (tensor<8xf32>) -> tensor<8xf32>
  return %0#0, %1 : tensor<3xf32>, tensor<8xf32>
}
func.func private @twice(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.add %x, %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""


@pytest.fixture
def acme() -> Iterator[ModuleType]:
    """The frozen plugin, registered under the name of its entry point."""
    spec = importlib.util.spec_from_file_location("acme", PLUGIN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["acme"] = module
    spec.loader.exec_module(module)
    with ext.using(module):
        yield module
    del sys.modules["acme"]


@pytest.mark.parametrize("backend", ["cpu", "reference", "acme"])
def test_custom_call_computes_softplus(acme: ModuleType, backend: str) -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 4, 1000)).astype("f4") * 20
    result = hlojit.compile(SOFTPLUS, backend=backend)(x, y)
    np.testing.assert_allclose(result, np.logaddexp(0, (x + y).astype("f8")) * y, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("backend", ["cpu", "reference", "acme"])
def test_format_converts_and_adds(acme: ModuleType, backend: str) -> None:
    text = """
    func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
      %0 = stablehlo.convert %x : (tensor<5xf32>) -> tensor<5xacme8>
      %1 = stablehlo.add %0, %0 : tensor<5xacme8>
      %2 = stablehlo.convert %1 : (tensor<5xacme8>) -> tensor<5xf32>
      return %2 : tensor<5xf32>
    }
    """
    result = hlojit.compile(text, backend=backend)(np.array([0.25, -1, 1.5, 0.05, 1000], "f4"))
    # Four significant bits: 0.05 is nearest to 13/256; what is too large becomes 14/8 * 2**6.
    np.testing.assert_array_equal(result, np.array([0.5, -2, 3, 26 / 256, 112], "f4"))


@pytest.mark.parametrize("backend", ["cpu", "acme"])
def test_pass_runs_and_is_right(acme: ModuleType, backend: str) -> None:
    text = """
    func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
      %c = stablehlo.constant dense<4.0> : tensor<5xf32>
      %0 = stablehlo.divide %x, %c : tensor<5xf32>
      return %0 : tensor<5xf32>
    }
    """
    x = np.array([1, -3, 1e-30, 7, np.inf], "f4")
    np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(x), x / np.float32(4))


def test_back_end_gets_expanded_programs_although_it_answers_yes(acme: ModuleType) -> None:
    x = np.linspace(-1, 1, 8, dtype="f4")
    largest, twice = hlojit.compile(HIGHER, backend="acme")(x)
    np.testing.assert_array_equal(largest, x[:-4:-1])
    np.testing.assert_array_equal(twice, 2 * x)
    with pytest.raises(hlojit.UnsupportedError, match=r"unknown custom call target 'acme\.softplu'.*'acme\.softplus'"):
        hlojit.compile(SOFTPLUS.replace("@acme.softplus", "@acme.softplu"), backend="acme")


def test_back_end_declines_f64_with_its_reason(acme: ModuleType) -> None:
    text = "func.func @main(%x: tensor<5xf64>) -> tensor<5xf64> {\n%0 = stablehlo.add %x, %x : tensor<5xf64>\nreturn %0 : tensor<5xf64>\n}"
    with pytest.raises(
        hlojit.UnsupportedError,
        match=r"stablehlo.add is not supported by the back end 'acme': the device has no f64 unit",
    ):
        hlojit.compile(text, backend="acme")


def test_an_answer_with_a_cost_is_the_answer() -> None:
    """Version 1.0 let back ends name a cost; nothing reads it."""
    assert ext.Capability(ext.Support.YES, cost=12.5) == ext.Capability(ext.Support.YES, "", 12.5) == ext.YES
    assert ext.Capability(ext.Support.NO, "too large", None) == ext.no("too large")

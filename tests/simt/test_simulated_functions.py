"""Plugins' scalar functions in simulated kernels: inlined, and their failures reported."""

from __future__ import annotations

from types import SimpleNamespace

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

from .simulated import run_text

TABLE = np.arange(256, dtype="f4") * 0.5
TEXT = """
func.func @main(%x: tensor<1000xi32>) -> tensor<1000xf32> {
  %0 = stablehlo.custom_call @test.f(%x) : (tensor<1000xi32>) -> tensor<1000xf32>
  return %0 : tensor<1000xf32>
}"""


def look_up(x: int) -> float:
    return TABLE[x]


@pytest.fixture
def plugin() -> SimpleNamespace:
    calls = [ext.ElementwiseCall("test.f", function=look_up)]
    return SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: calls))


def test_a_function_is_run_by_every_thread(plugin: SimpleNamespace) -> None:
    x = np.random.default_rng(0).integers(0, 256, 1000, np.int32)
    with ext.using(plugin):
        (found,) = run_text(TEXT, x)
    np.testing.assert_array_equal(found, TABLE[x])


def test_what_fails_in_it_is_an_error(plugin: SimpleNamespace) -> None:
    x = np.zeros(1000, np.int32)
    x[777] = 256
    with (
        ext.using(plugin),
        pytest.raises(hlojit.ExecutionError, match=r"kernel kernel: .*an index is out of range in look_up"),
    ):
        run_text(TEXT, x)

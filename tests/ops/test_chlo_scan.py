"""``chlo.scan`` as other ops: windows where a scan is associative, loops where it is not, against the op's reference."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.extensions import CompileOptions, registry
from hlojit.ir import interpreter

Array = np.ndarray[Any, Any]


def associative(op: str, init: str, *, dimension: int, reverse: bool = False, element: str = "f32") -> str:
    """As JAX writes cumulative sums for NVIDIA's GPUs."""
    carry = "7" if dimension == 0 else "5"
    return f"""
func.func @main(%x: tensor<5x7x{element}>) -> (tensor<5x7x{element}>, tensor<{carry}x{element}>) {{
  %c = stablehlo.constant dense<{init}> : tensor<{element}>
  %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<{element}>) -> tensor<{carry}x{element}>
  %1:2 = chlo.scan(%x) inits (%0) dimension={dimension} attributes {{is_associative = true, is_reverse = {str(reverse).lower()}}} {{
  ^bb0(%input: tensor<{carry}x{element}>, %carry: tensor<{carry}x{element}>):
    %2 = stablehlo.{op} %input, %carry : tensor<{carry}x{element}>
    stablehlo.return %2, %2 : tensor<{carry}x{element}>, tensor<{carry}x{element}>
  }} : (tensor<5x7x{element}>, tensor<{carry}x{element}>) -> (tensor<5x7x{element}>, tensor<{carry}x{element}>)
  return %1#0, %1#1 : tensor<5x7x{element}>, tensor<{carry}x{element}>
}}"""


LOOP = """
func.func @main(%x: tensor<6x3xf32>, %y: tensor<6xf32>, %c: tensor<3xf32>, %d: tensor<f32>) -> (tensor<6x3xf32>, tensor<6xf32>, tensor<3xf32>, tensor<f32>) {
  %1:4 = chlo.scan(%x, %y) inits (%c, %d) dimension=0 attributes {is_reverse = REVERSE} {
  ^bb0(%a: tensor<3xf32>, %b: tensor<f32>, %p: tensor<3xf32>, %q: tensor<f32>):
    %2 = stablehlo.subtract %p, %a : tensor<3xf32>
    %3 = stablehlo.multiply %q, %b : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<3xf32>
    %5 = stablehlo.add %2, %4 : tensor<3xf32>
    stablehlo.return %5, %b, %2, %3 : tensor<3xf32>, tensor<f32>, tensor<3xf32>, tensor<f32>
  } : (tensor<6x3xf32>, tensor<6xf32>, tensor<3xf32>, tensor<f32>) -> (tensor<6x3xf32>, tensor<6xf32>, tensor<3xf32>, tensor<f32>)
  return %1#0, %1#1, %1#2, %1#3 : tensor<6x3xf32>, tensor<6xf32>, tensor<3xf32>, tensor<f32>
}"""


def check(text: str, backend: str, *arguments: Array) -> None:
    """Small whole numbers: every order of the sums gives the same bits."""
    found = hlojit.compile(text, backend=backend)(*arguments)
    for ours, theirs in zip(found, interpreter.evaluate(hlojit.parse(text), *arguments), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(params=["cpu", "cuda"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cuda" and not request.config.getoption("--gpu"):
        monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    return str(request.param)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize(("op", "init"), [("add", "0.0"), ("add", "3.0"), ("multiply", "1.0"), ("multiply", "-2.0")])
def test_associative_scans(op: str, init: str, dimension: int, reverse: bool, backend: str) -> None:
    x = np.random.default_rng(0).integers(-2, 3, (5, 7)).astype("f4")
    check(associative(op, init, dimension=dimension, reverse=reverse), backend, x)


def test_scans_of_integers_and_extrema(backend: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (5, 7)).astype("i4")
    check(associative("maximum", "-3", dimension=1, element="i32"), backend, x)
    check(associative("add", "1", dimension=0, element="i32"), backend, x)


@pytest.mark.parametrize("reverse", ["false", "true"])
def test_other_scans_are_loops(reverse: str, backend: str) -> None:
    random = np.random.default_rng(0)
    x, y, c, d = (random.integers(-2, 3, shape).astype("f4") for shape in ((6, 3), 6, 3, ()))
    check(LOOP.replace("REVERSE", reverse), backend, x, y, c, d)


def test_a_cumulative_sum_is_one_window_and_no_loop() -> None:
    """Zero changes nothing: nothing is added afterwards."""
    module = hlojit.parse(associative("add", "0.0", dimension=1))
    names = [each.name for each in lower(module, registry().backend("cpu"), CompileOptions()).walk()]
    assert names.count("stablehlo.reduce_window") == 1
    assert not {"stablehlo.while", "stablehlo.add"} & {each.name for each in module.main.body}

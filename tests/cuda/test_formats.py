"""Formats that plugins register, in GPU kernels: the same codes as on the CPU and in the reference."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("simulator")

ROOT = Path(__file__).resolve().parents[2]
STEPS = np.array([0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 64.0], "f4")


def decode_steps(code: int) -> float:
    """Eight magnitudes of unequal distance, as posits have them, and a sign."""
    magnitude = STEPS[code & 7]
    return -magnitude if code & 8 else magnitude


def encode_steps(value: float) -> int:
    code = 0
    while code < 7 and abs(value) - STEPS[code] > STEPS[code + 1] - abs(value):
        code += 1
    return code + 8 if math.copysign(1.0, value) < 0 else code


def careless_encode(value: float) -> int:
    return int(value)


SIX = ext.FloatFormat(
    "six", exponent_bits=3, mantissa_bits=2, bias=3, has_infinity=False, nan=ext.NanEncoding.NONE,
    overflow=ext.Overflow.SATURATE)  # fmt: skip
STEPPED = ext.FloatFormat(
    "stepped", bits=4, decode=decode_steps, encode=encode_steps, has_infinity=False, nan=ext.NanEncoding.NONE
)
CARELESS = ext.FloatFormat(
    "careless", bits=4, decode=decode_steps, encode=careless_encode, has_infinity=False, nan=ext.NanEncoding.NONE
)

ELEMENTWISE = """func.func @main(%x: tensor<33x70xF>, %y: tensor<70xF>) -> (tensor<33x70xF>, tensor<33x70xf32>, tensor<33x70xi1>) {
  %c = stablehlo.constant dense<0.5> : tensor<33x70xF>
  %b = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<70xF>) -> tensor<33x70xF>
  %0 = stablehlo.multiply %x, %b : tensor<33x70xF>
  %1 = stablehlo.add %0, %c : tensor<33x70xF>
  %2 = stablehlo.convert %1 : (tensor<33x70xF>) -> tensor<33x70xf32>
  %3 = stablehlo.compare GT, %1, %c : (tensor<33x70xF>, tensor<33x70xF>) -> tensor<33x70xi1>
  return %1, %2, %3 : tensor<33x70xF>, tensor<33x70xf32>, tensor<33x70xi1>
}"""
MOVED = """func.func @main(%x: tensor<33x70xF>, %y: tensor<70xF>) -> tensor<70x33xF> {
  %b = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<70xF>) -> tensor<33x70xF>
  %0 = stablehlo.maximum %x, %b : tensor<33x70xF>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<33x70xF>) -> tensor<70x33xF>
  return %1 : tensor<70x33xF>
}"""
SORTED = """func.func @main(%x: tensor<33x70xF>, %y: tensor<70xF>) -> (tensor<33x70xF>, tensor<33xF>) {
  %0 = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<F>, %b: tensor<F>):
    %s = stablehlo.compare LT, %a, %b : (tensor<F>, tensor<F>) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true} : (tensor<33x70xF>) -> tensor<33x70xF>
  %c = stablehlo.constant dense<0.5> : tensor<F>
  %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.maximum across dimensions = [1] : (tensor<33x70xF>, tensor<F>) -> tensor<33xF>
  return %0, %1 : tensor<33x70xF>, tensor<33xF>
}"""
PRODUCT = """func.func @main(%x: tensor<33x70xF>, %y: tensor<70xF>) -> tensor<33xF> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<33x70xF>, tensor<70xF>) -> tensor<33xF>
  return %0 : tensor<33xF>
}"""
PROGRAMS = {"elementwise": ELEMENTWISE, "moved": MOVED, "sorted": SORTED, "product": PRODUCT}


@pytest.fixture(autouse=True)
def formats() -> Any:
    rows = [SIX, STEPPED, CARELESS]
    with ext.using(SimpleNamespace(__name__="formats", hlojit_formats=ext.hookimpl(lambda: rows))):
        yield


def codes(result: Any) -> list[bytes]:
    parts = result if isinstance(result, tuple) else (result,)
    return [np.asarray(getattr(each, "storage", each)).tobytes() for each in parts]


@pytest.mark.parametrize("row", [SIX, STEPPED], ids=lambda row: row.name)
@pytest.mark.parametrize("name", PROGRAMS)
def test_codes_are_those_of_the_cpu_and_of_the_reference(name: str, row: ext.FloatFormat) -> None:
    text = PROGRAMS[name].replace("xF>", f"x{row.name}>").replace("<F>", f"<{row.name}>")
    random = np.random.default_rng(3)
    if name == "product":  # small whole numbers: their sums are exact in any order
        x, y = (hlojit.Array.from_values(random.integers(-1, 2, shape).astype("f8"), row) for shape in ((33, 70), 70))
    else:
        x, y = (hlojit.Array(random.integers(0, 1 << row.bits, shape).astype("u1"), row) for shape in ((33, 70), 70))
    found = {backend: codes(hlojit.compile(text, backend=backend)(x, y)) for backend in ("cuda", "cpu", "reference")}
    assert found["cuda"] == found["cpu"] == found["reference"]


def test_a_code_that_is_none_is_a_named_error() -> None:
    text = "func.func @main(%x: tensor<99xf32>) -> tensor<99xcareless> {\n%0 = stablehlo.convert %x : (tensor<99xf32>) -> tensor<99xcareless>\nreturn %0 : tensor<99xcareless>\n}"
    x = np.zeros(99, "f4")
    for backend in ("cpu", "cuda"):
        executable = hlojit.compile(text, backend=backend)
        assert not np.asarray(executable(x).storage).any()
        with pytest.raises(hlojit.ExecutionError, match=r"a code is outside its 4 bits in careless_encode \(.*\)$"):
            executable(x + 16)


@pytest.mark.slow
def test_the_example_plugin_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acme's format, pass and custom call, as the package brings them."""
    monkeypatch.syspath_prepend(str(ROOT / "plugins_example" / "hlojit-acme"))
    plugin = __import__("hlojit_acme.plugin", fromlist=["plugin"])
    text = """func.func @main(%a: tensor<8x160xf32>, %b: tensor<8x160xf32>) -> (tensor<8x160xacme8>, tensor<8xacme8>, tensor<8x160xf32>) {
  %two = stablehlo.constant dense<2.0> : tensor<8x160xf32>
  %h = stablehlo.divide %a, %two : tensor<8x160xf32>
  %s = stablehlo.custom_call @acme.softplus(%h) : (tensor<8x160xf32>) -> tensor<8x160xf32>
  %0 = stablehlo.convert %s : (tensor<8x160xf32>) -> tensor<8x160xacme8>
  %1 = stablehlo.convert %b : (tensor<8x160xf32>) -> tensor<8x160xacme8>
  %2 = stablehlo.multiply %0, %1 : tensor<8x160xacme8>
  %c = stablehlo.constant dense<0.0> : tensor<acme8>
  %3 = stablehlo.reduce(%2 init: %c) applies stablehlo.maximum across dimensions = [1] : (tensor<8x160xacme8>, tensor<acme8>) -> tensor<8xacme8>
  return %2, %3, %s : tensor<8x160xacme8>, tensor<8xacme8>, tensor<8x160xf32>
}"""
    a, b = np.random.default_rng(0).standard_normal((2, 8, 160)).astype("f4") * 4
    try:
        with ext.using(plugin):
            results = {backend: hlojit.compile(text, backend=backend)(a, b) for backend in ("cuda", "cpu", "reference")}
    finally:
        for name in [each for each in sys.modules if each.startswith("hlojit_acme")]:
            del sys.modules[name]
    assert codes(results["cuda"]) == codes(results["cpu"])
    assert codes(results["cuda"][:2]) == codes(results["reference"][:2])
    np.testing.assert_allclose(results["cuda"][2], np.logaddexp(0, a.astype("f8") / 2), rtol=2e-6)

"""Elementwise calls: several results, parameters from the call's configuration, C functions."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import CompileOptions, CustomCall, ElementwiseCall, hookimpl, using
from hlojit.ir.errors import HlojitError, PluginError

LIBRARY = ctypes.CDLL(None)
TGAMMA = LIBRARY.tgamma
TGAMMA.argtypes, TGAMMA.restype = [ctypes.c_double], ctypes.c_double


class Calls:
    def __init__(self, *calls: CustomCall):
        self.calls = calls

    @hookimpl
    def hlojit_custom_calls(self) -> list[CustomCall]:
        return list(self.calls)


def registered(*calls: CustomCall) -> Any:
    return using(Calls(*calls))


def split(x: float, y: int) -> tuple[float, int, bool]:
    whole = math.floor(x)
    return x - whole, int(whole) + y, x < 0


SPLIT = """
func.func @main(%x: tensor<1000xf32>, %y: tensor<1000xi16>) -> (tensor<1000xf32>, tensor<1000xi32>, tensor<1000xi1>) {
  %0:3 = stablehlo.custom_call @t.split(%x, %y) : (tensor<1000xf32>, tensor<1000xi16>) -> (tensor<1000xf32>, tensor<1000xi32>, tensor<1000xi1>)
  return %0#0, %0#1, %0#2 : tensor<1000xf32>, tensor<1000xi32>, tensor<1000xi1>
}"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("call", [{"function": split}, {"factory": lambda site: split}], ids=["function", "factory"])
def test_a_function_gives_several_results_of_different_types(call: dict[str, Any], backend: str) -> None:
    x = np.random.default_rng(0).normal(0, 100, 1000).astype("f4")
    y = np.arange(1000).astype("i2")
    with registered(ElementwiseCall("t.split", **call)):
        run = hlojit.compile(SPLIT, backend=backend)
    rest, whole, negative = run(x, y)
    np.testing.assert_array_equal(whole, np.floor(x).astype("i4") + y)
    np.testing.assert_array_equal(rest, (x - np.floor(x)))
    np.testing.assert_array_equal(negative, x < 0)
    if backend == "cpu":
        assert len(run.spec.program.launches()) == 1


def test_a_factory_of_several_results_is_told_all_of_their_types() -> None:
    seen = []

    def make(site: Any) -> Callable[..., Any]:
        seen.append([each.name for each in site.result_types])
        return split

    with registered(ElementwiseCall("t.split", factory=make)):
        hlojit.compile(SPLIT)
    assert seen == [["f32", "i32", "i1"]]


@pytest.mark.parametrize(("function", "backend"), [(lambda x, y: (x, y), "cpu"), (lambda x, y: x, "reference")])
def test_as_many_numbers_as_results_are_returned(function: Callable[..., Any], backend: str) -> None:
    with registered(ElementwiseCall("t.split", function=function)), pytest.raises(HlojitError, match=r"'t\.split'"):
        hlojit.compile(SPLIT, backend=backend)(np.ones(1000, "f4"), np.ones(1000, "i2"))


def clipped(x: float, low: float = 0.0, *, high: float = 1.0, wraps: bool = False) -> float:
    if wraps:
        return x - math.floor(x)
    return min(max(x, low), high)


def clip_text(config: str) -> str:
    return f"""
func.func @main(%x: tensor<9xf32>) -> tensor<9xf32> {{
  %0 = stablehlo.custom_call @t.clip(%x) {{{config}}} : (tensor<9xf32>) -> tensor<9xf32>
  return %0 : tensor<9xf32>
}}"""


X = np.linspace(-2, 2, 9, dtype="f4")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", np.clip(X, 0, 1)),
        ("mhlo.backend_config = {high = 0.5 : f32}", np.clip(X, 0, 0.5)),
        ("mhlo.backend_config = {low = -1 : i64, high = 0.5 : f64}", np.clip(X, -1, 0.5)),
        ("backend_config = {wraps = true}, api_version = 4 : i32", X - np.floor(X)),
    ],
)
def test_entries_of_a_configuration_are_parameters(config: str, expected: Any, backend: str) -> None:
    with registered(ElementwiseCall("t.clip", function=clipped)):
        np.testing.assert_array_equal(hlojit.compile(clip_text(config), backend=backend)(X), expected)


def test_an_entry_that_the_function_does_not_take_is_named() -> None:
    with (
        registered(ElementwiseCall("t.clip", function=clipped)),
        pytest.raises(PluginError, match=r"(?s)'t\.clip'.*no parameter 'hihg'.*low, high, wraps.*at .*:3:"),
    ):
        hlojit.compile(clip_text("mhlo.backend_config = {hihg = 1.0 : f32}"))
    with (
        registered(ElementwiseCall("t.clip", function=lambda x, slope: x * slope)),
        pytest.raises(PluginError, match=r"(?s)'t\.clip'.*takes 2 arguments, not 1"),
    ):
        hlojit.compile(clip_text(""))


# ------------------------------------------------------------------------------------------------------- C functions


def gamma_text(kind: str, target: str = "t.gamma") -> str:
    return f"""
func.func @main(%x: tensor<37x{kind}>) -> tensor<37x{kind}> {{
  %0 = stablehlo.add %x, %x : tensor<37x{kind}>
  %1 = stablehlo.custom_call @{target}(%0) : (tensor<37x{kind}>) -> tensor<37x{kind}>
  %2 = stablehlo.negate %1 : tensor<37x{kind}>
  return %2 : tensor<37x{kind}>
}}"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("kind", ["f64", "f32", "bf16", "i16"])
def test_a_c_function_is_mapped_over_elements(kind: str, backend: str) -> None:
    dtype = hlojit.ir.element_type(kind).dtype
    x = (np.arange(1, 38) / 4).astype(dtype)
    with registered(ElementwiseCall("t.gamma", function=TGAMMA)) as _:
        run = hlojit.compile(gamma_text(kind), backend=backend)
    expected = np.array([-TGAMMA(float(each)) for each in (x + x)])
    if kind == "i16":  # what does not fit becomes the nearest number that does
        expected = -np.clip(-expected, -(2**15), 2**15 - 1)
    np.testing.assert_array_equal(run(x), expected.astype(dtype))
    if backend == "cpu":
        assert len(run.spec.program.launches()) == 1, "the call is a part of the loop around it"


def test_a_c_function_runs_in_programs_of_all_sizes_and_in_saved_ones(tmp_path: Path) -> None:
    text = gamma_text("f64")
    with registered(ElementwiseCall("t.gamma", function=TGAMMA)):
        run = hlojit.compile(text.replace("37", "?"), options=CompileOptions(dynamic_shapes="symbolic"))
        for count in (1, 8, 33):
            np.testing.assert_array_equal(run(np.full(count, 1.5)), np.full(count, -TGAMMA(3.0)))
        hlojit.compile(text).save(tmp_path / "gamma.hlojit")
        assert hlojit.load(tmp_path / "gamma.hlojit")(np.full(37, 2.5))[3] == -TGAMMA(5.0)
    with pytest.raises(
        HlojitError, match=r"C function of custom call target 't\.gamma', and no plugin in scope has one"
    ):
        hlojit.load(tmp_path / "gamma.hlojit")


def test_a_c_function_of_mixed_integers() -> None:
    ldexp, labs = LIBRARY.ldexp, LIBRARY.labs
    ldexp.argtypes, ldexp.restype = [ctypes.c_double, ctypes.c_int], ctypes.c_double
    labs.argtypes, labs.restype = [ctypes.c_int64], ctypes.c_int64
    text = """
func.func @main(%x: tensor<5xf32>, %n: tensor<5xi8>, %m: tensor<5xui8>) -> (tensor<5xf32>, tensor<5xi64>, tensor<5xi64>) {
  %0 = stablehlo.custom_call @t.ldexp(%x, %n) : (tensor<5xf32>, tensor<5xi8>) -> tensor<5xf32>
  %1 = stablehlo.custom_call @t.labs(%n) : (tensor<5xi8>) -> tensor<5xi64>
  %2 = stablehlo.custom_call @t.labs(%m) : (tensor<5xui8>) -> tensor<5xi64>
  return %0, %1, %2 : tensor<5xf32>, tensor<5xi64>, tensor<5xi64>
}"""
    x, n = np.float32([1, -2, 3, 0.5, 7]), np.int8([1, -3, 0, 5, -128])
    m = np.uint8([0, 255, 128, 1, 200])
    with registered(ElementwiseCall("t.ldexp", function=ldexp), ElementwiseCall("t.labs", function=labs)):
        first, second, third = hlojit.compile(text)(x, n, m)
    np.testing.assert_array_equal(first, np.ldexp(x, n.astype("i4")))
    np.testing.assert_array_equal(second, np.abs(n.astype("i8")))
    np.testing.assert_array_equal(third, m.astype("i8"))


def test_what_is_no_c_function_of_numbers_is_refused() -> None:
    def refused(said: str, function: Any) -> None:
        with pytest.raises(PluginError, match=rf"'t\.f': {said}"):
            ElementwiseCall("t.f", function=function)

    bare = ctypes.CDLL(None).cbrt
    refused(r"cbrt is a C function whose parameters nobody knows; say cbrt\.argtypes", bare)
    pointer = ctypes.CDLL(None).strlen
    pointer.argtypes, pointer.restype = [ctypes.c_char_p], ctypes.c_int64
    refused(r"strlen takes or returns c_char_p", pointer)
    refused(
        r"function is a ctypes callback of a Python function", ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(abs)
    )
    single = ctypes.CDLL(None).cbrtf
    single.argtypes, single.restype = [ctypes.c_float], ctypes.c_float
    with (
        registered(ElementwiseCall("t.gamma", function=single)),
        pytest.raises(PluginError, match=r"(?s)'t\.gamma': parameter 0 of cbrtf is f32, which does not hold every f64"),
    ):
        hlojit.compile(gamma_text("f64"))

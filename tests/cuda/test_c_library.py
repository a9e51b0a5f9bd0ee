"""What plugins' functions call of the C library: rules on machines with threads, against C's on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.simt.c_library import without_c_library

Array = np.ndarray[Any, Any]
DTYPES = {"f32": "f4", "f64": "f8", "i32": "i4"}


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")


def results(function: Callable[..., Any], kinds: tuple[str, ...], result: str, *arguments: Array) -> list[Array]:
    """What cuda and the CPU make of a function of elements."""
    size = arguments[0].size
    types = [f"tensor<{size}x{kind}>" for kind in kinds]
    names = [f"%x{number}" for number in range(len(kinds))]
    text = f"""func.func @main({", ".join(map("{}: {}".format, names, types))}) -> tensor<{size}x{result}> {{
      %0 = stablehlo.custom_call @test.f({", ".join(names)}) : ({", ".join(types)}) -> tensor<{size}x{result}>
      return %0 : tensor<{size}x{result}>
    }}"""
    call = ext.ElementwiseCall("test.f", function=function)
    with ext.using(SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: [call]))):
        return [np.asarray(hlojit.compile(text, backend=name)(*arguments)) for name in ("cuda", "cpu")]


def floats(kind: str) -> Array:
    """Of every exponent, denormal ones and what is no number among them."""
    dtype = np.dtype(DTYPES[kind])
    random = np.random.default_rng(3)
    any_bits = random.integers(0, 1 << 8 * dtype.itemsize, 600, dtype=f"u{dtype.itemsize}").view(dtype)
    least = np.nextafter(dtype.type(0), dtype.type(1))
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, least, -least, 3 * least, np.finfo(dtype).max]
    return np.concatenate([any_bits, np.array(special, dtype)])


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("part", [0, 1])
def test_frexp(part: int, kind: str) -> None:
    x = floats(kind)
    x = x[~np.isnan(x)]
    for found in results([lambda x: math.frexp(x)[0], lambda x: math.frexp(x)[1]][part], (kind,), "f64", x):
        np.testing.assert_array_equal(found, np.frexp(x)[part].astype("f8"))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_ldexp_rounds_once(kind: str) -> None:
    numbers, exponents = (
        floats(kind),
        [0, 1, -1, 30, -30, 149, -149, -1000, 1000, 2098, -2098, -1074, 2**31 - 1, -(2**31)],
    )
    x, n = (each.ravel() for each in np.meshgrid(numbers, np.array(exponents, "i4")))
    with np.errstate(all="ignore"):
        expected = np.ldexp(x, n)
    for found in results(lambda x, n: math.ldexp(x, n), (kind, "i32"), kind, x, n):
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found)[~np.isnan(expected)], np.signbit(expected)[~np.isnan(expected)])


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_nextafter(kind: str) -> None:
    x = floats(kind)
    x, y = np.concatenate([x, x]), np.concatenate([np.roll(x, 5), x])
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = np.nextafter(x, y)
    for found in results(lambda x, y: math.nextafter(x, y), (kind, kind), kind, x, y):
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_gamma_is_near_that_of_c(kind: str) -> None:
    """The rule's own bounds are tested with those of the others; C's error is 4 units."""
    x = np.concatenate([np.linspace(-33.9, 34, 777), [0.0, -0.0, np.inf, 1e-3, 1e-30]]).astype(DTYPES[kind])
    here, there = results(lambda x: math.gamma(x), (kind,), kind, x)
    np.testing.assert_array_equal(np.isfinite(here), np.isfinite(there))
    finite = np.isfinite(there)
    np.testing.assert_array_max_ulp(here[finite], there[finite], 11)


def test_what_nobody_has_a_rule_for_is_named() -> None:
    text, missing = without_c_library("declare double @logb(double)\n")
    assert missing == "logb" and "logb" in text


def calls() -> Iterator[tuple[str, int]]:
    """``math`` and NumPy's functions of one, two and three numbers, as source."""
    functions = [f"math.{name}" for name in dir(math) if callable(getattr(math, name)) and not name.startswith("_")]
    functions += [f"np.{name}" for name in dir(np) if isinstance(getattr(np, name), np.ufunc)]
    for name in functions:
        for count in (1, 2, 3):
            yield name, count


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f32", "f64", "i32"])
def test_what_the_cpu_compiles_threads_do_too(kind: str) -> None:
    taken = []
    for name, count in calls():
        arguments = ", ".join("xyz"[:count])
        places = ("[0]", "[1]") if name.rpartition(".")[2] in ("frexp", "modf", "divmod") else ("",)
        for place in places:
            function = eval(f"lambda {arguments}: {name}({arguments}){place}", {"math": math, "np": np})
            ones = np.ones(4, DTYPES[kind])
            call = ext.ElementwiseCall("test.f", function=function)
            types = ", ".join([f"tensor<4x{kind}>"] * count)
            names = [f"%x{number}" for number in range(count)]
            text = f"""func.func @main({", ".join(f"{each}: tensor<4x{kind}>" for each in names)}) -> tensor<4xf64> {{
              %0 = stablehlo.custom_call @test.f({", ".join(names)}) : ({types}) -> tensor<4xf64>
              return %0 : tensor<4xf64>
            }}"""
            with ext.using(
                SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda call=call: [call]))
            ):
                try:
                    there = hlojit.compile(text)(*[ones] * count)
                except hlojit.HlojitError:
                    continue  # numba has no such function of so many numbers, or it fails for 1
                here = hlojit.compile(text, backend="cuda")(*[ones] * count)
            np.testing.assert_allclose(here, there, rtol=1e-6, err_msg=name)
            taken.append(name + place)
    assert {"math.gamma", "math.ldexp", "math.frexp[1]", "np.nextafter"} <= set(taken) and len(taken) > 90

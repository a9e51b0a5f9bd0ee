"""NumPy functions of numbers that NumPy itself has no type for: ml_dtypes' narrow floats and integers, a vendor's formats."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import ml_dtypes
import numpy as np
import pytest

V9 = ext.FloatFormat("v9", exponent_bits=4, mantissa_bits=4, bias=7)
PLUGIN = SimpleNamespace(__name__="nine", hlojit_formats=ext.hookimpl(lambda: [V9]))
WITH_NAN = np.array([4, 2, np.nan, 1, 0, -1, 3, np.nan, -2, 0.5], "f4")
BELOW_ZERO = np.array([-3, -2.5, -1, -0.5, -4, -1.5])
MIXED = np.array([3, -2, 1.5, 0.5, -1, 2])
FLOATS = [
    *("float16", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e4m3b11fnuz", "float8_e5m2fnuz", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
]
INTEGERS = ["int2", "int4", "uint2", "uint4"]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def numbers(name: str) -> list[np.ndarray[Any, Any]]:
    """Arrays of a dtype, of which one has no zero and one is all below it."""
    dtype = dtype_of(name)
    if name in INTEGERS:
        info = ml_dtypes.iinfo(dtype)
        codes = np.arange(int(info.min), int(info.max) + 1)
        return [codes[: len(codes) // 2].astype(dtype), codes[::-1].astype(dtype)]
    if name == "float8_e8m0fnu":
        return [np.array([4, 0.25, 1, 2, 0.5, 8]).astype(dtype)]
    return [BELOW_ZERO.astype(dtype), MIXED.astype(dtype)]


@pytest.mark.parametrize("backend", ["cpu", "cuda", "reference"])
def test_nan_is_last_in_a_format_without_a_dtype(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")

    def f(x: Any) -> Any:
        return np.sort(x.astype("v9")).astype("f4"), np.argsort(x.astype("v9"))

    with ext.using(PLUGIN):
        values, places = hlojit.jit(f, backend=backend)(WITH_NAN)
    np.testing.assert_array_equal(values, np.sort(WITH_NAN))
    np.testing.assert_array_equal(places, np.argsort(WITH_NAN, stable=True))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e8m0fnu", *INTEGERS])
def test_extremes_start_at_what_the_type_has(dtype: str, name: str) -> None:
    function: Any = getattr(np, name)
    for x in numbers(dtype):
        np.testing.assert_array_equal(hlojit.jit(lambda x: function(x))(x), function(x))


@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e8m0fnu", *INTEGERS])
def test_running_extremes(dtype: str) -> None:
    for x in numbers(dtype):
        for ufunc in (np.maximum, np.minimum):
            np.testing.assert_array_equal(hlojit.jit(lambda x, u=ufunc: u.accumulate(x))(x), ufunc.accumulate(x))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_a_nan_is_the_extreme(dtype: str, name: str) -> None:
    x = np.array([1, 4, -1, 2, np.nan, -2]).astype(dtype_of(dtype))
    function: Any = getattr(np, name)
    assert hlojit.jit(lambda x: function(x))(x) == function(x.astype("f4"))


@pytest.mark.parametrize("name", ["signbit", "isinf", "isnan", "isfinite"])
@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e8m0fnu"])
def test_what_numbers_are(dtype: str, name: str) -> None:
    function: Any = getattr(np, name)
    with np.errstate(over="ignore"):
        large = np.array([1, 500.0, 1e9, 2]).astype(dtype_of(dtype))
    for x in (*numbers(dtype), large):
        np.testing.assert_array_equal(hlojit.jit(lambda x: function(x))(x), function(x))


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "copysign", "heaviside", "hypot", "logaddexp"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_several_steps_are_rounded_once(dtype: str, name: str) -> None:
    x = np.concatenate([BELOW_ZERO, MIXED, [4, 0.25, 1, 6]]).astype(dtype_of(dtype))
    x, y = (each.ravel() for each in np.meshgrid(x, x))
    ufunc: Any = getattr(np, name)
    result = hlojit.jit(lambda x, y: ufunc(x, y))(x, y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, ufunc(x, y))


def test_a_format_of_six_bits_is_divided_by_a_number() -> None:
    x = np.array([-3, 7, 0.5, 1], "f4")
    result = hlojit.jit(lambda x: (x.astype("f6E2M3FN") // 2, x.astype("f6E2M3FN") % 2))(x)
    six = x.astype(ml_dtypes.float6_e2m3fn)
    for ours, expected in zip(result, (six // 2, six % 2)):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("dtype", ["int4", "uint2", "bfloat16", "float8_e3m4", "float6_e2m3fn"])
def test_a_norm_of_what_numpy_has_no_type_for_is_of_f64(dtype: str) -> None:
    for x in numbers(dtype):
        for options in ({}, {"ord": 1}, {"ord": np.inf}):
            found = hlojit.jit(lambda x, o=options: np.linalg.norm(x, **o))(x)
            expected = np.linalg.norm(x, **options)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-15)

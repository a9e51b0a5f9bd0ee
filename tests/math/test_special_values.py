"""Zeros with their signs, infinities, NaN, poles and exact results, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from vector_function import DTYPES, VectorFunction

INF, NAN = math.inf, math.nan
ROWS: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e30, INF), (-1e30, 0.0)],
    "exp2": [(0.0, 1.0), (10.0, 1024.0), (-3.0, 0.125), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e30, INF)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN), (-1e30, -1.0), (1e30, INF)],
    "logistic": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN)],
    "log": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (-1e-45, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "log2": [(1.0, 0.0), (8.0, 3.0), (2.0**-140, -140.0), (0.0, -INF), (-1.0, NAN), (INF, INF), (NAN, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-1.5, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (50.0, 1.0)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (-1e30, -INF)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN), (-1e30, INF)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-2.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-INF, NAN), (NAN, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e-45, 1e-45)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (-1e-45, -1e-45)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.0, math.pi / 2), (-1.0, -math.pi / 2), (1.5, NAN), (INF, NAN), (NAN, NAN)],
    "acos": [(1.0, 0.0), (0.0, math.pi / 2), (-1.0, math.pi), (-1.5, NAN), (-INF, NAN), (NAN, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, math.pi / 2), (-INF, -math.pi / 2), (NAN, NAN)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (27.0, 3.0), (-8.0, -2.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "rsqrt": [(4.0, 0.5), (0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (7.0, 1.0)],
    "erfc": [(0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN), (100.0, 0.0), (-100.0, 2.0)],
    "erf_inv": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-INF, NAN), (NAN, NAN)],
    "gamma": [
        (1.0, 1.0),
        (5.0, 24.0),
        (0.0, INF),
        (-0.0, -INF),
        (-3.0, NAN),
        (INF, INF),
        (-INF, NAN),
        (NAN, NAN),
        (1e30, INF),
        (-190.5, -0.0),
        (-191.5, 0.0),
        (172.0, INF),
    ],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (0.0, INF), (-0.0, INF), (-3.0, INF), (INF, INF), (-INF, INF), (NAN, NAN)],
    "digamma": [(0.0, NAN), (-0.0, NAN), (-2.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
}


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", sorted(ROWS))
def test_unary_special_values(name: str, kind: str) -> None:
    arguments, expected = (np.array(column, DTYPES[kind]) for column in zip(*ROWS[name]))
    result = VectorFunction(name, kind)(arguments)
    np.testing.assert_array_equal(result, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(("name", "reference"), [("pow", np.power), ("atan2", np.arctan2)])
def test_binary_special_values_are_those_of_c(name: str, reference: np.ufunc, kind: str) -> None:
    values = [0.0, 1.0, 2.0, 3.0, 0.5, 1e-45, 1e30, 1e-30, INF, 7.0, 16777217.0, 9007199254740993.0]
    axis = np.array([sign * value for value in values for sign in (1, -1)] + [NAN], DTYPES[kind])
    x, y = (grid.ravel() for grid in np.meshgrid(axis, axis))
    result = VectorFunction(name, kind, operands=2)(x, y)
    with np.errstate(all="ignore"):
        expected = reference(x, y)
    np.testing.assert_allclose(result, expected, rtol=4 * np.finfo(DTYPES[kind]).eps, atol=0)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_exp_and_log_keep_denormals(kind: str) -> None:
    info = np.finfo(DTYPES[kind])
    tiny = np.array([info.smallest_subnormal, 3 * info.smallest_subnormal, info.smallest_normal / 2], DTYPES[kind])
    logarithms = VectorFunction("log", kind)(tiny)
    np.testing.assert_allclose(logarithms, np.log(tiny.astype(np.longdouble)).astype(DTYPES[kind]), rtol=2 * info.eps)
    results = VectorFunction("exp", kind)(logarithms)
    assert np.all(results > 0)
    np.testing.assert_allclose(
        results,
        np.exp(logarithms.astype(np.longdouble)).astype(DTYPES[kind]),
        rtol=1e-13,
        atol=float(info.smallest_subnormal),
    )

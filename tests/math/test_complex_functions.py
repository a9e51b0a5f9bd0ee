"""Functions of complex numbers: parts within a bound of mpmath's on a grid with the hard places, special values as NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from complex_accuracy import FORMATS, REFERENCES, errors, grid
from hlojit.compiler import compile as compile_module
from hlojit.ir.builder import build_function
from hlojit.ir.graph import Module
from hlojit.ir.ops.complex_functions import complex_function
from hlojit.ir.scalar.complex_functions import FUNCTIONS
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from hlojit.ir.types import tensor

BOUND = {"f32": 0.51, "f64": 2.1}
CANCELLING = {"expm1": 2.0**8, "logistic": 2.0**10}
"""Functions whose parts have zeros on curves where nothing is done about cancellation: to how many units in f64."""

SPECIAL = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}


def evaluated(name: str, kind: str, *parts: np.ndarray) -> list[np.ndarray]:
    b = NumpyBuilder()
    with np.errstate(all="ignore"):
        found = FUNCTIONS[name](b, *(b.value(kind, part) for part in parts))
    return [np.broadcast_to(part.array, parts[0].shape) for part in found]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_parts_stay_within_their_bound(name: str, kind: str) -> None:
    points = grid(kind, 97, 8)
    parts = evaluated(name, kind, points.real, points.imag)
    for part, found in enumerate(errors(name, kind, points, parts)):
        bound = max(BOUND[kind], CANCELLING.get(name, 0.0) if kind == "f64" else 0.0)
        worst = int(np.argmax(found))
        assert found[worst] <= bound, (part, points[worst], parts[part][worst], found[worst])


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special_values_are_those_of_annex_g(name: str, kind: str) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, np.inf, -np.inf, np.nan]
    points = np.array([complex(x, y) for x in values for y in values], FORMATS[kind].complex)
    with np.errstate(all="ignore"):
        wanted = SPECIAL[name](points.astype(np.complex128))
    real, imag = evaluated(name, kind, points.real, points.imag)
    if name == "exp":
        # StableHLO's own tables say NaN of a number both of whose parts are infinite, Annex G an infinity and NaN.
        wanted[np.isinf(points.real) & np.isinf(points.imag)] = complex(np.nan, np.nan)
    for found, exact, other in ((real, wanted.real, imag), (imag, wanted.imag, real)):
        exceptional = ~np.isfinite(exact) | (exact == 0)
        same = (found == exact) & (np.signbit(found) == np.signbit(exact)) | np.isnan(found) & np.isnan(exact)
        # C leaves the signs of zeros and infinities open where no limit gives them
        same |= (found == exact) & ~np.isfinite(points)
        same |= np.isinf(found) & np.isinf(exact) & np.isnan(other)
        assert np.all(same | ~exceptional), points[exceptional & ~same]
        np.testing.assert_allclose(found[~exceptional], exact[~exceptional], rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_compiled_code_has_the_bits_of_the_rule_on_arrays(kind: str) -> None:
    points = grid(kind, 9, 64)
    arguments = [np.ascontiguousarray(points.real), np.ascontiguousarray(points.imag)]
    names = ["asin", "exp", "log1p", "sqrt", "tanh"]
    module = Module()
    with build_function(module, "main", [tensor(points.shape, kind)] * 2) as builder:
        builder.return_(*(part for name in names for part in complex_function(name)(builder, *builder.arguments)))
    results = iter(compile_module(module)(*arguments))
    for name in names:
        for wanted in evaluated(name, kind, *arguments):
            np.testing.assert_array_equal(np.asarray(next(results)), wanted, err_msg=name)


def test_log1p_keeps_small_numbers() -> None:
    x, y = np.array([-0.0, 0.0, 1e-300, -1.0, np.inf]), np.array([0.0, -0.0, 1e-300, 0.0, np.nan])
    real, imag = evaluated("log1p", "f64", x, y)
    np.testing.assert_array_equal(real, [0, 0, 1e-300, -np.inf, np.inf])
    # The specification's formula, log(hypot(x + 1, y)): nothing is left of the sign of x.
    np.testing.assert_array_equal(np.signbit(real[:2]), [False, False])
    np.testing.assert_array_equal(imag, [0, 0, 1e-300, 0, np.nan])


def test_powers_of_integers_come_near_products() -> None:
    base = np.array([3 + 4j, -1.5 + 0.25j, 1j, -2 + 0j])
    parts = [base.real.copy(), base.imag.copy()]
    for exponent in range(-4, 9):
        power = [np.full(4, float(exponent)), np.zeros(4)]
        real, imag = evaluated("power", "f64", *parts, *power)
        np.testing.assert_allclose(real + 1j * imag, base**exponent, rtol=4e-15)


def test_zero_and_one_as_powers() -> None:
    zero, one = np.zeros(3), np.ones(3)
    real, imag = evaluated("power", "f32", *(a.astype("f4") for a in (zero, zero, np.array([0, 2, 0.5]), zero)))
    np.testing.assert_array_equal(real, [1, 0, 0])
    np.testing.assert_array_equal(imag, [0, 0, 0])
    real, imag = evaluated("power", "f64", one * 5, one, zero, zero)
    np.testing.assert_array_equal(real, one)
    np.testing.assert_array_equal(imag, zero)


def test_atan2_of_real_points_is_their_angle() -> None:
    y, x = np.array([1.0, -1.0, 0.0, -0.0, 2.0]), np.array([1.0, -1.0, -1.0, -1.0, 0.0])
    real, imag = evaluated("atan2", "f64", y, np.zeros(5), x, np.zeros(5))
    np.testing.assert_array_equal(real, np.arctan2(y, x))
    np.testing.assert_array_equal(imag, np.zeros(5))


def test_atan2_of_complex_numbers_is_their_quotient_s_inverse_tangent() -> None:
    rng = np.random.default_rng(0)
    y, x = (rng.normal(size=50) + 1j * rng.normal(size=50) for _ in range(2))
    real, imag = evaluated("atan2", "f64", y.real, y.imag, x.real, x.imag)
    root = np.sqrt(x * x + y * y)
    np.testing.assert_allclose(real + 1j * imag, -1j * np.log((x + 1j * y) / root), rtol=1e-12, atol=1e-13)

"""f64 functions, compiled, against mpmath near the hard places and in samples of their ranges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hlojit.ir.scalar import coefficients as c
from mpmath import mpf
from vector_function import Array, VectorFunction

WIDE = np.exp(np.linspace(-744, 709, 61))
UNIT = np.concatenate([np.linspace(-1, 1, 57), 1 - 2.0 ** -np.arange(1, 54, 4), 2.0 ** -np.arange(1, 1074, 97)])
ANGLES = np.concatenate([np.linspace(-10, 10, 81), np.arange(1, 40) * (np.pi / 4), 10.0 ** np.arange(1, 13)])
HUGE = np.array(
    [
        6381956970095103.0 * 2.0**797,  # the double that is nearest to a multiple of pi/2
        5.319372648326541e255,
        2.0**1023,
        1.7976931348623157e308,
        2.0**40,
        np.nextafter(2.0**40, 0),
        1e22,
        1e100,
        123456789012345.6,
    ]
)
EXPONENTS = np.concatenate([np.linspace(-745.2, 709.7, 91), np.linspace(-2, 2, 41), np.arange(-9, 9) * np.log(2) / 2])
AROUND_ONE = np.concatenate([1 + 2.0 ** -np.arange(1, 53, 3), 1 - 2.0 ** -np.arange(1, 54, 3), np.linspace(0.3, 3, 61)])
GAMMA = np.concatenate([np.linspace(0.01, 12, 97), AROUND_ONE, 1 + AROUND_ONE, np.exp(np.linspace(-700, 700, 41))])

CASES: dict[str, tuple[Callable[[Any], Any], Array, float]] = {
    "exp": (mpmath.exp, EXPONENTS, 2),
    "exp2": (lambda x: mpf(2) ** x, np.linspace(-1075, 1023.9, 181), 2),
    "expm1": (mpmath.expm1, np.concatenate([EXPONENTS, UNIT, -UNIT]), 2),
    "logistic": (lambda x: 1 / (1 + mpmath.exp(-x)), np.concatenate([EXPONENTS, UNIT]), 2),
    "log": (mpmath.log, np.concatenate([WIDE, AROUND_ONE]), 2),
    "log2": (lambda x: mpmath.log(x, 2), np.concatenate([WIDE, AROUND_ONE]), 2),
    "log1p": (mpmath.log1p, np.concatenate([WIDE, AROUND_ONE, UNIT[UNIT > -1]]), 2),
    "tanh": (mpmath.tanh, np.concatenate([UNIT, np.linspace(-20, 20, 81)]), 2),
    "sinh": (mpmath.sinh, np.concatenate([UNIT, EXPONENTS]), 2),
    "cosh": (mpmath.cosh, np.concatenate([UNIT, EXPONENTS]), 2),
    "asinh": (mpmath.asinh, np.concatenate([WIDE, UNIT]), 2),
    "acosh": (mpmath.acosh, np.concatenate([WIDE[WIDE > 1], AROUND_ONE[AROUND_ONE > 1]]), 2),
    "atanh": (mpmath.atanh, UNIT[np.abs(UNIT) < 1], 2),
    "sin": (mpmath.sin, np.concatenate([ANGLES, UNIT, HUGE, -HUGE]), 2),
    "cos": (mpmath.cos, np.concatenate([ANGLES, UNIT, HUGE, -HUGE]), 2),
    "tan": (mpmath.tan, np.concatenate([ANGLES, UNIT, HUGE, -HUGE]), 2),
    "asin": (mpmath.asin, UNIT, 2),
    "acos": (mpmath.acos, UNIT, 2),
    "atan": (mpmath.atan, np.concatenate([UNIT, WIDE, -WIDE, AROUND_ONE]), 2),
    "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), np.concatenate([WIDE, -WIDE, AROUND_ONE]), 2),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), np.concatenate([WIDE, AROUND_ONE]), 2),
    "erf": (mpmath.erf, np.concatenate([UNIT, np.linspace(-6.5, 6.5, 81)]), 2),
    "erfc": (mpmath.erfc, np.concatenate([UNIT, np.linspace(-6, 27.2, 121)]), 2),
    "erf_inv": (mpmath.erfinv, np.concatenate([UNIT[(np.abs(UNIT) < 1)], np.linspace(0.9, 0.999999, 30)]), 4),
    "gamma": (mpmath.gamma, np.concatenate([GAMMA[GAMMA > 1e-300], np.linspace(8, 171.6, 151)]), 5),
    "lgamma": (lambda x: mpmath.loggamma(x).real, np.concatenate([GAMMA, -np.linspace(0.1, 1.9, 19)]), 4),
    "digamma": (lambda x: mpmath.psi(0, x), GAMMA, 4),
}


def error_in_ulp(value: float, exact: Any) -> float:
    """Distance from the exact value in units of the last place there."""
    if not np.isfinite(value):
        return 0.0 if abs(exact) >= mpf(2) ** 1024 * (1 - mpf(2) ** -54) and value * exact > 0 else float("inf")
    exponent = mpmath.frexp(exact)[1] if exact else -2000
    return float(abs(mpf(value) - exact) / mpf(2) ** (max(exponent - 1, -1022) - 52))


@pytest.mark.parametrize("name", sorted(CASES))
def test_unary_f64_stays_within_its_bound(name: str) -> None:
    reference, x, bound = CASES[name]
    result = VectorFunction(name, "f64")(x)
    with mpmath.workdps(40):
        for argument, value in zip(x.tolist(), result.tolist()):
            with mpmath.workdps(40 if abs(argument) < 1e13 or name not in ("sin", "cos", "tan") else 360):
                exact = reference(mpf(argument))
            assert error_in_ulp(value, exact) <= bound, (argument, value, float(exact))


def near(zeros: Array) -> Array:
    """The neighbours of numbers, and numbers beside them at distances of all sizes."""
    beside = zeros[:, None] + np.array([0.7 * 2.0**-k for k in range(2, 53, 3)]) * np.array([[1], [-1]])[:, None]
    bits = zeros.view(np.int64)[:, None] + np.arange(-3, 4)
    return np.concatenate([beside.ravel(), bits.view(np.float64).ravel()])


NEAR_ZERO: dict[str, tuple[Callable[[Any], Any], Array]] = {
    "lgamma": (
        lambda x: mpmath.log(abs(mpmath.gamma(x))),
        np.array([v - (2 + place // 2) for place, v in enumerate(c.LGAMMA_ZEROS) if place != 1]),
    ),
    "digamma": (lambda x: mpmath.psi(0, x), np.array(c.DIGAMMA_ZEROS[::3])),
}


@pytest.mark.parametrize("name", sorted(NEAR_ZERO))
def test_gamma_functions_of_negative_numbers_keep_six_ulp_beside_their_zeros(name: str) -> None:
    reference, zeros = NEAR_ZERO[name]
    low = -18.0 if name == "lgamma" else -64.0
    x = np.concatenate([near(zeros), np.random.default_rng(4).uniform(low, 0, 300), -np.linspace(2.4, 2.8, 201)])
    x = x[x != np.round(x)]
    with mpmath.workdps(60):
        for argument, value in zip(x.tolist(), VectorFunction(name, "f64")(x).tolist()):
            assert error_in_ulp(value, reference(mpf(argument))) <= 6, (argument, value)


def test_gamma_f64_of_negative_numbers_stays_within_seven_ulp() -> None:
    x = -np.concatenate([np.linspace(0.03, 12, 149), np.linspace(12.1, 183.7, 111), np.exp(np.linspace(-700, -1, 41))])
    x = x[x != np.round(x)]
    with mpmath.workdps(60):
        for argument, value in zip(x.tolist(), VectorFunction("gamma", "f64")(x).tolist()):
            assert error_in_ulp(value, mpmath.gamma(mpf(argument))) <= 7, (argument, value)


def test_gamma_of_integers_is_their_factorial() -> None:
    x = np.arange(1.0, 19.0)
    assert VectorFunction("gamma", "f64")(x).tolist() == [float(math.factorial(int(each) - 1)) for each in x]


def test_pow_f64_stays_within_four_ulp() -> None:
    random = np.random.default_rng(3)
    base = np.concatenate([np.exp(random.uniform(-740, 700, 400)), AROUND_ONE, random.uniform(0, 2.0**-1022, 50)])
    with np.errstate(divide="ignore"):
        exponent = random.uniform(-1.06, 1, base.size) * 709.7 / np.abs(np.log(base))
    keep = np.isfinite(exponent)
    base, exponent = base[keep], exponent[keep]
    result = VectorFunction("pow", "f64", operands=2)(base, exponent)
    with mpmath.workdps(40):
        for x, y, value in zip(base.tolist(), exponent.tolist(), result.tolist()):
            assert error_in_ulp(value, mpf(x) ** mpf(y)) <= 4, (x, y, value)


def test_atan2_f64_stays_within_two_ulp() -> None:
    random = np.random.default_rng(4)
    y = random.normal(size=600) * np.exp(random.normal(size=600) * 8)
    x = random.normal(size=600)
    result = VectorFunction("atan2", "f64", operands=2)(y, x)
    with mpmath.workdps(40):
        for over, under, value in zip(y.tolist(), x.tolist(), result.tolist()):
            assert error_in_ulp(value, mpmath.atan2(mpf(over), mpf(under))) <= 2, (over, under, value)

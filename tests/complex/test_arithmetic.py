"""Quotients, absolute values and signs of complex numbers: to the last places against exact arithmetic, and special values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import hlojit
import mpmath
import numpy as np
import pytest

DTYPES = {"f32": np.dtype(np.complex64), "f64": np.dtype(np.complex128)}

TEXT = """
func.func @main(%x: tensor<?xcomplex<f32>>, %y: tensor<?xcomplex<f32>>)
    -> (tensor<?xcomplex<f32>>, tensor<?xf32>, tensor<?xcomplex<f32>>) {
  %0 = stablehlo.divide %x, %y : tensor<?xcomplex<f32>>
  %1 = stablehlo.abs %x : (tensor<?xcomplex<f32>>) -> tensor<?xf32>
  %2 = stablehlo.sign %x : tensor<?xcomplex<f32>>
  return %0, %1, %2 : tensor<?xcomplex<f32>>, tensor<?xf32>, tensor<?xcomplex<f32>>
}"""


def computed(element: str, x: np.ndarray, y: np.ndarray, backend: str = "cpu") -> tuple[np.ndarray, ...]:
    """x / y, abs(x) and sign(x)."""
    text = TEXT.replace("f32", element).replace("?", str(x.size))
    results: tuple[np.ndarray, ...] = hlojit.compile(text, backend=backend)(x, y)
    return results


def wide_numbers(element: str, count: int) -> np.ndarray:
    """Numbers whose parts are of any size, and some whose parts are of nearly one."""
    generator = np.random.default_rng(3)
    part = DTYPES[element].type(0).real.dtype
    limits = np.finfo(part)
    exponents = generator.integers(limits.minexp - 5, limits.maxexp, (count, 2))
    near = np.repeat(exponents[:, :1] + generator.integers(-2, 3), 2, axis=1)
    exponents = np.where(generator.integers(0, 2, (count, 1)) == 1, exponents, np.minimum(near, limits.maxexp - 1))
    parts = np.ldexp(generator.uniform(1, 2, (count, 2)) * generator.choice([-1, 1], (count, 2)), exponents)
    return parts.astype(part).view(DTYPES[element])[:, 0]


def exact(number: Any) -> Any:
    return mpmath.mpc(float(number.real), float(number.imag))


def units(found: Any, expected: Any, limits: np.finfo) -> float:
    """The distance in units in the last place of what is expected, or of the smallest normal number."""
    if abs(expected) > float(limits.max):
        return 0.0 if not np.isfinite(found) else math.inf
    _, exponent = mpmath.frexp(max(abs(expected), mpmath.mpf(float(limits.tiny))))
    return float(abs(exact(found) - expected) / mpmath.ldexp(1, exponent - 1 - limits.nmant))


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_arithmetic_is_accurate_wherever_the_result_is_a_number(element: str) -> None:
    x, y = wide_numbers(element, 1500), wide_numbers(element, 1500)[::-1].copy()
    quotients, sizes, signs = computed(element, x, y)
    limits = np.finfo(x.dtype)
    with mpmath.workprec(2200):
        for a, b, quotient, size, sign in zip(x, y, quotients, sizes, signs):
            whole = exact(a)
            assert units(quotient, whole / exact(b), limits) <= 2.0, (a, b, quotient)
            assert units(size, abs(whole), limits) <= 1.0, (a, size)
            assert units(sign, whole / abs(whole), limits) <= 2.0, (a, sign)


def box(part: float) -> float:
    return math.copysign(1.0 if math.isinf(part) else 0.0, part)


def annex_g(x: complex, y: complex) -> complex:
    """The quotient by C99, Annex G, where the plain formula gives NaN (it is exact on the numbers of these tests)."""
    (a, b), (c, d) = (x.real, x.imag), (y.real, y.imag)
    with np.errstate(all="ignore"):
        if c == 0 and d == 0:
            infinity = np.float64(math.copysign(math.inf, c))
            return complex(infinity * np.float64(a), infinity * np.float64(b))
        if (math.isinf(a) or math.isinf(b)) and math.isfinite(c) and math.isfinite(d):
            a, b, factor = box(a), box(b), math.inf
        elif (math.isinf(c) or math.isinf(d)) and math.isfinite(a) and math.isfinite(b):
            c, d, factor = box(c), box(d), 0.0
        elif all(map(math.isfinite, (a, b, c, d))):
            factor = 1.0
        else:
            return complex(math.nan, math.nan)
        size = c * c + d * d
        return complex(np.float64(factor) * ((a * c + b * d) / size), np.float64(factor) * ((b * c - a * d) / size))


def agree(found: complex, expected: complex) -> bool:
    pairs = (found.real, expected.real), (found.imag, expected.imag)
    return all(
        (p == q and (p != 0 or math.copysign(1, p) == math.copysign(1, q))) or (p != p and q != q) for p, q in pairs
    )


PARTS = (0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan)
NUMBERS = [complex(a, b) for a, b in itertools.product(PARTS, PARTS)]


def pairs(element: str) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(list(itertools.product(NUMBERS, NUMBERS)), DTYPES[element])
    return both[:, 0].copy(), both[:, 1].copy()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_quotients_of_special_values(element: str, backend: str) -> None:
    x, y = pairs(element)
    quotients, _, _ = computed(element, x, y, backend)
    wrong = [
        (complex(a), complex(b), complex(q), annex_g(complex(a), complex(b)))
        for a, b, q in zip(x, y, quotients)
        if not agree(complex(q), _comparable(complex(a), complex(b), complex(q)))
        and (complex(a).real != 0 or complex(a).imag != 0)
    ]
    assert not wrong, wrong[:5]


def _comparable(a: complex, b: complex, found: complex) -> complex:
    """What is expected; signs of zeros that come of 0 - 0 are the formula's, so they are not compared."""
    expected = annex_g(a, b)
    if np.isclose(found, expected, rtol=1e-7, atol=0):
        return found
    real = found.real if found.real == expected.real == 0 else expected.real
    imag = found.imag if found.imag == expected.imag == 0 else expected.imag
    return complex(real, imag)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_sizes_and_signs_of_special_values(element: str, backend: str) -> None:
    x = np.array(NUMBERS, DTYPES[element])
    _, sizes, signs = computed(element, x, x, backend)
    for z, size, sign in zip(NUMBERS, sizes, signs):
        assert np.array_equal(size, np.float64(math.hypot(z.real, z.imag)).astype(size.dtype), equal_nan=True), (
            z,
            size,
        )
        if z != z:
            assert np.isnan(sign.real) and np.isnan(sign.imag), (z, sign)
        elif z == 0:
            assert sign == 0, (z, sign)
        else:
            with np.errstate(all="ignore"):
                expected = np.array([z.real, z.imag], np.float64) / math.hypot(z.real, z.imag)
            assert np.allclose([sign.real, sign.imag], expected, rtol=2e-7, equal_nan=True), (z, sign)

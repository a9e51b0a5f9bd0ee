"""Functions of complex128 by NumPy, with the special values that docs/numerics.md states.

NumPy's own functions follow C99's Annex G; what that leaves open (signs of zeros and infinities beside NaN), or the C library
decides, is made definite here.  Where a part of the result is a formula's, the formula is written so that nothing overflows on
the way.  They know nothing of the rules in ``hlojit.ir.scalar``, whose oracle they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hlojit.ir.ops.complex_arrays import near_one, of_parts, quotient, two_product
from hlojit.ir.ops.definition import Array

_PAIR: Final = np.dtype(np.complex128)


def _function(rule: Callable[..., Any]) -> Callable[..., Array]:
    """A function of complex numbers from one of their parts, in which every NaN is a positive one."""

    def evaluate(*operands: Array) -> Array:
        parts = [
            np.where(np.isnan(part), np.nan, part) for operand in operands for part in (operand.real, operand.imag)
        ]
        with np.errstate(all="ignore"):
            real, imag = rule(*parts)
            return of_parts(real, imag, _PAIR)

    return evaluate


def _value(function: Any, a: Array, b: Array) -> tuple[Array, Array]:
    found = function(of_parts(a, b, _PAIR))
    return found.real, found.imag


def _exp(a: Array, b: Array) -> tuple[Array, Array]:
    """Of an infinite angle NaN whatever it is multiplied by; where only the angle is NaN, infinity and zero stay."""
    real, imag = _value(np.exp, a, b)
    unknown = np.isinf(a) & np.isnan(b)
    real = np.where(unknown, np.where(a > 0, np.inf, 0.0), np.where(np.isinf(b), np.nan, real))
    return real, np.where(unknown, np.where(a > 0, np.nan, 0.0), np.where(np.isinf(b), np.nan, imag))


def _expm1(a: Array, b: Array) -> tuple[Array, Array]:
    """Of a real number a real one, however large; zero only there, elsewhere the cosine is below 1."""
    real = _value(np.expm1, a, b)[0]
    outside = ~np.isfinite(a) | ~np.isfinite(b)
    power, imag = _exp(a, b)
    real = np.where(outside, power - 1, real)
    real = np.where((real == 0) & (b != 0), -0.0, real)
    flat = b == 0
    return np.where(flat, np.expm1(a), real), np.where(flat, b, imag)


def _log1p(a: Array, b: Array) -> tuple[Array, Array]:
    """Near |1 + z| = 1 by log1p of what |1 + z|^2 is more than 1; twice the largest numbers have a logarithm."""
    beside = (np.abs(a) < 1e100) & (np.abs(b) < 1e100)
    x, y = np.where(beside, a, np.inf), np.where(beside, b, np.inf)
    more = np.asarray(_exact_sum(2 * x, *two_product(x, x), *two_product(y, y)))
    large = (np.abs(a) > 1e300) | (np.abs(b) > 1e300)
    scale = np.where(large, 2.0, 1.0)
    far = np.log(np.hypot((1 + a) / scale, b / scale)) + np.log(scale)
    real = np.where((more > -0.5) & (more < 1), np.log1p(np.maximum(more, -0.75)) / 2, far)
    return np.where(real == 0, np.abs(real), real), np.arctan2(b, 1 + a)


def _sum(*terms: float) -> float:
    """Rounded once; infinite or NaN as usual sums are."""
    return math.fsum(terms) if all(map(math.isfinite, terms)) else sum(terms)


_exact_sum: Final = np.vectorize(_sum, otypes=[np.float64])


def _sinh(a: Array, b: Array) -> tuple[Array, Array]:
    real, imag = _value(np.sinh, a, b)
    unknown = ~np.isfinite(b)
    real = np.where(unknown & (np.isinf(a) | (a == 0)), a, real)
    return real, np.where(unknown, np.nan, np.where(b == 0, b, imag))


def _cosh(a: Array, b: Array) -> tuple[Array, Array]:
    real, imag = _value(np.cosh, a, b)
    real = np.where(~np.isfinite(b), np.where(np.isinf(a), np.inf, np.nan), real)
    # a product's: also where the other factor is not known
    zero = np.copysign(0.0, a) * np.copysign(1.0, b)
    return real, np.where(((a == 0) & ~np.isfinite(b)) | (np.isnan(a) & (b == 0)), zero, imag)


def _tanh(a: Array, b: Array) -> tuple[Array, Array]:
    real, imag = _value(np.tanh, a, b)
    wide = np.isinf(a)
    real = np.where(wide, np.copysign(1.0, a), real)
    circle = np.where(np.isfinite(b), np.sin(b) * np.cos(b), b)
    return real, np.where(wide, np.copysign(0.0, circle), np.where(b == 0, b, imag))


def _turned(rule: Callable[..., tuple[Array, Array]]) -> Callable[..., tuple[Array, Array]]:
    """-i f(iz)."""

    def turned(a: Array, b: Array) -> tuple[Array, Array]:
        real, imag = rule(-b, a)
        return imag, -real

    return turned


def _logistic(a: Array, b: Array) -> tuple[Array, Array]:
    """1 / (1 + e) for e = exp(-z), e / (1 + e) for e = exp(z): the one that is small."""
    left = a < 0
    sign = np.where(left, 1.0, -1.0)
    p, q = _value(np.exp, sign * a, sign * b)
    size = p * p + q * q
    below = (1 + p) ** 2 + q * q
    real = np.where(left, np.where(size == 0, p, p + size), 1 + p) / below
    imag = sign * q / below
    # at infinity whatever the angle is
    limit = np.isinf(a) & ~np.isfinite(b)
    real, imag = np.where(limit, np.where(a > 0, 1.0, 0.0), real), np.where(limit, 0.0, imag)
    return real, np.where(b == 0, b, imag)


def _rsqrt(a: Array, b: Array) -> tuple[Array, Array]:
    """Infinite at zero, zero at infinity."""
    root = np.sqrt(of_parts(a, b, _PAIR))
    found = quotient(np.ones_like(root), root)
    infinite, zero = np.isinf(a) | np.isinf(b), (a == 0) & (b == 0)
    real = np.where(infinite, 0.0, np.where(zero, np.inf, np.abs(found.real)))
    imag = np.where(infinite, 0.0, np.where(zero, np.nan, np.abs(found.imag)))
    return real, np.where(np.signbit(b), imag, -imag)


def _cbrt(a: Array, b: Array) -> tuple[Array, Array]:
    """The cube root of the modulus and a third of the angle."""
    near, exponents = near_one(of_parts(a, b, _PAIR))
    third = exponents // 3
    radius = np.cbrt(np.ldexp(np.abs(near), exponents - 3 * third))
    angle = np.arctan2(b, a) / 3
    real, imag = np.ldexp(radius * np.cos(angle), third), np.ldexp(radius * np.sin(angle), third)
    infinite, unknown = np.isinf(a) | np.isinf(b), np.isnan(a) | np.isnan(b)
    real = np.where(infinite, np.inf, real)
    wide = np.where((a == np.inf) & np.isfinite(b), 0.0, np.inf)
    imag = np.where(infinite, np.where(unknown, np.nan, np.copysign(wide, b)), imag)
    return real, np.where((b == 0) & (a >= 0), b, imag)


def _inverse_sine_sides(a: Array, b: Array) -> tuple[Array, Array]:
    """The side beside the inverse sine in the triangle in which the real part lies opposite, and the imaginary part of acos."""
    x, y = np.abs(a), np.abs(b)
    right, left = np.hypot(x + 1, y), np.hypot(x - 1, y)
    middle = (right + left) / 2
    beside = np.where(x > 1, y * (y / (left + (x - 1))), left + (1 - x))
    adjacent = np.sqrt((middle + x) * (y * (y / (right + x + 1)) + beside) / 2)
    far = ~np.isfinite(x) | ~np.isfinite(y) | (np.maximum(x, y) > 1e150)
    return np.where(far, y, adjacent), np.abs(np.arccos(of_parts(x, y, _PAIR)).imag)


def _scaled(value: Array, factor: Array) -> Array:
    """A product in which a zero does not meet an infinity."""
    found = value * factor
    return np.where(np.isnan(found) & ((value == 0) | (factor == 0)), 0.0, found)


def _power(a: Array, b: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """The exponential of the exponent times the logarithm; NumPy's own where it gives numbers."""
    size, angle = _value(np.log, a, b)
    real, imag = _exp(_scaled(size, p) - _scaled(angle, q), _scaled(size, q) + _scaled(angle, p))
    direct = np.power(of_parts(a, b, _PAIR), of_parts(p, q, _PAIR))
    is_number = np.isfinite(a) & np.isfinite(b)
    real, imag = (
        np.where(is_number & np.isfinite(part) & np.isfinite(plain) & (plain != 0), plain, part)
        for part, plain in ((real, direct.real), (imag, direct.imag))
    )
    of_zero, is_pole = (a == 0) & (b == 0), (p < 0) & (q == 0)
    real = np.where(of_zero, np.where(p > 0, 0.0, np.where(is_pole, np.inf, np.nan)), real)
    imag = np.where(of_zero, np.where(p > 0, 0.0, np.nan), imag)
    empty = (p == 0) & (q == 0)
    return np.where(empty, 1.0, real), np.where(empty, 0.0, imag)


def _atan2(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    """-i log((x + iy) / sqrt(x^2 + y^2)) for y = a + bi, x = c + di; the angle of the point where both are real."""
    largest = np.max(np.abs([a, b, c, d]), axis=0)
    usable = (largest > 0) & np.isfinite(largest)
    exponents = np.where(usable, np.frexp(largest)[1], 0)
    y_real, y_imag, x_real, x_imag = (np.ldexp(np.where(usable, part, 1.0), -exponents) for part in (a, b, c, d))
    x, y = of_parts(x_real, x_imag, _PAIR), of_parts(y_real, y_imag, _PAIR)
    above = of_parts(x_real - y_imag, x_imag + y_real, _PAIR)
    found = np.log(quotient(above, np.sqrt(x * x + y * y)))
    # poles: x is iy or -iy
    first, second = above == 0, (x_real == -y_imag) & (x_imag == y_real)
    angle, height = np.where(first | second, np.nan, found.imag), np.where(first, np.inf, -found.real)
    height = np.where(second & ~first, -np.inf, height)
    flat = (b == 0) & (d == 0)
    real = np.where(flat, np.arctan2(a, c), np.where(usable, angle, np.nan))
    return real, np.where(flat, 0.0, np.where(usable, height, np.nan))


def _numpy(function: Any) -> Callable[..., Array]:
    return _function(lambda a, b: _value(function, a, b))


exp: Final = _function(_exp)
expm1: Final = _function(_expm1)
log: Final = _numpy(np.log)
log1p: Final = _function(_log1p)
sinh: Final = _function(_sinh)
cosh: Final = _function(_cosh)
tanh: Final = _function(_tanh)
sin: Final = _function(_turned(_sinh))
cos: Final = _function(lambda a, b: _cosh(-b, a))
tan: Final = _function(_turned(_tanh))
logistic: Final = _function(_logistic)
sqrt: Final = _numpy(np.sqrt)
rsqrt: Final = _function(_rsqrt)
cbrt: Final = _function(_cbrt)
asin: Final = _numpy(np.arcsin)
acos: Final = _numpy(np.arccos)
atan: Final = _numpy(np.arctan)
asinh: Final = _numpy(np.arcsinh)
acosh: Final = _numpy(np.arccosh)
atanh: Final = _numpy(np.arctanh)
inverse_sine_sides: Final = _function(_inverse_sine_sides)
power: Final = _function(_power)
atan2: Final = _function(_atan2)

"""NumPy semantics of complex ops where NumPy's own special values are not those of C99, Annex G."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hlojit.ir.ops.definition import Array


def of_complex(real: Callable[[Array], Array], pairs: Callable[[Array], Array]) -> Callable[..., Array]:
    """A NumPy function, but of complex numbers the one of this module."""
    return lambda x: pairs(x) if x.dtype.kind == "c" else real(x)


def quotient(x: Array, y: Array) -> Array:
    """X / y: infinite where an infinite number is divided by a finite one, 0 where a finite one is by an infinite one."""
    (a, b), (c, d) = (x.real, x.imag), (y.real, y.imag)
    finite = np.isfinite(x), np.isfinite(y)
    infinite = np.isinf(a) | np.isinf(b), np.isinf(c) | np.isinf(d)
    with np.errstate(all="ignore"):
        (near_x, exponent_x), (near_y, exponent_y) = _near_one(x), _near_one(y)
        exponents = np.subtract(exponent_x, exponent_y)
        near = near_x / near_y
        plain = _of_parts(np.ldexp(near.real, exponents), np.ldexp(near.imag, exponents), x.dtype)
        real, imag = np.array(plain.real), np.array(plain.imag)
        by_zero = np.copysign(np.inf, c)
        cases = (
            (infinite[0] & infinite[1], np.full_like(a, np.nan), np.full_like(b, np.nan)),
            (infinite[0] & finite[1], *(np.inf * part for part in _numerator(_box(a), _box(b), c, d))),
            (finite[0] & infinite[1], *(0.0 * part for part in _numerator(a, b, _box(c), _box(d)))),
            ((c == 0) & (d == 0), by_zero * a, by_zero * b),
        )
    for where, new_real, new_imag in cases:
        real, imag = np.where(where, new_real, real), np.where(where, new_imag, imag)
    return _of_parts(real, imag, x.dtype)


def _near_one(x: Array) -> tuple[Array, Array]:
    """Complex numbers times powers of two that make their larger parts about 1, and those powers' negated exponents."""
    wide = np.asarray(x, np.complex128)
    size = np.maximum(np.abs(wide.real), np.abs(wide.imag))
    exponents = np.where(np.isfinite(size), np.frexp(size)[1], 0)
    return _of_parts(np.ldexp(wide.real, -exponents), np.ldexp(wide.imag, -exponents), wide.dtype), exponents


def product(x: Array, y: Array) -> Array:
    """(a + bi)(c + di) by the plain formula, of which every operation rounds; NumPy's may be contracted."""
    (a, b), (c, d) = (x.real, x.imag), (y.real, y.imag)
    with np.errstate(all="ignore"):
        return _of_parts(a * c - b * d, a * d + b * c, np.result_type(x, y))


def sign(x: Array) -> Array:
    """X over its absolute value, part by part: NumPy's complex division would make NaN of infinite parts."""
    near, _ = _near_one(x)
    size = np.abs(near)
    with np.errstate(all="ignore"):
        unit = _of_parts(near.real / size, near.imag / size, x.dtype)
    return np.where(x == 0, 0, np.where(np.isnan(x), complex(np.nan, np.nan), unit)).astype(x.dtype)


def exponential(x: Array) -> Array:
    """e^a (cos b + i sin b): an infinite angle or NaN has neither cosine nor sine, whatever they are multiplied by."""
    with np.errstate(all="ignore"):
        found = np.exp(x)
    return np.where(np.isfinite(x.imag), found, complex(np.nan, np.nan)).astype(x.dtype)


def exponential_minus_one(x: Array) -> Array:
    """e^x - 1: of a real number a real one, however large (NumPy multiplies infinity by the angle's sine, 0)."""
    with np.errstate(all="ignore"):
        found, real = np.expm1(x), np.expm1(x.real)
    is_real = (x.imag == 0) & ~np.isnan(real)
    return _of_parts(np.where(is_real, real, found.real), np.where(is_real, x.imag, found.imag), x.dtype)


def log_plus_one(x: Array) -> Array:
    """log(1 + x): near |1 + x| = 1 by log1p of what |1 + x|^2 is more than 1; twice the largest numbers have a logarithm."""
    a, b = np.asarray(x.real), np.asarray(x.imag)
    more = np.asarray(_exact_sum(2 * a, *_squared(a), *_squared(b)))
    large = (np.abs(a) > 1e300) | (np.abs(b) > 1e300)
    scale = np.where(large, 2.0, 1.0)
    far = np.log(np.hypot((1 + a) / scale, b / scale)) + np.log(scale)
    real = np.where((more > -0.5) & (more < 1), np.log1p(np.maximum(more, -0.75)) / 2, far)
    return _of_parts(real, np.arctan2(b, 1 + a), x.dtype)


def _squared(a: Array) -> tuple[Array, Array]:
    """a * a, and what its rounding has lost (Dekker), of numbers for which that matters."""
    a = np.where(np.abs(a) < 1e100, a, np.inf)
    product, split = a * a, a * 134217729.0
    high = split - (split - a)
    low = a - high
    return product, np.where(np.isfinite(product), low * low - ((product - high * high) - 2 * high * low), 0.0)


def _sum(*terms: float) -> float:
    """Rounded once; infinite or NaN as usual sums are."""
    return math.fsum(terms) if all(map(math.isfinite, terms)) else sum(terms)


_exact_sum: Final = np.vectorize(_sum, otypes=[np.float64])


def square(x: Array) -> Array:
    """(a - b)(a + b) + 2abi, in which nothing cancels; equal parts leave no real part, however large they are."""
    wide = x.astype(np.complex128)
    a, b = wide.real, wide.imag
    with np.errstate(all="ignore"):
        real = np.where((np.abs(a) == np.abs(b)) & np.isfinite(a), 0.0, (a - b) * (a + b))
        return _of_parts(real, 2 * (a * b), x.dtype)


def _of_parts(real: Array, imag: Array, dtype: Any) -> Array:
    result = np.empty(np.shape(real), dtype)
    result.real, result.imag = real, imag
    return result


def _box(part: Array) -> Array:
    """1 for infinite parts, 0 for finite ones, with their signs."""
    return np.asarray(np.copysign(np.isinf(part).astype(part.dtype), part))


def _numerator(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    return a * c + b * d, b * c - a * d

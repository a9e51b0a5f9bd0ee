"""NumPy semantics of arithmetic on complex numbers where NumPy's own special values are not those of C99, Annex G."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.ir.ops.definition import Array


def of_complex(real: Callable[..., Array], pairs: Callable[..., Array]) -> Callable[..., Array]:
    """A NumPy function, but of complex numbers the other one."""
    return lambda *operands: (pairs if operands[0].dtype.kind == "c" else real)(*operands)


def quotient(x: Array, y: Array) -> Array:
    """X / y: infinite where an infinite number is divided by a finite one, 0 where a finite one is by an infinite one.

    Zeros have the signs of Smith's algorithm, NumPy's.
    """
    (a, b), (c, d) = (x.real, x.imag), (y.real, y.imag)
    finite = np.isfinite(x), np.isfinite(y)
    infinite = np.isinf(a) | np.isinf(b), np.isinf(c) | np.isinf(d)
    with np.errstate(all="ignore"):
        near_x, exponent_x = near_one(x)
        by_zero = np.copysign(np.inf, c)
        cases = (
            (infinite[0] & infinite[1], np.full_like(a, np.nan), np.full_like(b, np.nan)),
            (infinite[0] & finite[1], *(np.inf * part for part in _numerators(_box(a), _box(b), c, d))),
            (
                finite[0] & infinite[1],
                *(0.0 * part for part in _numerators(near_x.real, near_x.imag, _box(c), _box(d))),
            ),
            ((c == 0) & (d == 0), by_zero * a, by_zero * b),
        )
        real, imag = _finite_quotient(near_x, exponent_x, y)
    for where, new_real, new_imag in cases:
        real, imag = np.where(where, new_real, real), np.where(where, new_imag, imag)
    return of_parts(real, imag, x.dtype)


def _finite_quotient(near_x: Array, exponent_x: Array, y: Array) -> tuple[Array, Array]:
    near_y, exponent_y = near_one(y)
    (a, b), (c, d) = (near_x.real, near_x.imag), (near_y.real, near_y.imag)
    exponents = np.subtract(exponent_x, exponent_y)
    real, imag = _numerators(a, b, c, d)
    size = c * c + d * d
    return np.ldexp(real / size, exponents), np.ldexp(imag / size, exponents)


def _numerators(a: Array, b: Array, c: Array, d: Array) -> list[Array]:
    """Ac + bd and bc - ad; what cancels is a zero with the sign of the larger of c and d, as Smith divides."""
    pivot = np.where(np.abs(c) >= np.abs(d), c, d)
    parts = []
    for terms in ((a, c, b, d), (b, c, -a, d)):
        found = _sum_of_products(*terms)
        cancels = (found == 0) & (np.signbit(terms[0] * terms[1]) != np.signbit(terms[2] * terms[3]))
        parts.append(np.where(cancels, np.copysign(0.0, pivot), found))
    return parts


def near_one(x: Array) -> tuple[Array, Array]:
    """Complex numbers times powers of two that bring their larger parts between 2 and 4, and those powers' negated exponents."""
    wide = np.asarray(x, np.complex128)
    size = np.maximum(np.abs(wide.real), np.abs(wide.imag))
    exponents = np.where(np.isfinite(size), np.frexp(size)[1] - 2, 0)
    return of_parts(np.ldexp(wide.real, -exponents), np.ldexp(wide.imag, -exponents), wide.dtype), exponents


def _box(part: Array) -> Array:
    """1 for infinite parts, 0 for finite ones, with their signs."""
    return np.asarray(np.copysign(np.isinf(part).astype(part.dtype), part))


def _sum_of_products(a: Array, b: Array, c: Array, d: Array) -> Array:
    """A b + c d, exact where the products cancel."""
    (first, first_lost), (second, second_lost) = two_product(a, b), two_product(c, d)
    total, lost = first + second, first_lost + second_lost
    return np.asarray(np.where(lost == 0, total, total + lost))


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """A * b, and what its rounding has lost (Dekker), of f64 whose products are far from the largest and smallest."""
    (high_a, low_a), (high_b, low_b) = _halves(a), _halves(b)
    product = a * b
    lost = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    return product, np.where(np.isfinite(lost), lost, 0.0)


def _halves(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def product(x: Array, y: Array) -> Array:
    """(a + bi)(c + di) by the plain formula, of which every operation rounds; NumPy's may be contracted."""
    (a, b), (c, d) = (x.real, x.imag), (y.real, y.imag)
    with np.errstate(all="ignore"):
        return of_parts(a * c - b * d, a * d + b * c, np.result_type(x, y))


def sign(x: Array) -> Array:
    """X over its absolute value, part by part: NumPy's complex division would make NaN of infinite parts."""
    near, _ = near_one(x)
    size = np.abs(near)
    with np.errstate(all="ignore"):
        unit = of_parts(near.real / size, near.imag / size, x.dtype)
    return np.where(x == 0, 0, np.where(np.isnan(x), complex(np.nan, np.nan), unit)).astype(x.dtype)


def square(x: Array) -> Array:
    """(a - b)(a + b) + 2abi, in which nothing cancels; equal parts leave no real part, however large they are."""
    wide = x.astype(np.complex128)
    a, b = wide.real, wide.imag
    narrow = np.abs(a) < np.abs(b)
    with np.errstate(all="ignore"):
        real = np.where((np.abs(a) == np.abs(b)) & np.isfinite(a), 0.0, (a - b) * (a + b))
        return of_parts(real, np.where(narrow, 2 * a, a) * np.where(narrow, b, 2 * b), x.dtype)


def of_parts(real: Array, imag: Array, dtype: Any) -> Array:
    """The complex numbers with these parts."""
    result = np.empty(np.broadcast(real, imag).shape, dtype)
    result.real, result.imag = real, imag
    return result

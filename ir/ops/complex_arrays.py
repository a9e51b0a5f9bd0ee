"""NumPy semantics of complex ops where NumPy's own special values are not those of C99, Annex G."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.ir.ops.definition import Array


def quotient(x: Array, y: Array) -> Array:
    """X / y: infinite where an infinite number is divided by a finite one, 0 where a finite one is by an infinite one."""
    (a, b), (c, d) = (x.real, x.imag), (y.real, y.imag)
    finite = np.isfinite(x), np.isfinite(y)
    infinite = np.isinf(a) | np.isinf(b), np.isinf(c) | np.isinf(d)
    with np.errstate(all="ignore"):
        plain = np.asarray(x.astype(np.complex128) / y.astype(np.complex128)).astype(x.dtype)
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


def sign(x: Array) -> Array:
    """X over its absolute value, part by part: NumPy's complex division would make NaN of infinite parts."""
    size = np.abs(x)
    with np.errstate(all="ignore"):
        unit = _of_parts(x.real / size, x.imag / size, x.dtype)
    return np.where(x == 0, 0, np.where(np.isnan(x), complex(np.nan, np.nan), unit)).astype(x.dtype)


def _of_parts(real: Array, imag: Array, dtype: Any) -> Array:
    result = np.empty(np.shape(real), dtype)
    result.real, result.imag = real, imag
    return result


def _box(part: Array) -> Array:
    """1 for infinite parts, 0 for finite ones, with their signs."""
    return np.asarray(np.copysign(np.isinf(part).astype(part.dtype), part))


def _numerator(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    return a * c + b * d, b * c - a * d

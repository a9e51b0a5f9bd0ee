"""What looks at a number's exponent and at its neighbours: frexp, ldexp, nextafter, as C has them."""

from __future__ import annotations

from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.expression import (
    EXPONENT_BIAS,
    INTEGER_KIND,
    MANTISSA_BITS,
    Term,
    maximum,
    minimum,
    power_of_two,
    where,
)

INFINITY = float("inf")


def next_after(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """The number next to x towards y; y where they are equal."""
    start, end = Term(b, x), Term(b, y)
    bits = start.bits()
    grows = (end > start).equals(start > 0.0)
    moved = where(grows, bits + 1, bits - 1).as_float()
    least = Term(b, b.constant(INTEGER_KIND[x.kind], 1)).as_float().with_sign_of(end)
    result = where(start.equals(0.0), least, moved)
    result = where(start.equals(end), end, result)
    return where(start.is_nan() | end.is_nan(), start + end, result).value


def ldexp(b: ScalarBuilder, x: Scalar, exponent: Scalar) -> Scalar:
    """x * 2**exponent, rounded once."""
    result, left = Term(b, x), Term(b, exponent)
    integer = INTEGER_KIND[x.kind]
    if left.kind != integer:
        left = Term(b, b.sext(exponent, integer))
    most = EXPONENT_BIAS[x.kind]
    # A step down that is not the last one stays above the denormal numbers, or the result is zero in any case.
    least, last = MANTISSA_BITS[x.kind] + 2 - most, 1 - most
    for _ in range(2):
        step = where(left < last, least, minimum(left, most))
        result, left = result * power_of_two(step), left - step
    return (result * power_of_two(maximum(minimum(left, most), last))).value


def frexp(b: ScalarBuilder, x: Scalar) -> tuple[Scalar, Scalar]:
    """(m, e) with x = m * 2**e and a magnitude of m from 0.5 to below 1; x itself and 0 for zeros, infinities and NaN."""
    term = Term(b, x)
    width, bias = MANTISSA_BITS[x.kind], EXPONENT_BIAS[x.kind]
    magnitude = term.abs()
    denormal = magnitude < 2.0 ** (1 - bias)
    scaled = where(denormal, term * 2.0 ** (width + 2), term)
    bits = scaled.bits()
    field = bits.logical_shift(width) & (2 * bias + 1)
    exponent = where(denormal, field - (bias - 1 + width + 2), field - (bias - 1))
    mantissa = ((bits & ~((2 * bias + 1) << width)) | ((bias - 1) << width)).as_float()
    usual = (magnitude > 0.0) & (magnitude < INFINITY)
    exponent = where(usual, exponent, 0)
    narrow = exponent.value if exponent.kind == "i32" else b.trunc(exponent.value, "i32")
    return where(usual, mantissa, term).value, narrow

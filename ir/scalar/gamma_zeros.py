"""lgamma and digamma of negative numbers near their zeros, where the terms of the reflection formulas cancel.

The difference from the value at the zero, which is 0, is written as a product with the distance from the zero: nothing cancels.
Zeros are known to twice the bits of f64, so that the distance is too.  With n the integer next to x, u = x + n and v the zero:

    lgamma(x) = lgamma(2 + u) - lgamma(2 + v) - log(product of (k - u) / (k - v) for k = -1 ... n)
    digamma(x) = digamma(1 - x) - digamma(1 - zero) - pi (cot(pi x) - cot(pi zero))
"""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.expression import Term, maximum, minimum, where
from hlojit.ir.scalar.logarithm import log1p
from hlojit.ir.scalar.trigonometric import sin_moderate

LAST = 1 + len(c.LGAMMA_ZEROS) // 2
"""Zeros of lgamma beside lower integers are between neighbouring f64, whose results are far from zero."""
SHIFT = 8
"""So much is added to an argument of digamma before its asymptotic series."""


def divided_difference(coefficients: Sequence[float], x: Term, y: Term) -> tuple[Term, Term]:
    """A polynomial at x, and the quotient of its difference from that at y and x - y, without a division."""
    value, difference = x.constant(coefficients[-1]), x.constant(0.0)
    for coefficient in reversed(coefficients[:-1]):
        difference = difference.fma(y, value)
        value = value.fma(x, coefficient)
    return value, difference


def _looked_up(table: Sequence[float], index: Term) -> Term:
    """An entry of a table; the index is a float, and the nearest one where it is none."""
    b = index.b
    bounded = maximum(minimum(index, len(table) - 1.0), 0.0)
    return Term(b, b.lookup("f64", tuple(table), b.fptosi(bounded.value, "i32")))


def lgamma_near_zero(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Lgamma for -LAST - 1/2 < x < -2 where it is not large."""
    term = Term(b, x)
    n = where(term > -2.54, term.constant(2.0), (-term).round())
    u = term + n
    # half-way between the first two zeros terms of either would cancel: there it is the difference from the least value
    between = (term > -2.68) & (term < -2.54)
    place = where(between, 1.0, (n - 2.0) * 2.0 + where(u > 0.0, u.constant(1.0), 0.0))
    v = _looked_up(c.LGAMMA_ZEROS, place)
    distance = (u - v) - _looked_up(c.LGAMMA_ZEROS_LOW, place)
    value, difference = divided_difference(c.LGAMMA_NEAR, u, v)
    # the factors without that of k = 0, which is the largest, less one
    others = distance / (v + 1.0)
    for k in range(1, LAST + 1):
        factor = -distance / (float(k) - v)
        others = where(n >= float(k), factor.fma(others, others + factor), others)
    first = distance / v
    ratio = first.fma(others, others + first)
    logarithm = Term(b, log1p(b, ratio.value))
    result = distance.fma(v.fma(difference, value), -logarithm)
    return (result + where(between, result.constant(c.LGAMMA_LEAST), 0.0)).value


def digamma_near_zero(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Digamma for -len(DIGAMMA_ZEROS) < x < 0 where it is not large."""
    term = Term(b, x)
    place = (-term).truncate()
    zero, zero_low = _looked_up(c.DIGAMMA_ZEROS, place), _looked_up(c.DIGAMMA_ZEROS_LOW, place)
    distance = (term - zero) - zero_low
    whole = zero.round()
    sines = sin_moderate((term - whole) * c.PI, 0) * sin_moderate(((zero - whole) + zero_low) * c.PI, 0)
    bent = sin_moderate(distance * c.PI, 0) * c.PI
    y, other = 1.0 - term, 1.0 - zero
    # 1 / (y + j) - 1 / (other + j) for the first steps, over the distance; then Stirling's series at both
    slope = term.constant(0.0)
    for step in range(SHIFT):
        slope = slope + 1.0 / ((y + float(step)) * (other + float(step)))
    return (bent / sines - distance * (slope + _slope_far(y + float(SHIFT), other + float(SHIFT), distance))).value


def _slope_far(y: Term, other: Term, distance: Term) -> Term:
    """Digamma's difference for two arguments from SHIFT on over theirs; ``distance`` is other - y."""
    product = 1.0 / (y * other)
    relative = distance / other
    # log1p(-r) / -r
    logarithm = Term(y.b, log1p(y.b, (-relative).value)) / -relative
    logarithm = where(relative.equals(0.0), 1.0, logarithm) / other
    square, other_square = 1.0 / (y * y), 1.0 / (other * other)
    value, difference = divided_difference(c.DIGAMMA_FAR, square, other_square)
    series = other_square.fma(difference, value) * -(y + other) * product * product
    return product.fma(0.5, series) + logarithm

"""Exponentials, sines, logarithms and moduli as ``Number``s: some bits more than the functions of their names give.

Arguments are finite f64.  A pair's relative error is about 2**-57, the polynomials' own; sums and products of pairs are exact
to 2**-100, so what is rounded at the end of a formula misses by little more than half a unit.
"""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.exponential import ROUNDING, exp_normal
from hlojit.ir.scalar.expression import Term, maximum, minimum, power_of_two, rare, where
from hlojit.ir.scalar.logarithm import log_of_parts, log_of_parts_with_rest, split_exponent
from hlojit.ir.scalar.trigonometric import (
    SMALL_ENOUGH,
    cos,
    huge_magnitude,
    reduce_huge,
    reduce_twice_as_long,
    sin,
)
from hlojit.ir.scalar.wide_numbers import Double, Number, Single, choose, sum_exactly, two_product, two_sum

LARGE = 2.0**500
"""From here on squares are taken of scaled numbers."""
SMALL = 2.0**-485
"""Up to here too: the square has bits to spare above the denormal numbers."""


def clamped(x: Term, bound: float) -> Term:
    """The number of [-bound, bound] next to x; NaN stays."""
    return minimum(maximum(x, -bound), bound)


# sines


def sine_and_cosine(x: Term, pair: bool) -> tuple[Number, Number]:
    """Sine and cosine of an angle."""
    b = x.b
    if not pair:
        return Single(Term(b, sin(b, x.value))), Single(Term(b, cos(b, x.value)))
    huge = x.abs().not_below(SMALL_ENOUGH["f64"])
    quadrant, r, r_low = reduce_twice_as_long(where(huge, 0.0, x))
    r = rare(huge, _huge_remainder, [x], r)
    r_low = rare(huge, _huge_rest, [x], r_low)
    quadrant = where(huge, integer_of(rare(huge, _huge_quadrant, [x], x.constant(0.0))), quadrant)
    sine, cosine = _sine_and_cosine_of_reduced(r, r_low)
    odd = (quadrant & 1).differs(0)
    found = choose(odd, cosine, sine), choose(odd, sine, cosine)
    signs = (quadrant & 2) << 62, ((quadrant + 1) & 2) << 62
    results = []
    for value, sign in zip(found, signs):
        assert isinstance(value, Double)
        high, low = ((part.bits() ^ sign).as_float() for part in (value.high, value.low))
        results.append(Double(high, low))
    # the remainder of tiny angles underflows, and a zero keeps its sign
    tiny = x.abs() < 2.0**-500
    results[0] = Double(where(tiny, x, results[0].high), where(tiny, 0.0, results[0].low))
    return results[0], results[1]


def integer_of(value: Term) -> Term:
    """The integer that a small float is."""
    return (value + ROUNDING["f64"]).bits() - value.constant(ROUNDING["f64"]).bits()


def _huge_reduced(b: ScalarBuilder, x: Scalar) -> tuple[Term, Term, Term]:
    """(quadrant, r, r_low) of an angle beyond 2**40; NaN of infinity and NaN."""
    term = Term(b, x)
    finite, magnitude = huge_magnitude(term)
    quadrant, r, r_low = reduce_huge(magnitude)
    negative = term < 0.0
    r, r_low = where(negative, -r, r), where(negative, -r_low, r_low)
    quadrant = where(negative, 0 - quadrant, quadrant) & 3
    return quadrant.to_float("f64"), where(finite, r, float("nan")), r_low


def _huge_quadrant(b: ScalarBuilder, x: Scalar) -> Scalar:
    return _huge_reduced(b, x)[0].value


def _huge_remainder(b: ScalarBuilder, x: Scalar) -> Scalar:
    return _huge_reduced(b, x)[1].value


def _huge_rest(b: ScalarBuilder, x: Scalar) -> Scalar:
    return _huge_reduced(b, x)[2].value


def _sine_and_cosine_of_reduced(r: Term, r_low: Term) -> tuple[Double, Double]:
    square = r * r
    cubic = square * r
    sine_rest = cubic.fma(square.polynomial(c.SIN_F64), square.fma(r_low * -0.5, r_low))
    half, half_lost = two_product(r * 0.5, r)
    cosine = 1.0 - half
    lost = (1.0 - cosine) - half
    quartic = square * square
    rest = quartic.fma(square.polynomial(c.COS_F64), lost) - r.fma(r_low, half_lost)
    return Double.with_rest(r, sine_rest), Double.with_rest(cosine, rest)


# exponentials


def exponential(x: Term, pair: bool) -> tuple[Number, Term]:
    """(m, n) with e**x = m 2**n and 0.7 < m < 1.42; n is an i64.  |x| must be below 2**40."""
    high, low = c.LN2_F64
    shifted = x.fma(c.INVERSE_LN2[0], ROUNDING["f64"])
    n = shifted - ROUNDING["f64"]
    exponent = shifted.bits() - n.constant(ROUNDING["f64"]).bits()
    start = n.fma(-high, x)
    if not pair:
        return Single(exp_normal(n.fma(-low, start))), exponent
    step, step_lost = two_product(n, n.constant(low))
    r, r_low = two_sum(start, -step)
    r_low = r_low - step_lost
    whole = r + 1.0
    lost = r - (whole - 1.0)
    rest = (r * r).fma(r.polynomial(c.EXP_F64), r.fma(r_low, r_low) + lost)
    return Double.with_rest(whole, rest), exponent


def exponential_minus_one(x: Term, pair: bool) -> Number:
    """e**x - 1 for |x| < 40."""
    near_x = where(x.abs() < 0.34, x, 0.0)
    rest = (near_x * near_x) * near_x.polynomial(c.EXPM1_F64)
    mantissa, n = exponential(x, pair)
    power = power_of_two(n)
    near = Double.with_rest(near_x, rest) if pair else Single(near_x + rest)
    return choose(x.abs() < 0.34, near, mantissa.scaled(power) - 1.0)


def times_power(value: Number, exponent: Term) -> Term:
    """``value * 2**exponent`` rounded, for an i64 between -3000 and 3000, without overflow or loss on the way."""
    first = clamped(exponent, 1000)
    second = clamped(exponent - first, 1000)
    third = clamped(exponent - first - second, 1000)
    return value.rounded() * power_of_two(first) * power_of_two(second) * power_of_two(third)


def product_with_power(a: Number, b: Number, exponent: Term) -> Term:
    """``a * b * 2**exponent`` rounded, where ``a`` is between 1/4 and 4 and ``b``, below 2**20, may be denormal."""
    # a tiny factor is lifted, so that only the last step rounds it
    before = minimum(maximum(exponent, 500), 1000)
    return times_power(a * b.scaled(power_of_two(before)), exponent - before)


def hyperbolic(x: Term, pair: bool) -> tuple[Number, Number, Term]:
    """(s, c, n) with sinh x = s 2**n and cosh x = c 2**n, for |x| < 1500."""
    magnitude = x.abs()
    mantissa, n = exponential(magnitude, pair)
    twice = minimum(n + n, 1000)
    inverse = (
        Double(mantissa.high.constant(1.0), mantissa.high.constant(0.0))
        if pair
        else Single(mantissa.high.constant(1.0))
    ) / mantissa
    inverse = inverse.scaled(power_of_two(0 - twice))
    exponent = n - 1
    near = magnitude < 1.0
    near_x = where(near, x, 0.0)
    square = near_x * near_x
    rest = (square * near_x) * square.polynomial(c.SINH_F64)
    small = Double.with_rest(near_x, rest) if pair else Single(near_x + rest)
    small = small.scaled(power_of_two(minimum(1 - n, 1000)))
    far = mantissa - inverse
    far = choose(x < 0.0, -far, far)
    return choose(near, small, far), mantissa + inverse, exponent


# moduli and logarithms


def sum_of_squares(x: Term, y: Term, pair: bool) -> Number:
    """``x**2 + y**2`` for numbers between ``SMALL`` and ``LARGE``, or zero."""
    if not pair:
        return Single(x.fma(x, y * y))
    return Double.multiplied(x, x) + Double.multiplied(y, y)


def scale_of(larger: Term, pair: bool) -> tuple[Term | float, Term | float]:
    """(s, t): numbers up to ``larger`` are squared after multiplication by the power of two s; log s = -t ln 2."""
    if not pair:
        return 1.0, 0.0
    up, down = 2.0**-600, 2.0**600
    scale = where(larger > LARGE, larger.constant(up), where(larger < SMALL, larger.constant(down), 1.0))
    doublings = where(larger > LARGE, larger.constant(600.0), where(larger < SMALL, larger.constant(-600.0), 0.0))
    return scale, doublings


def modulus(x: Term, y: Term, pair: bool) -> tuple[Number, Term | float]:
    """(h, s) with ``|x + iy| = h / s``, s a power of two."""
    larger = where(x.abs() > y.abs(), x.abs(), y.abs())
    scale, _ = scale_of(larger, pair)
    if not pair:
        return sum_of_squares(x, y, pair).sqrt(), scale
    return sum_of_squares(x * scale, y * scale, pair).sqrt(), scale


def log1p_of(u: Number) -> Term:
    """log(1 + u) of a number above -1, rounded."""
    u_high, u_low = u.parts()
    total = u + 1.0 if isinstance(u, Double) else Double.summed(u.high, u.high.constant(1.0))
    assert isinstance(total, Double)
    exponent, m = split_exponent(total.high)
    direct = exponent.equals(0)
    f = where(direct, u_high, m - 1.0)
    lost = where(direct, u_low, total.low)
    return log_of_parts(exponent.to_float("f64"), f, lost / total.high)


def log_square(x: Term, x_low: Term | None, y: Term, terms: list[Term], pair: bool) -> tuple[Term, Term, Term]:
    """(e, f, g) with ``2 log|x + x_low + iy| = e ln 2 + log(1 + f) + g``; g is small.

    ``terms`` are f64 whose exact sum is the square of the modulus less 1; they matter only near 1.  Neither part may be
    infinite; of zero the result is about -1000 (replace it).
    """
    larger = where(x.abs() > y.abs(), x.abs(), y.abs())
    scale, doublings = scale_of(larger, pair)
    if pair:
        x, y = x * scale, y * scale
        x_low = None if x_low is None else x_low * scale
    square = sum_of_squares(x, y, pair)
    if x_low is not None:
        square = square + x * (x_low + x_low)
    difference, difference_low = sum_exactly(terms)
    square_high, square_low = square.parts()
    positive = where(square.high > 0.0, square_high, 1.0)
    exponent, m = split_exponent(positive)
    e = exponent.to_float("f64")
    e = e + (doublings + doublings)
    direct = exponent.equals(0) & (larger > 0.5) & (larger < 2.0)
    # within the binade of one the logarithm is that of one and the difference
    f = where(direct, difference, m - 1.0)
    correction = where(direct, difference_low, square_low) / positive
    return where(direct, 0.0, e), f, correction


def log_modulus(x: Term, x_low: Term | None, y: Term, terms: list[Term], pair: bool) -> Term:
    """``log|x + x_low + iy|`` (see ``log_square``)."""
    return log_of_parts(*log_square(x, x_low, y, terms, pair)) * 0.5


def logarithm_of_modulus(x: Term, y: Term, pair: bool) -> Term:
    """log|x + iy| of finite parts that are not both zero."""
    return log_modulus(x, None, y, _square_less_one(x, y, pair), pair)


def logarithm_as_number(x: Term, y: Term, pair: bool) -> Number:
    """``logarithm_of_modulus`` with bits to spare."""
    e, f, correction = log_square(x, None, y, _square_less_one(x, y, pair), pair)
    if not pair:
        return Single(log_of_parts(e, f, correction) * 0.5)
    high, low = log_of_parts_with_rest(e, f, correction)
    return Double.with_rest(high, low).scaled(0.5)


def _square_less_one(x: Term, y: Term, pair: bool) -> list[Term]:
    """Terms of ``x**2 + y**2 - 1`` for parts near one."""
    minus_one = x.constant(-1.0)
    larger = where(x.abs() > y.abs(), x.abs(), y.abs())
    near = larger < 2.0
    near_x, near_y = where(near, x, 0.0), where(near, y, 0.0)
    if not pair:
        # squares of f32 are exact
        return [near_x * near_x, minus_one, near_y * near_y]
    return [*two_product(near_x, near_x), minus_one, *two_product(near_y, near_y)]

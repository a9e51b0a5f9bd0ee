"""The Hurwitz zeta function, polygamma, and the Bessel function of order 1; f32 is computed in f64.

zeta(s, q) = q**-s + (q + 1)**-s + ...: the first terms one by one, the rest by Euler and Maclaurin's formula (Johansson,
"Rigorous high-precision computation of the Hurwitz zeta function", 2013, formula 5).  For q < 0, where s is whole, what both
sides' sums over q + k and k - q have in common is a sum over the fraction of q.
"""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.elementary_numbers import clamped, exponential, integer_of, times_power
from hlojit.ir.scalar.exponential import exp_negative
from hlojit.ir.scalar.expression import Term, maximum, minimum, power_of_two, rare, where
from hlojit.ir.scalar.gamma import digamma, gamma, lgamma
from hlojit.ir.scalar.logarithm import exponent_and_mantissa, log
from hlojit.ir.scalar.power import positive_power, short_power
from hlojit.ir.scalar.wide_numbers import Single, two_sum

INFINITY = float("inf")
NAN = float("nan")
STEPS = {"f32": (5, 8), "f64": (8, 14)}
"""Terms that are added one by one, and terms of the formula for the rest."""


def _zeta_positive(s: Term, q: Term, precision: str, scale: Term | float = 1.0) -> Term:
    """Zeta for s > 1 and 0 < q < infinity, over ``scale**s``."""
    count, terms = STEPS[precision]
    w = q + float(count)
    # beyond, the first of these terms exceeds all that follow it e**160 times
    bounded = minimum(s, w * 40.0)
    inverse = 1.0 / w
    ratio = bounded * inverse
    total = w.constant(c.BERNOULLI_QUOTIENTS[terms - 1])
    for number in reversed(range(1, terms)):
        factor = inverse.fma(2.0 * number - 1.0, ratio) * inverse.fma(2.0 * number, ratio)
        total = total.fma(factor, c.BERNOULLI_QUOTIENTS[number - 1])
    rest = w / (bounded - 1.0) + ratio.fma(total, 0.5)
    result = where(s < w * 40.0, _power_of_sum(q, count, s, precision, scale) * rest, 0.0)
    for step in reversed(range(count)):
        result = result + _power_of_sum(q, step, s, precision, scale)
    return result


def _power_of_sum(q: Term, step: int, s: Term, precision: str, scale: Term | float) -> Term:
    """``((q + step) scale)**-s``; in f64 with what rounding the sum lost, which the power makes ``s`` times larger."""
    total = q + float(step)
    if precision == "f32":
        return short_power(total * scale, -s)
    power = positive_power(total * scale, -s)
    if not step:
        return power
    _, lost = two_sum(q, q.constant(float(step)))
    return power.fma(-(s * (lost / total)), power)


def _parity(whole: Term) -> Term:
    """1.0 of even, -1.0 of odd integers."""
    half = whole * 0.5
    return where(half.equals(half.floor()), whole.constant(1.0), -1.0)


def _zeta_negative(precision: str, b: ScalarBuilder, s_value: Scalar, q_value: Scalar) -> Scalar:
    """Zeta for whole s > 1 and q < 0 that is not whole."""
    s, q = Term(b, s_value), Term(b, q_value)
    offset = q - q.round()
    usable = offset.abs() > 0.0
    near = where(usable, offset.abs(), 0.5)
    right = offset > 0.0
    sign = _parity(s)
    beyond = _zeta_positive(s, 1.0 - minimum(q, 0.0), precision)
    close, far = _zeta_positive(s, near, precision), _zeta_positive(s, 1.0 - near, precision)
    above, below = where(right, close, far), where(right, far, close)
    # the first two are equal for the fraction 1/2
    return (sign.fma(below, above) - sign * beyond).value


def _zeta_f32(b: ScalarBuilder, s: Scalar, q: Scalar) -> Scalar:
    return _zeta_negative("f32", b, s, q)


def _zeta_f64(b: ScalarBuilder, s: Scalar, q: Scalar) -> Scalar:
    return _zeta_negative("f64", b, s, q)


def _zeta(s: Term, q: Term, precision: str) -> Term:
    usable_s = where((s > 1.0) & (s < INFINITY), s, 2.0)
    usable_q = where((q > 0.0) & (q < INFINITY), q, 1.0)
    result = _zeta_positive(usable_s, usable_q, precision)
    whole = s.floor().equals(s)
    negative = (q < 0.0) & (q > -INFINITY) & whole
    bounded = where(negative, q, -0.5)
    slow = _zeta_f32 if precision == "f32" else _zeta_f64
    result = rare(negative, slow, [usable_s, bounded], result)
    limit = where(q < 1.0, q.constant(INFINITY), where(q.equals(1.0), q.constant(1.0), 0.0))
    result = where(s.equals(INFINITY), limit, result)
    result = where(q.equals(INFINITY), 0.0, result)
    # at a pole both sides agree for even s
    pole = where(whole & (_parity(s) > 0.0), q.constant(INFINITY), NAN)
    left = (q <= 0.0) & ~whole
    result = where(left | q.equals(-INFINITY), NAN, result)
    result = where((q <= 0.0) & q.floor().equals(q), pole, result)
    result = where(s.equals(1.0), INFINITY, where(s < 1.0, NAN, result))
    return where(s.is_nan() | q.is_nan(), s + q, result)


def zeta(b: ScalarBuilder, s: Scalar, q: Scalar) -> Scalar:
    """Hurwitz's zeta function; infinite at s = 1, NaN below and for q < 0 where s is not whole."""
    if s.kind == "f64":
        return _zeta(Term(b, s), Term(b, q), "f64").value
    return _zeta(Term(b, s).widen(), Term(b, q).widen(), "f32").narrow().value


def _apply(rule: object, x: Term) -> Term:
    assert callable(rule)
    return Term(x.b, rule(x.b, x.value))


def _polygamma(n: Term, x: Term, precision: str) -> Term:
    natural = (n >= 0.0) & (n < 2.0**1000) & n.floor().equals(n)
    order = where(natural & (n > 0.0), n, 1.0)
    positive = (x > 0.0) & (x < INFINITY)
    product = _factorial_times_zeta(order, where(positive, x, 1.0), precision)
    elsewhere = _apply(gamma, minimum(order, 170.0) + 1.0) * _zeta(order + 1.0, where(positive, -0.5, x), precision)
    result = -_parity(order) * where(positive, product, elsewhere)
    result = where(n.equals(0.0), _apply(digamma, x), result)
    return where(natural, result, NAN)


def _factorial_times_zeta(n: Term, q: Term, precision: str) -> Term:
    """``n! zeta(n + 1, q)`` for q > 0, where one factor may overflow and the other underflow."""
    s, large = n + 1.0, n > 170.0
    e, _ = exponent_and_mantissa(q)
    e = clamped(e, 1000.0)
    # zeta is computed over a power of two, or for large n over q, to the power of -s
    scaled = _zeta_positive(s, q, precision, where(large, minimum(1.0 / q, 2.0**1000), power_of_two(integer_of(-e))))
    exact = _apply(gamma, where(large, 1.0, n) + 1.0) * 2.0**-512
    size = _apply(lgamma, s) - s * _apply(log, q)
    mantissa, more = exponential(clamped(where(large, size, 0.0), 2000.0), False)
    factor = where(large, mantissa.high, exact)
    exponent = where(large, more.to_float("f64"), 512.0 - e * s)
    return times_power(Single(scaled * factor), integer_of(clamped(exponent, 2900.0)))


def polygamma(b: ScalarBuilder, n: Scalar, x: Scalar) -> Scalar:
    """The n-th derivative of digamma; NaN for n that is no natural number."""
    if n.kind == "f64":
        return _polygamma(Term(b, n), Term(b, x), "f64").value
    return _polygamma(Term(b, n).widen(), Term(b, x).widen(), "f32").narrow().value


def _bessel_i1e(x: Term) -> Term:
    magnitude = x.abs()
    near_x = minimum(magnitude, 16.0)
    square = near_x * near_x
    series = square.polynomial(c.BESSEL_I1_NEAR)
    # what rounding the square lost, times about the quotient of the series' derivative and the series
    lost = near_x.fma(near_x, -square) * 0.5 / (near_x + 1.5)
    near = near_x * series.fma(lost, series) * exp_negative(-near_x)
    inverse = 1.0 / maximum(magnitude, 16.0)
    far = inverse.polynomial(c.BESSEL_I1E_FAR) * inverse.sqrt()
    result = where(magnitude > 16.0, far, near)
    return where(x.is_nan(), x, result.with_sign_of(x))


def bessel_i1e(b: ScalarBuilder, x: Scalar) -> Scalar:
    """The modified Bessel function of order 1 times e**-|x|."""
    if x.kind == "f64":
        return _bessel_i1e(Term(b, x)).value
    return _bessel_i1e(Term(b, x).widen()).narrow().value

"""gamma, lgamma and digamma; f32 is computed in f64.

From 8 on Stirling's series; below, the recurrence brings the argument into a unit interval with its own polynomial.
Arguments below zero are reflected, in the lanes that have any.
"""

from __future__ import annotations

from collections.abc import Callable

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.exponential import exp
from hlojit.ir.scalar.expression import Term, maximum, minimum, rare, where
from hlojit.ir.scalar.gamma_zeros import LAST as LAST_ZERO
from hlojit.ir.scalar.gamma_zeros import digamma_near_zero, lgamma_near_zero
from hlojit.ir.scalar.logarithm import log_with_rest
from hlojit.ir.scalar.trigonometric import sin_moderate
from hlojit.ir.scalar.wide_numbers import two_sum

INFINITY = float("inf")
STIRLING = 8.0


def _in_f64(rule: Callable[[ScalarBuilder, Scalar], Scalar], b: ScalarBuilder, x: Scalar) -> Scalar:
    if x.kind == "f64":
        return rule(b, x)
    return b.fptrunc(rule(b, b.fpext(x)))


def _lgamma_near(x: Term) -> tuple[Term, Term]:
    """Lgamma for 0 < x <= 8 as a sum, whose second term is less than 0.2."""
    # above 1.35 the polynomial around 2 alone cancels less
    whole = where((x > 1.35) & (x < 2.0), 2.0, x.round())
    u = x - whole
    # lgamma(x) = lgamma(2 + u) + log((x - 1) (x - 2) ... (2 + u)), or - log(x), - log(x (1 + x)) below 2
    product = where(whole < 1.0, x.fma(x, x), x)
    product = where(whole >= 2.0, 1.0, product)
    for step in range(1, 7):
        product = where(whole >= step + 2.0, product * (x - float(step)), product)
    log, log_low = log_with_rest(product)
    below = whole < 2.0
    return where(below, -log, log), u.fma(u.polynomial(c.LGAMMA_NEAR), where(below, -log_low, log_low))


def _lgamma_positive(x: Term) -> Term:
    """Lgamma for 0 < x < infinity."""
    near, near_low = _lgamma_near(minimum(x, STIRLING))
    far_x = maximum(x, STIRLING)
    log, log_low = log_with_rest(far_x)
    inverse = 1.0 / far_x
    series = inverse * (inverse * inverse).polynomial(c.LGAMMA_FAR) + c.STIRLING_CONSTANT
    factor = x - 0.5
    stirling = factor.fma(log - 1.0, factor.fma(log_low, series))
    return where(x >= STIRLING, stirling, near + near_low)


def _lgamma_reflected(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Lgamma for x < -2**-60: log(pi / |x sin(pi x)|) - lgamma(-x)."""
    term = Term(b, x)
    magnitude = minimum(maximum(-term, 2.0**-60), 2.0**1000)
    part = magnitude - magnitude.round()
    sine = sin_moderate(part * c.PI, 0).abs()
    pole = part.equals(0.0)
    log, log_low = log_with_rest(where(pole, 1.0, sine * magnitude))
    near, near_low = _lgamma_near(minimum(magnitude, STIRLING))
    far, far_low = _stirling(maximum(magnitude, STIRLING))
    is_far = magnitude >= STIRLING
    first, lost = two_sum(-log, -where(is_far, far, near))
    total, more = two_sum(first, log.constant(c.LOG_PI))
    result = total + (more + lost - (log_low + where(is_far, far_low, near_low)))
    near_zero = (result > -1.25) & (result < 0.7) & (term < -2.0) & (magnitude < LAST_ZERO + 0.5)
    result = rare(near_zero, lgamma_near_zero, [where(near_zero, term, -2.5)], result)
    return where(pole, INFINITY, result).value


def _lgamma_f64(b: ScalarBuilder, x: Scalar) -> Scalar:
    term = Term(b, x)
    magnitude = term.abs()
    usable = (magnitude > 0.0) & (magnitude < INFINITY)
    result = _lgamma_positive(where(usable, magnitude, 1.0))
    result = rare(usable & (term < -(2.0**-60)), _lgamma_reflected, [term], result)
    return where(usable, result, where(term.is_nan(), term, INFINITY)).value


def lgamma(b: ScalarBuilder, x: Scalar) -> Scalar:
    """log|gamma(x)|; infinite at zero and the negative integers."""
    return _in_f64(_lgamma_f64, b, x)


def _exp(x: Term) -> Term:
    return Term(x.b, exp(x.b, x.value))


def _gamma_near(x: Term) -> Term:
    """Gamma for 0 < x < 8; integers exactly."""
    whole = x.round()
    u = x - whole
    value = _exp(u * u.polynomial(c.LGAMMA_NEAR))  # gamma(2 + u)
    # gamma(x) = (x - 1) (x - 2) ... (2 + u) gamma(2 + u), or gamma(2 + u) / x, / x (1 + x) below 2
    for step in range(1, 7):
        value = where(whole >= step + 2.0, value * (x - float(step)), value)
    divisor = where(whole < 1.0, x.fma(x, x), x)
    return where(whole < 2.0, value / divisor, value)


def _stirling(x: Term) -> tuple[Term, Term]:
    """Lgamma of a number from 8 on as a sum, whose second term is less than the rounding error of the first."""
    log, log_low = log_with_rest(x)
    inverse = 1.0 / x
    series = inverse * (inverse * inverse).polynomial(c.LGAMMA_FAR) + c.STIRLING_CONSTANT
    factor = x - 0.5
    product = factor * log
    low = factor.fma(log, -product) + factor * log_low
    difference = product - factor
    low = low + ((product - difference) - factor)
    total = difference + series
    low = low + ((difference - total) + series)
    # The rest of the logarithm need not be small.
    high = total + low
    return high, (total - high) + low


def _gamma_positive(x: Term) -> Term:
    """Gamma for 0 < x < infinity."""
    far = x >= STIRLING
    high, low = _stirling(minimum(where(far, x, STIRLING), 200.0))
    grown = _exp(high)
    grown = where(grown < INFINITY, grown.fma(low, grown), grown)
    grown = where(x.equals(x.round()) & (grown < 2.0**50), grown.round(), grown)
    return where(far, grown, _gamma_near(minimum(x, STIRLING)))


def _gamma_reflected(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Gamma for x < -2**-60: -pi / (-x sin(-pi x) gamma(-x))."""
    term = Term(b, x)
    magnitude = minimum(maximum(-term, 2.0**-60), 2.0**60)
    whole = magnitude.round()
    part = magnitude - whole
    half = whole * 0.5
    sine = sin_moderate(part * c.PI, 0)
    pole = part.equals(0.0)
    sine = where(half.equals(half.truncate()), sine, -sine)
    quotient = c.PI / (where(pole, 1.0, -sine) * magnitude)
    far = magnitude >= STIRLING
    high, low = _stirling(minimum(where(far, magnitude, STIRLING), 250.0))
    # In two steps, of which the last may give a denormal number: it is rounded once.
    root = _exp(high * -0.5)
    root = root.fma(low * -0.5, root)
    result = where(far, quotient * root * root, quotient / _gamma_near(minimum(magnitude, STIRLING)))
    return where(pole, float("nan"), result).value


def _gamma_f64(b: ScalarBuilder, x: Scalar) -> Scalar:
    term = Term(b, x)
    usable = (term > 2.0**-60) & (term < INFINITY)
    result = _gamma_positive(where(usable, term, 1.0))
    result = rare(term < -(2.0**-60), _gamma_reflected, [term], result)
    result = where(term.abs() > 2.0**-60, result, 1.0 / term)
    result = where(term.equals(-INFINITY), float("nan"), result)
    return where(term.not_below(INFINITY), term, result).value


def gamma(b: ScalarBuilder, x: Scalar) -> Scalar:
    """The gamma function; infinite with the sign of zero, NaN at the negative integers."""
    return _in_f64(_gamma_f64, b, x)


def _digamma_positive(x: Term) -> Term:
    """Digamma for 0 < x < infinity."""
    far = x >= STIRLING
    near_x = minimum(x, STIRLING)
    # digamma(x) = digamma(y) + 1 / y + ... + 1 / (x - 1) with 1 <= y < 2; the sum is numerator / denominator
    low = near_x < 1.0
    y = where(low, near_x + 1.0, near_x)
    numerator = where(low, near_x.constant(-1.0), 0.0)
    denominator = where(low, near_x, 1.0)
    for step in range(1, 7):
        next_y = near_x - float(step)
        more = near_x >= step + 1.0
        y = where(more, next_y, y)
        numerator = where(more, numerator.fma(next_y, denominator), numerator)
        denominator = where(more, denominator * next_y, denominator)
    quotient = where(far, 1.0, numerator) / where(far, x, denominator)
    root, root_low = c.DIGAMMA_ROOT
    near = ((y - root) - root_low).fma((y - 1.5).polynomial(c.DIGAMMA_NEAR), quotient)
    log, log_low = log_with_rest(where(far, x, STIRLING))
    square = quotient * quotient
    series = square.fma(square.polynomial(c.DIGAMMA_FAR), log_low)
    return where(far, log + quotient.fma(-0.5, series), near)


def _digamma_reflected(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Digamma for x < 0: digamma(1 - x) - pi / tan(pi x)."""
    term = Term(b, x)
    tiny = term > -(2.0**-60)
    negative = maximum(where(tiny, -0.5, term), -(2.0**1000))
    part = negative - negative.round()
    angle = part * c.PI
    pole = part.equals(0.0)
    cotangent = sin_moderate(angle, 1) / where(pole, 1.0, sin_moderate(angle, 0))
    result = cotangent.fma(-c.PI, _digamma_positive(1.0 - negative))
    near_zero = (result.abs() < 3.0) & (negative > -float(len(c.DIGAMMA_ZEROS)))
    result = rare(near_zero, digamma_near_zero, [where(near_zero, negative, -0.5)], result)
    result = where(tiny, -1.0 / term, result)
    return where(pole, float("nan"), result).value


def _digamma_f64(b: ScalarBuilder, x: Scalar) -> Scalar:
    term = Term(b, x)
    positive = (term > 0.0) & (term < INFINITY)
    result = _digamma_positive(where(positive, term, 1.0))
    result = rare(term < 0.0, _digamma_reflected, [term], result)
    result = where(term.equals(0.0) | term.equals(-INFINITY), float("nan"), result)
    return where(term.not_below(INFINITY), term, result).value


def digamma(b: ScalarBuilder, x: Scalar) -> Scalar:
    """The derivative of lgamma; NaN at zero and the negative integers."""
    return _in_f64(_digamma_f64, b, x)

"""exp, sinh, cosh, tanh, sin, cos, tan, expm1 and logistic of complex numbers x + iy.

Every rule takes the parts as f64 and gives those of the result, each rounded once but for what numbers
(``hlojit.ir.scalar.wide_numbers``) miss.  Infinities, NaN and signed zeros are as in Annex G of the C standard, but for one
point: where the sine of an infinite part is a factor, the result is NaN also if the other factor is zero or infinite.
"""

from __future__ import annotations

from hlojit.ir.scalar.elementary_numbers import (
    clamped,
    exponential,
    exponential_minus_one,
    hyperbolic,
    product_with_power,
    sine_and_cosine,
    times_power,
)
from hlojit.ir.scalar.expression import Term, maximum, minimum, power_of_two, where
from hlojit.ir.scalar.wide_numbers import Number, choose

INFINITY = float("inf")
NAN = float("nan")
BEYOND = 1460.0
"""e**x times any f64 that is not zero overflows from here on, or underflows."""

Parts = tuple[Term, Term]


def is_finite(x: Term) -> Term:
    """Whether neither infinite nor NaN."""
    return x.abs() < INFINITY


def times_zero(exact: Term, a: Term, b: Term) -> Term:
    """A product, where either factor is zero with the sign that pairs lose; a zero times NaN or infinity is that zero."""
    zero = where(a.equals(0.0), a, b)
    signed = where(is_finite(a) & is_finite(b), a * b, zero)
    return where(a.equals(0.0) | b.equals(0.0), signed, exact)


def exp(x: Term, y: Term, pair: bool) -> Parts:
    """e**x (cos y + i sin y)."""
    mantissa, exponent = exponential(clamped(x, BEYOND), pair)
    sine, cosine = sine_and_cosine(y, pair)
    real = product_with_power(mantissa, cosine, exponent)
    return real, where(y.equals(0.0), y, product_with_power(mantissa, sine, exponent))


def _hyperbolic(x: Term, y: Term, pair: bool) -> tuple[Number, Number, Term, Number, Number]:
    """Sinh and cosh of x, both times a power of two, and sin and cos of y."""
    sinh_x, cosh_x, exponent = hyperbolic(clamped(x, BEYOND), pair)
    sine, cosine = sine_and_cosine(y, pair)
    return sinh_x, cosh_x, exponent, sine, cosine


def sinh(x: Term, y: Term, pair: bool) -> Parts:
    """Sinh x cos y + i cosh x sin y."""
    sinh_x, cosh_x, exponent, sine, cosine = _hyperbolic(x, y, pair)
    # a sinh that is small is its argument: nothing is scaled there
    real = _times(sinh_x, cosine, exponent)
    real = times_zero(real, x, cosine.high)
    return real, where(y.equals(0.0), y, product_with_power(cosh_x, sine, exponent))


def _times(a: Number, b: Number, exponent: Term) -> Term:
    """``a * b * 2**exponent`` for a sinh ``a`` times 2**-exponent and a cosine ``b``."""
    before = minimum(maximum(exponent, -1), 1000)
    return times_power(a.scaled(power_of_two(before)) * b, exponent - before)


def cosh(x: Term, y: Term, pair: bool) -> Parts:
    """Cosh x cos y + i sinh x sin y."""
    sinh_x, cosh_x, exponent, sine, cosine = _hyperbolic(x, y, pair)
    real = product_with_power(cosh_x, cosine, exponent)
    imag = times_zero(_times(sinh_x, sine, exponent), where(y.equals(0.0), clamped(x, 1.0), x), sine.high)
    return real, imag


def tanh(x: Term, y: Term, pair: bool) -> Parts:
    """(sinh x cosh x + i sin y cos y) / (sinh(x)**2 + cos(y)**2): nothing cancels."""
    sinh_x, cosh_x, exponent = hyperbolic(clamped(x, 400.0), pair)
    sine, cosine = sine_and_cosine(y, pair)
    once = power_of_two(0 - exponent)
    across = cosine.scaled(once)
    below = sinh_x.square() + across.square()
    real = (sinh_x * cosh_x / below).rounded()
    imag = times_power(sine * cosine / below, 0 - exponent - exponent)
    real = where(x.equals(0.0), x, real)
    limit = x.abs().equals(INFINITY)
    zero = (sine.high * cosine.high) * 0.0
    imag = where(limit, where(is_finite(y), zero, 0.0), imag)
    return where(limit, y.constant(1.0).with_sign_of(x), real), where(y.equals(0.0), y, imag)


def sin(x: Term, y: Term, pair: bool) -> Parts:
    """-i sinh(iz)."""
    return sinh(y, x, pair)[::-1]


def cos(x: Term, y: Term, pair: bool) -> Parts:
    """cosh(iz)."""
    real, imag = cosh(y, x, pair)
    return real, -imag


def tan(x: Term, y: Term, pair: bool) -> Parts:
    """-i tanh(iz)."""
    return tanh(y, x, pair)[::-1]


def expm1(x: Term, y: Term, pair: bool) -> Parts:
    """One less than the exponential; near zero its real part is a difference of small terms."""
    _, imag = exp(x, y, pair)
    far = x.abs() > 30.0
    real = where(far, _far_expm1(x, y, pair), _near_expm1(where(far, 0.0, x), y, pair))
    zero = x.equals(0.0) & y.equals(0.0)
    return where(zero | (x.is_nan() & y.equals(0.0)), x, real), imag


def _near_expm1(x: Term, y: Term, pair: bool) -> Term:
    half_sine, _ = sine_and_cosine(y * 0.5, pair)
    _, cosine = sine_and_cosine(y, pair)
    grown = exponential_minus_one(x, pair)
    both = grown * cosine - half_sine.square().scaled(2.0)
    return where(y.equals(0.0), grown.rounded(), both.rounded())


def _far_expm1(x: Term, y: Term, pair: bool) -> Term:
    mantissa, exponent = exponential(clamped(x, BEYOND), pair)
    _, cosine = sine_and_cosine(y, pair)
    large = product_with_power(mantissa, cosine, exponent)
    # one still matters where the cosine is small
    beside = (_moderate(mantissa, exponent) * cosine - 1.0).rounded()
    return where(large.abs() < 2.0**60, beside, large)


def _moderate(mantissa: Number, exponent: Term) -> Number:
    """A power between 2**-1000 and 2**1000."""
    return mantissa.scaled(power_of_two(minimum(maximum(exponent, -1000), 1000)))


def logistic(x: Term, y: Term, pair: bool) -> Parts:
    """1 / (1 + e**-z), with E = e**-|x|: D = (1 - E)**2 + 4 E cos(y / 2)**2 is zero only at the poles."""
    magnitude = minimum(x.abs(), 1400.0)
    mantissa, exponent = exponential(-magnitude, pair)
    small = mantissa.scaled(power_of_two(maximum(exponent, -1000)))
    rest = -exponential_minus_one(-minimum(magnitude, 39.0), pair)
    half_sine, half_cosine = sine_and_cosine(y * 0.5, pair)
    across = half_cosine.square().scaled(2.0)
    part = small * across
    below = rest.square() + part.scaled(2.0)
    right = ((rest + part) / below).rounded()
    _, cosine = sine_and_cosine(y, pair)
    # near the poles the first form cancels nothing, far from them the second
    beside = choose(magnitude < 1.0, across - rest, cosine + small)
    left = product_with_power(mantissa, beside / below, exponent)
    imag = product_with_power(mantissa, half_sine * half_cosine / below, exponent + 1)
    real = where(x < 0.0, left, right)
    limit = x.abs().equals(INFINITY)
    imag = where(limit, (half_sine.high * half_cosine.high) * 0.0, imag)
    real = where(limit, where(x > 0.0, x.constant(1.0), 0.0), real)
    imag = where(limit & ~is_finite(y), 0.0, imag)
    return real, where(y.equals(0.0), y, imag)

"""exp, sinh, cosh, tanh, sin, cos, tan, expm1 and logistic of complex numbers x + iy.

Every rule takes the parts as f64 and gives those of the result, each rounded once but for what numbers
(``hlojit.ir.scalar.wide_numbers``) miss.  Infinities, NaN and signed zeros are as in Annex G of the C standard, but for one
point: the exponential of a number whose parts are both infinite is NaN, as StableHLO's own tables have it.  Signs that the
standard leaves open are those of the formula, in which a NaN counts as positive.
"""

from __future__ import annotations

from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.elementary_numbers import (
    clamped,
    exponential,
    exponential_minus_one,
    hyperbolic,
    product_with_power,
    sine_and_cosine,
    times_power,
)
from hlojit.ir.scalar.expression import Term, maximum, minimum, power_of_two, rare, where
from hlojit.ir.scalar.wide_numbers import Number, choose

INFINITY = float("inf")
NAN = float("nan")
BEYOND = 1460.0
"""e**x times any f64 that is not zero overflows from here on, or underflows."""

Parts = tuple[Term, Term]


def is_finite(x: Term) -> Term:
    """Whether neither infinite nor NaN."""
    return x.abs() < INFINITY


def with_sign_of_product(exact: Term, a: Term, b: Term) -> Term:
    """A product of ``a`` and ``b`` with the sign that pairs lose where it is zero; a zero times NaN or infinity is zero."""
    sign = _known_sign(a) ^ _known_sign(b)
    zero = a.equals(0.0) | b.equals(0.0)
    product = where(zero, 0.0, exact)
    return (product.abs().bits() | sign).as_float()


def sign_giver(x: Term) -> Term:
    """A number with the sign of another; that of a NaN differs from machine to machine, so it counts as positive."""
    return where(x.is_nan(), 0.0, x)


def _known_sign(x: Term) -> Term:
    return sign_giver(x).bits() & x.bits().constant(-(1 << 63))


def exp(x: Term, y: Term, pair: bool) -> Parts:
    """e**x (cos y + i sin y)."""
    mantissa, exponent = exponential(clamped(x, BEYOND), pair)
    sine, cosine = sine_and_cosine(y, pair)
    real = product_with_power(mantissa, cosine, exponent)
    imag = product_with_power(mantissa, sine, exponent)
    real, imag = known_modulus(x, y, real, imag)
    return real, where(y.equals(0.0), y, imag)


def known_modulus(x: Term, y: Term, real: Term, imag: Term) -> Parts:
    """The exponential's parts, infinite or zero for an infinite ``x`` also where the angle ``y`` is NaN."""
    unknown = x.abs().equals(INFINITY) & y.is_nan()
    return rare(unknown, _known_real, [x], real), rare(unknown, _known_imaginary, [x], imag)


def _known_real(b: ScalarBuilder, x: Scalar) -> Scalar:
    return where(Term(b, x) > 0.0, Term(b, x), 0.0).value


def _known_imaginary(b: ScalarBuilder, x: Scalar) -> Scalar:
    return where(Term(b, x) > 0.0, Term(b, x).constant(NAN), 0.0).value


def _hyperbolic(x: Term, y: Term, pair: bool) -> tuple[Number, Number, Term, Number, Number]:
    """Sinh and cosh of x, both times a power of two, and sin and cos of y."""
    sinh_x, cosh_x, exponent = hyperbolic(clamped(x, BEYOND), pair)
    sine, cosine = sine_and_cosine(y, pair)
    return sinh_x, cosh_x, exponent, sine, cosine


def sinh(x: Term, y: Term, pair: bool) -> Parts:
    """Sinh x cos y + i cosh x sin y."""
    sinh_x, cosh_x, exponent, sine, cosine = _hyperbolic(x, y, pair)
    # a sinh that is small is its argument: nothing is scaled there
    real = with_sign_of_product(_times(sinh_x, cosine, exponent), x, cosine.high)
    # the modulus is infinite also where the angle is not known
    real = where(x.abs().equals(INFINITY) & ~is_finite(y), x, real)
    return real, where(y.equals(0.0), y, product_with_power(cosh_x, sine, exponent))


def _times(a: Number, b: Number, exponent: Term) -> Term:
    """``a * b * 2**exponent`` for a sinh ``a`` times 2**-exponent and a cosine ``b``."""
    before = minimum(maximum(exponent, -1), 1000)
    return times_power(a.scaled(power_of_two(before)) * b, exponent - before)


def cosh(x: Term, y: Term, pair: bool) -> Parts:
    """Cosh x cos y + i sinh x sin y."""
    sinh_x, cosh_x, exponent, sine, cosine = _hyperbolic(x, y, pair)
    real = product_with_power(cosh_x, cosine, exponent)
    real = where(x.abs().equals(INFINITY) & ~is_finite(y), INFINITY, real)
    return real, with_sign_of_product(_times(sinh_x, sine, exponent), x, where(is_finite(y), sine.high, y))


def tanh(x: Term, y: Term, pair: bool) -> Parts:
    """(sinh x cosh x + i sin y cos y) / (sinh(x)**2 + cos(y)**2): nothing cancels."""
    sinh_x, cosh_x, exponent = hyperbolic(clamped(x, 400.0), pair)
    sine, cosine = sine_and_cosine(y, pair)
    once = power_of_two(0 - exponent)
    across = cosine.scaled(once)
    below = sinh_x.square() + across.square()
    real = (sinh_x * cosh_x / below).rounded()
    lift = where(sine.high.abs() < 2.0**-500, exponent.constant(300), 0) if pair else exponent.constant(0)
    lifted = sine.scaled(power_of_two(lift)) if pair else sine
    imag = times_power(lifted * cosine / below, 0 - exponent - exponent - lift)
    real = where(x.equals(0.0), x, real)
    limit = x.abs().equals(INFINITY)
    zero = (sine.high * cosine.high) * 0.0
    beside = y.constant(0.0).with_sign_of(sign_giver(y))
    imag = where(limit, where(is_finite(y), zero, beside), imag)
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
    power, imag = exp(x, y, pair)
    far = x.abs() > 30.0
    real = where(far, _far_expm1(x, y, pair), _near_expm1(where(far, 0.0, x), y, pair))
    flat = y.equals(0.0)
    real = where(x.abs().equals(INFINITY), power - 1.0, real)
    # the cosine of what is not zero is below one
    real = where(real.equals(0.0) & ~flat, -0.0, real)
    return where(flat & (x.is_nan() | x.equals(0.0)), x, real), imag


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
    imag = where(x.is_nan(), NAN, with_sign_of_product(imag, half_sine.high, half_cosine.high))
    real = where(x < 0.0, left, right)
    limit = x.abs().equals(INFINITY)
    known = is_finite(y)
    imag = where(limit, where(known, (half_sine.high * half_cosine.high) * 0.0, 0.0), imag)
    zero = where(known, cosine.high * 0.0, 0.0)
    real = where(limit, where(x > 0.0, 1.0, zero), real)
    return real, where(y.equals(0.0), y, imag)

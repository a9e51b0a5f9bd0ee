"""log, log1p and the inverses of trigonometric and hyperbolic functions of complex numbers x + iy.

Inverse sines and their kin after Hull, Fairgrieve and Tang ("Implementing the complex arcsine and arccosine functions using
exception handling", 1997): with r = |z + 1|, s = |z - 1| and a = (r + s) / 2 differences like a - 1 and a - x are written as
sums of positive terms.  Branch cuts, signed zeros and infinities are as in Annex G of the C standard.
"""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.complex_exponentials import INFINITY, NAN, Parts, is_finite, sign_giver
from hlojit.ir.scalar.elementary_numbers import (
    LARGE,
    log1p_of,
    log_modulus,
    logarithm_of_modulus,
)
from hlojit.ir.scalar.expression import Term, where
from hlojit.ir.scalar.inverse_trigonometric import atan2
from hlojit.ir.scalar.wide_numbers import Double, Number, Single, choose, number, two_product, two_sum

LN2 = 0.6931471805599453


def angle(y: Term, x: Term) -> Term:
    """``atan2(y, x)``."""
    return Term(y.b, atan2(y.b, y.value, x.value))


def _unless_infinite(x: Term, y: Term, finite: Term) -> Term:
    """A logarithm of a modulus: infinite where either part is."""
    infinite = x.abs().equals(INFINITY) | y.abs().equals(INFINITY)
    return where(infinite, INFINITY, where(is_finite(x) & is_finite(y), finite, NAN))


def _finite(x: Term, y: Term) -> tuple[Term, Term]:
    """Both parts, or one in place of them where either is not finite."""
    both = is_finite(x) & is_finite(y)
    return where(both, x, 1.0), where(both, y, 1.0)


def log(x: Term, y: Term, pair: bool) -> Parts:
    """log|z| + i arg z."""
    real = logarithm_of_modulus(*_finite(x, y), pair)
    real = where(x.equals(0.0) & y.equals(0.0), -INFINITY, real)
    return _unless_infinite(x, y, real), angle(y, x)


def log1p(x: Term, y: Term, pair: bool) -> Parts:
    """log(1 + z)."""
    u, v = _finite(x, y)
    near = (u.abs() < 3.0) & (v.abs() < 2.0)
    near_u, near_v = where(near, u, 0.0), where(near, v, 0.0)
    if pair:
        terms = [*two_product(near_u, near_u), *two_product(near_v, near_v), near_u + near_u]
    else:
        terms = [near_u * near_u, near_v * near_v, near_u + near_u]
    above, above_low = two_sum(u, u.constant(1.0))
    real = log_modulus(above, above_low if pair else None, v, terms, pair)
    real = where(x.equals(-1.0) & y.equals(0.0), -INFINITY, real)
    return _unless_infinite(x, y, real), angle(y, x + 1.0)


def _term(value: Term, pair: bool) -> Number:
    return number(value, like=pair)


def inverse_sine_parts(x: Term, y: Term, pair: bool) -> tuple[Term, Term]:
    """(sqrt(a**2 - x**2), log(a + sqrt(a**2 - 1))) for magnitudes x and y.

    The first is the sine's adjacent side: asin z = atan(x / it) + i the second.
    """
    finite_x, finite_y = _finite(x, y)
    far = (finite_x > LARGE) | (finite_y > LARGE)
    u, v = where(far, 1.0, finite_x), where(far, 1.0, finite_y)
    adjacent, log_part = _inverse_sine_parts(u, v, pair)
    distant = logarithm_of_modulus(where(far, finite_x, 1.0), where(far, finite_y, 1.0), pair) + LN2
    adjacent = where(far | ~(is_finite(x) & is_finite(y)), y, adjacent)
    return adjacent, _unless_infinite(x, y, where(far, distant, log_part))


def _inverse_sine_parts(x: Term, y: Term, pair: bool) -> tuple[Term, Term]:
    """As above, where squares neither overflow nor matter where they underflow."""
    one = x.constant(1.0)
    plus: Number = Double.summed(x, one) if pair else Single(x + one)
    minus: Number = Double.summed(x, -one) if pair else Single(x - one)
    inside = x < 1.0
    minus = choose(inside, -minus, minus)
    square: Number = Double.multiplied(y, y) if pair else Single(y * y)
    right = (plus.square() + square).sqrt()
    left = choose(x.equals(1.0), _term(y, pair), (minus.square() + square).sqrt())
    a = (right + left).scaled(0.5)
    beside_left = left + minus
    beside_left = choose(beside_left.high.equals(0.0), _term(one, pair), beside_left)
    inverse = _term(one, pair) / (right + plus)
    # twice (a - 1) / y**2 and a - x, or the other way round
    near = inverse + _term(one, pair) / beside_left
    far = square * inverse + (left + minus)
    with_x, with_one = (a + x).scaled(0.5), (a + 1.0).scaled(0.5)
    large = (choose(inside, with_x, with_one) * far).sqrt()
    small = (choose(inside, with_one, with_x) * near).sqrt() * y
    adjacent = choose(x <= 1.0, large, small)
    root = choose(inside, small, large)
    above_one = choose(inside, near * y * y, far).scaled(0.5)
    return adjacent.rounded(), log1p_of(above_one + root)


def asin_acos_kernel(x: Term, y: Term, pair: bool) -> Parts:
    """``inverse_sine_parts`` of the magnitudes."""
    return inverse_sine_parts(x.abs(), y.abs(), pair)


def asin(x: Term, y: Term, pair: bool) -> Parts:
    """Inverse sine."""
    adjacent, log_part = inverse_sine_parts(x.abs(), y.abs(), pair)
    real = where(x.equals(0.0), x, angle(x, adjacent))
    return real, log_part.with_sign_of(sign_giver(y))


def acos(x: Term, y: Term, pair: bool) -> Parts:
    """Inverse cosine."""
    adjacent, log_part = inverse_sine_parts(x.abs(), y.abs(), pair)
    real = where(x.equals(0.0) & y.is_nan(), x.constant(c.HALF_PI_F64[0]), angle(adjacent, x))
    return real, log_part.with_sign_of(-sign_giver(y))


def asinh(x: Term, y: Term, pair: bool) -> Parts:
    """i asin(-iz)."""
    return asin(y, x, pair)[::-1]


def acosh(x: Term, y: Term, pair: bool) -> Parts:
    """The inverse cosine turned so that its real part is not negative."""
    real, imag = acos(x, y, pair)
    return imag.abs(), real.with_sign_of(sign_giver(y))


def atanh(x: Term, y: Term, pair: bool) -> Parts:
    """Log(1 + 4x / ((1 - x)**2 + y**2)) / 4 + i arg(1 - z**2 + 2iy) / 2, for the magnitude of x."""
    finite_x, finite_y = _finite(x.abs(), y.abs())
    far = (finite_x > 2.0**200) | (finite_y > 2.0**200)
    u, v = where(far, 0.5, finite_x), where(far, 0.5, finite_y)
    real, imag = _atanh(u, v, pair)
    real = where(far, _distant_real(where(far, finite_x, 1.0), where(far, finite_y, 1.0)), real)
    both = is_finite(x) & is_finite(y)
    infinite = x.abs().equals(INFINITY) | y.abs().equals(INFINITY)
    quarter = x.constant(c.HALF_PI_F64[0])
    imag = where(far | (infinite & ~y.is_nan()), quarter, where(both, imag, NAN))
    real = where(infinite, 0.0, where(both, real, NAN))
    # of zero and NaN, and of numbers on the axis beyond the poles
    real = where(x.equals(0.0), x, real).with_sign_of(sign_giver(x))
    return real, where(y.equals(0.0) & (x.abs() <= 1.0), y, imag.with_sign_of(y))


def _atanh(x: Term, y: Term, pair: bool) -> Parts:
    one = x.constant(1.0)
    minus: Number = Double.summed(one, -x) if pair else Single(one - x)
    plus: Number = Double.summed(one, x) if pair else Single(one + x)
    square: Number = Double.multiplied(y, y) if pair else Single(y * y)
    below = minus.square() + square
    # at the pole's own column the square of a small y may underflow
    pole = below.high < 2.0**-900
    usable = choose(pole, _term(one, pair), below)
    four: Number = _term(x * 4.0, pair)
    real = log1p_of(four / usable) * 0.25
    tiny = where(pole, where(y.equals(0.0), one, y), one)
    real = where(pole, (LN2 - logarithm_of_modulus(tiny, x.constant(0.0), pair)) * 0.5, real)
    real = where(x.equals(1.0) & y.equals(0.0), INFINITY, real)
    imag = angle(y + y, (minus * plus - square).rounded()) * 0.5
    return real, imag


def _distant_real(x: Term, y: Term) -> Term:
    """x / |z|**2 without overflow."""
    larger = where(x > y, x, y)
    smaller = where(x > y, y, x)
    # a power of two near the larger
    power = (larger.bits() & (0x7FF << 52)).as_float()
    p, q = larger / power, smaller / power
    return ((x / power) / p.fma(p, q * q)) / power


def atan(x: Term, y: Term, pair: bool) -> Parts:
    """-i atanh(iz)."""
    return atanh(y, x, pair)[::-1]

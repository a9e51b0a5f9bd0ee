"""square, sqrt, rsqrt, cbrt, power and atan2 of complex numbers x + iy."""

from __future__ import annotations

from typing import final

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.complex_exponentials import (
    BEYOND,
    INFINITY,
    NAN,
    Parts,
    is_finite,
    known_modulus,
    sign_giver,
)
from hlojit.ir.scalar.complex_inverses import angle, log
from hlojit.ir.scalar.elementary_numbers import (
    LARGE,
    clamped,
    exponential,
    logarithm_as_number,
    modulus,
    product_with_power,
    sine_and_cosine,
)
from hlojit.ir.scalar.expression import Term, rare, where
from hlojit.ir.scalar.inverse_trigonometric import atan2 as atan2_of_reals
from hlojit.ir.scalar.power import cbrt as real_cbrt
from hlojit.ir.scalar.wide_numbers import Double, Number, choose, number


def _is_infinite(x: Term, y: Term) -> Term:
    return x.abs().equals(INFINITY) | y.abs().equals(INFINITY)


def _inverse(scale: Term | float) -> Term | float:
    return 1.0 / scale


def _unless_zero(value: Number) -> Number:
    """The number, or one in place of zero."""
    return choose(value.high.equals(0.0), number(value.high.constant(1.0), like=value), value)


def square(x: Term, y: Term, pair: bool) -> Parts:
    """(x - y) (x + y) + 2ixy."""
    if not pair:
        return x.fma(x, -(y * y)), (x + x) * y
    # halves where sums could overflow
    large = (x.abs() > 1.0) | (y.abs() > 1.0)
    half, fourfold = where(large, x.constant(0.5), 1.0), where(large, x.constant(4.0), 1.0)
    u, v = x * half, y * half
    real = (u - v) * (u + v) * fourfold
    # the sum may have a minus sign where the difference is zero
    real = where(real.equals(0.0) & u.abs().equals(v.abs()), 0.0, real)
    narrow = x.abs() < y.abs()
    imag = where(narrow, x + x, x) * where(narrow, y, y + y)
    return real, imag


def _root_of_scale(scale: Term | float) -> Term | float:
    if isinstance(scale, float):
        return 1.0
    root = where(scale < 1.0, scale.constant(2.0**-300), 1.0)
    return where(scale > 1.0, scale.constant(2.0**300), root)


def _root(x: Term, length: Number, scale: Term | float) -> Number:
    """The larger part of the root, times the root of the scale."""
    return (length + x.abs() * scale).scaled(0.5).sqrt()


def sqrt(x: Term, y: Term, pair: bool) -> Parts:
    """The root whose real part is not negative."""
    finite = is_finite(x) & is_finite(y)
    u, v = where(finite, x, 1.0), where(finite, y, 1.0)
    length, scale = modulus(u, v, pair)
    larger = _root(u, length, scale)
    root = _root_of_scale(scale)
    high = larger.rounded() * _inverse(root)
    low = (number(v.abs() * root, like=pair) / _unless_zero(larger.scaled(2.0))).rounded()
    real, imag = where(x < 0.0, low, high), where(x < 0.0, high, low)
    # an infinity in either part decides before a NaN
    real = where(x.equals(INFINITY) | y.abs().equals(INFINITY), INFINITY, where(finite, real, NAN))
    real = where(x.equals(-INFINITY) & is_finite(y), 0.0, real)
    upright = y.abs().equals(INFINITY) | x.equals(-INFINITY)
    flat = x.equals(INFINITY) & is_finite(y)
    imag = where(upright, INFINITY, where(flat, 0.0, where(finite, imag, NAN)))
    return real, imag.with_sign_of(sign_giver(y))


def rsqrt(x: Term, y: Term, pair: bool) -> Parts:
    """The conjugate of the root over the modulus; infinite at zero, zero at infinity."""
    finite = is_finite(x) & is_finite(y)
    zero = x.equals(0.0) & y.equals(0.0)
    usable = finite & ~zero
    u, v = where(usable, x, 1.0), where(usable, y, 1.0)
    length, scale = modulus(u, v, pair)
    larger = _root(u, length, scale)
    root = _root_of_scale(scale)
    high = (larger / length).rounded() * root
    lifted = v.abs() < 2.0**-400
    part = v.abs() * scale * where(lifted, v.constant(2.0**500), 1.0)
    low = (number(part, like=pair) / larger.scaled(2.0) / length).rounded()
    low = low * where(lifted, v.constant(2.0**-500), 1.0) * root
    real, imag = where(x < 0.0, low, high), where(x < 0.0, high, low)
    infinite = _is_infinite(x, y)
    real = where(infinite, 0.0, where(zero, INFINITY, where(finite, real, NAN)))
    imag = where(infinite, 0.0, where(zero, NAN, where(finite, imag, NAN)))
    return real, imag.with_sign_of(-sign_giver(y))


# powers by logarithms


def _polar_angle(x: Term, y: Term, length: Number, scale: Term | float, pair: bool) -> tuple[Term, Term]:
    """The argument of a finite z that is not zero, as a sum of two."""
    first = angle(y, x)
    if not pair:
        return first, first.constant(0.0)
    sine, cosine = sine_and_cosine(first, pair)
    # one Newton step: the sine of what is missing
    missing = (cosine * (y * scale) - sine * (x * scale)) / _unless_zero(length)
    return first, missing.rounded()


def _turned(angle_high: Term, angle_low: Term, pair: bool) -> tuple[Number, Number]:
    """Sine and cosine of a sum whose second term is small."""
    sine, cosine = sine_and_cosine(angle_high, pair)
    return sine + cosine.high * angle_low, cosine - sine.high * angle_low


def _root_of_inverse_scale(scale: Term | float) -> Term | float:
    """The cube root of 1 / scale."""
    if isinstance(scale, float):
        return 1.0
    root = where(scale < 1.0, scale.constant(2.0**200), 1.0)
    return where(scale > 1.0, scale.constant(2.0**-200), root)


def cbrt(x: Term, y: Term, pair: bool) -> Parts:
    """The root that has a third of the argument."""
    finite = is_finite(x) & is_finite(y)
    zero = x.equals(0.0) & y.equals(0.0)
    usable = finite & ~zero
    u, v = where(usable, x, 1.0), where(usable, y, 1.0)
    length, scale = modulus(u, v, pair)
    first = Term(x.b, real_cbrt(x.b, length.high.value))
    radius = number(first, like=pair)
    radius = radius + (length - radius * radius * first).high / (first * first * 3.0)
    back = _root_of_inverse_scale(scale)
    high, low = _polar_angle(u, v, length, scale, pair)
    third, third_low = c.ONE_THIRD
    angle_high = high * third
    angle_low = high.fma(third, -angle_high) + high.fma(third_low, low * third)
    sine, cosine = _turned(angle_high, angle_low, pair)
    real, imag = (radius * cosine).rounded() * back, (radius * sine).rounded() * back
    # near the positive axis the angle may be too small for an f64 though the root's part is not
    flat = (v.abs() < u * 2.0**-500) & (u > 0.0)
    imag = where(flat, _third_of_slope(v, radius, back, pair), imag)
    limit = where(_is_infinite(x, y), x.constant(INFINITY), NAN)
    real = where(zero, 0.0, where(finite, real, limit))
    # infinite but along the positive axis; with a part that is NaN the angle is not known
    turned = where(x.equals(INFINITY) & is_finite(y), x.constant(0.0), INFINITY).with_sign_of(y)
    imag = where(finite, imag, where(x.is_nan() | y.is_nan(), NAN, turned))
    on_axis = y.equals(0.0) & (x >= 0.0)
    return real, where(on_axis, y, imag)


def _third_of_slope(y: Term, radius: Number, back: Term | float, pair: bool) -> Term:
    """``y / (3 r**2)`` for the root r = radius * back, scaled up early and down late."""
    early: Term | float = 1.0
    late: Term | float = 1.0
    if isinstance(back, Term):
        early = where(back > 1.0, back.constant(1.0), 2.0**400)
        late = where(back < 1.0, back.constant(1.0), 2.0**-400)
    return (number(y * early, like=pair) / (radius.square() * 3.0)).rounded() * late


def power(x: Term, y: Term, p: Term, q: Term, pair: bool) -> Parts:
    """e**((p + iq) log(x + iy)); one for the exponent zero, and zero to the power of a positive number is zero."""
    base_zero = x.equals(0.0) & y.equals(0.0)
    usable = is_finite(x) & is_finite(y) & ~base_zero
    u, v = where(usable, x, 1.0), where(usable, y, 1.0)
    length, scale = modulus(u, v, pair)
    logarithm = logarithm_as_number(u, v, pair)
    high, low = _polar_angle(u, v, length, scale, pair)
    theta: Number = Double(high, low) if pair else number(high, like=False)
    growth = logarithm * p - theta * q
    turn = logarithm * q + theta * p
    # pairs hold neither infinities nor NaN, and little above their square roots
    plain = ~usable | ~((p.abs() < LARGE) & (q.abs() < LARGE))
    size = where(usable, logarithm.rounded(), where(_is_infinite(x, y), x.constant(INFINITY), NAN))
    around = rare(~usable, atan2_of_reals, [y, x], high)
    growths = _replaced(growth, plain, _product(size, p) - _product(around, q))
    turns = _replaced(turn, plain, _product(size, q) + _product(around, p))
    real, imag = _exponential(growths, turns, pair)
    pole = where(q.equals(0.0) & (p < 0.0), p.constant(INFINITY), NAN)
    real = where(base_zero, where(p > 0.0, p.constant(0.0), pole), real)
    imag = where(base_zero, where(p > 0.0, p.constant(0.0), NAN), imag)
    empty = p.equals(0.0) & q.equals(0.0)
    return where(empty, 1.0, real), where(empty, 0.0, imag)


def _replaced(value: Number, where_plain: Term, plain: Term) -> tuple[Term, Term]:
    """Both terms of a number, or one that is plain in its place; pairs lose the sign of a zero."""
    high, low = value.parts()
    rest = low if isinstance(low, Term) else high.constant(0.0)
    where_plain = where_plain | (high.equals(0.0) & plain.equals(0.0))
    return where(where_plain, plain, high), where(where_plain, 0.0, rest)


def _exponential(growth: tuple[Term, Term], turn: tuple[Term, Term], pair: bool) -> Parts:
    """``exp`` of a number whose parts are sums of two terms."""
    high, low = growth
    mantissa, exponent = exponential(clamped(high, BEYOND), pair)
    mantissa = mantissa + mantissa.high * where(high.abs() <= BEYOND, low, 0.0) if pair else mantissa
    sine, cosine = _turned(*turn, pair)
    real = product_with_power(mantissa, cosine, exponent)
    imag = product_with_power(mantissa, sine, exponent)
    real, imag = known_modulus(high, turn[0], real, imag)
    return real, where(turn[0].equals(0.0), turn[0], imag)


def _product(value: Term, factor: Term) -> Term:
    """A product in which a zero does not meet an infinity."""
    product = value * factor
    return where(product.is_nan() & (value.equals(0.0) | factor.equals(0.0)), 0.0, product)


# the angle of a point with complex coordinates


@final
class _Complex:
    """A complex number of two numbers."""

    def __init__(self, real: Number, imag: Number):
        self.real = real
        self.imag = imag

    def __add__(self, other: _Complex) -> _Complex:
        return _Complex(self.real + other.real, self.imag + other.imag)

    def square(self) -> _Complex:
        """The number times itself."""
        both = self.real * self.imag
        return _Complex((self.real + self.imag) * (self.real - self.imag), both + both)

    def rotated(self) -> _Complex:
        """i times the number."""
        return _Complex(-self.imag, self.real)

    def negated(self) -> _Complex:
        """The number with the other sign."""
        return _Complex(-self.real, -self.imag)

    def is_zero(self) -> Term:
        """Whether both parts are zero."""
        return self.real.high.equals(0.0) & self.imag.high.equals(0.0)

    def over(self, other: _Complex) -> _Complex:
        """A quotient."""
        size = _unless_zero(other.real.square() + other.imag.square())
        real = self.real * other.real + self.imag * other.imag
        imag = self.imag * other.real - self.real * other.imag
        return _Complex(real / size, imag / size)

    def rounded(self) -> Parts:
        """Both parts as f64."""
        return self.real.rounded(), self.imag.rounded()


def atan2(y: Term, y_imag: Term, x: Term, x_imag: Term, pair: bool) -> Parts:
    """``-i log((x + iy) / sqrt(x**2 + y**2))`` for complex x and y; of real ones the angle of the point."""
    largest = y.abs()
    usable = is_finite(y)
    for part in (y_imag, x, x_imag):
        largest = where(part.abs() > largest, part.abs(), largest)
        usable = usable & is_finite(part)
    usable = usable & (largest > 0.0)
    # all are divided by one power of two, which leaves the quotient as it is
    power = _near_power(where(usable, largest, 1.0))
    parts = [number(where(usable, part, 1.0) / power, like=pair) for part in (x, x_imag, y, y_imag)]
    first, second = _Complex(*parts[:2]), _Complex(*parts[2:])
    radius = sqrt(*(first.square() + second.square()).rounded(), pair)
    above, below = first + second.rotated(), first + second.rotated().negated()
    direction = above.over(_Complex(*(number(part, like=pair) for part in radius)))
    real, imag = log(*direction.rounded(), pair)
    # where x is iy or -iy the logarithm is infinite, and there is no angle
    height = where(above.is_zero(), INFINITY, where(below.is_zero(), -INFINITY, -real))
    turned = where(above.is_zero() | below.is_zero(), NAN, imag)
    flat = y_imag.equals(0.0) & x_imag.equals(0.0)
    return where(flat, angle(y, x), where(usable, turned, NAN)), where(flat, 0.0, where(usable, height, NAN))


def _near_power(value: Term) -> Term:
    """A power of two near a positive number, at least the least normal one."""
    bits = value.bits() & (0x7FF << 52)
    return where(bits.equals(0), value.constant(2.0**-1022), bits.as_float())

"""Arithmetic on complex numbers as rules on their parts: ``RULES["divide"](b, a, b, c, d)`` gives the parts of the quotient.

Parts in f32 are computed in f64, where no square overflows, and rounded once.  Those in f64 are brought near 1 by powers of
two, which is exact.  Special values are those of C99, Annex G; the signs of zeros, which it leaves open, are those of Smith's
algorithm, which NumPy and XLA divide by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, final

from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.expression import EXPONENT_BIAS, INTEGER_KIND, MANTISSA_BITS, Term, maximum, minimum, rare, where

Rule = Callable[..., tuple[Scalar, Scalar]]
TINY: Final = 2.0**-1000
"""Below this the powers of two that bring a number near 1 are beyond the largest."""


def _sum_of_products(a: Term, b: Term, c: Term, d: Term) -> Term:
    """A b + c d, to a unit and a half in the last place (Kahan); zeros have the sign of the sum of the products."""
    product = c * d
    return a.fma(b, product) - c.fma(-d, product)


@final
class _Operand:
    """A complex number with its size, near 1; where a part is infinite, 1 for infinite parts and 0 for others."""

    def __init__(self, real: Term, imaginary: Term):
        self.parts = real, imaginary
        infinite = [part.abs().equals(math.inf) for part in self.parts]
        self.size = _larger(real, imaginary)
        self.is_infinite = infinite[0] | infinite[1]
        self.is_finite = self.size < math.inf
        # what is below the normal numbers is lifted first
        is_tiny = self.size < TINY
        lift = where(is_tiny, real.constant(2.0**100), 1.0)
        field = _field(self.size * lift)
        self.field = field + where(is_tiny, field.constant(100), 0)
        scaled = [part * lift * _power(field) for part in self.parts]
        one, zero = real.constant(1.0), real.constant(0.0)
        boxed = [where(is_infinite, one, zero).with_sign_of(part) for part, is_infinite in zip(self.parts, infinite)]
        self.near = tuple(where(self.is_infinite, box, part) for box, part in zip(boxed, scaled))


def _larger(x: Term, y: Term) -> Term:
    """The larger magnitude; NaN if either is NaN."""
    return where(y.is_nan(), y, maximum(x.abs(), y.abs()))


def _field(size: Term) -> Term:
    """The exponent's field of a power of two that brings a number between 2 and 4; of infinity and NaN, that of 1.

    A number below the normal ones comes to the largest such power times itself: its square is far above them.
    """
    bias = EXPONENT_BIAS[size.kind]
    exponent = size.bits().logical_shift(MANTISSA_BITS[size.kind])
    top = 2 * bias + 1
    return where(exponent.equals(top), bias, minimum(top - exponent, top - 1))


def _power(field: Term) -> Term:
    """The power of two with an exponent's field; 0 for the field 0."""
    return (field << MANTISSA_BITS[{kind: name for name, kind in INTEGER_KIND.items()}[field.kind]]).as_float()


def _moved(number: Term, shift: Term) -> Term:
    """A number times 2 to the power of an integer of at most twice the range: in two steps."""
    bias = EXPONENT_BIAS[number.kind]
    half = shift >> 1
    return number * _power(half + bias) * _power(shift - half + bias)


def quotient(b: ScalarBuilder, *parts: Scalar) -> tuple[Scalar, Scalar]:
    """(a + bi) / (c + di)."""
    terms = [Term(b, part) for part in parts]
    is_single = terms[0].kind == "f32"
    if is_single:
        terms = [term.widen() if is_single else term for term in terms]
    sizes = _larger(*terms[:2]), _larger(*terms[2:])
    exceptional = ~(_is_ordinary(sizes[0], is_single) & _is_ordinary(sizes[1], is_single))
    infinity = terms[0].constant(math.inf).with_sign_of(terms[2])
    found = []
    for number, (part, ordinary) in enumerate(zip(terms, _ordinary_quotient(terms, sizes, is_single))):
        plain = where(sizes[1].equals(0.0), infinity * part, ordinary)
        found.append(rare(exceptional, partial(_exceptional_part, number), terms, plain))
    real, imaginary = found
    return (real.narrow().value, imaginary.narrow().value) if is_single else (real.value, imaginary.value)


def _is_ordinary(size: Term, is_single: bool) -> Term:
    """Whether a number is finite, and zero or above the tiniest f64."""
    finite = size < math.inf
    return finite if is_single else finite & (size.equals(0.0) | (size >= TINY))


def _ordinary_quotient(terms: Sequence[Term], sizes: Sequence[Term], is_single: bool) -> list[Term]:
    """Both parts of a quotient of ordinary numbers."""
    x, y, z, w = terms
    if is_single:
        return _near_quotient(x, y, z, w)
    fields = [_field(size) for size in sizes]
    powers = [_power(field) for field in fields]
    near = _near_quotient(x * powers[0], y * powers[0], z * powers[1], w * powers[1])
    return [_moved(part, fields[1] - fields[0]) for part in near]


def _near_quotient(x: Term, y: Term, z: Term, w: Term) -> list[Term]:
    """Both parts of a quotient whose terms neither overflow nor vanish: by a number whose larger part is positive.

    Then zeros are those of Smith's algorithm.
    """
    sign = _sign_of_larger(z, w)
    z, w = ((part.bits() ^ sign).as_float() for part in (z, w))
    square = _sum_of_products(z, z, w, w)
    sums = _sum_of_products(x, z, y, w), _sum_of_products(y, z, -x, w)
    return [((each / square).bits() ^ sign).as_float() for each in sums]


def _sign_of_larger(x: Term, y: Term) -> Term:
    """The sign bit of the larger of two numbers."""
    return where(x.abs() >= y.abs(), x, y).bits() & x.bits().constant(-(1 << 63))


def _exceptional_part(number: int, b: ScalarBuilder, *scalars: Scalar) -> Scalar:
    """A part of a quotient in which an f64 is tiny, infinite or NaN."""
    terms = [Term(b, scalar) for scalar in scalars]
    numerator, denominator = _Operand(*terms[:2]), _Operand(*terms[2:])
    x, y = numerator.near
    # what an infinite number is divided by must not vanish for being scaled
    z, w = (
        where(numerator.is_infinite, part, near) for part, near in zip(denominator.parts, denominator.near, strict=True)
    )
    sign = _sign_of_larger(z, w)
    z, w = ((part.bits() ^ sign).as_float() for part in (z, w))
    total = _sum_of_products(x, z, y, w) if number == 0 else _sum_of_products(y, z, -x, w)
    total = (total.bits() ^ sign).as_float()
    large = where(denominator.is_finite, total * math.inf, total.constant(math.nan))
    shift = denominator.field - numerator.field
    most = minimum(maximum(shift, -2040), 2040)
    finite = total / _sum_of_products(z, z, w, w) * _power(shift - most + EXPONENT_BIAS["f64"])
    found = where(numerator.is_infinite, large, where(denominator.is_infinite, total * 0.0, _moved(finite, most)))
    by_zero = total.constant(math.inf).with_sign_of(terms[2]) * terms[number]
    return where(denominator.size.equals(0.0), by_zero, found).value


def signum(b: ScalarBuilder, *parts: Scalar) -> tuple[Scalar, Scalar]:
    """The number over its absolute value; 0 of 0, and NaN, both parts of it, of what has a part that is NaN."""
    terms = [Term(b, part) for part in parts]
    is_single = terms[0].kind == "f32"
    size = _larger(*terms)
    if is_single:
        near = [term.widen() for term in terms]
    else:
        power = _power(_field(size))
        near = [term * power for term in terms]
    # The errors of infinite squares are NaN.
    length = _sum_of_products(near[0], near[0], near[1], near[1]).sqrt()
    length = where(size.equals(math.inf), length.constant(math.inf), length)
    zero, nan = terms[0].constant(0.0), terms[0].constant(math.nan)
    units = ((part / length).narrow() if is_single else part / length for part in near)
    real, imaginary = (where(size.equals(0.0), zero, where(size.is_nan(), nan, unit)) for unit in units)
    return real.value, imaginary.value


def modulus(b: ScalarBuilder, real: Scalar, imag: Scalar) -> tuple[Scalar, Scalar]:
    """The absolute value, to less than a unit in the last place, and 0; infinite where a part is."""
    terms = [Term(b, real).abs(), Term(b, imag).abs()]
    zero, infinity = terms[0].constant(0.0), terms[0].constant(math.inf)
    is_infinite = terms[0].equals(math.inf) | terms[1].equals(math.inf)
    if real.kind == "f32":
        x, y = (term.widen() for term in terms)
        found = x.fma(x, y * y).sqrt().narrow()
    else:
        size = _larger(*terms)
        field = _field(size)
        power = _power(field)
        x, y = size * power, minimum(*terms) * power
        square = x * x
        root = (square + y.fma(y, x.fma(x, -square))).sqrt()
        found = _moved(root, EXPONENT_BIAS["f64"] - field)
    return where(is_infinite, infinity, found).value, zero.value


RULES: Final[Mapping[str, Rule]] = {"abs": modulus, "divide": quotient, "sign": signum}
"""``rule(b, *parts)`` by name."""

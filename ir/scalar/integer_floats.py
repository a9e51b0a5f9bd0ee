"""Floats computed in integers, for formats that no native float can carry: up to 64 bits with any split of them.

    x, y = decoded(b, code, form), decoded(b, other, form)
    code = encoded(b, multiply(x, y), form)

A ``Number`` is what a code stands for: sign, exponent and 128 bits of significand, of which the last says whether the exact
result has more.  Arithmetic is exact in it, and ``encoded`` rounds once.  Everything follows from the format's fields.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple, final

from hlojit.ir.formats import FloatFormat, NanEncoding, Overflow, Rounding
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.code_patterns import codes
from hlojit.ir.scalar.expression import Term, maximum, minimum, where
from hlojit.ir.scalar.wide_integers import (
    TOP,
    Pair,
    added,
    as_integer,
    is_below,
    leading_zeros,
    normalized,
    product,
    quotient,
    root,
    shifted_right,
    subtracted,
)

_LEAST: Final = -(1 << 40)
"""The exponent that zero is given: below all others."""


@final
class Form(NamedTuple):
    """A format by its fields, as numbers that an attribute can hold."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    signed: int = 1
    has_infinity: int = 1
    nan: int = 0
    overflow: int = 0
    has_zero: int = 1
    rounding: int = 0

    @classmethod
    def of(cls, row: FloatFormat, rounding: int | None = None) -> Form:
        """That of a format given by fields."""
        kinds = list(NanEncoding).index(row.nan), list(Overflow).index(row.overflow)
        chosen = list(Rounding).index(row.rounding) if rounding is None else rounding
        widths = row.exponent_bits, row.mantissa_bits, row.bias
        return cls(*widths, int(row.signed), int(row.has_infinity), *kinds, int(row.has_zero), chosen)

    @property
    def row(self) -> FloatFormat:
        """The format, under a name of its own."""
        return _row(self)


@lru_cache(256)
def _row(form: Form) -> FloatFormat:
    # To odd is toward zero but for what lies between two numbers.
    rounding = Rounding.TOWARD_ZERO if form.rounding == TO_ODD else list(Rounding)[form.rounding]
    return FloatFormat(
        "integers",
        exponent_bits=form.exponent_bits,
        mantissa_bits=form.mantissa_bits,
        bias=form.bias,
        signed=bool(form.signed),
        has_infinity=bool(form.has_infinity),
        nan=list(NanEncoding)[form.nan],
        overflow=list(Overflow)[form.overflow],
        has_zero=bool(form.has_zero),
        rounding=rounding,
    )


TO_ODD: Final = len(Rounding)
"""A rounding that a second one may follow: of the two neighbours the odd one."""
F64: Final = Form(11, 52, 1023)
F64_TO_ODD: Final = F64._replace(rounding=TO_ODD)


class Number(NamedTuple):
    """``high.low * 2**(exponent - 63)``, the highest bit set; zero has no bit set.  Infinity and NaN say so themselves."""

    negative: Term
    exponent: Term
    significand: Pair
    is_infinite: Term
    is_nan: Term

    @property
    def is_zero(self) -> Term:
        """Whether it is a zero."""
        return self.significand.high.equals(0) & ~self.is_infinite & ~self.is_nan


# codes


def decoded(b: ScalarBuilder, code: Scalar, form: Form) -> Number:
    """What a code (an i64, of which bits beyond the format's mean nothing) stands for."""
    special, bits = codes(form.row), Term(b, code)
    magnitude = bits & special.top
    negative = (bits & special.sign).differs(0) if special.sign else Term(b, b.constant("i1", 0))
    never = Term(b, b.constant("i1", 0))
    is_infinite = magnitude.equals(special.infinity) if special.infinity is not None else never
    is_nan = ~is_below(magnitude, special.first_nan) if special.first_nan is not None else never
    if form.row.nan is NanEncoding.NEGATIVE_ZERO:
        is_nan = (bits & (special.top | special.sign)).equals(special.sign)
    field = magnitude.logical_shift(form.mantissa_bits)
    fraction = magnitude & ((1 << form.mantissa_bits) - 1)
    hidden = 1 << form.mantissa_bits
    if form.has_zero:
        whole = where(field.equals(0), fraction, fraction | hidden)
        field = maximum(field, 1)
    else:
        whole = fraction | hidden
    zeros = leading_zeros(whole)
    exponent = where(whole.equals(0), _LEAST, field - (form.bias + form.mantissa_bits - 63) - zeros)
    significand = where(whole.equals(0), 0, whole << (zeros & 63))
    return Number(negative, exponent, Pair(significand, whole.constant(0)), is_infinite, is_nan)


def encoded(b: ScalarBuilder, number: Number, form: Form, random: Scalar | None = None) -> Scalar:
    """The code (an i64) of a number, rounded as the format says; ``random`` are 32 bits for a stochastic rounding."""
    row = form.row
    special = codes(row)
    toward_zero = row.rounding is Rounding.TOWARD_ZERO
    code, too_large = _rounded(number, form, special.largest, random)
    code = where(too_large, special.largest if toward_zero else special.overflow, code)
    infinity = special.overflow if special.infinity is None else special.infinity
    code = where(number.is_infinite, infinity, code)
    missing = 0 if special.nan is None else special.nan
    code = where(number.is_zero, 0 if row.has_zero else missing, code)
    if row.nan in (NanEncoding.IEEE, NanEncoding.ALL_ONES) and special.nan is not None:
        code = where(number.is_nan, special.nan, code)
    if row.signed:
        signed = where(number.negative & ~number.is_nan, code | special.sign, code)
        if row.nan is NanEncoding.NEGATIVE_ZERO:
            signed = where((code & special.top).equals(0), code, signed)
        code = signed
    else:
        code = where(number.negative & ~number.is_zero & ~number.is_nan, missing, code)
    if row.nan in (NanEncoding.NEGATIVE_ZERO, NanEncoding.NONE):
        code = where(number.is_nan, special.sign, code)
    return code.value


def _rounded(number: Number, form: Form, largest: int, random: Scalar | None) -> tuple[Term, Term]:
    """The code of a finite magnitude, and whether it is beyond the largest number."""
    least = 1 - form.bias if form.has_zero else -form.bias
    most = (largest >> form.mantissa_bits) - form.bias
    steps = number.exponent - least
    below = steps < 0
    # Numbers below the normal ones lose as many bits more as they are below.
    drop = where(below, minimum(0 - steps, 128), 0) + (63 - form.mantissa_bits)
    kept, rest = shifted_right(number.significand, drop)
    above = maximum(minimum(steps, most - least + 1), 0) << form.mantissa_bits
    code = above + kept if form.has_zero else above + (kept - (1 << form.mantissa_bits))
    up = _goes_up(kept, rest, form, random)
    too_large = (steps > most - least) | is_below(code.constant(largest), code) | (up & code.equals(largest))
    code = code + as_integer(up)
    # Without zero and what is below the normal numbers, the least of these is the nearest.
    return (code, too_large) if form.has_zero else (where(below, 0, code), too_large & ~below)


def _goes_up(kept: Term, rest: Term, form: Form, random: Scalar | None) -> Term:
    """Whether a magnitude is rounded up, by what it has below its last bit, times 2**64."""
    odd = (kept & 1).differs(0)
    if form.rounding == TO_ODD:
        return rest.differs(0) & ~odd
    rounding = list(Rounding)[form.rounding]
    if rounding is Rounding.TOWARD_ZERO:
        return rest.differs(0) & Term(kept.b, kept.b.constant("i1", 0))
    if rounding is Rounding.AWAY_FROM_ZERO:
        return rest.differs(0)
    if rounding is Rounding.NEAREST_AWAY:
        return rest < 0
    if rounding is Rounding.STOCHASTIC and random is not None:
        bits = Term(kept.b, kept.b.zext(random, "i64"))
        return (rest.logical_shift(32) + bits).logical_shift(32).differs(0)
    return is_below(rest.constant(TOP), rest) | (rest.equals(TOP) & odd)


# arithmetic


def add(x: Number, y: Number) -> Number:
    """x + y."""
    smaller = (x.exponent < y.exponent) | (
        x.exponent.equals(y.exponent) & is_below(x.significand.high, y.significand.high)
    )
    large, small = _chosen(smaller, y, x), _chosen(smaller, x, y)
    moved = shifted_right(small.significand, minimum(large.exponent - small.exponent, 128))
    differ = x.negative ^ y.negative
    carries, total = added(large.significand, moved)
    halved = shifted_right(total, as_integer(carries))
    total = Pair(where(carries, halved.high | TOP, total.high), where(carries, halved.low, total.low))
    lost, rest = normalized(subtracted(large.significand, moved))
    significand = Pair(where(differ, rest.high, total.high), where(differ, rest.low, total.low))
    exponent = large.exponent + where(differ, 0 - lost, as_integer(carries))
    negative = where(significand.high.equals(0), x.negative & y.negative, large.negative)
    is_infinite = x.is_infinite | y.is_infinite
    is_nan = x.is_nan | y.is_nan | (x.is_infinite & y.is_infinite & differ)
    negative = where(is_infinite, where(x.is_infinite, x.negative, y.negative), negative)
    return Number(negative, exponent, significand, is_infinite & ~is_nan, is_nan)


def _chosen(condition: Term, x: Number, y: Number) -> Number:
    significand = Pair(*(where(condition, a, c) for a, c in zip(x.significand, y.significand)))
    negative, exponent = where(condition, x.negative, y.negative), where(condition, x.exponent, y.exponent)
    return Number(negative, exponent, significand, x.is_infinite, x.is_nan)


def negated(x: Number) -> Number:
    """-x."""
    return x._replace(negative=~x.negative)


def magnitude(x: Number) -> Number:
    """|x|."""
    return x._replace(negative=Term(x.negative.b, x.negative.b.constant("i1", 0)))


def subtract(x: Number, y: Number) -> Number:
    """x - y."""
    return add(x, negated(y))


def multiply(x: Number, y: Number) -> Number:
    """x * y."""
    pair = product(x.significand.high, y.significand.high)
    short = pair.high >= 0
    high = where(short, (pair.high << 1) | pair.low.logical_shift(63), pair.high)
    exponent = x.exponent + y.exponent + as_integer(~short)
    is_nan = x.is_nan | y.is_nan | (x.is_infinite & y.is_zero) | (x.is_zero & y.is_infinite)
    is_infinite = (x.is_infinite | y.is_infinite) & ~is_nan
    significand = Pair(high, where(short, pair.low << 1, pair.low))
    return Number(x.negative ^ y.negative, exponent, significand, is_infinite, is_nan)


def divide(x: Number, y: Number) -> Number:
    """x / y."""
    divisor = where(y.significand.high.equals(0), TOP, y.significand.high)
    dividend = x.significand.high
    high, rest = quotient(Pair(dividend.logical_shift(1), dividend << 63), divisor)
    low, rest = quotient(Pair(rest, rest.constant(0)), divisor)
    short = high >= 0
    high = where(short, (high << 1) | low.logical_shift(63), high)
    low = where(short, low << 1, low) | as_integer(rest.differs(0))
    exponent = x.exponent - y.exponent - as_integer(short)
    is_nan = x.is_nan | y.is_nan | (x.is_infinite & y.is_infinite) | (x.is_zero & y.is_zero)
    is_infinite = (x.is_infinite | y.is_zero) & ~is_nan
    vanishes = x.is_zero | y.is_infinite
    significand = Pair(where(vanishes, 0, high), where(vanishes, 0, low))
    return Number(x.negative ^ y.negative, exponent, significand, is_infinite, is_nan)


def sqrt(x: Number) -> Number:
    """The square root of x."""
    odd = (x.exponent & 1).differs(0)
    high = where(x.is_zero, TOP, x.significand.high)
    high, low = root(Pair(where(odd, high, high.logical_shift(1)), where(odd, 0, high << 63)))
    significand = Pair(where(x.is_zero, 0, high), where(x.is_zero, 0, low))
    is_nan = x.is_nan | (x.negative & ~x.is_zero)
    return Number(x.negative, x.exponent >> 1, significand, x.is_infinite & ~is_nan, is_nan)


# integers


def to_integral(x: Number, way: str) -> Number:
    """The integer next to x: ``floor``, ``ceil``, ``even`` (the nearest, ties to even) or ``away`` (ties away from zero)."""
    kept, rest = shifted_right(x.significand, maximum(minimum(63 - x.exponent, 128), 0))
    if way == "even":
        up = is_below(rest.constant(TOP), rest) | (rest.equals(TOP) & (kept & 1).differs(0))
    elif way == "away":
        up = rest < 0
    else:
        up = rest.differs(0) & (x.negative if way == "floor" else ~x.negative)
    found = _of_magnitude(kept + as_integer(up), x.negative)
    stays = x.exponent > 62
    significand = Pair(where(stays, x.significand.high, found.significand.high), x.significand.low.constant(0))
    return x._replace(exponent=where(stays, x.exponent, found.exponent), significand=significand)


def of_integer(b: ScalarBuilder, value: Scalar, *, signed: bool) -> Number:
    """An i64 as a number."""
    whole = Term(b, value)
    negative = (whole < 0) if signed else Term(b, b.constant("i1", 0))
    return _of_magnitude(where(negative, 0 - whole, whole), negative)


def _of_magnitude(whole: Term, negative: Term) -> Number:
    zeros = leading_zeros(whole)
    never = Term(whole.b, whole.b.constant("i1", 0))
    exponent = where(whole.equals(0), _LEAST, 63 - zeros)
    return Number(negative, exponent, Pair(whole << (zeros & 63), whole.constant(0)), never, never)


def as_saturated(x: Number, least: int, most: int) -> Scalar:
    """The integer (an i64) next to x toward zero, of those from ``least`` to ``most``; 0 for NaN."""
    kept, _ = shifted_right(x.significand, maximum(minimum(63 - x.exponent, 128), 0))
    large = (x.exponent > 63) | x.is_infinite
    above = large | is_below(kept.constant(most), kept)
    under = large | is_below(kept.constant(-least), kept)
    found = where(x.negative, where(under, least, 0 - kept), where(above, most, kept))
    return where(x.is_nan, 0, found).value


# order


def order(x: Scalar, b: ScalarBuilder, form: Form) -> Term:
    """An i64 that is as large as the code's place in the total order of numbers: -NaN, -inf ... -0, 0 ... inf, NaN."""
    special, bits = codes(form.row), Term(b, x)
    magnitude = bits & special.top
    if not special.sign:
        return magnitude ^ TOP
    return where((bits & special.sign).differs(0), ~magnitude, magnitude)


def compared(b: ScalarBuilder, direction: str, x: Scalar, y: Scalar, form: Form, *, total: bool) -> Scalar:
    """Whether two codes' numbers stand in a relation; no number stands in any to NaN, but for inequality."""
    first, second = order(x, b, form), order(y, b, form)
    predicate = direction.lower() if direction in ("EQ", "NE") else f"s{direction.lower()}"
    if total:
        return b.icmp(predicate, first.value, second.value)
    left, right = decoded(b, x, form), decoded(b, y, form)
    if codes(form.row).sign:
        first, second = where(left.is_zero, 0, first), where(right.is_zero, 0, second)
    holds = Term(b, b.icmp(predicate, first.value, second.value))
    unordered = left.is_nan | right.is_nan
    return (holds | unordered if direction == "NE" else holds & ~unordered).value


def extremum(b: ScalarBuilder, x: Scalar, y: Scalar, form: Form, *, largest: bool) -> Scalar:
    """The code of the larger or smaller number; NaN if either is NaN, and -0.0 is below 0.0."""
    first, second = order(x, b, form), order(y, b, form)
    chosen = where((first > second) if largest else (first < second), Term(b, x), Term(b, y))
    nan = where(decoded(b, x, form).is_nan, Term(b, x), Term(b, y))
    return where(decoded(b, x, form).is_nan | decoded(b, y, form).is_nan, nan, chosen).value


def sign(b: ScalarBuilder, x: Scalar, form: Form) -> Scalar:
    """-1, 0 or 1; zeros and NaN as they are."""
    number = decoded(b, x, form)
    one = _of_magnitude(where(number.negative, number.exponent.constant(1), 1), number.negative)
    return where(number.is_zero | number.is_nan, Term(b, x), Term(b, encoded(b, one, form))).value


def of_float(b: ScalarBuilder, value: Any) -> Number:
    """An f32 or f64 as a number."""
    wide = b.fpext(value) if value.kind == "f32" else value
    return decoded(b, b.bitcast(wide, "i64"), F64)

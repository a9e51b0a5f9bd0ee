"""Integers of 128 bits as pairs of i64, unsigned, for arithmetic on the significands of floats.

product(x, y)                 # both halves of x * y
shifted_right(pair, 70)       # what is left, and below it a fraction whose last bit says whether anything was lost
quotient(pair, divisor)       # pair // divisor and pair % divisor, where the quotient has 64 bits
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hlojit.ir.scalar.expression import Term, maximum, where

TOP: Final = -1 << 63
_HALF: Final = (1 << 32) - 1


class Pair(NamedTuple):
    """``high * 2**64 + low``."""

    high: Term
    low: Term


def is_below(a: Term, b: Term | int) -> Term:
    """Whether one unsigned integer is less than another."""
    return Term(a.b, a.b.icmp("ult", a.value, a.of(b)))


def as_integer(condition: Term) -> Term:
    """1 where it holds, 0 elsewhere."""
    return Term(condition.b, condition.b.zext(condition.value, "i64"))


def leading_zeros(word: Term) -> Term:
    """How many of the highest bits are zero; 64 of zero."""
    return Term(word.b, word.b.count_leading_zeros(word.value))


def added(a: Pair, b: Pair) -> tuple[Term, Pair]:
    """Whether the sum has a bit more, and the sum without it."""
    low = a.low + b.low
    carry = as_integer(is_below(low, a.low))
    part = a.high + b.high
    high = part + carry
    overflows = is_below(part, a.high) | is_below(high, part)
    return overflows, Pair(high, low)


def subtracted(a: Pair, b: Pair) -> Pair:
    """a - b, which wraps."""
    return Pair(a.high - b.high - as_integer(is_below(a.low, b.low)), a.low - b.low)


def product(x: Term, y: Term) -> Pair:
    """Both halves of a product of 64 bits each."""
    (x1, x0), (y1, y0) = ((each.logical_shift(32), each & _HALF) for each in (x, y))
    lowest = x0 * y0
    middle = x1 * y0 + lowest.logical_shift(32)
    other = x0 * y1 + (middle & _HALF)
    high = x1 * y1 + middle.logical_shift(32) + other.logical_shift(32)
    return Pair(high, x * y)


def normalized(pair: Pair) -> tuple[Term, Pair]:
    """How far a pair is shifted left for its highest bit to be set, and the pair so shifted; zero stays as it is."""
    wholly = pair.high.equals(0)
    high, low = where(wholly, pair.low, pair.high), where(wholly, 0, pair.low)
    zeros = leading_zeros(high) & 63
    moved = where(zeros.equals(0), 0, low.logical_shift((64 - zeros) & 63))
    return zeros + where(wholly, Term(high.b, high.b.constant("i64", 64)), 0), Pair(
        (high << zeros) | moved, low << zeros
    )


def shifted_right(pair: Pair, count: Term) -> Pair:
    """A pair without its last bits; if any of these is set, so is the last bit of what remains.  ``count`` is 0 or more."""
    beyond = count > 127
    count = where(beyond, 127, count)
    high, low = pair
    within = count & 63
    above = (64 - within) & 63
    carried = where(within.equals(0), 0, high << above)
    lost = where(within.equals(0), 0, low << above)
    moved_high, moved_low = high.logical_shift(within), low.logical_shift(within) | carried
    far = count > 63
    result_high = where(far, 0, moved_high)
    result_low = where(far, moved_high, moved_low)
    dropped = where(far, moved_low | lost, lost)
    # Of a shift by everything only that there was something remains.
    result_low, dropped = where(beyond, 0, result_low), where(beyond, high | low, dropped)
    return Pair(result_high, result_low | as_integer(dropped.differs(0)))


def quotient(pair: Pair, divisor: Term) -> tuple[Term, Term]:
    """Quotient and remainder, where ``pair.high < divisor`` and the divisor's highest bit is set.

    Knuth, The Art of Computer Programming 2, 4.3.1, algorithm D, with digits of 32 bits.
    """
    first, rest = _digit(pair.high, pair.low.logical_shift(32), divisor)
    second, rest = _digit(rest, pair.low & _HALF, divisor)
    return (first << 32) | second, rest


def _digit(rest: Term, following: Term, divisor: Term) -> tuple[Term, Term]:
    """One digit of a quotient, and what remains; the estimate by the divisor's upper half is at most two too large."""
    b = rest.b
    upper, lower = divisor.logical_shift(32), divisor & _HALF
    digit = Term(b, b.udiv(rest.value, upper.value))
    left = rest - digit * upper
    for _ in range(2):
        too_large = digit.logical_shift(32).differs(0) | is_below((left << 32) | following, digit * lower)
        too_large = too_large & left.logical_shift(32).equals(0)
        digit, left = digit - as_integer(too_large), left + where(too_large, upper, 0)
    return digit, (rest << 32) + following - digit * divisor


def root(pair: Pair) -> tuple[Term, Term]:
    """The square root of a pair of at least 2**126, as an integer of 64 bits and a fraction.

    f64 gives 52 bits, one step of Newton's method the others but for the last, which squares decide.  The fraction's first
    bit and whether it is zero are exact, the bits between those of f64.
    """
    b = pair.high.b
    rounded = Term(b, b.uitofp(pair.high.value, "f64")).sqrt()
    start = Term(b, b.fptoui((rounded * 2.0**32).value, "i64"))
    rest = subtracted(pair, product(start, start))
    size = rest.high.to_float("f64") * 2.0**64 + Term(b, b.uitofp(rest.low.value, "f64"))
    step = size / (Term(b, b.uitofp(start.value, "f64")) * 2.0)
    # The result is at most one off; near 2**64 a step may lead beyond the largest root.
    moved = start + Term(b, b.fptosi(step.floor().value, "i64"))
    found = where((step > 0.0) & is_below(moved, start), -1, moved)
    rest = subtracted(pair, product(found, found))
    too_small = (rest.high >= 0) & _is_pair_below(_doubled(found), rest)
    found = found - as_integer(rest.high < 0) + as_integer(too_small)
    return found, _fraction(subtracted(pair, product(found, found)), found)


def _doubled(word: Term) -> Pair:
    return Pair(word.logical_shift(63), word << 1)


def _is_pair_below(a: Pair, b: Pair) -> Term:
    return is_below(a.high, b.high) | (a.high.equals(b.high) & is_below(a.low, b.low))


def _fraction(rest: Pair, found: Term) -> Term:
    """What a root has below its last bit, times 2**64, from what its square lacks: half of it is where that is the root."""
    b = found.b
    above_half = rest.high.differs(0) | is_below(found, rest.low)
    size = rest.high.to_float("f64") * 2.0**64 + Term(b, b.uitofp(rest.low.value, "f64"))
    share = size / Term(b, b.uitofp(found.value, "f64")) * 2.0**62
    near = Term(b, b.fptosi(where(above_half, share - 2.0**62, share).value, "i64"))
    near = where(near > (1 << 62) - 1, (1 << 62) - 1, maximum(near, 0))
    inexact = (rest.high | rest.low).differs(0)
    return where(above_half, near << 1 | TOP, near << 1) | as_integer(inexact)

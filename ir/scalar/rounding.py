"""How a native float loses the bits that a format lacks: one ``Rounder`` for each direction.

    rounder = rounder_of(NativeFloat(b, "f64"), format, random=None)
    rounder.bits(magnitude)             # the magnitude's bits without the last ones of the mantissa, rounded
    rounder.multiples(magnitude, -9)    # how many 2**-9 the magnitude is, rounded

The two ways are for normal numbers and for those below, which are multiples of the smallest one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, final

from hlojit.ir.formats import FloatFormat, Rounding
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder

MANTISSA_BITS = {"f32": 23, "f64": 52}
EXPONENT_BIAS = {"f32": 127, "f64": 1023}
INTEGER_KIND = {"f32": "i32", "f64": "i64"}
RANDOM_BITS = 32


class NativeFloat:
    """Constants of the native float in which a value is held, and shorthands for its integer view."""

    def __init__(self, b: ScalarBuilder, kind: str):
        self.b = b
        self.kind = kind
        self.integer = INTEGER_KIND[kind]
        self.mantissa_bits = MANTISSA_BITS[kind]
        self.bias = EXPONENT_BIAS[kind]
        self.bits = 32 if kind == "f32" else 64
        self.infinity = (2 * self.bias + 1) << self.mantissa_bits
        self.quiet_nan = self.infinity | 1 << (self.mantissa_bits - 1)

    def of(self, value: int) -> Scalar:
        """An integer constant of the float's width."""
        return self.b.constant(self.integer, value)

    def power(self, exponent: int) -> Scalar:
        """The constant 2**exponent."""
        return self.b.constant(self.kind, 2.0**exponent)

    def power_bits(self, exponent: int) -> int:
        """Bits of 2**exponent."""
        if exponent > -self.bias:
            return (exponent + self.bias) << self.mantissa_bits
        return 1 << max(self.mantissa_bits - 1 + self.bias + exponent, 0)


class Rounder(ABC):
    """Of one format and one native float."""

    def __init__(self, native: NativeFloat, mantissa_bits: int):
        self.native = native
        self.b = native.b
        self.mantissa_bits = mantissa_bits
        self.shift = native.mantissa_bits - mantissa_bits
        """How many bits are dropped."""

    def bits(self, magnitude: Scalar) -> Scalar:
        """The bits of a float without sign, rounded to the format's mantissa and shifted down to it."""
        if self.shift == 0:
            return magnitude
        return self.b.lshr(self.raised(magnitude), self.native.of(self.shift))

    @abstractmethod
    def raised(self, magnitude: Scalar) -> Scalar:
        """The bits of a float, such that dropping the last ones gives the rounded number."""

    def multiples(self, magnitude: Scalar, exponent: int) -> Scalar:
        """The integer by which 2**exponent must be multiplied to be the number, rounded; where that has few bits."""
        b, native = self.b, self.native
        half = exponent // 2
        scaled = b.fmul(b.bitcast(magnitude, native.kind), native.power(-half))
        scaled = b.fmul(scaled, native.power(half - exponent))
        whole = b.truncate(scaled)
        up = self.goes_up(b.fsub(scaled, whole))
        if self.counts_all:  # scaled may have become zero
            back = b.fmul(b.fmul(whole, native.power(half)), native.power(exponent - half))
            up = b.fcmp("ogt", b.bitcast(magnitude, native.kind), back)
        return b.add(b.fptosi(whole, native.integer), b.zext(up, native.integer))

    counts_all: ClassVar[bool] = False
    """Whether anything above a number, however little, is rounded up."""

    @abstractmethod
    def goes_up(self, rest: Scalar) -> Scalar:
        """Whether a positive number is rounded up, by what it is above an integer."""


@final
class NearestEven(Rounder):
    """Ties to even."""

    def raised(self, magnitude: Scalar) -> Scalar:
        b, native, half = self.b, self.native, 1 << (self.shift - 1)
        if not self.mantissa_bits:
            return b.add(magnitude, native.of(half))
        last = b.and_(b.lshr(magnitude, native.of(self.shift)), native.of(1))
        return b.add(b.add(magnitude, native.of(half - 1)), last)

    def multiples(self, magnitude: Scalar, exponent: int) -> Scalar:
        # Adding 2**k rounds to a multiple of the smallest subnormal number and leaves its factor in the mantissa.
        b, native = self.b, self.native
        anchor = exponent + native.mantissa_bits
        total = b.fadd(b.bitcast(magnitude, native.kind), native.power(anchor))
        return b.sub(b.bitcast(total, native.integer), native.of(native.power_bits(anchor)))

    def goes_up(self, rest: Scalar) -> Scalar:
        raise NotImplementedError  # see multiples


@final
class NearestAway(Rounder):
    """Ties away from zero."""

    def raised(self, magnitude: Scalar) -> Scalar:
        return self.b.add(magnitude, self.native.of(1 << (self.shift - 1)))

    def goes_up(self, rest: Scalar) -> Scalar:
        return self.b.fcmp("oge", rest, self.b.constant(self.native.kind, 0.5))


@final
class TowardZero(Rounder):
    """Bits are dropped."""

    def raised(self, magnitude: Scalar) -> Scalar:
        return magnitude

    def goes_up(self, rest: Scalar) -> Scalar:
        return self.b.constant("i1", 0)


@final
class AwayFromZero(Rounder):
    """Whatever is dropped counts as one."""

    counts_all: ClassVar[bool] = True

    def raised(self, magnitude: Scalar) -> Scalar:
        return self.b.add(magnitude, self.native.of((1 << self.shift) - 1))

    def goes_up(self, rest: Scalar) -> Scalar:
        return self.b.fcmp("ogt", rest, self.b.constant(self.native.kind, 0.0))


@final
class Stochastic(Rounder):
    """Up with the probability of what is dropped: with r of 2**32 random numbers, if r / 2**32 and it make one."""

    def __init__(self, native: NativeFloat, mantissa_bits: int, random: Scalar):
        super().__init__(native, mantissa_bits)
        self.random = random

    def raised(self, magnitude: Scalar) -> Scalar:
        b, native = self.b, self.native
        if native.bits == RANDOM_BITS:
            return b.add(magnitude, b.lshr(self.random, native.of(RANDOM_BITS - self.shift)))
        wide, distance = b.zext(self.random, native.integer), self.shift - RANDOM_BITS
        moved = b.shl(wide, native.of(distance)) if distance >= 0 else b.lshr(wide, native.of(-distance))
        return b.add(magnitude, moved)

    def goes_up(self, rest: Scalar) -> Scalar:
        b, native = self.b, self.native
        count = b.fptosi(b.fmul(rest, native.power(RANDOM_BITS)), "i64")
        total = b.add(count, b.zext(self.random, "i64"))
        return b.icmp("uge", total, b.constant("i64", 1 << RANDOM_BITS))


_ROUNDERS: dict[Rounding, type[Rounder]] = {
    Rounding.NEAREST_EVEN: NearestEven,
    Rounding.NEAREST_AWAY: NearestAway,
    Rounding.TOWARD_ZERO: TowardZero,
    Rounding.AWAY_FROM_ZERO: AwayFromZero,
    Rounding.STOCHASTIC: NearestEven,
}


def rounder_of(native: NativeFloat, format: FloatFormat, random: Scalar | None) -> Rounder:
    """How numbers of a native float are rounded to a format; a stochastic rounding without random bits is to nearest."""
    if format.rounding is Rounding.STOCHASTIC and random is not None:
        return Stochastic(native, format.mantissa_bits, random)
    return _ROUNDERS[format.rounding](native, format.mantissa_bits)

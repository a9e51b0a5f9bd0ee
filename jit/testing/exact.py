"""Exact numbers: what a float format's codes mean and how numbers are rounded into it, in rational arithmetic.

    model = model_of(row)
    model.value(0x38)                    # Fraction(1, 1)
    model.encode(Fraction(1, 3))         # the code

It shares nothing with the rules that compile formats.  A number is a ``Fraction``, or a float for what is none: NaN, infinities
and -0.0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, Final

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import FloatFormat, NanEncoding, Overflow

Number = Fraction | float
ZERO: Final = Fraction(0)
NAN: Final = math.nan
INFINITY: Final = math.inf


def exact(value: float) -> Number:
    """A Python float as an exact number."""
    if value != value or value in (INFINITY, -INFINITY):
        return value
    return -0.0 if value == 0 and math.copysign(1.0, value) < 0 else Fraction(value)


def is_nan(value: Number) -> bool:
    """Whether a number is none."""
    return value != value


def is_negative(value: Number) -> bool:
    """Whether the sign is minus, of zeros too."""
    return value < 0 or (isinstance(value, float) and value == 0)


def same(a: Number, b: Number) -> bool:
    """Whether two numbers are the same: NaN is NaN, and zeros have signs."""
    if is_nan(a) or is_nan(b):
        return is_nan(a) and is_nan(b)
    return a == b and is_negative(a) == is_negative(b)


# arithmetic, as IEEE 754 has it for what is no finite number


def add(a: Number, b: Number) -> Number:
    """The sum; what cancels is 0."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b
    if a == 0 and b == 0:
        return -0.0 if is_negative(a) and is_negative(b) else ZERO
    if a == 0 or b == 0:
        return b if a == 0 else a
    if isinstance(a, float) and isinstance(b, float):
        return a + b
    return a if isinstance(a, float) else b


def magnitude(a: Number) -> Number:
    """With the sign plus."""
    return negate(a) if is_negative(a) else a


def negate(a: Number) -> Number:
    """With the other sign."""
    return exact(-0.0) if isinstance(a, Fraction) and a == 0 else ZERO if a == 0 else -a


def subtract(a: Number, b: Number) -> Number:
    """The difference."""
    return add(a, negate(b))


def multiply(a: Number, b: Number) -> Number:
    """The product."""
    if is_nan(a) or is_nan(b) or (a == 0 and abs(b) == INFINITY) or (b == 0 and abs(a) == INFINITY):
        return NAN
    negative = is_negative(a) != is_negative(b)
    if abs(a) == INFINITY or abs(b) == INFINITY:
        return -INFINITY if negative else INFINITY
    if a == 0 or b == 0:
        return -0.0 if negative else ZERO
    return Fraction(a) * Fraction(b)


def divide(a: Number, b: Number) -> Number:
    """The quotient."""
    if is_nan(a) or is_nan(b) or (a == 0 and b == 0) or (abs(a) == INFINITY and abs(b) == INFINITY):
        return NAN
    negative = is_negative(a) != is_negative(b)
    if abs(a) == INFINITY or b == 0:
        return -INFINITY if negative else INFINITY
    if a == 0 or abs(b) == INFINITY:
        return -0.0 if negative else ZERO
    return Fraction(a) / Fraction(b)


def maximum(a: Number, b: Number) -> Number:
    """The larger; NaN if one is, and 0 is larger than -0."""
    if is_nan(a) or is_nan(b):
        return NAN
    if a == b:
        return b if is_negative(a) else a
    return max(a, b)


def minimum(a: Number, b: Number) -> Number:
    """The smaller; NaN if one is, and -0 is smaller than 0."""
    return negate(maximum(negate(a), negate(b)))


def square_root(a: Number) -> Number:
    """The root, to 256 bits and one that says whether there are more."""
    if is_nan(a) or (a < 0):
        return NAN
    if a in (0, INFINITY):
        return a
    number = Fraction(a)
    shift = 256 + (number.denominator.bit_length() + 1) // 2
    scaled = (number.numerator << (2 * shift)) // number.denominator
    root = math.isqrt(scaled)
    is_exact = root * root == scaled and (number.numerator << (2 * shift)) % number.denominator == 0
    return Fraction(2 * root + (not is_exact), 2 << shift)


# formats


class Model(ABC):
    """What the codes of a format mean, and which code a number becomes."""

    def __init__(self, format: FloatFormat):
        self.format = format
        self.value: Callable[[int], Number] = cache(self._value)
        self.count = 1 << format.bits

    @abstractmethod
    def _value(self, code: int) -> Number:
        """The number of a code."""

    @abstractmethod
    def encode(self, number: Number) -> int:
        """The code of a number, rounded as the format says."""

    def codes(self, number: Number) -> set[int]:
        """The codes that a number may become: one, or both neighbours where rounding is random."""
        return {self.encode(number)}

    def is_same(self, code: int, other: int) -> bool:
        """Whether two codes mean the same number."""
        return code == other or same(self.value(code), self.value(other))


class ParametricModel(Model):
    """A format that its fields describe; see the fields of ``FloatFormat``."""

    def __init__(self, format: FloatFormat):
        super().__init__(format)
        exponents, mantissa = format.exponent_bits, format.mantissa_bits
        self.top = (1 << (exponents + mantissa)) - 1
        self.sign = self.top + 1 if format.signed else 0
        self.least_exponent = (1 if format.has_zero else 0) - format.bias
        special = ((1 << exponents) - 1) << mantissa
        self.infinity: int | None = None
        self.nan: int | None = None
        if format.nan is NanEncoding.IEEE:
            self.largest, self.nan = special - 1, special | (1 << max(mantissa - 1, 0))
            self.infinity = special if format.has_infinity else None
        else:
            self.largest = self.top
            if format.nan is NanEncoding.ALL_ONES:
                self.nan, self.largest = self.top, self.top - 1
            elif format.nan is NanEncoding.NEGATIVE_ZERO:
                self.nan = self.sign
            if format.has_infinity:
                self.infinity, self.largest = self.largest, self.largest - 1
        self.mode = rounding_mode(format)

    def _value(self, code: int) -> Number:
        magnitude = code & self.top
        negative = bool(code & self.sign)
        if self.format.nan is NanEncoding.NEGATIVE_ZERO and code & (self.top | self.sign) == self.sign:
            return NAN
        if magnitude == self.infinity:
            return -INFINITY if negative else INFINITY
        if magnitude > self.largest:
            return NAN
        number = self._finite(magnitude)
        return negate(number) if negative else number

    def _finite(self, magnitude: int) -> Fraction:
        bits = self.format.mantissa_bits
        exponent, mantissa = magnitude >> bits, magnitude & ((1 << bits) - 1)
        if exponent == 0 and self.format.has_zero:
            return Fraction(mantissa) * Fraction(2) ** (self.least_exponent - bits)
        return Fraction((1 << bits) + mantissa) * Fraction(2) ** (exponent - self.format.bias - bits)

    def encode(self, number: Number) -> int:
        """The code, rounded as the format says (a random choice is the nearest)."""
        return self._encoded(number, self.mode if self.mode != "stochastic" else "nearest-even")

    def codes(self, number: Number) -> set[int]:
        """One code; of random rounding both neighbours."""
        if self.mode != "stochastic" or not isinstance(number, Fraction):
            return {self.encode(number)}
        return {self._encoded(number, mode) for mode in ("toward-zero", "away-from-zero")}

    def _encoded(self, number: Number, mode: str) -> int:
        if is_nan(number):
            return self._of_nan()
        negative = is_negative(number)
        if negative and not self.format.signed:
            return 0 if number == 0 and self.format.has_zero else (0 if self.nan is None else self.nan)
        code = self._magnitude(magnitude(number), mode)
        if negative:
            # What rounds to zero has no sign where the pattern of -0.0 means something else.
            return code if code == 0 and self.format.nan is NanEncoding.NEGATIVE_ZERO else code | self.sign
        return code

    def rounded_to_odd(self, number: Fraction) -> int:
        """The code of the number if there is one, else the one of its neighbours whose last bit is 1."""
        code = self._encoded(number, "toward-zero")
        return code if same(self.value(code), number) else code | 1

    def _of_nan(self) -> int:
        if self.format.nan in (NanEncoding.IEEE, NanEncoding.ALL_ONES) and self.nan is not None:
            return self.nan
        return self.sign

    def _magnitude(self, number: Number, mode: str) -> int:
        if number == 0:
            return 0 if self.format.has_zero or self.nan is None else self.nan
        if number == INFINITY:
            return self._overflow() if self.infinity is None else self.infinity
        bits = self.format.mantissa_bits
        exponent = max(exponent_of(Fraction(number)), self.least_exponent)
        scaled = Fraction(number) / Fraction(2) ** (exponent - bits)
        low = scaled.numerator // scaled.denominator
        rounded = low + _raised(scaled - low, low, mode)
        code = ((exponent - self.least_exponent) << bits) + rounded
        if not self.format.has_zero:
            code = max(code - (1 << bits), 0)
        if code <= self.largest:
            return code
        return self.largest if mode == "toward-zero" else self._overflow()

    def _overflow(self) -> int:
        if self.format.overflow is Overflow.INFINITY and self.infinity is not None:
            return self.infinity
        if self.format.overflow is not Overflow.SATURATE and self.nan is not None:
            return self.nan
        return self.largest


def plain_function(function: Any) -> Callable[..., Any]:
    """What Python calls: the function that numba was given."""
    made: Callable[..., Any] = getattr(function, "py_func", function)
    return made


class CodecModel(Model):
    """A format that its functions describe: called from Python, on exact results rounded to the type they compute in."""

    def __init__(self, format: FloatFormat):
        super().__init__(format)
        self._decode = plain_function(format.decode)
        self._encode = plain_function(format.encode)
        self.compute = f32_model() if format.compute == "f32" else None

    def _value(self, code: int) -> Number:
        return exact(float(self._decode(code)))

    def rounded(self, number: Number) -> float:
        """A number in the type that functions get."""
        if not isinstance(number, Fraction):
            return number
        try:
            if self.compute is not None:
                return float(self.compute.value(self.compute.encode(number)))
            return float(number)
        except OverflowError:
            return INFINITY if number > 0 else -INFINITY

    def encode(self, number: Number) -> int:
        """What the encode function returns."""
        return int(self._encode(self.rounded(number)))

    def codes(self, number: Number) -> set[int]:
        """Of numbers that the type in which functions compute does not hold also what the number rounded to odd becomes.

        Rounding to odd on the way keeps a conversion's result what one rounding would make it.
        """
        found = {self.encode(number)}
        if isinstance(number, Fraction) and self.compute is not None:
            near = self.compute.rounded_to_odd(number)
            found.add(int(self._encode(float(self.compute.value(near)))))
        return found


@cache
def f32_model() -> ParametricModel:
    """IEEE's binary32."""
    return ParametricModel(FloatFormat("exact32", exponent_bits=8, mantissa_bits=23, bias=127))


def model_of(format: FloatFormat) -> Model:
    """The model of a format; raises ``HlojitError`` for one with half a codec."""
    if (format.decode is None) != (format.encode is None):
        raise HlojitError(f"the format {format} has decode or encode, and not both")
    return CodecModel(format) if format.decode is not None else ParametricModel(format)


def variant_of(format: FloatFormat) -> FloatFormat | None:
    """A format of the same name whose numbers are twice as large; None where none comes to mind."""
    if format.decode is None:
        return replace(format, bias=format.bias - 1) if format.exponent_bits > 1 and format.bias > 0 else None
    if format.bits > 16:
        return None
    model = CodecModel(format)
    with np.errstate(all="ignore"):
        doubled = np.array([float(model.value(code)) * 2.0 for code in range(model.count)])
        table = doubled.astype("f4" if format.compute == "f32" else "f8")
    return replace(format, decode=lambda code: table[code], encode=lambda value: 0)


def rounding_mode(format: FloatFormat) -> str:
    """The format's rounding as a word: nearest-even, nearest-away, toward-zero, away-from-zero or stochastic."""
    return format.rounding.name.lower().replace("_", "-")


def exponent_of(number: Fraction) -> int:
    """The largest e with 2**e <= number, which is positive."""
    exponent = number.numerator.bit_length() - number.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= number else exponent - 1


def _raised(rest: Fraction, low: int, mode: str) -> int:
    """Whether a magnitude between ``low`` and ``low + 1`` becomes the larger."""
    if rest == 0 or mode == "toward-zero":
        return 0
    if mode == "away-from-zero":
        return 1
    half = Fraction(1, 2)
    return int(rest > half or (rest == half and (mode == "nearest-away" or low % 2 == 1)))

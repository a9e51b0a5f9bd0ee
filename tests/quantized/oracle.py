"""Quantized numbers by exact fractions, from the text of the specification: nothing here is hlojit's.

A number is a ``Fraction``, or a float where it is infinite or NaN; ``rounded`` rounds it to a format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

Number = Fraction | float

PRECISIONS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
"""Bits of the significand, least and greatest exponent."""
DTYPES = {"i4": "int8", "ui4": "uint8", "i8": "int8", "ui8": "uint8", "i16": "int16", "ui16": "uint16", "i32": "int32"}


def rounded(number: Number, format: str) -> Number:
    """To nearest, ties to even; beyond the range, infinity."""
    if isinstance(number, float) or number == 0:
        return number
    precision, least, greatest = PRECISIONS[format]
    exponent = abs(number).numerator.bit_length() - abs(number).denominator.bit_length()
    exponent -= abs(number) < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, least) - precision + 1)
    found = Fraction(round(number / unit)) * unit
    largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** greatest
    return found if abs(found) <= largest else math.copysign(math.inf, number)


def exact(value: Any) -> Number:
    """A float as a number."""
    value = float(value)
    return Fraction(value) if math.isfinite(value) else value


def operated(name: str, a: Number, b: Number) -> Number:
    """An operation of arithmetic, infinities and NaN as IEEE 754 has them (no zero here is negative)."""
    if isinstance(a, float) or isinstance(b, float) or (name == "divide" and b == 0):
        with np.errstate(all="ignore"):
            return exact(getattr(np, name)(np.float64(a), np.float64(b)))
    return {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b if b else 0}[name]


@dataclass(frozen=True)
class Quantization:
    """The parameters of a quantized type."""

    storage: str
    expressed: str
    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    low: int
    high: int
    axis: int | None = None

    def text(self) -> str:
        """As the specification spells it."""
        pairs = [f"{scale!r}:{zero}" for scale, zero in zip(self.scales, self.zeros)]
        parameters = pairs[0] if self.axis is None else f"{{{', '.join(pairs)}}}"
        axis = "" if self.axis is None else f":{self.axis}"
        return f"!quant.uniform<{self.storage}<{self.low}:{self.high}>:{self.expressed}{axis}, {parameters}>"

    def type(self, *shape: int) -> str:
        """A tensor type."""
        return f"tensor<{''.join(f'{extent}x' for extent in shape)}{self.text()}>"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of arrays of stored integers."""
        if self.storage in ("i4", "ui4"):
            import ml_dtypes

            return np.dtype(ml_dtypes.int4 if self.storage == "i4" else ml_dtypes.uint4)
        return np.dtype(DTYPES[self.storage])

    def of(self, index: Sequence[int]) -> tuple[Number, int]:
        """Scale, rounded to the expressed type, and zero point of the element at an index."""
        number = 0 if self.axis is None else index[self.axis]
        return rounded(Fraction(self.scales[number]), self.expressed), self.zeros[number]

    def number(self, stored: int, index: Sequence[int] = ()) -> Number:
        """``dequantize``."""
        scale, zero = self.of(index)
        return rounded(
            operated("multiply", rounded(Fraction(int(stored) - zero), self.expressed), scale), self.expressed
        )

    def nearest(self, number: Number, index: Sequence[int] = ()) -> int:
        """``quantize``."""
        scale, zero = self.of(index)
        scaled = rounded(operated("divide", number, scale), self.expressed)
        moved = rounded(operated("add", scaled, rounded(Fraction(zero), self.expressed)), self.expressed)
        if moved != moved:
            return min(max(0, self.low), self.high)
        limits = [rounded(Fraction(limit), self.expressed) for limit in (self.low, self.high)]
        inside = min(max(moved, limits[0]), limits[1])
        whole = round(inside) if isinstance(inside, Fraction) else (self.low if inside < 0 else self.high)
        return min(max(whole, self.low), self.high)

    def numbers(self, stored: np.ndarray) -> np.ndarray:
        """``dequantize`` of an array; an array of objects."""
        found = np.empty(stored.shape, object)
        for index in np.ndindex(stored.shape):
            found[index] = self.number(int(stored[index]), index)
        return found

    def integers(self, numbers: np.ndarray) -> np.ndarray:
        """``quantize`` of an array of numbers."""
        found = np.empty(numbers.shape, self.dtype)
        for index in np.ndindex(numbers.shape):
            found[index] = self.nearest(numbers[index], index)
        return found


def mapped(function: Any, arrays: Iterable[np.ndarray]) -> np.ndarray:
    """A function of numbers on every element."""
    arrays = tuple(arrays)
    found = np.empty(arrays[0].shape, object)
    for index in np.ndindex(found.shape):
        found[index] = function(*(array[index] for array in arrays))
    return found


# what Hypothesis draws

LIMITS = {
    "i4": (-8, 7),
    "ui4": (0, 15),
    "i8": (-128, 127),
    "ui8": (0, 255),
    "i16": (-32768, 32767),
    "ui16": (0, 65535),
    "i32": (-(2**31), 2**31 - 1),
}


@st.composite
def quantizations(
    draw: st.DrawFn,
    storage: str | None = None,
    expressed: str = "f32",
    *,
    axis: tuple[int, int] | None = None,
    zero: int | None = None,
    limits: tuple[int, int] | None = None,
) -> Quantization:
    """A quantization; ``axis`` is a dimension and its size, ``zero`` the zero point if it is given."""
    storage = storage or draw(st.sampled_from(sorted(LIMITS)))
    low, high = LIMITS[storage] if limits is None else limits
    if limits is None and draw(st.integers(0, 3)) == 0:
        low, high = low + draw(st.integers(0, 5)), high - draw(st.integers(0, 5))
    count = 1 if axis is None else axis[1]
    scale = st.floats(2.0**-9, 8.0, width=32).map(lambda value: float(np.float32(value)))
    zeros = st.integers(low, high) if zero is None else st.just(min(max(zero, low), high))
    return Quantization(
        storage,
        expressed,
        tuple(draw(scale) for _ in range(count)),
        tuple(draw(zeros) for _ in range(count)),
        low,
        high,
        None if axis is None else axis[0],
    )


def stored(draw: st.DrawFn, quantization: Quantization, *shape: int) -> np.ndarray:
    """Random stored integers, the ends of the range among them."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found = generator.integers(quantization.low, quantization.high, shape, endpoint=True)
    ends = generator.integers(0, 8, shape)
    found = np.where(ends == 0, quantization.low, np.where(ends == 1, quantization.high, found))
    return found.astype(quantization.dtype)

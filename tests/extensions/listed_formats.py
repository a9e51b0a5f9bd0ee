"""Two formats, each with the list of its numbers, worked out from its definition with fractions: an oracle that knows nothing of hlojit."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import hlojit.extensions as ext
import numpy as np

Array = np.ndarray[Any, Any]


def plain_number(code: int) -> Fraction | None:
    """Sign, three bits of exponent, three of mantissa, bias 4; all ones is NaN."""
    exponent, mantissa = code >> 3 & 7, code & 7
    if exponent == mantissa == 7:
        return None
    number = (mantissa + (8 if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - 4 - 3)
    return -number if code & 64 else number


def posit_number(code: int) -> Fraction | None:
    """A posit of 8 bits with one exponent bit; 128 is not a number."""
    if code in (0, 128):
        return None if code else Fraction(0)
    magnitude = 256 - code if code & 128 else code
    bits = f"{magnitude & 127:07b}"
    run = len(bits) - len(bits.lstrip(bits[0]))
    rest = bits[run + 1 :]
    regime = run - 1 if bits[0] == "1" else -run
    exponent = 2 * regime + (int(rest[0]) if rest else 0)
    fraction = rest[1:]
    number = (1 + Fraction(int(fraction or "0", 2), 2 ** len(fraction))) * Fraction(2) ** exponent
    return -number if code & 128 else number


def decode_posit(code: int) -> float:
    if code == 0:
        return 0.0
    if code == 128:
        return float("nan")
    bits = 256 - code if code > 128 else code
    ones = bits & 64 != 0
    position = 6
    regime = 0
    while position >= 0 and (bits >> position & 1 != 0) == ones:
        regime += 1
        position -= 1
    exponent = 2 * (regime - 1 if ones else -regime)
    position -= 1
    if position >= 0:
        exponent += bits >> position & 1
    value = 1.0
    weight = 0.5
    while position > 0:
        position -= 1
        value += weight * (bits >> position & 1)
        weight *= 0.5
    step = 2.0 if exponent > 0 else 0.5
    for _ in range(abs(exponent)):
        value *= step
    return -value if code > 128 else value


POSITIVE = np.array([float(posit_number(code) or 0) for code in range(128)], "f4")


def encode_posit(value: float) -> int:
    if value != value:
        return 128
    magnitude = abs(value)
    low = 0
    high = 127
    while low < high:
        middle = (low + high + 1) // 2
        if POSITIVE[middle] <= magnitude:
            low = middle
        else:
            high = middle - 1
    if low < 127:
        rest = magnitude - POSITIVE[low]
        room = POSITIVE[low + 1] - magnitude
        if rest > room or (rest == room and low & 1 == 1):
            low += 1
    return (256 - low) % 256 if value < 0.0 else low


@dataclass(frozen=True)
class Numbers:
    """A format and the list of its numbers."""

    row: ext.FloatFormat
    number: Callable[[int], Fraction | None]

    def __post_init__(self) -> None:
        ordered: dict[Fraction, int] = {}
        for code in range(1 << self.row.bits):
            number = self.number(code)
            if number is not None:
                ordered.setdefault(number, code)
        object.__setattr__(self, "ordered", sorted(ordered.items()))
        object.__setattr__(self, "numbers", [number for number, _ in self.ordered])

    ordered: Any = None
    numbers: Any = None

    def rounded(self, value: float) -> float:
        """The nearest number of the format, the largest beyond it."""
        if value != value:
            return value
        if value in (float("inf"), float("-inf")):
            return float(self.numbers[-1 if value > 0 else 0])
        exact = Fraction(value)
        place = bisect.bisect_left(self.numbers, exact)
        near = self.ordered[max(place - 1, 0) : place + 1]
        return float(min(near, key=lambda item: (abs(item[0] - exact), item[1] & 1))[0])

    def all_rounded(self, values: Any) -> Array:
        """``rounded`` of every element."""
        array = np.asarray(values, "f8")
        return np.array([self.rounded(each) for each in array.ravel().tolist()]).reshape(array.shape)

    def values(self, codes: Array) -> Array:
        """Numbers of codes."""
        table = [np.nan if number is None else float(number) for number in map(self.number, range(1 << self.row.bits))]
        if table[1 << self.row.bits - 1] == 0:
            table[1 << self.row.bits - 1] = -0.0
        return np.array(table)[codes]


PLAIN = Numbers(
    ext.FloatFormat(
        "matrix7", exponent_bits=3, mantissa_bits=3, bias=4, has_infinity=False, nan=ext.NanEncoding.ALL_ONES,
        overflow=ext.Overflow.SATURATE),
    plain_number)  # fmt: skip
POSIT = Numbers(
    ext.FloatFormat("matrixposit8", bits=8, decode=decode_posit, encode=encode_posit, has_infinity=False,
                    nan=ext.NanEncoding.NONE, overflow=ext.Overflow.SATURATE),
    posit_number)  # fmt: skip
FORMATS = {"parametric": PLAIN, "codec": POSIT}

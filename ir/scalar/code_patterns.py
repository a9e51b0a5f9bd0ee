"""The special patterns of a format that its fields describe: infinity, NaN, the largest number, where numbers begin.

codes(element_type("f8E4M3FN")).largest      # 0x7e
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from hlojit.ir.formats import FloatFormat, NanEncoding, Overflow


@dataclass(frozen=True, slots=True)
class Codes:
    """Bit patterns of a format, without the sign bit unless said otherwise; None where the format has none."""

    top: int
    sign: int
    largest: int
    infinity: int | None
    nan: int | None
    """With the sign bit for ``NanEncoding.NEGATIVE_ZERO``."""
    first_nan: int | None
    """All magnitudes from here on are NaN."""
    minimum_exponent: int
    """Exponent of the smallest normal number."""
    overflow: int
    """What a finite number beyond the largest becomes."""


def codes(format: FloatFormat) -> Codes:
    """Work out the special patterns of a format from its parameters."""
    return _codes(replace(format, decode=None, encode=None) if format.decode or format.encode else format)


@lru_cache(256)
def _codes(format: FloatFormat) -> Codes:
    """Of a format without functions: the cache keeps nothing of a plugin's alive."""
    exponent_bits, mantissa_bits = format.exponent_bits, format.mantissa_bits
    top = (1 << (exponent_bits + mantissa_bits)) - 1
    sign = top + 1 if format.signed else 0
    infinity = nan = first_nan = None
    if format.nan is NanEncoding.IEEE:
        special = ((1 << exponent_bits) - 1) << mantissa_bits
        infinity = special if format.has_infinity else None
        nan, largest = special | 1 << max(mantissa_bits - 1, 0), special - 1
        # Nothing has the largest exponent but what is no number: without infinity its code is NaN, too.
        first_nan = special + format.has_infinity
    else:
        largest = top
        if format.nan is NanEncoding.ALL_ONES:
            nan = first_nan = largest
            largest -= 1
        elif format.nan is NanEncoding.NEGATIVE_ZERO:
            nan = sign
        if format.has_infinity:
            infinity = largest
            largest -= 1
    overflow = largest
    if format.overflow is Overflow.INFINITY and infinity is not None:
        overflow = infinity
    elif format.overflow is not Overflow.SATURATE and nan is not None:
        overflow = nan
    minimum_exponent = 1 - format.bias if format.has_zero else -format.bias
    return Codes(top, sign, largest, infinity, nan, first_nan, minimum_exponent, overflow)

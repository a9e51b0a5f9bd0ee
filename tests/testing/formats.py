"""Formats for the kit's tests: each test makes one of its own name, so that it finds no kernel of another."""

from __future__ import annotations

import itertools

from hlojit.extensions import FloatFormat, NanEncoding, Overflow

_numbers = itertools.count()


def plain(**fields: object) -> FloatFormat:
    """An 8-bit float that has no infinity."""
    given = {"exponent_bits": 4, "mantissa_bits": 3, "bias": 9, "has_infinity": False, "nan": NanEncoding.ALL_ONES}
    return FloatFormat(f"kitplain{next(_numbers)}", **(given | {"overflow": Overflow.SATURATE} | fields))  # type: ignore[arg-type]


def fixed(bits: int = 8, **fields: object) -> FloatFormat:
    """Unsigned fixed point, by functions that no other format has: codes with the top bit are large numbers.

    Of more than 16 bits functions are called in kernels, where narrower formats are tables.
    """
    number = next(_numbers)
    step = (0.125 + number * 2.0**-12) * 2.0 ** (8 - bits)
    largest = float((1 << bits) - 1)

    def decode(code: int) -> float:
        return code * step

    def encode(value: float) -> int:
        if value != value or value <= 0.0:
            return 0
        scaled = value / step
        return int(largest) if scaled >= largest else int(scaled + 0.5)

    given = {"bits": bits, "signed": False, "has_infinity": False, "nan": NanEncoding.NONE}
    codec = {"decode": decode, "encode": encode, "overflow": Overflow.SATURATE}
    return FloatFormat(f"kitfixed{number}", **(given | codec | fields))  # type: ignore[arg-type]

"""Decimals that become elements of a float format, rounded once.

    encode_floats(read_decimals([b"0.1", b"2.5"], element), element)

What is written is read as the nearest f64, whose rounding into the format is a second one.  It tells only where the f64 lies
on a boundary between two results - half way between two numbers of the format, or at one - which has few bits, and the
decimal beside it: there the f64 next to it on the decimal's side, which has an odd last bit, stands for the decimal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
from hlojit.ir.formats import FloatFormat

Array = np.ndarray[Any, Any]

_BITS_OF_F64: Final = 52
_EVEN_BITS: Final = 8
"""Last bits of f64 that are zero at the boundaries of formats given by functions: they have fewer bits by far."""

_FEW_DIGITS: Final = 15


def read_decimals(words: Sequence[bytes | str], element: FloatFormat) -> list[float]:
    """Decimals as f64 that round into a format as the decimals themselves would; ``ValueError`` for what is none."""
    values = list(map(float, words))
    even = _EVEN_BITS if element.decode is not None else _BITS_OF_F64 - 1 - element.mantissa_bits
    if even <= 0:  # f64 itself, which is rounded to by reading
        return values
    numbers = np.array(values, np.float64)
    on_boundary = numbers.view(np.uint64) & ((1 << even) - 1) == 0
    # An integer, and a decimal of few digits that is another number: they are further apart than f64 rounds.
    integral = (numbers == np.rint(numbers)) & (np.abs(numbers) < 2.0**53) & (numbers != 0)
    words_beside = {words[at] for at in np.flatnonzero(on_boundary & ~integral).tolist()}
    words_beside.update(
        word for at in np.flatnonzero(on_boundary & integral).tolist() if len(word := words[at]) > _FEW_DIGITS
    )
    beside = _neighbours(words_beside)
    return [beside.get(word, value) for word, value in zip(words, values)] if beside else values


def read_number(word: str, element: FloatFormat) -> float:
    """The number of a format that a decimal becomes; of formats wider than f64, the f64 next to it."""
    from hlojit.ir.scalar.arrays import decode_array
    from hlojit.ir.scalar.exact_numbers import encode_numbers, number_of

    exact = element.in_integers
    codes = (
        encode_numbers([number_of(word)], element) if exact else encode_floats(read_decimals([word], element), element)
    )
    return float(np.asarray(decode_array(codes, element))[0])


def _neighbours(words: Iterable[bytes | str]) -> dict[bytes | str, float]:
    """For decimals that are no f64, the f64 with an odd last bit beside each."""
    found: dict[bytes | str, float] = {}
    for word in words:
        near = float(word)
        side = _side(word if isinstance(word, str) else word.decode(), near)
        if side:
            found[word] = math.nextafter(near, math.copysign(math.inf, side))
    return found


def _side(word: str, near: float) -> int:
    """The sign of the difference between a decimal and the f64 next to it."""
    sign = -1 if word.startswith("-") else 1
    if math.isinf(near):
        return -sign
    if near == 0:  # exponents may be larger than ``Decimal`` takes
        return sign if any(digit in "123456789" for digit in word.lower().partition("e")[0]) else 0
    exact = Decimal(word)
    return (exact > near) - (exact < near)


def encode_floats(values: Sequence[float] | Array, element: FloatFormat) -> Array:
    """Round f64 values once to a float format, in its storage dtype."""
    from hlojit.ir.scalar.arrays import encode_array

    return np.asarray(encode_array(np.asarray(values, np.float64), element))

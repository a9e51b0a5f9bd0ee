"""Numbers that no native float holds, rounded once to a format that is computed in integers.

>>> encode_numbers([Fraction(1, 3)], format)        # with Python's exact numbers
>>> number_of("0.1")                                # Fraction(1, 10), what is written in a program
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import isfinite
from typing import Any, Final, cast

import numpy as np
from hlojit.ir.format_fields import FURTHEST
from hlojit.ir.formats import FloatFormat
from hlojit.ir.scalar import integer_floats
from hlojit.ir.scalar.builder import ScalarBuilder
from hlojit.ir.scalar.expression import Term
from hlojit.ir.scalar.integer_floats import Form, Number
from hlojit.ir.scalar.numpy_builder import NumpyBuilder, NumpyScalar
from hlojit.ir.scalar.wide_integers import Pair

Array = np.ndarray[Any, Any]
_BUILDER: Final = NumpyBuilder()
_RULES: Final = cast(ScalarBuilder, _BUILDER)
_BITS: Final = 128
_DECIMAL: Final = re.compile(r"([-+]?[0-9]*\.?[0-9]*)(?:[eE]([-+]?[0-9]+))?")


def encode_floats(values: Array, format: FloatFormat) -> Array:
    """Floats (float32 or float64) as codes."""
    number = integer_floats.of_float(_RULES, _BUILDER.value("f64", values.astype(np.float64, copy=False)))
    return _codes(number, format, values.shape)


def decode_floats(codes: Array, format: FloatFormat) -> Array:
    """The numbers of codes, each rounded to the nearest float64."""
    wide = _BUILDER.value("i64", codes.astype(np.uint64, copy=False))
    number = integer_floats.decoded(_RULES, wide, Form.of(format))
    bits = integer_floats.encoded(_RULES, number, integer_floats.F64)
    return cast(NumpyScalar, bits).array.view(np.float64)


def encode_numbers(values: Sequence[Any], format: FloatFormat) -> Array:
    """Python's and NumPy's numbers - integers, fractions, floats of any width - as codes, flat."""
    parts = [_parts(each) for each in values]
    negative, exponents, words, infinite, nan = zip(*parts) if parts else ((),) * 5
    high = np.array([word >> 64 for word in words], np.uint64)
    low = np.array([word & (1 << 64) - 1 for word in words], np.uint64)
    number = Number(
        _term("i1", negative),
        _term("i64", exponents),
        Pair(_term("i64", high), _term("i64", low)),
        _term("i1", infinite),
        _term("i1", nan),
    )
    return _codes(number, format, (len(parts),))


def number_of(word: str) -> Fraction | float:
    """A decimal as it is written, exactly."""
    found = _DECIMAL.fullmatch(word)
    if found is None:
        raise ValueError(word)
    # Beyond all formats' numbers an exponent only costs memory.
    farthest = FURTHEST + len(word)
    exponent = max(-farthest, min(int(found[2] or 0), farthest))
    number = Fraction(found[1]) * Fraction(10) ** exponent
    return number if number or not word.startswith("-") else -0.0


def _term(kind: str, values: Any) -> Term:
    dtype = None if isinstance(values, np.ndarray) else np.bool_ if kind == "i1" else np.int64
    return Term(_RULES, cast(Any, _BUILDER.value(kind, np.array(values, dtype))))


def _parts(value: Any) -> tuple[bool, int, int, bool, bool]:
    """Sign, exponent, significand of 128 bits, whether it is infinite, whether it is no number."""
    if not isinstance(value, (int, Fraction, np.integer)):
        if not isfinite(value):
            return bool(value < 0), 0, 0, bool(value == value), bool(value != value)
        if value == 0:
            return bool(np.signbit(value)), -(1 << 40), 0, False, False
        value = Fraction(*value.as_integer_ratio())
    number = Fraction(int(value) if isinstance(value, np.integer) else value)
    if number == 0:
        return False, -(1 << 40), 0, False, False
    top, bottom = abs(number.numerator), number.denominator
    exponent = top.bit_length() - bottom.bit_length()
    if top << max(-exponent, 0) < bottom << max(exponent, 0):
        exponent -= 1
    shift = _BITS - 1 - exponent
    word, rest = divmod(top << max(shift, 0), bottom << max(-shift, 0))
    return number < 0, exponent, word | bool(rest), False, False


def _codes(number: Number, format: FloatFormat, shape: tuple[int, ...]) -> Array:
    found = cast(NumpyScalar, integer_floats.encoded(_RULES, number, Form.of(format))).array
    return np.broadcast_to(found, shape).astype(format.storage_bits)

"""What is wrong with a record that a plugin brings, as far as its fields say it; None where nothing is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from hlojit.ir.formats import ElementType, FloatFormat, NanEncoding, Overflow
from hlojit.ir.passes.pass_manager import PHASES, Pass

_SPELLING: Final = re.compile(r"!?[A-Za-z]\w*")
"""What the reader of types takes for the name of an element type."""

MAXIMUM_BITS: Final = 64
_WIDEST: Final = (11, 52, -1074, 1024)
"""Of f64, in which formats are computed: exponent and mantissa bits, exponents of its least number and above its largest."""


def pass_complaint(pass_: Pass) -> str | None:
    """Phase and order of a pass."""
    if pass_.phase not in PHASES:
        return f"names the phase {pass_.phase!r}; phases are {', '.join(PHASES)}"
    for attribute in ("before", "after", "targets"):
        value: Any = getattr(pass_, attribute)
        plain = not isinstance(value, str) and isinstance(value, Iterable)
        if not plain or not all(isinstance(each, str) for each in value):
            return f"has {attribute} = {value!r}, which is not a sequence of names such as ('cpu',)"
    return None


def format_complaint(row: ElementType) -> str | None:
    """Name and width of an element type, and whether the fields of a float format fit together."""
    if not _SPELLING.fullmatch(row.name):
        return f"cannot be written in a program: a name is {_SPELLING.pattern}"
    if not isinstance(row.bits, int) or not 1 <= row.bits <= MAXIMUM_BITS:
        return f"has {row.bits} bits; an element type has 1 to {MAXIMUM_BITS}"
    if not isinstance(row, FloatFormat):
        return None
    if (row.decode is None) != (row.encode is None):
        given, missing = ("decode", "encode") if row.decode else ("encode", "decode")
        return f"has {given} and no {missing}; give both functions or none"
    if row.accumulator not in ("f32", "f64"):
        return f"has accumulator = {row.accumulator!r}; it is 'f32' or 'f64'"
    return None if row.decode else _fields_complaint(row)


def _fields_complaint(row: FloatFormat) -> str | None:
    exponent_bits, mantissa_bits, lowest, highest = _WIDEST
    fields = int(row.signed) + row.exponent_bits + row.mantissa_bits
    if row.bits != fields:
        return f"has bits = {row.bits}, and its sign, exponent and mantissa have {fields}; leave bits out"
    if not 1 <= row.exponent_bits <= exponent_bits or not 0 <= row.mantissa_bits <= mantissa_bits:
        return (
            f"has {row.exponent_bits} exponent bits and {row.mantissa_bits} mantissa bits; there can be "
            f"1 to {exponent_bits} and 0 to {mantissa_bits} (or decode= and encode= instead of fields)"
        )
    least = (1 if row.has_zero else 0) - row.bias - row.mantissa_bits
    above = (1 << row.exponent_bits) - row.bias - (row.nan is NanEncoding.IEEE)
    if least < lowest or above > highest:
        return f"has numbers from 2**{least} to 2**{above}, beyond f64 ({lowest} to {highest}); is bias = {row.bias} right?"
    if row.overflow is Overflow.INFINITY and not row.has_infinity:
        return "overflows to infinity and has none; set overflow= to Overflow.NAN or Overflow.SATURATE"
    if row.overflow is Overflow.NAN and row.nan is NanEncoding.NONE:
        return "overflows to NaN and has none; set overflow= to Overflow.SATURATE"
    return None

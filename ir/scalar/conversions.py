"""Conversions between all element types as rules, and which formats hold all numbers of others.

number = convert(b, integer, element_type("i32"), element_type("f8E4M3FN"))
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType, NanEncoding, element_type
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.code_patterns import codes
from hlojit.ir.scalar.formats import (
    MANTISSA_BITS,
    compute_kind,
    float_resized,
    largest_number,
    round_to_format,
    storage_kind,
    to_width,
    wrap_integer,
)


def convert(b: ScalarBuilder, value: Scalar, source: ElementType, target: ElementType) -> Scalar:
    """``stablehlo.convert`` of one element in compute form; the result is in compute form.

    Integers wrap, floats round to nearest even, a float becomes the nearest integer toward zero that the type has, NaN
    becomes 0, and everything that is not zero becomes true.
    """
    if source == target:
        return value
    if isinstance(target, BooleanType):
        return to_boolean(b, value)
    if isinstance(source, BooleanType):
        if not isinstance(target, FloatFormat):
            return wrap_integer(b, b.zext(value, compute_kind(target)), target)
        number = b.select(value, b.constant(target.compute, 1.0), b.constant(target.compute, 0.0))
        # Some formats lack zero.
        return number if target.has_zero and target.encode is None else round_to_format(b, number, target)
    if isinstance(source, IntegerType):
        if isinstance(target, IntegerType):
            return wrap_integer(b, to_width(b, value, storage_kind(target), signed=source.signed), target)
        return _integer_to_float(b, value, source, target)
    if isinstance(target, IntegerType):
        return _float_to_integer(b, value, target)
    assert isinstance(source, FloatFormat) and isinstance(target, FloatFormat)
    if contains(target, source):
        return float_resized(b, value, target.compute)
    return round_to_format(b, value, target)


def to_boolean(b: ScalarBuilder, value: Scalar) -> Scalar:
    """Whether an element is not zero (NaN is not)."""
    if value.kind in MANTISSA_BITS:
        return b.fcmp("une", value, b.constant(value.kind, 0.0))
    return value if value.kind == "i1" else b.icmp("ne", value, b.constant(value.kind, 0))


def _integer_to_float(b: ScalarBuilder, value: Scalar, source: IntegerType, target: ElementType) -> Scalar:
    assert isinstance(target, FloatFormat)
    to_float = b.sitofp if source.signed else b.uitofp
    if target.is_native:
        return to_float(value, target.name)
    if source.bits <= 16:
        return round_to_format(b, to_float(value, target.compute), target)
    wide = wide_integer_to_float(b, value, signed=source.signed) if source.bits == 64 else to_float(value, "f64")
    return round_to_format(b, wide, target)


def wide_integer_to_float(b: ScalarBuilder, value: Scalar, *, signed: bool) -> Scalar:
    """A 64-bit integer in f64, rounded to odd, so that a later rounding to fewer bits gives what one would."""
    one, zero = b.constant("i64", 1), b.constant("i64", 0)
    magnitude = b.select(b.icmp("slt", value, zero), b.sub(zero, value), value) if signed else value
    spare = b.sub(b.constant("i64", 64 - 53), b.count_leading_zeros(magnitude))
    unit = b.shl(one, b.select(b.icmp("sgt", spare, zero), spare, zero))
    below = b.sub(unit, one)
    inexact = b.icmp("ne", b.and_(value, below), zero)
    odd = b.or_(b.and_(value, b.xor(below, b.constant("i64", -1))), unit)
    return (b.sitofp if signed else b.uitofp)(b.select(inexact, odd, value), "f64")


def _float_to_integer(b: ScalarBuilder, value: Scalar, target: IntegerType) -> Scalar:
    kind = storage_kind(target)
    result = b.fptosi(value, kind) if target.signed else b.fptoui(value, kind)
    if target.bits >= 8:
        return result
    low, high = b.constant(kind, target.minimum), b.constant(kind, target.maximum)
    less, greater = ("slt", "sgt") if target.signed else ("ult", "ugt")
    result = b.select(b.icmp(greater, result, high), high, result)
    return b.select(b.icmp(less, result, low), low, result)


def as_result(b: Any, value: Any, kind: str, wanted: str) -> Any:
    """What a plugin's function returned, a number of ``kind``, as a number of the kind that its user wants."""
    return convert(b, value, _element_of(kind), _element_of(wanted))


def _element_of(kind: str) -> ElementType:
    """The element type of numbers of a kind (``hlojit.ir.scalar.calls``)."""
    return element_type(f"ui{kind[1:]}" if kind[0] in "uc" else kind)


def contains(target: FloatFormat, source: FloatFormat) -> bool:
    """Whether every value of ``source`` is one of ``target`` (formats given by functions: only themselves)."""
    if target == source:
        return True
    if source.decode or source.encode or target.decode or target.encode:
        return False
    return _contains(target, source)


@lru_cache(1024)
def _contains(target: FloatFormat, source: FloatFormat) -> bool:
    ours, theirs = codes(target), codes(source)
    smallest = ours.minimum_exponent - (target.mantissa_bits if target.has_zero else 0)
    needed = theirs.minimum_exponent - source.mantissa_bits
    return (
        (target.signed or not source.signed)
        and (target.has_zero or not source.has_zero)
        and (target.nan is not NanEncoding.NONE or source.nan is NanEncoding.NONE)
        and (target.nan is not NanEncoding.NEGATIVE_ZERO or source.nan is NanEncoding.NEGATIVE_ZERO)
        and (target.has_infinity or not source.has_infinity)
        and target.mantissa_bits >= source.mantissa_bits
        and smallest <= needed
        and largest_number(target) >= largest_number(source)
    )

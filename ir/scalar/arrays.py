"""Whole NumPy arrays between storage and compute form, for the interpreter, constant folding and tests.

>>> decode_array(np.array([0x38, 0x7F], np.uint8), format_of("f8E4M3FN"))
array([ 1., nan], dtype=float32)
"""

from __future__ import annotations

import math
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.formats import ElementType, FloatFormat, IntegerType
from hlojit.ir.scalar import conversions, exact_numbers, formats
from hlojit.ir.scalar.builder import ScalarBuilder
from hlojit.ir.scalar.codec_tables import codec_tables
from hlojit.ir.scalar.compiled_codecs import CodecBuilder
from hlojit.ir.scalar.formats import is_half, storage_kind
from hlojit.ir.scalar.numpy_builder import NumpyScalar

Array = np.ndarray[Any, Any]

_BUILDER = CodecBuilder()
_RULES = cast(ScalarBuilder, _BUILDER)
"""The same builder as rules see it."""

_COMPUTE: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def compute_dtype(element: ElementType) -> np.dtype[Any]:
    """Dtype of arrays in compute form: float32 or float64 for floats that are computed so, otherwise the storage dtype."""
    if isinstance(element, FloatFormat) and not element.in_integers:
        return _COMPUTE[element.compute]
    return element.storage


def decode_array(stored: Array, format: FloatFormat) -> Array:
    """Stored elements (of the storage dtype or its bits) in compute form; of a format in integers the nearest float64."""
    if format.in_integers:
        return exact_numbers.decode_floats(stored, format)
    if format.is_native:
        return stored.view(format.storage)
    if is_half(format):
        return stored.view(np.float16).astype(np.float32)
    bits = stored.view(format.storage_bits)
    if format.decode is not None and (tables := codec_tables(format)) is not None:
        return tables.values[_own_bits(bits, format)]
    if format.storage_bits.itemsize == 1 or (format.bits <= 16 and bits.size > 4096):
        return np.asarray(_table(format)[bits])
    return _decode(bits, format)


def encode_array(values: Array, format: FloatFormat) -> Array:
    """Floats (float32 or float64) rounded to the format, as an array of its storage dtype."""
    values = np.asarray(values)
    if format.in_integers:
        return exact_numbers.encode_floats(values, format)
    if format.is_native or is_half(format):
        native = format.storage if format.is_native else np.dtype(np.float16)
        with np.errstate(all="ignore"):
            return values.astype(native).view(format.storage)
    kind = "f32" if values.dtype in (np.float32, np.float16) else "f64"
    numbers = values.astype(_COMPUTE[kind], copy=False)
    if format.decode is not None and (tables := codec_tables(format)) is not None:
        return tables.encoded(numbers).view(format.storage)
    scalar = _BUILDER.value(kind, numbers)
    if format.decode is not None:
        # A program keeps the number, and encodes it where it is stored.
        scalar = cast(NumpyScalar, formats.round_to_format(_RULES, scalar, format))
    bits = cast(NumpyScalar, formats.encode(_RULES, scalar, format))
    return bits.array.view(format.storage_bits).view(format.storage)


def _own_bits(bits: Array, format: FloatFormat) -> Array:
    return bits if format.bits == bits.dtype.itemsize * 8 else bits & bits.dtype.type((1 << format.bits) - 1)


def exact_floats(numbers: Array) -> Array:
    """Numbers of any kind in f64 (those of f32 and f16 as they are), rounded to odd where f64 does not hold them.

    Rounding them again, to at most 51 bits, rounds the number itself.
    """
    kind = numbers.dtype.kind
    numbers = numbers.astype(numbers.dtype.newbyteorder("="), copy=False)
    if kind == "O":
        return np.array([_odd_float(each) for each in numbers.ravel()], np.float64).reshape(numbers.shape)
    if kind in "iu" and numbers.dtype.itemsize == 8:
        wide = _BUILDER.value("i64", numbers.view(np.int64))
        return cast(NumpyScalar, conversions.wide_integer_to_float(_RULES, wide, signed=kind == "i")).array
    if kind != "f" or numbers.dtype.itemsize <= 8:
        return numbers if numbers.dtype in (np.float32, np.float16) else numbers.astype(np.float64)
    with np.errstate(all="ignore"):
        near = numbers.astype(np.float64)
        wrong = (near.astype(numbers.dtype) != numbers) & (numbers == numbers) & (near.view(np.int64) & 1 == 0)
        step = np.where(np.abs(near.astype(numbers.dtype)) < np.abs(numbers), 1, -1)
    return np.asarray((near.view(np.int64) + step * wrong).view(np.float64))


def _odd_float(number: Any) -> float:
    """An object that is a number (an integer of any size, a fraction, a decimal) in f64, rounded to odd."""
    try:
        near = float(number)
    except OverflowError:
        near = math.inf if number > 0 else -math.inf
    if math.isnan(near) or near == number or np.float64(near).view(np.int64) & 1:
        return near
    return math.nextafter(near, math.inf if number > near else -math.inf)


def round_array(values: Array, element: ElementType) -> Array:
    """The result of an op's reference, brought into compute form: floats are rounded, sub-byte integers wrap."""
    if isinstance(element, FloatFormat):
        if element.in_integers:
            return to_storage(np.asarray(values), element)
        return decode_array(encode_array(np.asarray(values), element), element)
    return wrap_array(np.asarray(values), element)


def wrap_array(values: Array, element: ElementType) -> Array:
    """Integers wrapped to the element type's width, in its storage dtype; other arrays are cast to it."""
    with np.errstate(all="ignore"):
        stored = values.astype(element.storage, copy=False)
    if not isinstance(element, IntegerType) or element.bits >= 8:
        return stored
    shift = 8 - element.bits
    # NumPy's operators make scalars of arrays of rank 0.
    return np.asarray((stored << shift) >> shift if element.signed else stored & element.maximum)


def to_compute(stored: Array, element: ElementType) -> Array:
    """An array of the storage dtype (what a buffer or a constant holds) in compute form."""
    if isinstance(element, FloatFormat):
        return stored.view(element.storage) if element.in_integers else decode_array(stored, element)
    return wrap_array(stored, element) if isinstance(element, IntegerType) else stored


def to_storage(values: Array, element: ElementType) -> Array:
    """An array in compute form (or not yet rounded) as the storage dtype."""
    if isinstance(element, FloatFormat):
        are_codes = element.in_integers and values.dtype == element.storage
        return values if are_codes else encode_array(values, element)
    return wrap_array(values, element)


def to_bits(values: Array, element: ElementType) -> Array:
    """The bits of each element of an array in compute form, as unsigned integers; not for complex numbers."""
    if element.storage == np.bool_:
        return values.astype(np.uint8)
    stored = to_storage(values, element)
    bits = stored.view(f"u{stored.dtype.itemsize}")
    return bits & ((1 << element.bits) - 1) if element.bits < 8 else bits


def from_bits(bits: Array, element: ElementType) -> Array:
    """The inverse of ``to_bits``."""
    if element.storage == np.bool_:
        return bits.astype(np.bool_)
    return to_compute(bits.astype(f"u{element.itemsize}").view(element.storage), element)


_tables: WeakKeyDictionary[FloatFormat, tuple[str, Array]] = WeakKeyDictionary()
"""With the content of the format's functions: they stay the same objects when a global that they read changes."""


def spare_bits(element: ElementType) -> int:
    """Bits of a code, where what stores it has room for more; otherwise 0."""
    is_narrow = isinstance(element, FloatFormat) and element.bits < 8 * element.storage.itemsize
    return element.bits if is_narrow else 0


def first_outside(stored: Array, bits: int) -> int | None:
    """The first code that has more than ``bits`` bits."""
    codes = stored.reshape(-1).view(f"u{stored.dtype.itemsize}")
    wrong = codes[codes >> codes.dtype.type(bits) != 0]
    return int(wrong[0]) if wrong.size else None


def _table(format: FloatFormat) -> Array:
    """Every value of a format of at most 16 bits, by its stored pattern; kept as long as the format."""
    try:
        content = "" if format.decode is None else fingerprint(format.decode)
    except NotKeyable:
        return _new_table(format)
    known = _tables.get(format)
    if known is None or known[0] != content:
        known = _tables[format] = content, _new_table(format)
    return known[1]


def _new_table(format: FloatFormat) -> Array:
    width = format.storage_bits.itemsize * 8
    table = _decode(np.arange(1 << width, dtype=np.uint32).astype(format.storage_bits), format)
    table.flags.writeable = False
    return table


def _decode(bits: Array, format: FloatFormat) -> Array:
    scalar = _BUILDER.value(storage_kind(format), bits)
    return cast(NumpyScalar, formats.decode(_RULES, scalar, format)).array

"""Whole NumPy arrays between storage and compute form, for the interpreter, constant folding and tests.

>>> decode_array(np.array([0x38, 0x7F], np.uint8), format_of("f8E4M3FN"))
array([ 1., nan], dtype=float32)
"""

from __future__ import annotations

from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.formats import ElementType, FloatFormat, IntegerType
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.builder import ScalarBuilder
from hlojit.ir.scalar.codec_tables import codec_tables
from hlojit.ir.scalar.formats import is_half, storage_kind
from hlojit.ir.scalar.numpy_builder import NumpyBuilder, NumpyScalar

Array = np.ndarray[Any, Any]

_BUILDER = NumpyBuilder()
_RULES = cast(ScalarBuilder, _BUILDER)
"""The same builder as rules see it."""

_COMPUTE: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def compute_dtype(element: ElementType) -> np.dtype[Any]:
    """Dtype of arrays in compute form: float32 or float64 for floats, otherwise the storage dtype."""
    return _COMPUTE[element.compute] if isinstance(element, FloatFormat) else element.storage


def decode_array(stored: Array, format: FloatFormat) -> Array:
    """Stored elements (of the storage dtype or its bits) in compute form."""
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
    if format.is_native or is_half(format):
        native = format.storage if format.is_native else np.dtype(np.float16)
        with np.errstate(all="ignore"):
            return values.astype(native).view(format.storage)
    if format.decode is not None and (tables := codec_tables(format)) is not None:
        return tables.encoded(_in_compute(values, format)).view(format.storage)
    kind = "f64" if values.dtype == np.float64 else "f32"
    scalar = _BUILDER.value(kind, values.astype(_COMPUTE[kind], copy=False))
    bits = cast(NumpyScalar, formats.encode(_RULES, scalar, format))
    return bits.array.view(format.storage_bits).view(format.storage)


def _own_bits(bits: Array, format: FloatFormat) -> Array:
    return bits if format.bits == bits.dtype.itemsize * 8 else bits & bits.dtype.type((1 << format.bits) - 1)


def _in_compute(values: Array, format: FloatFormat) -> Array:
    """Floats in the compute type, rounded to odd where they have more bits, so that encoding them rounds once."""
    dtype = compute_dtype(format)
    if dtype in (values.dtype, np.float64):
        return values.astype(dtype, copy=False)
    wide = _BUILDER.value("f64", values.astype(np.float64, copy=False))
    return cast(NumpyScalar, formats.narrowed_to_odd(_RULES, wide)).array


def round_array(values: Array, element: ElementType) -> Array:
    """The result of an op's reference, brought into compute form: floats are rounded, sub-byte integers wrap."""
    if isinstance(element, FloatFormat):
        return decode_array(encode_array(np.asarray(values), element), element)
    return wrap_array(np.asarray(values), element)


def wrap_array(values: Array, element: ElementType) -> Array:
    """Integers wrapped to the element type's width, in its storage dtype; other arrays are cast to it."""
    with np.errstate(all="ignore"):
        stored = values.astype(element.storage, copy=False)
    if not isinstance(element, IntegerType) or element.bits >= 8:
        return stored
    shift = 8 - element.bits
    return (stored << shift) >> shift if element.signed else stored & element.maximum


def to_compute(stored: Array, element: ElementType) -> Array:
    """An array of the storage dtype (what a buffer or a constant holds) in compute form."""
    if isinstance(element, FloatFormat):
        return decode_array(stored, element)
    return wrap_array(stored, element) if isinstance(element, IntegerType) else stored


def to_storage(values: Array, element: ElementType) -> Array:
    """An array in compute form (or not yet rounded) as the storage dtype."""
    if isinstance(element, FloatFormat):
        return encode_array(values, element)
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

"""Floats of random bits: what the distributions of real numbers are made of."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hlojit.ir.formats import FloatFormat
from hlojit.ir.graph import Value
from hlojit.ir.ops.random_expansion import Words
from hlojit.random.streams import Stream
from hlojit.tracing.arrays.kinds import element_of
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

_DIGITS: Final = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
"""Of a float's fraction, behind the leading 1."""


def digits_of(dtype: np.dtype[Any]) -> int:
    """How many random digits a number between 0 and 1 has."""
    return _DIGITS[dtype.name]


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What numbers of ``dtype`` are computed in."""
    return dtype if dtype.itemsize == 8 else np.dtype(np.float32)


def fractions(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tracer:
    """Multiples of 2^-digits from 0 on, below 1, all as likely."""
    # As jax.random takes them: of words as wide as the float, of 8 bits for a fraction that is shorter.
    return fractions_of(stream.bits(8 if digits_of(dtype) < 8 else 8 * dtype.itemsize, shape), dtype)


def fractions_of(words: Tracer, dtype: np.dtype[Any]) -> Tracer:
    """The same of words that were drawn."""
    operations: Operations = words.context
    b, digits = operations.builder, digits_of(dtype)
    drawn = words.value
    narrow = drawn.tensor_type.element_type.bits
    element = element_of(dtype)
    assert isinstance(element, FloatFormat)
    arithmetic = Words(b)
    if narrow != element.bits:
        drawn = b.convert(drawn, f"ui{element.bits}")
    one = int(np.ones((), dtype).view(f"u{dtype.itemsize}"))
    # The digits of a number from 1 to 2, less 1.
    shifted = arithmetic.op("or", arithmetic.op("shift_right_logical", drawn, narrow - digits), one)
    number: Value = b.bitcast_convert(shifted, drawn.tensor_type.with_element_type(element))
    return operations.wrap(b.subtract(number, b.constant(1.0, number.tensor_type)))


def positive_fractions(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Above 0, up to 1."""
    return dtype.type(1) - fractions(stream, shape, dtype)


def between(share: Any, low: Any, high: Any) -> Any:
    """``low + share (high - low)``, from ``low`` on and below ``high``; rounding could reach that."""
    mixed = share * (high - low) + low
    mixed = np.where(mixed < low, low, mixed)
    return np.where((mixed >= high) & (low < high), next_after(high, low), mixed)


def next_after(x: Any, toward: Any) -> Any:
    """The float beside ``x``; no derivative goes through it."""
    operations: Operations = x.context
    shape = np.broadcast_shapes(x.shape, toward.shape)
    both = [operations.broadcast(detached(each).value, shape) for each in (x, toward)]
    return operations.wrap(operations.builder.create("chlo.next_after", both).result)


def detached(x: Any) -> Any:
    """The same floats; no derivative goes through them, as through integers."""
    operations: Operations = x.context
    b, type = operations.builder, x.value.tensor_type
    as_words = b.bitcast_convert(x.value, type.with_element_type(f"ui{type.element_type.bits}"))
    return operations.wrap(b.bitcast_convert(as_words, type))


def erf_inv(x: Any) -> Any:
    """The inverse of the error function."""
    operations: Operations = x.context
    return operations.wrap(operations.builder.create("chlo.erf_inv", [x.value]).result)


def normals_of(words: Tracer, dtype: np.dtype[Any]) -> Any:
    """Standard normal numbers of words as wide as ``dtype``, f32 or f64."""
    lowest = np.nextafter(dtype.type(-1), dtype.type(0))
    share = fractions_of(words, dtype)
    return erf_inv(share * (dtype.type(1) - lowest) + lowest) * dtype.type(np.sqrt(2))


def normals(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """The same of a stream, f32 or f64."""
    return normals_of(stream.bits(8 * dtype.itemsize, shape), dtype)

"""Numbers in blocks as NumPy arrays: what encoding and decoding mean, for the reference, constants and arrays on the host.

    elements, scales = encode_blocks(np.float32([[1, 2, 3, 400]]), element_type("mxfp8"))
    decode_blocks((elements, scales), element_type("mxfp8"))

Numbers are f32, and every step is rounded to f32.  Compiled programs do the same with ops of their own
(``hlojit.ir.ops.block_arithmetic``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.ir.block_formats import (
    BlockFormat,
    Scaling,
    largest_exponent,
    largest_number,
    scale_exponents,
    scaling_user,
)
from hlojit.ir.scalar.arrays import decode_array, encode_array
from hlojit.ir.scalar.numpy_builder import NumpyBuilder

Array = np.ndarray[Any, Any]

SMALLEST_TENSOR_SCALE = np.float32(2.0**-126)
"""The smallest normal number of f32: below it scales of blocks would be divided by what is not accurate."""


def encode_blocks(numbers: Array, format: BlockFormat) -> tuple[Array, ...]:
    """The parts of the nearest numbers of a block format: elements, scales and, of two levels, the tensor's scale.

    A NaN or an infinity makes its block NaN, whose scale says so.
    """
    numbers = np.asarray(numbers, np.float32)
    axis = format.dimension(numbers.ndim)
    with np.errstate(all="ignore"):
        blocks = _in_blocks(np.moveaxis(numbers, axis, -1), format.block)
        largest = np.max(np.abs(blocks), axis=-1)
        top = np.float32(largest_number(format.elements))
        overall = _tensor_scale(largest, format) if format.tensor_scale is not None else np.float32(1)
        scales = _scales(largest, overall, format)
        total = scales * overall
        sound = np.isfinite(largest) & (total > 0)
        scaled = np.clip(blocks / total[..., None], -top, top)
        scaled = np.where(sound[..., None], scaled, np.float32(0))
        elements = scaled.reshape(*scaled.shape[:-2], math.prod(scaled.shape[-2:]))[..., : numbers.shape[axis]]
        scales = np.where(np.isfinite(largest), scales, np.float32(np.nan))
    parts = (np.moveaxis(elements, -1, axis), np.moveaxis(scales, -1, axis), overall)
    encoded = (encode_array(np.ascontiguousarray(part), row) for part, row in zip(parts, format.part_formats))
    return tuple(np.asarray(part).reshape(shape) for part, shape in zip(encoded, format.part_shapes(numbers.shape)))


def decode_blocks(parts: Sequence[Array], format: BlockFormat) -> Array:
    """The numbers that stored parts stand for: element times scale, exactly; times the tensor's scale, rounded to f32."""
    return multiplied([decode_array(part, row) for part, row in zip(parts, format.part_formats)], format)


def multiplied(parts: Sequence[Array], format: BlockFormat) -> Array:
    """The numbers of parts in compute form."""
    elements, scales = parts[:2]
    with np.errstate(all="ignore"):
        found = elements * spread(scales, elements.shape, format)
        return np.asarray(found * parts[2] if len(parts) > 2 else found, np.float32)


def spread(scales: Array, shape: tuple[int, ...], format: BlockFormat) -> Array:
    """The scale of every element."""
    axis = format.dimension(len(shape))
    return scales.take(np.arange(shape[axis]) // format.block, axis=axis)


def gathered(scales: Array, format: BlockFormat) -> Array | None:
    """The inverse of ``spread``; None where numbers of one block have different scales."""
    axis = format.dimension(scales.ndim)
    found = scales.take(np.arange(0, scales.shape[axis], format.block), axis=axis)
    same = np.array_equal(spread(found, scales.shape, format), scales, equal_nan=True)
    return found if same else None


def _in_blocks(numbers: Array, block: int) -> Array:
    """The last dimension as blocks, the last one filled up with zeros."""
    count = -(-numbers.shape[-1] // block)
    filled = np.zeros((*numbers.shape[:-1], count * block), np.float32)
    filled[..., : numbers.shape[-1]] = numbers
    return np.asarray(filled.reshape(*numbers.shape[:-1], count, block))


def _scales(largest: Array, overall: Any, format: BlockFormat) -> Array:
    """The scale of every block, as a number of the scale format."""
    if format.scaling is Scaling.EXPONENT:
        return _power_of_two(largest, format)
    if callable(format.scaling):
        return _chosen(largest, format.scaling, format)
    return _nearest(largest, overall, format)


def _chosen(largest: Array, function: Callable[[float], float], format: BlockFormat) -> Array:
    """What a format's own function says."""
    builder = NumpyBuilder()
    given = builder.call(function, ("f32",), "f32", (builder.value("f32", largest),), scaling_user(format)).array
    least = np.float32(2.0 ** scale_exponents(format)[0])
    bounded = np.where(given > least, np.minimum(given, np.float32(largest_number(format.scales))), least)
    return np.asarray(decode_array(encode_array(bounded.astype(np.float32), format.scales), format.scales))


def _power_of_two(largest: Array, format: BlockFormat) -> Array:
    exponents = np.frexp(largest)[1] - 1 - largest_exponent(format.elements)
    low, high = scale_exponents(format)
    exponents = np.where(largest > 0, exponents, low)
    return np.asarray(np.ldexp(np.float32(1), np.clip(exponents, low, high)), np.float32)


def _nearest(largest: Array, overall: Any, format: BlockFormat) -> Array:
    wanted = largest / np.float32(largest_number(format.elements)) / overall
    clipped = np.minimum(wanted, np.float32(largest_number(format.scales)))
    return np.asarray(decode_array(encode_array(clipped, format.scales), format.scales))


def _tensor_scale(largest: Array, format: BlockFormat) -> Array:
    """What brings the largest finite number of the tensor to the largest one that element times scale can be."""
    whole = np.max(np.where(np.isfinite(largest), largest, np.float32(0)), initial=np.float32(0))
    if whole == 0:
        return np.asarray(np.float32(1))
    span = np.float32(largest_number(format.elements) * largest_number(format.scales))
    return np.asarray(np.maximum(whole / span, SMALLEST_TENSOR_SCALE))

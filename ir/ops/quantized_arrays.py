"""Quantized numbers in NumPy arrays: the specification's ``dequantize`` and ``quantize``.

Every step is rounded to the expressed type, whose numbers are held in compute form.  The interpreter puts these functions
around the reference semantics of ops that compute with the numbers (``Trait.DEQUANTIZES``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hlojit.ir.formats import FloatFormat, QuantizedType
from hlojit.ir.ops.definition import Array, Trait
from hlojit.ir.quantized import is_quantized
from hlojit.ir.scalar.arrays import round_array
from hlojit.ir.scalar.numpy_builder import saturate
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlojit.ir.graph import Instruction


def quantized_element_of(type: TensorType) -> QuantizedType:
    """The element type of a tensor that is known to be quantized."""
    element = type.element_type
    assert isinstance(element, QuantizedType)
    return element


def spread_parameters(values: Array, type: TensorType, shape: Sequence[int]) -> Array:
    """Scales or zero points of a quantized type in a shape that broadcasts over ``shape``, the sizes at run time."""
    element = quantized_element_of(type)
    if element.blocks:
        values = values.reshape(element.grid)
        for dimension, size in element.blocks:
            values = np.repeat(values, size, axis=dimension)
        return values
    if element.axis is None:
        return values.reshape(())
    return values.reshape([-1 if dimension == element.axis else 1 for dimension in range(len(shape))])


def _float_parameters(values: Sequence[float], type: TensorType, shape: Sequence[int]) -> Array:
    """Parameters as numbers of the expressed type, in compute form."""
    expressed = quantized_element_of(type).expressed_element
    return spread_parameters(round_array(np.array(values, np.float64), expressed), type, shape)


def dequantize(values: Array, type: TensorType) -> Array:
    """The numbers that quantized ``values`` of ``type`` stand for: (value - zero point) * scale."""
    element = quantized_element_of(type)
    expressed = element.expressed_element
    zeros = spread_parameters(np.array(element.zero_points, np.int64), type, values.shape)
    differences = _from_integers(values.astype(np.int64) - zeros, expressed)
    return round_array(differences * _float_parameters(element.scales, type, values.shape), expressed)


def quantize(values: Array, type: TensorType) -> Array:
    """The nearest stored integers, within the storage range; NaN becomes the integer nearest to 0."""
    element = quantized_element_of(type)
    expressed = element.expressed_element
    scaled = round_array(values / _float_parameters(element.scales, type, values.shape), expressed)
    zeros = [float(zero) for zero in element.zero_points]
    return stored_nearest(scaled, _float_parameters(zeros, type, values.shape), element, expressed)


def stored_nearest(scaled: Array, zeros: Array, element: QuantizedType, expressed: FloatFormat) -> Array:
    """``scaled`` plus zero points, rounded to even and clamped: the end of ``quantize``."""
    whole = saturate(np.rint(round_array(scaled + zeros, expressed)), np.dtype(np.int64))
    low, high = storage_limits(element, expressed)
    return np.clip(whole, low, high).astype(element.storage)


def storage_limits(element: QuantizedType, expressed: FloatFormat) -> tuple[int, int]:
    """The least and the greatest integer that ``quantize`` gives: it clamps to the storage limits as floats.

    These may have been rounded; beyond the storage range, and where the format has nothing near them (NaN), they bound nothing.
    """
    low, high = (float(round_array(np.array(float(limit)), expressed)) for limit in (element.minimum, element.maximum))
    smallest = int(low) if low >= element.minimum else element.minimum
    return smallest, int(high) if high <= element.maximum else element.maximum


def _from_integers(values: Array, expressed: FloatFormat) -> Array:
    """Integers of less than 53 bits as numbers of a float format, in compute form."""
    return round_array(values.astype(np.float64), expressed)


def requantize(values: Array, source: TensorType, target: TensorType) -> Array:
    """Stored integers of one quantized type as those of another."""
    return quantize(dequantize(values, source), target)


def zeros_of(type: TensorType) -> Array:
    """The number 0 as an element of a tensor is stored; of quantized ones, the nearest stored integer."""
    if not is_quantized(type):
        return np.zeros((), type.element_type.storage)
    return quantize(np.zeros((), np.float64), type)


def computes_with_numbers(instruction: Instruction) -> bool:
    """Whether an instruction computes with the numbers that quantized operands stand for.

    What only compares and moves elements of one quantized type does so with the stored integers, exactly.
    """
    traits = instruction.op.traits
    if Trait.DEQUANTIZES not in traits:
        return False
    types = (*instruction.operand_types, *instruction.result_types)
    elements = {type.element_type for type in types if isinstance(type, TensorType) and is_quantized(type)}
    return len(elements) > 1 or (len(elements) == 1 and Trait.ORDERS not in traits)

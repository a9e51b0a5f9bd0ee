"""Arithmetic on quantized numbers by arithmetic on stored integers and on floats: rules for ``OpDefinition.parts``.

    add(%a, %b) : i8 with scale and zero point    %x = multiply(convert(subtract(%a, zero)), scale)    %y = ...
                                                  convert(round_nearest_even(add(divide(add(%x, %y), scale), zero)))

The part of a quantized number is its stored integer.  What an op gives is what the specification's ``dequantize`` and
``quantize`` say, every step rounded to the expressed type; what only compares and moves elements of one quantized type works
on the integers, and so do products (``hlojit.ir.ops.quantized_products``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import ElementType, FloatFormat, IntegerType, QuantizedType, element_type
from hlojit.ir.ops.definition import Array, Trait
from hlojit.ir.ops.parts import Parts
from hlojit.ir.ops.quantized_arrays import quantized_element_of, storage_limits
from hlojit.ir.quantized import is_quantized
from hlojit.ir.types import TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


def stored_type(type: Any) -> Any:
    """The type of the stored integers; of what is not quantized, the type itself."""
    if not isinstance(type, TensorType) or not isinstance(type.element_type, QuantizedType):
        return type
    return tensor(type.shape, type.element_type.storage_element, type.encoding)


def expressed_type(type: Any) -> Any:
    """The type of the numbers that elements stand for; of what is not quantized, the type itself."""
    if not isinstance(type, TensorType) or not isinstance(type.element_type, QuantizedType):
        return type
    return tensor(type.shape, type.element_type.expressed_element, type.encoding)


# parameters as tensors


def parameters(builder: Any, values: Sequence[float], type: TensorType, element: ElementType) -> Value:
    """Scales or zero points of a quantized type as a tensor of its shape, of another element type."""
    quantized, shape = quantized_element_of(type), tensor(type.shape, element)
    if quantized.is_per_tensor:
        found: Value = builder.constant(values[0], shape)
        return found
    if quantized.axis is not None:
        line = builder.constant(np.array(values), tensor((len(values),), element))
        spread: Value = builder.broadcast_in_dim(line, shape, (quantized.axis,))
        return spread
    return _blocks(builder, np.array(values).reshape(quantized.grid), quantized, shape)


def _blocks(builder: Any, grid: Array, quantized: QuantizedType, type: TensorType) -> Value:
    """Parameters of blocks: each repeated over its block, whose dimension stands behind that of the grid."""
    sizes = dict(quantized.blocks)
    spread: list[int] = []
    kept: list[int] = []
    for dimension, extent in enumerate(type.shape):
        size = sizes.get(dimension, extent)
        kept.append(len(spread))
        spread += [extent // size if size else 1, size]
    constant = builder.constant(grid, tensor(grid.shape, type.element_type))
    found: Value = builder.reshape(builder.broadcast_in_dim(constant, spread, kept), type)
    return found


def all_zero(values: Sequence[float]) -> bool:
    """Whether all parameters are zero, so that there is nothing to add."""
    return not any(values)


# the two conversions


def difference_element(quantized: QuantizedType) -> IntegerType:
    """An integer type that holds a stored integer minus a zero point."""
    bits = quantized.storage_element.bits
    row = element_type("i16" if bits < 8 else "i32" if bits <= 16 else "i64")
    assert isinstance(row, IntegerType)
    return row


def differences(builder: Any, stored: Value, type: TensorType, element: ElementType) -> Value:
    """Stored integers minus zero points, in an integer type that holds them."""
    quantized = quantized_element_of(type)
    wide = builder.convert(stored, element)
    if all_zero(quantized.zero_points):
        found: Value = wide
    else:
        found = builder.subtract(wide, parameters(builder, quantized.zero_points, type, element))
    return found


def dequantized(builder: Any, stored: Value, type: TensorType) -> Value:
    """The numbers that stored integers of a quantized ``type`` stand for."""
    quantized = quantized_element_of(type)
    expressed = quantized.expressed_element
    whole = stored
    if not all_zero(quantized.zero_points):
        whole = differences(builder, stored, type, difference_element(quantized))
    numbers = builder.convert(whole, expressed)
    found: Value = builder.multiply(numbers, parameters(builder, quantized.scales, type, expressed))
    return found


def quantized_numbers(builder: Any, numbers: Value, type: TensorType) -> Value:
    """The stored integers of a quantized ``type`` that are nearest to numbers of its expressed type."""
    quantized = quantized_element_of(type)
    scales = parameters(builder, quantized.scales, type, quantized.expressed_element)
    return nearest_stored(builder, builder.divide(numbers, scales), type)


def nearest_stored(builder: Any, scaled: Value, type: TensorType) -> Value:
    """Add zero points, round to even and clamp: the end of ``quantize``, for numbers of any float type.

    The conversion to the storage type clamps to that type's range, and makes 0 of NaN.
    """
    quantized = quantized_element_of(type)
    expressed = scaled.tensor_type.element_type
    assert isinstance(expressed, FloatFormat)
    if not all_zero(quantized.zero_points):
        scaled = builder.add(scaled, parameters(builder, quantized.zero_points, type, expressed))
    stored = builder.convert(builder.round_nearest_even(scaled), quantized.storage_element)
    return clamped(builder, stored, quantized, storage_limits(quantized, expressed))


def clamped(builder: Any, stored: Value, quantized: QuantizedType, limits: tuple[int, int]) -> Value:
    """Integers within the storage range, where that is narrower than their type's."""
    element = stored.tensor_type.element_type
    assert isinstance(element, IntegerType)
    if limits == (element.minimum, element.maximum):
        return stored
    low, high = (builder.constant(limit, tensor((), element)) for limit in limits)
    found: Value = builder.clamp(low, stored, high)
    return found


# rules


def numbers_of(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> list[Value]:
    """The operands as numbers: quantized ones dequantized, others as they are."""
    found = []
    for parts, operand in zip(operands, instruction.operands):
        numbers = dequantized(builder, parts[0], operand.tensor_type) if is_quantized(operand.type) else operand
        found.append(numbers)
    return found


def dequantize_op_quantize(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """The op on the numbers, whose results are quantized; on stored integers, if it only orders those of one type."""
    types = (*instruction.operand_types, *instruction.result_types)
    if not all(isinstance(type, TensorType) and type.is_static for type in types):
        return None
    elements = {type.element_type for type in types if isinstance(type, TensorType) and is_quantized(type)}
    if len(elements) == 1 and Trait.ORDERS in instruction.op.traits:
        return ordered(builder, instruction, operands)
    made = builder.create(
        instruction.op.name,
        numbers_of(builder, instruction, operands),
        attributes=instruction.attributes,
        result_types=[expressed_type(type) for type in instruction.result_types],
    )
    return [
        (quantized_numbers(builder, value, result.tensor_type) if is_quantized(result.type) else value,)
        for value, result in zip(made.results, instruction.results)
    ]


def ordered(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """The op on stored integers: these are in the order of the numbers."""
    attributes = {name: value for name, value in instruction.attributes.items() if name != "compare_type"}
    made = builder.create(
        instruction.op.name,
        [parts[0] for parts in operands],
        attributes=attributes,
        result_types=[stored_type(type) for type in instruction.result_types],
    )
    return [(value,) for value in made.results]


def on_stored(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """The op on stored integers: it moves elements, or asks for their shape."""
    made = builder.create(
        instruction.op.name,
        [parts[0] for parts in operands],
        attributes=instruction.attributes,
        result_types=[stored_type(type) for type in instruction.result_types],
    )
    return [(value,) for value in made.results]


def all_finite(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """What quantized numbers stand for is finite."""
    type = instruction.results[0].tensor_type
    finite: Value = builder.constant(True, tensor(type.shape, "i1"))
    return [(finite,)]


def quantized_indices(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """Quantized indices."""
    type = instruction.results[0].tensor_type
    made = builder.create(
        instruction.op.name, [], attributes=instruction.attributes, result_types=[expressed_type(type)]
    )
    return [(quantized_numbers(builder, made.result, type),)]


def same_bits(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """Stored integers as another type's bits, which may be stored integers again."""
    (part,) = operands[0]
    type = stored_type(instruction.results[0].type)
    return [(part if part.type is type else builder.bitcast_convert(part, type),)]


def uniformly_quantized(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """Floats, or numbers of another quantized type, as stored integers."""
    type = instruction.results[0].tensor_type
    if not type.is_static:
        return None
    (numbers,) = numbers_of(builder, instruction, operands)
    return [(quantized_numbers(builder, numbers, type),)]


def uniformly_dequantized(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """Stored integers as floats."""
    if not instruction.operands[0].tensor_type.is_static:
        return None
    return [(numbers_of(builder, instruction, operands)[0],)]

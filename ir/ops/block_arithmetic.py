"""Arithmetic on numbers in blocks by arithmetic on their parts: decode, compute in f32, encode.

    add(%a, %b) : tensor<4x64xmxfp8>    %x = multiply(convert(%a.elements), spread(convert(%a.scales))) : tensor<4x64xf32>
                                        %y = ...       %z = add(%x, %y)
                                        %largest = reduce(reshape(abs(%z)), maximum) : tensor<4x2xf32>  ...

Rules for ``OpDefinition.parts``.  ``hlojit.ir.block_arrays`` says the same in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.attributes import TypeAttr
from hlojit.ir.block_arrays import SMALLEST_TENSOR_SCALE
from hlojit.ir.block_formats import BlockFormat, Scaling, largest_exponent, largest_number, scale_exponents
from hlojit.ir.formats import element_type
from hlojit.ir.ops.parts import Parts
from hlojit.ir.types import TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

BLOCK_SCALE = "hlojit.block_scale"
"""The op that calls a format's own function."""
_MANTISSA_BITS = 23
_BIAS = 127
_HALF_LEAST = 1 << 22
"""The bits of 2**-127 in f32, which is half of its least normal number."""


def block_format(type: Any) -> BlockFormat | None:
    """The element type of a tensor in blocks, otherwise None."""
    element = type.element_type if isinstance(type, TensorType) else None
    return element if isinstance(element, BlockFormat) else None


def format_of(type: TensorType) -> BlockFormat:
    """The element type of a tensor that is known to be in blocks."""
    found = block_format(type)
    assert found is not None
    return found


def part_types(type: TensorType) -> list[TensorType]:
    """The types of the parts of a tensor in blocks."""
    format = format_of(type)
    return [tensor(shape, row) for shape, row in zip(format.part_shapes(type.shape), format.part_formats)]


def number_type(type: Type) -> Type:
    """The type of the numbers of a tensor in blocks, f32; any other type itself."""
    return tensor(type.shape, "f32") if isinstance(type, TensorType) and block_format(type) is not None else type


# decoding


def decoded(builder: Any, parts: Sequence[Value], type: TensorType) -> Value:
    """The numbers that parts stand for, in f32."""
    format = format_of(type)
    elements, scales = (builder.convert(part, "f32") for part in parts[:2])
    numbers = builder.multiply(elements, spread(builder, scales, type))
    if len(parts) > 2:
        numbers = builder.multiply(numbers, builder.broadcast_in_dim(parts[2], numbers.tensor_type, ()))
    assert format.block
    found: Value = numbers
    return found


def spread(builder: Any, scales: Value, type: TensorType) -> Value:
    """The scale of every element."""
    format, shape = format_of(type), type.shape
    axis = format.dimension(type.rank)
    blocks = scales.tensor_type.shape[axis]
    split = (*shape[:axis], blocks, format.block, *shape[axis + 1 :])
    kept = [dimension for dimension in range(len(split)) if dimension != axis + 1]
    joined = (*shape[:axis], blocks * format.block, *shape[axis + 1 :])
    found = builder.reshape(builder.broadcast_in_dim(scales, split, kept), joined)
    if joined != shape:
        found = builder.slice(found, (0,) * type.rank, shape, (1,) * type.rank)
    result: Value = found
    return result


# encoding


def encoded(builder: Any, numbers: Value, type: TensorType) -> Parts:
    """The parts of the nearest numbers of a tensor type in blocks."""
    format = format_of(type)
    largest = _largest(builder, numbers, type)
    top = largest_number(format.elements)
    overall = _tensor_scale(builder, largest, format) if format.tensor_scale is not None else None
    if format.scaling is Scaling.EXPONENT:
        scales = _power_of_two(builder, largest, format)
    elif callable(format.scaling):
        scales = _chosen(builder, largest, type)
    else:
        scales = _nearest(builder, largest, overall, format)
    shape = largest.tensor_type
    total = scales if overall is None else builder.multiply(scales, builder.broadcast_in_dim(overall, shape, ()))
    finite = _finite(builder, largest)
    sound = builder.and_(finite, builder.compare(total, builder.constant(0.0, shape), "GT"))
    divisor = builder.select(sound, total, builder.constant(1.0, shape))
    scaled = builder.divide(numbers, spread(builder, divisor, type))
    limits = (builder.constant(limit, tensor((), "f32")) for limit in (-top, top))
    clamped = builder.clamp(next(limits), scaled, next(limits))
    zero = builder.constant(0.0, numbers.tensor_type)
    elements = builder.select(spread(builder, sound, type), clamped, zero)
    scales = builder.select(finite, scales, builder.constant(float("nan"), shape))
    parts = (builder.convert(elements, format.elements), builder.convert(scales, format.scales))
    return parts if overall is None else (*parts, overall)


def _finite(builder: Any, magnitudes: Value) -> Value:
    infinity = builder.constant(float("inf"), magnitudes.tensor_type)
    found: Value = builder.compare(magnitudes, infinity, "LT")
    return found


def _largest(builder: Any, numbers: Value, type: TensorType) -> Value:
    """The largest magnitude of every block; NaN of one that holds a NaN."""
    format, shape = format_of(type), type.shape
    axis = format.dimension(type.rank)
    blocks = format.part_shapes(shape)[1][axis]
    zero = builder.constant(0.0, tensor((), "f32"))
    magnitudes = builder.abs(numbers)
    if missing := blocks * format.block - shape[axis]:
        high = [missing if dimension == axis else 0 for dimension in range(type.rank)]
        none = (0,) * type.rank
        magnitudes = builder.pad(magnitudes, zero, none, tuple(high), none)
    split = (*shape[:axis], blocks, format.block, *shape[axis + 1 :])
    combiner = builder.combiner("maximum", "f32")
    found: Value = builder.reduce([builder.reshape(magnitudes, split)], [zero], combiner, dimensions=(axis + 1,))
    return found


def _power_of_two(builder: Any, largest: Value, format: BlockFormat) -> Value:
    """2 to the exponent of the largest number, less that of the largest element."""
    integers = tensor(largest.tensor_type.shape, "i32")
    shift = builder.constant(_MANTISSA_BITS, integers)
    field = builder.shift_right_logical(builder.bitcast_convert(largest, integers), shift)
    low, high = (builder.constant(limit + _BIAS, tensor((), "i32")) for limit in scale_exponents(format))
    field = builder.subtract(field, builder.constant(largest_exponent(format.elements), integers))
    field = builder.clamp(low, field, high)
    bits = builder.shift_left(field, shift)
    least = builder.compare(field, builder.constant(0, integers), "EQ")
    bits = builder.select(least, builder.constant(_HALF_LEAST, integers), bits)
    found: Value = builder.bitcast_convert(bits, largest.tensor_type)
    return found


def _chosen(builder: Any, largest: Value, type: TensorType) -> Value:
    """What a format's own function says."""
    format, blocks = format_of(type), largest.tensor_type
    given = builder.create(BLOCK_SCALE, [largest], attributes={"format": TypeAttr(type)}, result_types=[blocks]).result
    least = builder.constant(2.0 ** scale_exponents(format)[0], blocks)
    bounded = builder.minimum(given, builder.constant(largest_number(format.scales), blocks))
    bounded = builder.select(builder.compare(given, least, "GT"), bounded, least)
    found: Value = builder.convert(builder.convert(bounded, format.scales), "f32")
    return found


def _nearest(builder: Any, largest: Value, overall: Value | None, format: BlockFormat) -> Value:
    """The largest number divided by the largest element, rounded to the format of scales."""
    type = largest.tensor_type
    wanted = builder.divide(largest, builder.constant(largest_number(format.elements), type))
    if overall is not None:
        wanted = builder.divide(wanted, builder.broadcast_in_dim(overall, type, ()))
    clipped = builder.minimum(wanted, builder.constant(largest_number(format.scales), type))
    found: Value = builder.convert(builder.convert(clipped, format.scales), "f32")
    return found


def _tensor_scale(builder: Any, largest: Value, format: BlockFormat) -> Value:
    """What brings the largest finite number of the tensor to the largest one that element times scale can be."""
    type, scalar = largest.tensor_type, tensor((), "f32")
    zero, one = (builder.constant(number, scalar) for number in (0.0, 1.0))
    finite = builder.select(_finite(builder, largest), largest, builder.constant(0.0, type))
    whole = builder.reduce([finite], [zero], builder.combiner("maximum", "f32"), dimensions=tuple(range(type.rank)))
    span = builder.constant(largest_number(format.elements) * largest_number(format.scales), scalar)
    smallest = builder.constant(SMALLEST_TENSOR_SCALE, scalar)
    scale = builder.maximum(builder.divide(whole, span), smallest)
    found: Value = builder.select(builder.compare(whole, zero, "EQ"), one, scale)
    return found


# rules


def decode_op_encode(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """The op on the numbers, its results encoded.  One whose regions would have to change is left alone."""
    types = (*instruction.operand_types, *instruction.result_types)
    if not all(isinstance(type, TensorType) and type.is_static for type in types):
        return None
    numbers = [
        operand if block_format(operand.type) is None else decoded(builder, parts, operand.tensor_type)
        for parts, operand in zip(operands, instruction.operands)
    ]
    regions, instruction.regions = instruction.regions, []
    made = builder.create(
        instruction.op.name,
        numbers,
        attributes=instruction.attributes,
        regions=regions,
        result_types=[number_type(type) for type in instruction.result_types],
    )
    return [
        (value,) if block_format(result.type) is None else encoded(builder, value, result.tensor_type)
        for value, result in zip(made.results, instruction.results)
    ]


def converted(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """``convert``: to the same type nothing, otherwise by way of f32."""
    (operand,), (result,) = instruction.operands, instruction.results
    if not operand.tensor_type.is_static or not result.tensor_type.is_static:
        return None
    if operand.type is result.type:
        return [operands[0]]
    numbers = operand
    if block_format(operand.type) is not None:
        numbers = decoded(builder, operands[0], operand.tensor_type)
    if block_format(result.type) is None:
        element = result.tensor_type.element_type
        return [(numbers if element == element_type("f32") else builder.convert(numbers, element),)]
    if numbers.tensor_type.element_type != element_type("f32"):
        numbers = builder.convert(numbers, "f32")
    return [encoded(builder, numbers, result.tensor_type)]

"""Products of quantized numbers: exact sums of products of integers, which are scaled once.

    (l - zl) * sl  times  (r - zr) * sr     is     S * (sl * sr),    S the sum of (l - zl) * (r - zr), an integer

    result = round_even(S * (sl * sr / so) + zo), clamped

The quotient of the scales is rounded once, to f32 (to f64, where that is the expressed type), in which S is scaled.  Where it
is 1, S is the result but for the zero point, in integers.  Integers of 8 bits stay such: what their zero points add is taken
off again, by sums of rows and columns.  Integers of more than 16 bits have no exact sums of products; they are multiplied as
numbers, and so is a float by a quantized number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import FloatFormat, IntegerType, QuantizedType, element_type
from hlojit.ir.ops.definition import Array
from hlojit.ir.ops.parts import Parts
from hlojit.ir.ops.quantized_arithmetic import (
    all_zero,
    clamped,
    differences,
    nearest_stored,
    numbers_of,
    parameters,
    quantized_numbers,
)
from hlojit.ir.ops.quantized_arrays import (
    dequantize,
    quantize,
    quantized_element_of,
    spread_parameters,
    stored_nearest,
)
from hlojit.ir.ops.quantized_rules import quantized_element
from hlojit.ir.ops.views import DotView
from hlojit.ir.scalar.arrays import round_array
from hlojit.ir.types import TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

_WIDEST = 16
"""Integers of more bits are multiplied as floats."""


@dataclass(frozen=True, slots=True)
class QuantizedProduct:
    """What is common to products of two quantized tensors.

    ``dimension`` is that of the result which the quantization dimension of rhs becomes; None, if rhs is quantized per tensor.
    """

    lhs: QuantizedType
    rhs: QuantizedType
    result: TensorType
    dimension: int | None

    @property
    def is_exact(self) -> bool:
        """Whether the sums are computed in integers."""
        return max(self.lhs.storage_element.bits, self.rhs.storage_element.bits) <= _WIDEST

    @property
    def scaled_in(self) -> FloatFormat:
        """The float format in which sums are scaled."""
        row = element_type("f64" if self.lhs.expressed_type == "f64" else "f32")
        assert isinstance(row, FloatFormat)
        return row

    def factors(self) -> Array:
        """What sums are multiplied by, in a shape that broadcasts over the result's."""
        rank = self.result.rank
        target = quantized_element_of(self.result)
        expressed = target.expressed_element
        left, right, own = (
            round_array(np.array(each.scales, np.float64), expressed).astype(np.float64)
            for each in (self.lhs, self.rhs, target)
        )
        scales = left * _along(right, self.dimension, rank) / _along(own, target.axis, rank)
        return np.asarray(round_array(scales, self.scaled_in))


def _along(values: Array, dimension: int | None, rank: int) -> Array:
    """Values along one dimension, in a shape of ``rank`` dimensions; a single value in one without dimensions."""
    if dimension is None:
        return values.reshape(())
    return values.reshape([-1 if each == dimension else 1 for each in range(rank)])


def product_of(instruction: Instruction, dimension_of: Callable[[int], int]) -> QuantizedProduct | None:
    """The product of two quantized tensors that an instruction is; None, if one of them is not quantized.

    ``dimension_of`` says which dimension of the result the quantization dimension of rhs becomes.
    """
    lhs, rhs = (quantized_element(type) for type in instruction.operand_types[:2])
    if lhs is None or rhs is None:
        return None
    dimension = None if rhs.axis is None else dimension_of(rhs.axis)
    return QuantizedProduct(lhs, rhs, instruction.results[0].tensor_type, dimension)


def dot_dimension(instruction: Instruction) -> Callable[[int], int]:
    """Which dimension of a dot_general's result a dimension of rhs becomes."""
    numbers = DotView.of(instruction).numbers
    rank = instruction.operands[1].tensor_type.rank
    free = [d for d in range(rank) if d not in numbers.rhs_batching and d not in numbers.rhs_contracting]
    first = instruction.results[0].tensor_type.rank - len(free)

    def dimension(axis: int) -> int:
        batching = list(numbers.rhs_batching)
        return batching.index(axis) if axis in batching else first + free.index(axis)

    return dimension


# on arrays


def evaluated(
    instruction: Instruction,
    lhs: Array,
    rhs: Array,
    product: QuantizedProduct | None,
    multiply: Callable[[Array, Array], Array],
) -> Array:
    """The reference semantics of a product with quantized operands; ``multiply`` is that of arrays of numbers."""
    types = [operand.tensor_type for operand in instruction.operands[:2]]
    if product is None:
        return np.asarray(multiply(lhs, dequantize(rhs, types[1])))
    if not product.is_exact:
        numbers = multiply(dequantize(lhs, types[0]), dequantize(rhs, types[1]))
        return quantize(round_array(numbers, product.lhs.expressed_element), product.result)
    left, right = (_differences(values, type) for values, type in zip((lhs, rhs), types))
    if product.rhs.storage_element.bits <= 8 or right.size < 1 << 20:
        # Exact in f64, whose products are faster.
        left, right = left.astype(np.float64), right.astype(np.float64)
    return _scaled(multiply(left, right).astype(np.int64), product)


def _differences(values: Array, type: TensorType) -> Array:
    zeros = spread_parameters(np.array(quantized_element_of(type).zero_points, np.int64), type, values.shape)
    return np.asarray(values.astype(np.int64) - zeros)


def _scaled(sums: Array, product: QuantizedProduct) -> Array:
    element = quantized_element_of(product.result)
    zeros = spread_parameters(np.array(element.zero_points, np.int64), product.result, sums.shape)
    factors = product.factors()
    if (factors == 1).all():
        return np.asarray(np.clip(sums + zeros, element.minimum, element.maximum).astype(element.storage))
    row = product.scaled_in
    return stored_nearest(sums.astype(row.storage) * factors, zeros.astype(row.storage), element, row)


# as operations


def greatest_difference(element: QuantizedType) -> int:
    """The greatest absolute value of a stored integer minus its zero point."""
    return max(max(zero - element.minimum, element.maximum - zero) for zero in element.zero_points)


def signed_bytes(builder: Any, stored: Value, type: TensorType) -> tuple[Value, list[int]]:
    """Integers of at most 8 bits as ``i8``, and what is left to subtract of them.

    Those of fewer bits have their zero points taken off; unsigned ones become signed by turning the first bit.
    """
    element = quantized_element_of(type)
    byte = element_type("i8")
    row = element.storage_element
    if row.bits < 8:
        return differences(builder, stored, type, byte), [0] * len(element.zero_points)
    if row.signed:
        return stored, list(element.zero_points)
    turned = builder.xor(stored, builder.constant(128, tensor(type.shape, row)))
    return builder.bitcast_convert(turned, tensor(type.shape, byte)), [zero - 128 for zero in element.zero_points]


def result_of_sums(builder: Any, sums: Value, product: QuantizedProduct) -> Value:
    """Stored integers of the result from exact sums of products."""
    element, shape = quantized_element_of(product.result), product.result.shape
    factors = product.factors()
    if (factors == 1).all():
        return _unscaled(builder, sums, product)
    row = product.scaled_in
    scaled = builder.multiply(builder.convert(sums, row), _spread(builder, factors, tensor(shape, row)))
    assert element.expressed_type == product.lhs.expressed_type
    return nearest_stored(builder, scaled, product.result)


def _unscaled(builder: Any, sums: Value, product: QuantizedProduct) -> Value:
    element = quantized_element_of(product.result)
    if not all_zero(element.zero_points):
        wide = element_type("i64")
        sums = builder.add(builder.convert(sums, wide), parameters(builder, element.zero_points, product.result, wide))
    row = sums.tensor_type.element_type
    assert isinstance(row, IntegerType)
    limits = max(element.minimum, row.minimum), min(element.maximum, row.maximum)
    stored: Value = builder.convert(clamped(builder, sums, element, limits), element.storage_element)
    return stored


def _spread(builder: Any, values: Array, type: TensorType) -> Value:
    """Values in a shape that broadcasts over ``type``'s, as a tensor of that type."""
    kept = [dimension for dimension, extent in enumerate(values.shape) if extent != 1]
    if not kept:
        found: Value = builder.constant(values.reshape(-1)[0] if values.size else 0, type)
        return found
    line = builder.constant(values.squeeze().reshape([values.shape[d] for d in kept]), type.element_type)
    spread: Value = builder.broadcast_in_dim(line, type, tuple(kept))
    return spread


def dot_parts(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """A dot_general with quantized operands."""
    product = product_of(instruction, dot_dimension(instruction))
    numbers = DotView.of(instruction).numbers
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    if not (lhs.is_static and rhs.is_static and instruction.results[0].tensor_type.is_static):
        return None
    if product is None or not product.is_exact:
        return as_numbers(builder, instruction, operands, product)
    depth = math.prod(lhs.shape[dimension] for dimension in numbers.lhs_contracting)
    left, right = (parts[0] for parts in operands)
    narrow = product.lhs.storage_element.bits <= 8
    if narrow and depth * greatest_difference(product.lhs) * greatest_difference(product.rhs) < 1 << 31:
        sums = _corrected_dot(builder, instruction, left, right, depth)
    else:
        wide = element_type("i64")
        left, right = differences(builder, left, lhs, wide), differences(builder, right, rhs, wide)
        sums = _dot(builder, instruction, left, right, "i64")
    return [(result_of_sums(builder, sums, product),)]


def _dot(builder: Any, instruction: Instruction, lhs: Value, rhs: Value, element: str) -> Value:
    type = tensor(instruction.results[0].tensor_type.shape, element)
    found: Value = builder.dot_general(lhs, rhs, DotView.of(instruction).numbers, type=type)
    return found


def _corrected_dot(builder: Any, instruction: Instruction, left: Value, right: Value, depth: int) -> Value:
    """Sums of (l - zl) * (r - zr) in ``i32``: of l * r, less zl times the sums of r - zr, less zr times the sums of l."""
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    (bytes_left, (zero,)), (bytes_right, zeros) = signed_bytes(builder, left, lhs), signed_bytes(builder, right, rhs)
    sums = _dot(builder, instruction, bytes_left, bytes_right, "i32")
    if zero:
        sums = builder.subtract(sums, _columns(builder, instruction, bytes_right, zeros, zero, depth))
    if any(zeros):
        sums = builder.subtract(sums, _rows(builder, instruction, bytes_left, zeros))
    return sums


def _columns(
    builder: Any, instruction: Instruction, right: Value, zeros: Sequence[int], factor: int, depth: int
) -> Value:
    """``factor`` times the sums of rhs less zero points over its contracted dimensions, in the result's shape."""
    contracting = DotView.of(instruction).numbers.rhs_contracting
    rank, axis = right.tensor_type.rank, quantized_element_of(instruction.operands[1].tensor_type).axis
    kept = [dimension for dimension in range(rank) if dimension not in contracting]
    sums = summed_along(builder, right, contracting)
    if any(zeros):
        sides = _along(
            np.array(zeros, np.int32) * np.int32(depth), None if axis is None else kept.index(axis), len(kept)
        )
        sums = builder.subtract(sums, _spread(builder, sides, sums.tensor_type))
    sums = builder.multiply(sums, builder.constant(factor, sums.tensor_type))
    shape = instruction.results[0].tensor_type.shape
    found: Value = builder.broadcast_in_dim(sums, shape, list(map(dot_dimension(instruction), kept)))
    return found


def _rows(builder: Any, instruction: Instruction, left: Value, zeros: Sequence[int]) -> Value:
    """The sums of lhs over its contracted dimensions times the zero points of rhs, in the result's shape."""
    numbers, axis = DotView.of(instruction).numbers, quantized_element_of(instruction.operands[1].tensor_type).axis
    kept = [dimension for dimension in range(left.tensor_type.rank) if dimension not in numbers.lhs_contracting]
    free = [dimension for dimension in kept if dimension not in numbers.lhs_batching]
    places = {dimension: place for place, dimension in enumerate((*numbers.lhs_batching, *free))}
    type = tensor(instruction.results[0].tensor_type.shape, "i32")
    sums = builder.broadcast_in_dim(
        summed_along(builder, left, numbers.lhs_contracting), type, [places[d] for d in kept]
    )
    dimension = None if axis is None else dot_dimension(instruction)(axis)
    sides = _along(np.array(zeros, np.int32), dimension, type.rank)
    found: Value = builder.multiply(sums, _spread(builder, sides, type))
    return found


def summed_along(builder: Any, values: Value, dimensions: Sequence[int]) -> Value:
    """Sums along dimensions, in ``i32``."""
    wide = builder.convert(values, "i32")
    zero = builder.constant(0, tensor((), "i32"))
    found: Value = builder.reduce([wide], [zero], builder.combiner("add", "i32"), dimensions=tuple(dimensions))
    return found


def as_numbers(
    builder: Any, instruction: Instruction, operands: Sequence[Parts], product: QuantizedProduct | None
) -> Sequence[Parts]:
    """The op on floats: on dequantized weights, or on both sides dequantized."""
    type = instruction.results[0].tensor_type
    expressed = type if product is None else tensor(type.shape, product.lhs.expressed_element)
    made = builder.create(
        instruction.op.name,
        numbers_of(builder, instruction, operands),
        attributes=instruction.attributes,
        result_types=[expressed],
    )
    return [(made.result if product is None else quantized_numbers(builder, made.result, type),)]

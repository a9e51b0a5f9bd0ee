"""Products of tensors in blocks: a few rows times a matrix that is decoded while it is read.

    dot_general(%x, %w) : (tensor<1x4096xf32>, tensor<4096x4096xmxfp8>) -> tensor<1x4096xf32>
        => reduce(multiply(decode(%w), broadcast(%x)), add)    # reads a quarter of f32's bytes, once

A product of many rows reads its operands more than once: they are decoded into memory before it.  Numeric effect:
*permitted*, as all orders of a product's sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.ops.block_arithmetic import block_format, decode_op_encode, decoded, encoded
from hlojit.ir.ops.parts import Parts
from hlojit.ir.types import TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

_FEW_ROWS: Final = 4
"""Rows for which the sums of all are computed in one pass over the matrix."""


def block_product(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """A ``dot_general`` with an operand in blocks."""
    side = _matrix_side(instruction)
    if side is None:
        return decode_op_encode(builder, instruction, operands)
    numbers = [
        operand if block_format(operand.type) is None else decoded(builder, parts, operand.tensor_type)
        for parts, operand in zip(operands, instruction.operands)
    ]
    result = instruction.results[0].tensor_type
    made = builder.reshape(_sums(builder, instruction, numbers, side), tensor(result.shape, "f32"))
    return [(made,) if block_format(result) is None else encoded(builder, made, result)]


def _contracted(instruction: Any) -> tuple[int, int] | None:
    """The contracted dimension of each operand, if there is one each and none is a batch's."""
    numbers = instruction.attributes["dot_dimension_numbers"]
    assert isinstance(numbers, DotDimensionNumbers)
    if numbers.lhs_batching or len(numbers.lhs_contracting) != 1 or instruction.attributes.get("algorithm") is not None:
        return None
    return numbers.lhs_contracting[0], numbers.rhs_contracting[0]


def _matrix_side(instruction: Instruction) -> int | None:
    """Which operand is a matrix in blocks beside few rows of f32 or in blocks; None of other products."""
    contracted, types = _contracted(instruction), instruction.operand_types
    floats = (*types, *instruction.result_types)
    if contracted is None or not all(isinstance(type, TensorType) and type.is_static for type in floats):
        return None
    if any(block_format(type) is None and type.element_type.name != "f32" for type in floats):  # type: ignore[attr-defined]
        return None
    for side in (1, 0):
        few, matrix = instruction.operands[1 - side].tensor_type, instruction.operands[side].tensor_type
        depth = matrix.shape[contracted[side]]
        rows = few.size // max(depth, 1)
        # Sums along a row of memory; those down its columns are no faster than decoding first.
        fits = block_format(matrix) is not None and matrix.rank == 2 and contracted[side] == 1
        if fits and 0 < rows <= _FEW_ROWS and matrix.size > rows * depth:
            return side
    return None


def _sums(builder: Any, instruction: Instruction, numbers: Sequence[Value], side: int) -> Value:
    """The sums: a reduction of the matrix for each row, all of them one kernel's."""
    contracted = _contracted(instruction)
    assert contracted is not None
    matrix, few = numbers[side], numbers[1 - side]
    axis, depth_axis = contracted[side], contracted[1 - side]
    rank, depth = few.tensor_type.rank, few.tensor_type.shape[depth_axis]
    order = [dimension for dimension in range(rank) if dimension != depth_axis] + [depth_axis]
    rows = builder.transpose(few, tuple(order)) if order != list(range(rank)) else few
    count = few.tensor_type.size // depth
    rows = builder.reshape(rows, (count, depth))
    zero, columns = builder.constant(0.0, tensor((), "f32")), matrix.tensor_type.shape[1 - axis]
    sums = []
    for number in range(count):
        row = builder.reshape(builder.slice(rows, (number, 0), (number + 1, depth), (1, 1)), (depth,))
        terms = builder.multiply(matrix, builder.broadcast_in_dim(row, matrix.tensor_type, (axis,)))
        total = builder.reduce([terms], [zero], builder.combiner("add", "f32"), dimensions=(axis,))
        sums.append(builder.reshape(total, (1, columns) if side == 1 else (columns, 1)))
    if count == 1:
        found: Value = sums[0]
        return found
    joined: Value = builder.concatenate(sums, dimension=0 if side == 1 else 1)
    return joined

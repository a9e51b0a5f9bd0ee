"""Compute products of a few rows and a matrix in blocks as sums of what is decoded while the matrix is read.

    dot_general(%x, %w) : (tensor<1x4096xf32>, tensor<4096x4096xmxfp8>) -> tensor<1x4096xf32>
        => reduce(multiply(convert(%w), broadcast(%x)), add)    # reads a quarter of f32's bytes, once

A product of many rows reads its operands more than once: they are decoded into memory before it.  Numeric effect:
*permitted*, as all orders of a product's sums.  A back end has it done by ``FusionLimits.decoded_rows``: on one that computes
instruction by instruction nothing would be gained, and its sums would be other ones than the reference's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.ops.block_arithmetic import block_format
from hlojit.ir.ops.products import DOT_GENERAL
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.types import TensorType, tensor


@dataclass(frozen=True)
class BlockDotStrengthReduction(Pass):
    """Products of few rows and a matrix in blocks as reductions."""

    name: ClassVar[str] = "block-dot-strength-reduction"
    phase: ClassVar[str] = "legalize"
    after: ClassVar[tuple[str, ...]] = ("call-inliner", "op-expander")
    before: ClassVar[tuple[str, ...]] = ("type-legalizer",)
    rows: int = 4
    """The most for which the sums of all are computed in one pass over the matrix."""

    def run(self, module: Module) -> bool:
        """Replace; return whether there were such products."""
        changed = False
        for instruction in tuple(module.walk()):
            if instruction.op == DOT_GENERAL and (side := _matrix_side(instruction, self.rows)) is not None:
                _replace(instruction, side)
                changed = True
        return changed


def _contracted(product: Instruction) -> tuple[int, int] | None:
    """The contracted dimension of each operand, if there is one each and none is a batch's."""
    numbers = product.attributes["dot_dimension_numbers"]
    assert isinstance(numbers, DotDimensionNumbers)
    if numbers.lhs_batching or len(numbers.lhs_contracting) != 1 or product.attributes.get("algorithm") is not None:
        return None
    return numbers.lhs_contracting[0], numbers.rhs_contracting[0]


def _matrix_side(product: Instruction, most: int) -> int | None:
    """Which operand is a matrix in blocks beside few rows of f32 or in blocks; None of other products."""
    contracted = _contracted(product)
    if contracted is None or not all(map(_is_number, (*product.operand_types, *product.result_types))):
        return None
    for side in (1, 0):
        few, matrix = product.operands[1 - side].tensor_type, product.operands[side].tensor_type
        depth = matrix.shape[contracted[side]]
        rows = few.size // max(depth, 1)
        # Sums along a row of memory; those down its columns are no faster than decoding first.
        fits = block_format(matrix) is not None and matrix.rank == 2 and contracted[side] == 1
        if fits and 0 < rows <= most and matrix.size > rows * depth:
            return side
    return None


def _is_number(type: object) -> bool:
    """Whether a type is f32, or in blocks of it, and its sizes are known."""
    if not isinstance(type, TensorType) or not type.is_static:
        return False
    return block_format(type) is not None or type.element_type.name == "f32"


def _replace(product: Instruction, side: int) -> None:
    builder, result = Builder.in_front_of(product), product.result.tensor_type
    numbers = [
        value if block_format(value.type) is None else builder.convert(value, "f32") for value in product.operands
    ]
    made = builder.reshape(_sums(builder, product, numbers, side), tensor(result.shape, "f32"))
    if (format := block_format(result)) is not None:
        made = builder.convert(made, format)
    product.result.replace_all_uses_with(made)
    product.erase()


def _sums(builder: Builder, product: Instruction, numbers: Sequence[Value], side: int) -> Value:
    """The sums: a reduction of the matrix for each row, all of them one kernel's."""
    contracted = _contracted(product)
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

"""What is known of the result types of dynamic ops: rules for ``OpDefinition.refine``.

    %1 = stablehlo.constant dense<[3, 4]> : tensor<2xi64>
    %2 = stablehlo.dynamic_reshape %0, %1 : (tensor<12xf32>, tensor<2xi64>) -> tensor<?x?xf32>      has type tensor<3x4xf32>

A rule looks at types of operands and at operands that are constants, and gives what follows from them; a list that has not
the length that it must have says nothing, and is left to the constraints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlojit.ir.ops.definition import RefinementRule
from hlojit.ir.ops.elementwise import ADD
from hlojit.ir.ops.rules import constant_operand, operand_tensor
from hlojit.ir.types import DYNAMIC, TensorType, Type

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

ShapeRule = Callable[["Instruction"], "Sequence[int] | None"]


def shaped(rule: ShapeRule) -> RefinementRule:
    """The refinement of an op whose only result has the shape that ``rule`` finds."""

    def refine(instruction: Instruction) -> Sequence[Type] | None:
        found = instruction.result_types[0]
        shape = rule(instruction) if isinstance(found, TensorType) else None
        if shape is None or not isinstance(found, TensorType) or len(shape) != found.rank:
            return None
        return (found.refined(shape),)

    return refine


def numbers(instruction: Instruction, position: int) -> tuple[int, ...] | None:
    """The elements of a list that is a constant."""
    found = constant_operand(instruction, position)
    return None if found is None or found.ndim != 1 else tuple(map(int, found))


def given_by(position: int) -> RefinementRule:
    """The result has the shape that is given by an operand."""
    return shaped(lambda instruction: numbers(instruction, position))


def as_operand(instruction: Instruction) -> Sequence[int] | None:
    """The first operand's shape."""
    found = instruction.operand_types[0]
    return found.shape if isinstance(found, TensorType) else None


keeps_shape = shaped(as_operand)
"""The result has the first operand's shape."""


def _reshaped(instruction: Instruction) -> Sequence[int] | None:
    operand, result = operand_tensor(instruction, 0), instruction.results[0].tensor_type
    if not operand.is_static or result.shape.count(DYNAMIC) != 1:
        return None
    known = math.prod(extent for extent in result.shape if extent != DYNAMIC)
    if not known or operand.size % known:
        return None
    return tuple(operand.size // known if extent == DYNAMIC else extent for extent in result.shape)


def dynamic_reshape(instruction: Instruction) -> Sequence[Type] | None:
    """The shape that is given, or the one that as many elements leave."""
    return given_by(1)(instruction) or reshape(instruction)


reshape = shaped(_reshaped)
"""One dimension follows from the number of elements."""


def _broadcast(instruction: Instruction) -> Sequence[int] | None:
    operand, result = operand_tensor(instruction, 0), instruction.results[0].tensor_type
    targets = tuple(instruction.attributes.get("broadcast_dimensions") or ())
    given = numbers(instruction, 1)
    if given is not None and len(given) == result.rank:
        return given
    shape = list(result.shape)
    kept = instruction.attributes.get("known_nonexpanding_dimensions") or ()
    for dimension, (extent, target) in enumerate(zip(operand.shape, targets)):
        if 0 <= target < result.rank and (extent > 1 or (extent == 1 and dimension in kept)):
            shape[target] = extent
    return shape


dynamic_broadcast_in_dim = shaped(_broadcast)
"""The shape that is given, or what the operand's dimensions say of it."""


def _lists(instruction: Instruction, positions: Sequence[int]) -> list[tuple[int, ...]] | None:
    rank = operand_tensor(instruction, 0).rank
    found = [numbers(instruction, position) for position in positions]
    known = [each for each in found if each is not None and len(each) == rank]
    return known if len(known) == len(positions) else None


def _padded(instruction: Instruction) -> Sequence[int] | None:
    amounts = _lists(instruction, (2, 3, 4))
    if amounts is None:
        return None
    return [
        DYNAMIC if extent == DYNAMIC else max(0, extent + low + max(extent - 1, 0) * interior + high)
        for extent, low, high, interior in zip(operand_tensor(instruction, 0).shape, *amounts)
    ]


dynamic_pad = shaped(_padded)
"""What padding by constants makes of the operand's shape."""


def _sliced(instruction: Instruction) -> Sequence[int] | None:
    bounds = _lists(instruction, (1, 2, 3))
    if bounds is not None:
        return [
            max(0, -(-(limit - start) // stride)) if stride > 0 else DYNAMIC for start, limit, stride in zip(*bounds)
        ]
    strides, extents = _lists(instruction, (3,)), _distance(instruction)
    if strides is None or extents is None:
        return None
    return [max(0, -(-extent // stride)) if stride > 0 else DYNAMIC for extent, stride in zip(extents, strides[0])]


def _distance(instruction: Instruction) -> Sequence[int] | None:
    """The constant that limits are starts plus."""
    start, limit = instruction.operands[1:3]
    addition = limit.producer
    if addition is None or addition.op != ADD:
        return None
    for position in (0, 1):
        if addition.operands[1 - position] is start:
            return numbers(addition, position)
    return None


real_dynamic_slice = shaped(_sliced)
"""The number of elements between bounds that are constants, or whose distance is one."""


def shape_positions(instruction: Instruction) -> tuple[int, ...] | None:
    """The numbers of these operands; None where the attribute is not there, or names operands that are not."""
    found = instruction.discardable.get("indices_of_shape_operands")
    array = getattr(found, "array", None)
    if array is None:
        return None
    positions = tuple(int(number) for number in array.reshape(-1))
    return positions if all(0 <= position < len(instruction.operands) for position in positions) else None


def custom_call(instruction: Instruction) -> Sequence[Type] | None:
    """Results have the shapes that operands give, where the call says which."""
    positions = shape_positions(instruction)
    if positions is None or len(positions) != len(instruction.results):
        return None
    types: list[Type] = []
    for position, type in zip(positions, instruction.result_types):
        shape = numbers(instruction, position)
        known = isinstance(type, TensorType) and shape is not None and len(shape) == type.rank
        types.append(type.refined(shape) if known and isinstance(type, TensorType) and shape is not None else type)
    return types

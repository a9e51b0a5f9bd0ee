"""Ops that only move elements: broadcast_in_dim, transpose, reshape, reverse.

Their lowering says from which index of which operand an element of the result comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import QuantizedType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops import dynamic_types, padding_rules, shape_rules
from hlojit.ir.ops.attribute_kinds import I64_ARRAY
from hlojit.ir.ops.batching import movement as batching
from hlojit.ir.ops.block_movement import BLOCK_BROADCAST, BLOCK_RESHAPE, BLOCK_REVERSE, BLOCK_TRANSPOSE
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Indexed,
    InferenceRequest,
    OpDefinition,
    Operand,
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import movement as derivatives
from hlojit.ir.ops.pointwise import ANY, ANY_PER_AXIS, inferred_shape, takes
from hlojit.ir.ops.quantized_rules import broadcast_axis, moved_elements, reshaped_axis
from hlojit.ir.ops.ranges import same_range
from hlojit.ir.ops.rules import (
    OpCall,
    bounded,
    checked,
    compatible_extents,
    has_size,
    in_range,
    inferred,
    most,
    operand_tensor,
    show,
    sized_result,
    unique,
)
from hlojit.ir.ops.views import BroadcastView, DimensionsView, TransposeView
from hlojit.ir.quantized import with_axis
from hlojit.ir.scalar.builder import Scalar
from hlojit.ir.scalar.elements import ElementEmitter, IndexExpression
from hlojit.ir.types import DYNAMIC, TensorType, Type


def _result_tensor(instruction: Any) -> TensorType | None:
    """The result's type; None if it is no tensor (``moved_elements`` says so)."""
    type = instruction.result_types[0]
    return type if isinstance(type, TensorType) else None


# broadcast_in_dim


def _targets(call: OpCall) -> tuple[int, ...]:
    return BroadcastView.of(call).dimensions


def _broadcast_range(instruction: Any) -> str | None:
    result = _result_tensor(instruction)
    return (
        None
        if result is None
        else in_range("broadcast_dimensions", _targets(instruction), result.rank, "rank of the result")
    )


def _broadcast_extents(instruction: Any) -> str | None:
    operand, result = operand_tensor(instruction, 0), _result_tensor(instruction)
    if result is None:
        return None
    for dimension, (extent, target) in enumerate(zip(operand.shape, _targets(instruction))):
        if not 0 <= target < result.rank or extent == 1 or compatible_extents(extent, result.shape[target]):
            continue
        return (
            f"dimension {dimension} of the operand has size {extent}, "
            f"dimension {target} of the result {result.shape[target]}"
        )
    return None


def _broadcast(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    shape = instruction.operands[0].tensor_type.shape
    source = [0 if extent == 1 else index[target] for extent, target in zip(shape, _targets(instruction))]
    return emitter.operand(0, source)


def _broadcast_array(call: Any, x: Array) -> Array:
    shape = list(call.instruction.result.tensor_type.shape)
    axes = [1] * len(shape)
    for extent, target in zip(x.shape, _targets(call)):
        axes[target] = extent
        if shape[target] == DYNAMIC:
            shape[target] = extent
    order = np.argsort(_targets(call), kind="stable")
    return np.broadcast_to(np.transpose(x, order).reshape(axes), shape)


BROADCAST_IN_DIM = define(
    OpDefinition(
        "stablehlo.broadcast_in_dim",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("broadcast_dimensions", I64_ARRAY),),
        constraints=(
            takes("I1", 0, "operand", ANY_PER_AXIS),
            moved_elements("C1", parameters_may_differ=True),
            Constraint(
                "C2", lambda call: has_size("broadcast_dimensions", _targets(call), operand_tensor(call, 0).rank)
            ),
            Constraint("C3", _broadcast_range),
            Constraint("C4", lambda call: unique("broadcast_dimensions", _targets(call))),
            Constraint("C5", _broadcast_extents),
            broadcast_axis("C6", _targets),
            Constraint("O1", sized_result),
        ),
        reference=_broadcast_array,
        syntax="broadcast_in_dim",
        traits=frozenset({Trait.PER_AXIS}),
        parts={BlockFormat: BLOCK_BROADCAST},
        lowering=Indexed(_broadcast, broadcasts=_targets, moves=True),
        value_range=same_range,
        symbolic=shape_rules.broadcast,
        padded=padding_rules.broadcast_in_dim,
        derivative=derivatives.BROADCAST_IN_DIM,
        batching=batching.broadcast_in_dim,
        summary="Elements repeated along new dimensions and those of size 1.",
    )
)

# transpose


def _permutation(call: OpCall) -> tuple[int, ...]:
    return TransposeView.of(call).permutation


def _is_permutation(call: OpCall) -> str | None:
    rank = operand_tensor(call, 0).rank
    if sorted(_permutation(call)) == list(range(rank)):
        return None
    return f"permutation {show(_permutation(call))} is not a permutation of range({rank})"


def _transposed_type(request: InferenceRequest) -> tuple[Type, ...]:
    operand, permutation = operand_tensor(request, 0), _permutation(request)
    element = operand.element_type
    if isinstance(element, QuantizedType) and element.axis in permutation:
        element = with_axis(element, permutation.index(element.axis))
    largest = most(operand)
    shape, bounds = ([extents[dimension] for dimension in permutation] for extents in (operand.shape, largest))
    return (bounded(shape, element, bounds),)


def _transposed_quantized(instruction: Any) -> str | None:
    operand, result = operand_tensor(instruction, 0), _result_tensor(instruction)
    source = getattr(operand.element_type, "axis", None)
    target = getattr(result.element_type, "axis", None) if result else None
    permutation = _permutation(instruction)
    if source is None or target is None or target >= len(permutation) or permutation[target] == source:
        return None
    return f"dimension {target} of the result, its quantization dimension, is {permutation[target]}, not {source}"


def _transpose(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    source = [0] * len(index)
    for position, dimension in enumerate(_permutation(instruction)):
        source[dimension] = index[position]
    return emitter.operand(0, source)


_TRANSPOSE_RULES = (takes("I1", 0, "operand", ANY_PER_AXIS), Constraint("C2", _is_permutation))

TRANSPOSE = define(
    OpDefinition(
        "stablehlo.transpose",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("permutation", I64_ARRAY),),
        infer=checked(_TRANSPOSE_RULES, _transposed_type),
        constraints=(
            *_TRANSPOSE_RULES,
            moved_elements("C1"),
            inferred_shape("C3"),
            Constraint("C4", _transposed_quantized),
        ),
        reference=lambda call, x: np.transpose(x, _permutation(call)),
        syntax="transpose",
        traits=frozenset({Trait.PER_AXIS}),
        parts={BlockFormat: BLOCK_TRANSPOSE},
        lowering=Indexed(_transpose, moves=True),
        value_range=same_range,
        symbolic=shape_rules.transpose,
        padded=padding_rules.transpose,
        derivative=derivatives.TRANSPOSE,
        batching=batching.transpose,
        summary="Dimensions in another order.",
    )
)

# reshape


def _same_size(instruction: Any) -> str | None:
    operand, result = operand_tensor(instruction, 0), _result_tensor(instruction)
    if result is None or not (operand.is_static and result.is_static) or operand.size == result.size:
        return None
    return f"operand has {operand.size} elements, result {result.size}: {operand} and {result}"


def reshaped_index(shape: Sequence[int], source: Sequence[int], index: Sequence[Any]) -> list[Any]:
    """The index into ``source`` of the element at ``index`` of ``shape``, both of one size.

    Dimensions are matched in groups of equal products, so that an index that only passes through is not divided.
    """
    found: list[Any] = []
    position = start = 0
    while start < len(source):
        end, product = start + 1, source[start]
        first, linear, total = position, 0, 1
        while total != product or (position == first and product != 1):
            if total < product and position < len(shape):
                linear = linear * shape[position] + index[position] if position > first else index[position]
                total *= shape[position]
                position += 1
            elif end < len(source):
                product *= source[end]
                end += 1
            else:
                break
        found.extend(_split(linear, source[start:end]))
        start = end
    return found


def _split(linear: Any, extents: Sequence[int]) -> list[Any]:
    """A linear index as one per dimension."""
    parts: list[Any] = []
    for extent in reversed(extents[1:]):
        if extent == 1 or isinstance(linear, int):
            parts.append(0 if extent == 1 else linear % extent)
            linear = linear if extent == 1 else linear // extent
        else:
            parts.append(linear % extent)
            linear = linear // extent
    return [0 if extents[0] == 1 else linear, *reversed(parts)]


def _reshape(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    source = instruction.operands[0].tensor_type.shape
    return emitter.operand(0, reshaped_index(instruction.result.tensor_type.shape, source, index))


RESHAPE = define(
    OpDefinition(
        "stablehlo.reshape",
        operands=(Operand("operand"),),
        refine=dynamic_types.reshape,
        constraints=(
            takes("I1", 0, "operand", ANY_PER_AXIS),
            moved_elements("C1"),
            Constraint("C2", _same_size),
            reshaped_axis("C3"),
            Constraint("O1", sized_result),
        ),
        reference=lambda call, x: x.reshape(
            [-1 if extent == DYNAMIC else extent for extent in call.instruction.result.tensor_type.shape]
        ),
        syntax="pretty-function-type",
        traits=frozenset({Trait.BITCAST, Trait.PER_AXIS}),
        parts={BlockFormat: BLOCK_RESHAPE},
        lowering=Indexed(_reshape, moves=True),
        value_range=same_range,
        symbolic=shape_rules.reshape,
        padded=padding_rules.reshape,
        derivative=derivatives.RESHAPE,
        batching=batching.reshape,
        summary="The same elements in the same order, in another shape.",
    )
)

# reverse


def _dimensions(call: OpCall) -> tuple[int, ...]:
    return DimensionsView.of(call).dimensions


def _reverse(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    shape = instruction.result.tensor_type.shape
    source = [
        position * -1 + (extent - 1) if dimension in _dimensions(instruction) else position
        for dimension, (position, extent) in enumerate(zip(index, shape))
    ]
    return emitter.operand(0, source)


_REVERSE_RULES = (
    takes("I1", 0, "operand", ANY),
    Constraint("C2", lambda call: unique("dimensions", _dimensions(call))),
    Constraint("C3", lambda call: in_range("dimensions", _dimensions(call), operand_tensor(call, 0).rank)),
)

REVERSE = define(
    OpDefinition(
        "stablehlo.reverse",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("dimensions", I64_ARRAY),),
        infer=checked(_REVERSE_RULES, lambda request: request.operand_types),
        constraints=(*_REVERSE_RULES, inferred("C1")),
        reference=lambda call, x: np.flip(x, DimensionsView.of(call).dimensions),
        syntax="reverse",
        parts={BlockFormat: BLOCK_REVERSE},
        lowering=Indexed(_reverse, moves=True),
        value_range=same_range,
        symbolic=shape_rules.reverse,
        padded=padding_rules.reverse,
        derivative=derivatives.REVERSE,
        batching=batching.reverse,
        summary="Elements in the opposite order along some dimensions.",
    )
)

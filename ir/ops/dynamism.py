"""Ops whose result shape is known only at run time.

Where the operands that give the shape are constants, or the result type is static all the same, each expands into its
static counterpart; the reference evaluates all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.ops import dynamic_types, padding_rules, shape_rules
from hlojit.ir.ops.attribute_kinds import I64, I64_ARRAY
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.pointwise import INTEGER, takes
from hlojit.ir.ops.quantized_rules import broadcast_axis, moved_elements, reshaped_axis
from hlojit.ir.ops.rules import (
    OpCall,
    compatible_extents,
    compatible_shapes,
    constant_operand,
    has_shape,
    has_size,
    in_range,
    not_negative,
    operand_tensor,
    operand_tensors,
    same_elements,
    show,
    unique,
)
from hlojit.ir.ops.windows import pad_array
from hlojit.ir.types import DYNAMIC, TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


def result_type(instruction: Instruction) -> TensorType:
    """The type of the only result."""
    return instruction.results[0].tensor_type


def _shape_operand(label: str, position: int, name: str) -> Constraint:
    """A shape operand has one element for each dimension of the result."""

    def check(instruction: Instruction) -> str | None:
        type, rank = operand_tensor(instruction, position), result_type(instruction).rank
        if type.rank != 1 or type.shape[0] != rank:
            return f"{name} has type {type}, expected {rank} elements, the rank of the result"
        shape = constant_operand(instruction, position)
        if shape is not None and (shape < 0).any():
            return f"{name} {show(shape.tolist())} has a negative size"
        if shape is None or compatible_shapes(result_type(instruction).shape, shape.tolist()):
            return None
        return f"{name} {show(shape.tolist())} does not fit the result type {result_type(instruction)}"

    return Constraint(label, check)


def known_shape(instruction: Instruction, position: int) -> tuple[int, ...] | None:
    """The result's shape: from its type, or from a constant operand."""
    found = result_type(instruction)
    if found.is_static:
        return found.shape
    constant = constant_operand(instruction, position)
    return tuple(map(int, constant)) if constant is not None else None


def constants(instruction: Instruction, positions: Sequence[int]) -> list[tuple[int, ...]] | None:
    found = [constant_operand(instruction, position) for position in positions]
    known = [tuple(map(int, array)) for array in found if array is not None]
    return known if len(known) == len(found) else None


def scalar_of(builder: Any, values: Value, number: int) -> Value:
    """Element ``number`` of a list, as a scalar."""
    part = builder.slice(values, start_indices=(number,), limit_indices=(number + 1,), strides=(1,))
    scalar: Value = builder.reshape(part, ())
    return scalar


# dynamic_broadcast_in_dim


def _dimensions(call: OpCall, name: str = "broadcast_dimensions") -> tuple[int, ...]:
    return tuple(call.attributes.get(name) or ())


def _expands(instruction: Instruction) -> str | None:
    operand, shape = operand_tensor(instruction, 0), known_shape(instruction, 1) or result_type(instruction).shape
    for d, target in enumerate(_dimensions(instruction)):
        if operand.shape[d] not in (1, DYNAMIC) and not compatible_extents(operand.shape[d], shape[target]):
            return f"dimension {d} of {operand} must be 1 or fit dimension {target} of shape {show(shape)}"
    return None


def _known(call: OpCall) -> tuple[int, ...]:
    return _dimensions(call, "known_expanding_dimensions") + _dimensions(call, "known_nonexpanding_dimensions")


def _known_range(label: str, name: str) -> Constraint:
    return Constraint(label, lambda c: in_range(name, _dimensions(c, name), operand_tensor(c, 0).rank))


def _expand_broadcast(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    shape = known_shape(instruction, 1)
    if shape is None or not operand_tensor(instruction, 0).is_static:
        return None
    type = result_type(instruction).with_shape(shape)
    return [builder.broadcast_in_dim(instruction.operands[0], type, _dimensions(instruction))]


def broadcast_array(operand: Array, shape: Sequence[int], dimensions: Sequence[int]) -> Array:
    """``operand`` in ``shape``, its dimension i as dimension ``dimensions[i]``."""
    order = np.argsort(dimensions)
    spread = [1] * len(shape)
    for d, target in enumerate(dimensions):
        spread[target] = operand.shape[d]
    return np.broadcast_to(operand.transpose(order).reshape(spread), tuple(shape))


DYNAMIC_BROADCAST_IN_DIM = define(
    OpDefinition(
        "stablehlo.dynamic_broadcast_in_dim",
        operands=(Operand("operand"), Operand("output_dimensions", sizes=True)),
        refine=dynamic_types.dynamic_broadcast_in_dim,
        attributes=(
            AttributeSpec("broadcast_dimensions", I64_ARRAY),
            AttributeSpec("known_expanding_dimensions", I64_ARRAY, optional=True),
            AttributeSpec("known_nonexpanding_dimensions", I64_ARRAY, optional=True),
        ),
        constraints=(
            takes("I2", 1, "output_dimensions", (INTEGER,)),
            moved_elements("C1", parameters_may_differ=True),
            Constraint("C2", lambda c: has_size("broadcast_dimensions", _dimensions(c), operand_tensor(c, 0).rank)),
            Constraint("C3", lambda i: in_range("broadcast_dimensions", _dimensions(i), result_type(i).rank)),
            Constraint("C4", lambda c: unique("broadcast_dimensions", _dimensions(c))),
            Constraint("C5", _expands),
            broadcast_axis("C6", _dimensions),
            _shape_operand("C7", 1, "output_dimensions"),
            Constraint("C8", lambda c: unique("known expanding and nonexpanding dimensions", _known(c))),
            _known_range("C9", "known_expanding_dimensions"),
            _known_range("C10", "known_nonexpanding_dimensions"),
        ),
        reference=lambda call, operand, shape: broadcast_array(
            operand, tuple(map(int, shape)), _dimensions(call.instruction)
        ),
        syntax="dynamic_broadcast_in_dim",
        traits=frozenset({Trait.PER_AXIS}),
        lowering=Expand(_expand_broadcast),
        symbolic=shape_rules.broadcast,
        padded=padding_rules.broadcast_in_dim,
        summary="broadcast_in_dim to a shape given by an operand",
    )
)

# dynamic_reshape


def _same_size(instruction: Instruction) -> str | None:
    operand, shape = operand_tensor(instruction, 0), known_shape(instruction, 1)
    if shape is None or not operand.is_static or operand.size == math.prod(shape):
        return None
    return f"operand {operand} has {operand.size} elements but the result of shape {show(shape)} has {math.prod(shape)}"


def _expand_reshape(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    shape = known_shape(instruction, 1)
    if shape is None or not operand_tensor(instruction, 0).is_static:
        return None
    return [builder.reshape(instruction.operands[0], result_type(instruction).with_shape(shape))]


DYNAMIC_RESHAPE = define(
    OpDefinition(
        "stablehlo.dynamic_reshape",
        operands=(Operand("operand"), Operand("output_shape", sizes=True)),
        refine=dynamic_types.dynamic_reshape,
        constraints=(
            takes("I2", 1, "output_shape", (INTEGER,)),
            moved_elements("C1"),
            Constraint("C2", _same_size),
            reshaped_axis("C3"),
            _shape_operand("C4", 1, "output_shape"),
        ),
        reference=lambda call, operand, shape: operand.reshape(tuple(map(int, shape))),
        syntax="pretty-function-type",
        traits=frozenset({Trait.PER_AXIS}),
        lowering=Expand(_expand_reshape),
        symbolic=shape_rules.reshape,
        padded=padding_rules.reshape,
        summary="reshape to a shape given by an operand",
    )
)

# dynamic_iota


def _iota_range(call: OpCall) -> str | None:
    rank = operand_tensor(call, 0).shape[0]
    if rank == DYNAMIC:
        return None
    return in_range("iota_dimension", (call.attributes["iota_dimension"],), rank, "size of output_shape")


def _expand_iota(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    shape = known_shape(instruction, 0)
    if shape is None:
        return None
    type = tensor(shape, result_type(instruction).element_type)
    return [builder.iota(type, instruction.attributes["iota_dimension"])]


def _iota_reference(call: ReferenceCall, shape: Array) -> Array:
    extents = tuple(map(int, shape))
    index = np.indices(extents, sparse=True)[call.attributes["iota_dimension"]]
    return np.broadcast_to(index, extents)


DYNAMIC_IOTA = define(
    OpDefinition(
        "stablehlo.dynamic_iota",
        operands=(Operand("output_shape", sizes=True),),
        refine=dynamic_types.given_by(0),
        attributes=(AttributeSpec("iota_dimension", I64),),
        constraints=(
            takes("I1", 0, "output_shape", (INTEGER,)),
            Constraint("C1", _iota_range),
            _shape_operand("C2", 0, "output_shape"),
        ),
        reference=_iota_reference,
        syntax="dynamic_iota",
        lowering=Expand(_expand_iota),
        symbolic=shape_rules.iota,
        padded=padding_rules.dynamic_iota,
        summary="iota of a shape given by an operand",
    )
)

# dynamic_pad


def one_entry_a_dimension(label: str, start: int, names: str) -> Constraint:
    """Operands from number ``start`` on are lists with an entry for every dimension of the first."""

    def check(call: OpCall) -> str | None:
        rank = operand_tensor(call, 0).rank
        for type in operand_tensors(call, start):
            if type.rank != 1 or not compatible_extents(type.shape[0], rank):
                return f"{names} must have {rank} elements, found {type}"
        return None

    return Constraint(label, check)


def _pad_elements(instruction: Instruction) -> str | None:
    types = [operand_tensor(instruction, 0), operand_tensor(instruction, 1), result_type(instruction)]
    return same_elements("operand, padding_value and result", types)


def _interior(instruction: Instruction) -> str | None:
    constant = constant_operand(instruction, 4)
    return not_negative("interior_padding", tuple(map(int, constant))) if constant is not None else None


def _padded_shape(instruction: Instruction) -> str | None:
    amounts = constants(instruction, (2, 3, 4))
    operand = operand_tensor(instruction, 0)
    if amounts is None or not operand.is_static:
        return None
    expected = [
        extent + low + max(extent - 1, 0) * interior + high
        for extent, low, high, interior in zip(operand.shape, *amounts)
    ]
    if min(expected, default=0) < 0:
        return f"padding leaves the result the shape {show(expected)}, less than nothing"
    return has_shape("result", result_type(instruction), expected)


def _expand_pad(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    amounts = constants(instruction, (2, 3, 4))
    if not operand_tensor(instruction, 0).is_static:
        return None
    if amounts is None:
        return _pad_at_run_time(builder, instruction)
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return list(builder.create("stablehlo.pad", instruction.operands[:2], attributes=dict(zip(names, amounts))).results)


def _pad_at_run_time(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """Of a result whose size is known: the part of it in a wide margin that begins where the low padding does."""
    interior, result = constants(instruction, (4,)), result_type(instruction)
    if interior is None or not result.is_static or any(gap < 0 for gap in interior[0]):
        return None
    operand, value, low = instruction.operands[:3]
    amounts = [scalar_of(builder, low, number) for number in range(result.rank)]
    return [padded_at_run_time(builder, operand, value, amounts, interior[0], result.shape)]


def padded_at_run_time(
    builder: Any, operand: Value, value: Value, low: Sequence[Value], interior: Sequence[int], shape: Sequence[int]
) -> Value:
    """``operand`` behind ``low`` elements of padding in each dimension, made as large as ``shape``.

    Between a result's size of padding on both sides there is a part for every amount of low padding, negative or not.
    """
    margin = tuple(shape)
    padded = builder.pad(
        operand, value, edge_padding_low=margin, edge_padding_high=margin, interior_padding=tuple(interior)
    )
    starts = [builder.subtract(builder.constant(size, amount.tensor_type), amount) for size, amount in zip(shape, low)]
    part: Value = builder.dynamic_slice(padded, *starts, slice_sizes=margin)
    return part


def _pad_reference(call: ReferenceCall, operand: Array, value: Array, *amounts: Array) -> Array:
    low, high, interior = amounts
    padding = [(int(a), int(b)) for a, b in zip(low, high)]
    return pad_array(operand, value, padding, [int(gap) + 1 for gap in interior])


DYNAMIC_PAD = define(
    OpDefinition(
        "stablehlo.dynamic_pad",
        operands=(
            Operand("operand"),
            Operand("padding_value"),
            Operand("edge_padding_low", sizes=True),
            Operand("edge_padding_high", sizes=True),
            Operand("interior_padding", sizes=True),
        ),
        refine=dynamic_types.dynamic_pad,
        constraints=(
            takes("I3", 2, "edge_padding_low", (INTEGER,)),
            takes("I4", 3, "edge_padding_high", (INTEGER,)),
            takes("I5", 4, "interior_padding", (INTEGER,)),
            Constraint("C1", _pad_elements),
            one_entry_a_dimension("C2", 2, "edge_padding_low, edge_padding_high and interior_padding"),
            Constraint("C3", _interior),
            Constraint("C4", _padded_shape),
        ),
        reference=_pad_reference,
        syntax="pretty-function-type",
        lowering=Expand(_expand_pad),
        symbolic=shape_rules.dynamic_pad,
        summary="pad by amounts given by operands",
    )
)

"""Ops whose result shape is known only at run time.

Where the operands that give the shape are constants, or the result type is static all the same, each expands into its
static counterpart; the reference evaluates all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import GatherDimensionNumbers
from hlojit.ir.ops.attribute_kinds import I64, I64_ARRAY, RecordKind
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    OpDefinition,
    Operand,
    ReferenceCall,
    define,
)
from hlojit.ir.ops.gather import GATHER_RULES, INDICES_ARE_SORTED, gather_array, gather_numbers, gather_shape
from hlojit.ir.ops.rules import (
    OpCall,
    compatible_extents,
    compatible_shapes,
    constant_operand,
    dimension_in_range,
    has_shape,
    has_size,
    in_range,
    not_negative,
    operand_tensor,
    operand_tensors,
    same_element,
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


def _same_element(label: str) -> Constraint:
    def check(instruction: Instruction) -> str | None:
        operand, result = operand_tensor(instruction, 0), result_type(instruction)
        if same_element(operand.element_type, result.element_type):
            return None
        return f"operand {operand} and result {result} have different element types"

    return Constraint(label, check)


def _shape_operand(label: str, position: int, name: str) -> Constraint:
    """A shape operand has one element for each dimension of the result."""

    def check(instruction: Instruction) -> str | None:
        type, rank = operand_tensor(instruction, position), result_type(instruction).rank
        if type.rank != 1 or not compatible_extents(type.shape[0], rank):
            return f"{name} has type {type}, expected {rank} elements, the rank of the result"
        shape = constant_operand(instruction, position)
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


def _constants(instruction: Instruction, positions: Sequence[int]) -> list[tuple[int, ...]] | None:
    found = [constant_operand(instruction, position) for position in positions]
    known = [tuple(map(int, array)) for array in found if array is not None]
    return known if len(known) == len(found) else None


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
    return [builder.broadcast_in_dim(instruction.operands[0], shape, _dimensions(instruction))]


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
        operands=(Operand("operand"), Operand("output_dimensions")),
        attributes=(
            AttributeSpec("broadcast_dimensions", I64_ARRAY),
            AttributeSpec("known_expanding_dimensions", I64_ARRAY, optional=True),
            AttributeSpec("known_nonexpanding_dimensions", I64_ARRAY, optional=True),
        ),
        constraints=(
            _same_element("C1"),
            Constraint("C2", lambda c: has_size("broadcast_dimensions", _dimensions(c), operand_tensor(c, 0).rank)),
            Constraint("C3", lambda i: in_range("broadcast_dimensions", _dimensions(i), result_type(i).rank)),
            Constraint("C4", lambda c: unique("broadcast_dimensions", _dimensions(c))),
            Constraint("C5", _expands),
            _shape_operand("C7", 1, "output_dimensions"),
            Constraint("C8", lambda c: unique("known expanding and nonexpanding dimensions", _known(c))),
            _known_range("C9", "known_expanding_dimensions"),
            _known_range("C10", "known_nonexpanding_dimensions"),
        ),
        reference=lambda call, operand, shape: broadcast_array(
            operand, tuple(map(int, shape)), _dimensions(call.instruction)
        ),
        syntax="dynamic_broadcast_in_dim",
        lowering=Expand(_expand_broadcast),
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
    return [builder.reshape(instruction.operands[0], shape)]


DYNAMIC_RESHAPE = define(
    OpDefinition(
        "stablehlo.dynamic_reshape",
        operands=(Operand("operand"), Operand("output_shape")),
        constraints=(
            _same_element("C1"),
            Constraint("C2", _same_size),
            _shape_operand("C4", 1, "output_shape"),
        ),
        reference=lambda call, operand, shape: operand.reshape(tuple(map(int, shape))),
        syntax="pretty-function-type",
        lowering=Expand(_expand_reshape),
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
        operands=(Operand("output_shape"),),
        attributes=(AttributeSpec("iota_dimension", I64),),
        constraints=(Constraint("C1", _iota_range), _shape_operand("C2", 0, "output_shape")),
        reference=_iota_reference,
        syntax="dynamic_iota",
        lowering=Expand(_expand_iota),
        summary="iota of a shape given by an operand",
    )
)

# dynamic_pad


def _one_entry_a_dimension(label: str, start: int, names: str) -> Constraint:
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
    amounts = _constants(instruction, (2, 3, 4))
    operand = operand_tensor(instruction, 0)
    if amounts is None or not operand.is_static:
        return None
    expected = [
        extent + low + max(extent - 1, 0) * interior + high
        for extent, low, high, interior in zip(operand.shape, *amounts)
    ]
    return has_shape("result", result_type(instruction), expected)


def _expand_pad(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    amounts = _constants(instruction, (2, 3, 4))
    if amounts is None or not operand_tensor(instruction, 0).is_static:
        return None
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return list(builder.create("stablehlo.pad", instruction.operands[:2], attributes=dict(zip(names, amounts))).results)


def _pad_reference(call: ReferenceCall, operand: Array, value: Array, *amounts: Array) -> Array:
    low, high, interior = amounts
    padding = [(int(a), int(b)) for a, b in zip(low, high)]
    return pad_array(operand, value, padding, [int(gap) + 1 for gap in interior])


DYNAMIC_PAD = define(
    OpDefinition(
        "stablehlo.dynamic_pad",
        operands=tuple(
            map(Operand, ("operand", "padding_value", "edge_padding_low", "edge_padding_high", "interior_padding"))
        ),
        constraints=(
            Constraint("C1", _pad_elements),
            _one_entry_a_dimension("C2", 2, "edge_padding_low, edge_padding_high and interior_padding"),
            Constraint("C3", _interior),
            Constraint("C4", _padded_shape),
        ),
        reference=_pad_reference,
        syntax="pretty-function-type",
        lowering=Expand(_expand_pad),
        summary="pad by amounts given by operands",
    )
)

# dynamic_gather: gather's constraints under labels of its own; the specification gives those of batching none

_GATHER_LABELS = {
    "C1": "C1",
    "C2": "C2",
    "C3": "C3",
    "C4": "C4",
    "C5": "C5",
    "C6": "C6",
    "C7": "C6",
    "C8": "C7",
    "C18": "C9",
    "C19": "C10",
    **dict.fromkeys(("C10", "C11", "C13", "C14", "C15", "C16", "C17"), ""),
}


def _static_gather(instruction: Instruction) -> Any:
    """The call with its slice sizes as an attribute, for checks that are written for gather."""
    sizes = constant_operand(instruction, 2)
    return None if sizes is None else tuple(map(int, sizes))


def _small_slices(instruction: Instruction) -> str | None:
    sizes, dims = _static_gather(instruction), gather_numbers(instruction)
    single = dims.collapsed_slice_dims + dims.operand_batching_dims
    if sizes is None or all(sizes[d] <= 1 for d in single):
        return None
    return f"slice_sizes {show(sizes)} must be at most 1 at collapsed_slice_dims and batching dims {show(single)}"


def _slice_count(call: OpCall) -> str | None:
    sizes, rank = operand_tensor(call, 2), operand_tensor(call, 0).rank
    if sizes.rank == 1 and compatible_extents(sizes.shape[0], rank):
        return None
    return f"slice_sizes has type {sizes}, expected {rank} elements, the rank of the operand"


def _slices_fit(instruction: Instruction) -> str | None:
    sizes, shape = _static_gather(instruction), operand_tensor(instruction, 0).shape
    if sizes is None or all(extent == DYNAMIC or 0 <= size <= extent for size, extent in zip(sizes, shape)):
        return None
    return f"slice_sizes {show(sizes)} must lie within the operand's shape {show(shape)}"


def _gathered_shape(instruction: Instruction) -> str | None:
    sizes = _static_gather(instruction) or (DYNAMIC,) * operand_tensor(instruction, 0).rank
    shape = gather_shape(gather_numbers(instruction), operand_tensor(instruction, 1).shape, sizes)
    return has_shape("result", result_type(instruction), shape)


def _expand_gather(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    sizes = _static_gather(instruction)
    if sizes is None:
        return None
    attributes = {**instruction.attributes, "slice_sizes": sizes}
    return list(builder.create("stablehlo.gather", instruction.operands[:2], attributes=attributes).results)


DYNAMIC_GATHER = define(
    OpDefinition(
        "stablehlo.dynamic_gather",
        operands=tuple(map(Operand, ("operand", "start_indices", "slice_sizes"))),
        attributes=(AttributeSpec("dimension_numbers", RecordKind(GatherDimensionNumbers)), INDICES_ARE_SORTED),
        constraints=(
            *(
                Constraint(_GATHER_LABELS[rule.label], rule.check)
                for rule in GATHER_RULES
                if rule.label in _GATHER_LABELS
            ),
            Constraint("C8", _small_slices),
            Constraint("C11", _slice_count),
            Constraint("C12", _slices_fit),
            Constraint("C13", _gathered_shape),
            _same_element("C14"),
        ),
        reference=lambda call, operand, indices, sizes: gather_array(
            operand, indices, gather_numbers(call.instruction), tuple(map(int, sizes))
        ),
        lowering=Expand(_expand_gather),
        summary="gather of slice sizes given by an operand",
    )
)

# real_dynamic_slice


def _expand_slice(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    bounds = _constants(instruction, (1, 2, 3))
    if bounds is None or not operand_tensor(instruction, 0).is_static:
        return None
    names = ("start_indices", "limit_indices", "strides")
    return list(
        builder.create("stablehlo.slice", instruction.operands[:1], attributes=dict(zip(names, bounds))).results
    )


REAL_DYNAMIC_SLICE = define(
    OpDefinition(
        "stablehlo.real_dynamic_slice",
        operands=tuple(map(Operand, ("operand", "start_indices", "limit_indices", "strides"))),
        constraints=(_same_element(""), _one_entry_a_dimension("", 1, "start_indices, limit_indices and strides")),
        reference=lambda call, operand, starts, limits, strides: operand[
            tuple(slice(int(a), int(b), int(c)) for a, b, c in zip(starts, limits, strides))
        ],
        syntax="pretty-function-type",
        lowering=Expand(_expand_slice),
        summary="slice with bounds given by operands",
    )
)

# set_dimension_size


def _set_size_range(call: OpCall) -> str | None:
    size = operand_tensor(call, 1)
    if size.rank:
        return f"size must be a scalar, found {size}"
    return dimension_in_range(call)


def _set_size_reference(call: ReferenceCall, operand: Array, size: Array) -> Array:
    return np.take(operand, range(int(size)), axis=call.attributes["dimension"])


def _same_rank(instruction: Instruction) -> str | None:
    operand, result = operand_tensor(instruction, 0), result_type(instruction)
    return None if operand.rank == result.rank else f"result has type {result}, expected the rank of {operand}"


def _expand_set_size(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    size, dimension = constant_operand(instruction, 1), instruction.attributes["dimension"]
    full = operand_tensor(instruction, 0)
    # Only the full size has a static counterpart of the same type.
    return [instruction.operands[0]] if size is not None and int(size) == full.shape[dimension] else None


SET_DIMENSION_SIZE = define(
    OpDefinition(
        "stablehlo.set_dimension_size",
        operands=(Operand("operand"), Operand("size")),
        attributes=(AttributeSpec("dimension", I64),),
        constraints=(Constraint("", _set_size_range), Constraint("", _same_rank), _same_element("")),
        reference=_set_size_reference,
        syntax="set_dimension_size",
        lowering=Expand(_expand_set_size),
        summary="the operand with one dimension shortened at run time",
    )
)

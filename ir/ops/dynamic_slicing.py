"""Ops that take parts whose sizes are known only at run time: dynamic_gather, real_dynamic_slice, set_dimension_size.

Where the operands that give the sizes are constants, or the result type is static all the same, they expand into their static
counterparts; the reference evaluates all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import GatherDimensionNumbers
from hlojit.ir.errors import ExecutionError
from hlojit.ir.ops import dynamic_types, padding_rules, shape_rules
from hlojit.ir.ops.attribute_kinds import I64, RecordKind
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
from hlojit.ir.ops.dynamism import (
    constants,
    one_entry_a_dimension,
    result_type,
    scalar_of,
)
from hlojit.ir.ops.gather import GATHER_RULES, INDICES_ARE_SORTED, gather_array, gather_numbers, gather_shape
from hlojit.ir.ops.pointwise import INTEGER, takes
from hlojit.ir.ops.quantized_rules import moved_elements
from hlojit.ir.ops.rules import (
    OpCall,
    compatible_extents,
    constant_operand,
    dimension_in_range,
    has_shape,
    operand_tensor,
    show,
)
from hlojit.ir.types import DYNAMIC

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

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
    **{label: f"gather {label}" for label in ("C10", "C11", "C13", "C14", "C15", "C16", "C17")},
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


def _refined_gather(instruction: Instruction) -> Sequence[int] | None:
    sizes = _static_gather(instruction)
    if sizes is None or len(sizes) != operand_tensor(instruction, 0).rank:
        return None
    return gather_shape(gather_numbers(instruction), operand_tensor(instruction, 1).shape, sizes)


_refine_gather = dynamic_types.shaped(_refined_gather)


def _sizes_of_result(instruction: Instruction) -> tuple[int, ...] | None:
    """The slice sizes that a static result shows: those of dropped dimensions are 1, unless nothing is taken."""
    dims, result = gather_numbers(instruction), result_type(instruction)
    dropped = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    rank = operand_tensor(instruction, 0).rank
    if not result.is_static or len(dropped) + len(dims.offset_dims) != rank:
        return None
    kept = iter([result.shape[d] for d in dims.offset_dims])
    return tuple(1 if d in dropped else next(kept) for d in range(rank))


def _expand_gather(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    sizes = _static_gather(instruction) or _sizes_of_result(instruction)
    if sizes is None:
        return None
    attributes = {**instruction.attributes, "slice_sizes": sizes}
    return list(builder.create("stablehlo.gather", instruction.operands[:2], attributes=attributes).results)


DYNAMIC_GATHER = define(
    OpDefinition(
        "stablehlo.dynamic_gather",
        operands=(Operand("operand"), Operand("start_indices"), Operand("slice_sizes", sizes=True)),
        refine=_refine_gather,
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
            moved_elements("C14"),
        ),
        reference=lambda call, operand, indices, sizes: gather_array(
            operand, indices, gather_numbers(call.instruction), tuple(map(int, sizes))
        ),
        lowering=Expand(_expand_gather),
        symbolic=shape_rules.gather,
        summary="gather of slice sizes given by an operand",
    )
)

# real_dynamic_slice


def _known_bounds(instruction: Instruction) -> str | None:
    """Bounds that are constants lie within the operand, as those of a slice."""
    bounds, shape = constants(instruction, (1, 2, 3)), operand_tensor(instruction, 0).shape
    if bounds is None:
        return None
    for d, (extent, start, limit, stride) in enumerate(zip(shape, *bounds)):
        inside = 0 <= start <= limit and (extent == DYNAMIC or limit <= extent)
        if not inside:
            return f"0 <= start {start} <= limit {limit} <= size {extent} does not hold in dimension {d}"
        if stride < 1:
            return f"stride {stride} of dimension {d} must be positive"
    return None


def _expand_slice(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    bounds, operand = constants(instruction, (1, 2, 3)), operand_tensor(instruction, 0)
    if not operand.is_static:
        return None
    if bounds is not None:
        return [_slice(builder, instruction.operands[0], *bounds)]
    strides, result = constants(instruction, (3,)), result_type(instruction)
    if strides is None or not result.is_static or any(stride < 1 for stride in strides[0]):
        return None
    # The result shows how many elements lie between starts and limits, which are known only at run time.
    spans = [max(0, (extent - 1) * stride + 1) for extent, stride in zip(result.shape, strides[0])]
    if any(span > extent for span, extent in zip(spans, operand.shape)):
        return None
    starts = [scalar_of(builder, instruction.operands[1], number) for number in range(operand.rank)]
    part = builder.dynamic_slice(instruction.operands[0], *starts, slice_sizes=tuple(spans))
    return [_slice(builder, part, (0,) * operand.rank, spans, strides[0])]


def _slice(builder: Any, operand: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]) -> Value:
    sliced: Value = builder.slice(
        operand, start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(strides)
    )
    return sliced


_BOUNDS = ("start_indices", "limit_indices", "strides")

REAL_DYNAMIC_SLICE = define(
    OpDefinition(
        "stablehlo.real_dynamic_slice",
        operands=(
            Operand("operand"),
            Operand("start_indices", sizes=True),
            Operand("limit_indices", sizes=True),
            Operand("strides", sizes=True),
        ),
        refine=dynamic_types.real_dynamic_slice,
        constraints=(
            *(takes("bounds", at, name, (INTEGER,)) for at, name in enumerate(_BOUNDS, 1)),
            moved_elements("element_type"),
            one_entry_a_dimension("bounds", 1, "start_indices, limit_indices and strides"),
            Constraint("known_bounds", _known_bounds),
        ),
        reference=lambda call, operand, starts, limits, strides: operand[
            tuple(slice(int(a), int(b), int(c)) for a, b, c in zip(starts, limits, strides))
        ],
        syntax="pretty-function-type",
        lowering=Expand(_expand_slice),
        symbolic=shape_rules.real_dynamic_slice,
        padded=padding_rules.real_dynamic_slice,
        summary="slice with bounds given by operands",
    )
)

# set_dimension_size


def _set_size_range(call: OpCall) -> str | None:
    size = operand_tensor(call, 1)
    if size.rank:
        return f"size must be a scalar, found {size}"
    if size.element_type.name != "i32":
        return f"size must be an integer of type i32, found {size}"
    return dimension_in_range(call)


def _set_size_reference(call: ReferenceCall, operand: Array, size: Array) -> Array:
    axis = call.attributes["dimension"]
    if not 0 <= int(size) <= operand.shape[axis]:
        raise ExecutionError(
            f"set_dimension_size at {call.instruction.location}: dimension {axis} of size {operand.shape[axis]} cannot have the "
            f"size {int(size)}"
        )
    return np.take(operand, range(int(size)), axis=axis)


def _same_rank(instruction: Instruction) -> str | None:
    operand, result = operand_tensor(instruction, 0), result_type(instruction)
    return None if operand.rank == result.rank else f"result has type {result}, expected the rank of {operand}"


def _expand_set_size(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    size, dimension = constant_operand(instruction, 1), instruction.attributes["dimension"]
    full = operand_tensor(instruction, 0)
    if size is None or not full.is_static or not 0 <= int(size) <= full.shape[dimension]:
        return None
    limits = [int(size) if d == dimension else extent for d, extent in enumerate(full.shape)]
    return [_slice(builder, instruction.operands[0], (0,) * full.rank, limits, (1,) * full.rank)]


def _set_shape(instruction: Instruction) -> Sequence[int] | None:
    size, dimension = constant_operand(instruction, 1), instruction.attributes["dimension"]
    shape = list(operand_tensor(instruction, 0).shape)
    shape[dimension] = DYNAMIC if size is None or size.size != 1 else int(size.reshape(()))
    return shape


SET_DIMENSION_SIZE = define(
    OpDefinition(
        "stablehlo.set_dimension_size",
        operands=(Operand("operand"), Operand("size")),
        refine=dynamic_types.shaped(_set_shape),
        attributes=(AttributeSpec("dimension", I64),),
        constraints=(
            Constraint("size", _set_size_range),
            Constraint("rank", _same_rank),
            moved_elements("element_type"),
        ),
        reference=_set_size_reference,
        syntax="set_dimension_size",
        lowering=Expand(_expand_set_size),
        padded=padding_rules.set_dimension_size,
        summary="the operand with one dimension shortened at run time",
    )
)

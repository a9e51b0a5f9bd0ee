"""Ops that write at indices computed at run time: scatter and dynamic_update_slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import ScatterDimensionNumbers
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import ElementType, QuantizedType
from hlojit.ir.ops import shape_rules
from hlojit.ir.ops.attribute_kinds import BOOL, RecordKind
from hlojit.ir.ops.batching import reductions as batching
from hlojit.ir.ops.batching.movement import dynamic_update_slice as update_batching
from hlojit.ir.ops.block_movement import BLOCK_UPDATE
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    InferenceRequest,
    Kernel,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import indexing as derivatives
from hlojit.ir.ops.derivatives.movement import DYNAMIC_UPDATE_SLICE as UPDATE_DERIVATIVE
from hlojit.ir.ops.gather import (
    INDICES_ARE_SORTED,
    batch_extents,
    index_map_size,
    index_position,
    index_vector_dim_complaint,
    is_index,
    signed_indices,
)
from hlojit.ir.ops.ordered_loops import expand_scatter
from hlojit.ir.ops.parts import SEPARATELY, each_part
from hlojit.ir.ops.quantized_reductions import reduced_parts, reduces_quantized
from hlojit.ir.ops.rules import (
    OpCall,
    ascending,
    checked,
    combined_elements,
    combiner_is,
    compatible_extents,
    has_size,
    in_range,
    inferred,
    operand_tensor,
    operand_tensors,
    outside,
    same_elements,
    same_shapes,
    same_size,
    same_types,
    unique,
)
from hlojit.ir.ops.views import ScatterView
from hlojit.ir.ops.windows import scatter_in_rounds
from hlojit.ir.types import DYNAMIC, TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction


def scatter_numbers(call: OpCall) -> ScatterDimensionNumbers:
    """The dimension numbers of a scatter."""
    return ScatterView.of(call).numbers


def scatter_operands(call: OpCall) -> tuple[list[TensorType], TensorType, list[TensorType]]:
    """Types of the inputs, the indices and the updates."""
    types = operand_tensors(call)
    count = len(types) // 2
    return types[:count], types[count], types[count + 1 :]


def _as_many_updates(call: OpCall) -> str | None:
    count = len(call.operand_types)
    if count >= 3 and count % 2:
        return None
    return f"takes as many inputs as updates, and indices between them; found {count} operands"


def _first(call: OpCall) -> TensorType:
    return scatter_operands(call)[0][0]


def _indices(call: OpCall) -> TensorType:
    return scatter_operands(call)[1]


def _update(call: OpCall) -> TensorType:
    return scatter_operands(call)[2][0]


def _scatter_rank(call: OpCall) -> str | None:
    dims, rank = scatter_numbers(call), _first(call).rank
    total = len(dims.update_window_dims) + len(dims.inserted_window_dims) + len(dims.input_batching_dims)
    if total == rank:
        return None
    names = "update_window_dims, inserted_window_dims and input_batching_dims"
    return f"{names} are {total} together, expected the rank {rank}"


def _update_shape(call: OpCall) -> str | None:
    dims, update, indices = scatter_numbers(call), _update(call), _indices(call)
    window_bounds = _window_bounds(call)
    batch = iter([extent for d, extent in enumerate(indices.shape) if d != dims.index_vector_dim])
    rank = indices.rank - (dims.index_vector_dim < indices.rank) + len(dims.update_window_dims)
    if update.rank != rank:
        return f"updates have type {update}, expected rank {rank}"
    bounds = iter(window_bounds)
    for d, extent in enumerate(update.shape):
        if d in dims.update_window_dims:
            bound = next(bounds, DYNAMIC)
            if DYNAMIC not in (extent, bound) and extent > bound:
                return f"dimension {d} of updates {update} is larger than the {bound} of the input"
        elif not compatible_extents(extent, expected := next(batch, DYNAMIC)):
            return f"dimension {d} of updates {update} must be {expected}, as in the indices {indices}"
    return None


def _window_bounds(call: OpCall) -> list[int]:
    dims = scatter_numbers(call)
    dropped = {*dims.inserted_window_dims, *dims.input_batching_dims}
    return [extent for d, extent in enumerate(_first(call).shape) if d not in dropped]


def _update_elements(call: OpCall) -> str | None:
    inputs, _, updates = scatter_operands(call)
    for value, update in zip(inputs, updates):
        complaint = same_elements("an input and its update", [value, update])
        if complaint:
            return complaint
    return None


def _update_computation(call: OpCall) -> str | None:
    elements = [type.element_type for type in scatter_operands(call)[0]]
    return combiner_is("update_computation", call.regions[0], elements)


def _indices_complaint(call: OpCall) -> str | None:
    type = _indices(call)
    return None if is_index(type.element_type) else f"scatter_indices must be integers, found {type}"


s = scatter_numbers

SCATTER_RULES = (
    Constraint("C5", _as_many_updates),
    Constraint("I2", _indices_complaint),
    Constraint("C1", lambda c: same_shapes("inputs", scatter_operands(c)[0])),
    Constraint("C2", _scatter_rank),
    Constraint("C3", lambda c: same_shapes("updates", scatter_operands(c)[2])),
    Constraint(
        "C22",
        lambda c: index_vector_dim_complaint(s(c).index_vector_dim, _indices(c)),
    ),
    Constraint(
        "C7",
        lambda c: (
            unique("update_window_dims", s(c).update_window_dims)
            or ascending("update_window_dims", s(c).update_window_dims)
        ),
    ),
    Constraint("C8", lambda c: in_range("update_window_dims", s(c).update_window_dims, _update(c).rank)),
    Constraint(
        "C9",
        lambda c: unique(
            "inserted_window_dims + input_batching_dims", s(c).inserted_window_dims + s(c).input_batching_dims
        ),
    ),
    Constraint("C10", lambda c: ascending("inserted_window_dims", s(c).inserted_window_dims)),
    Constraint("C11", lambda c: in_range("inserted_window_dims", s(c).inserted_window_dims, _first(c).rank)),
    Constraint("C12", lambda c: ascending("input_batching_dims", s(c).input_batching_dims)),
    Constraint("C13", lambda c: in_range("input_batching_dims", s(c).input_batching_dims, _first(c).rank)),
    Constraint("C14", lambda c: unique("scatter_indices_batching_dims", s(c).scatter_indices_batching_dims)),
    Constraint(
        "C15",
        lambda c: in_range("scatter_indices_batching_dims", s(c).scatter_indices_batching_dims, _indices(c).rank),
    ),
    Constraint(
        "C16",
        lambda c: outside(
            "index_vector_dim",
            s(c).index_vector_dim,
            "scatter_indices_batching_dims",
            s(c).scatter_indices_batching_dims,
        ),
    ),
    Constraint(
        "C17",
        lambda c: same_size(
            "input_batching_dims",
            s(c).input_batching_dims,
            "scatter_indices_batching_dims",
            s(c).scatter_indices_batching_dims,
        ),
    ),
    Constraint(
        "C18",
        lambda c: batch_extents(_first(c), s(c).input_batching_dims, _indices(c), s(c).scatter_indices_batching_dims),
    ),
    Constraint(
        "C19",
        lambda c: index_map_size(
            "scatter_dims_to_operand_dims", s(c).scatter_dims_to_operand_dims, _indices(c), s(c).index_vector_dim
        ),
    ),
    Constraint(
        "C20",
        lambda c: unique(
            "scatter_dims_to_operand_dims + input_batching_dims",
            s(c).scatter_dims_to_operand_dims + s(c).input_batching_dims,
        ),
    ),
    Constraint(
        "C21", lambda c: in_range("scatter_dims_to_operand_dims", s(c).scatter_dims_to_operand_dims, _first(c).rank)
    ),
    Constraint("C4", _update_shape),
    Constraint("C6", _update_elements),
    Constraint("C23", _update_computation),
)


def _infer_scatter(request: InferenceRequest) -> Sequence[Type]:
    return [tensor(_first(request).shape, element) for element in combined_elements(request.regions[0])]


def _scatter_shapes(instruction: Instruction) -> str | None:
    results = [result.tensor_type for result in instruction.results]
    return same_shapes("inputs and results", [*scatter_operands(instruction)[0], *results])


def _scatter_reference(call: ReferenceCall, *operands: Array) -> tuple[Array, ...]:
    count = len(operands) // 2
    inputs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    dims = scatter_numbers(call.instruction)
    shape = inputs[0].shape
    grid = np.indices(updates[0].shape, sparse=True)
    scattered = [d for d in range(updates[0].ndim) if d not in dims.update_window_dims]
    batch = [grid[d] for d in scattered]
    order = (*scattered, *dims.update_window_dims)
    dropped = {*dims.inserted_window_dims, *dims.input_batching_dims}
    position: list[Any] = [np.zeros((), np.int64)] * len(shape)
    for number, d in enumerate(dims.scatter_dims_to_operand_dims):
        position[d] = signed_indices(indices[index_position(batch, dims.index_vector_dim, number, indices.ndim)])
    for d, of_indices in zip(dims.input_batching_dims, dims.scatter_indices_batching_dims):
        position[d] = batch[of_indices - (of_indices > dims.index_vector_dim)]
    for d, update_dimension in zip((d for d in range(len(shape)) if d not in dropped), dims.update_window_dims):
        # Saturated, so that an index near the end of int64 does not wrap into bounds.
        position[d] = np.minimum(position[d], np.iinfo(np.int64).max - updates[0].size) + grid[update_dimension]
    inside: Array = np.ones((), bool)
    flat: Array = np.zeros((), np.int64)
    for where, extent in zip(position, shape):
        inside = inside & (where >= 0) & (where < extent)
        flat = flat * extent + np.clip(where, 0, max(extent - 1, 0))

    def in_order(array: Array) -> Array:
        """Window after window."""
        return np.transpose(np.broadcast_to(array, updates[0].shape), order).ravel()

    inside = in_order(inside)
    flat = in_order(flat)[inside]
    taken = [in_order(update)[inside] for update in updates]
    results = scatter_in_rounds(call, 0, [value.ravel() for value in inputs], flat, taken)
    return tuple(result.reshape(shape) for result in results)


SCATTER = define(
    OpDefinition(
        "stablehlo.scatter",
        operands=(Operand("inputs", variadic=True), Operand("scatter_indices"), Operand("updates", variadic=True)),
        attributes=(
            AttributeSpec("scatter_dimension_numbers", RecordKind(ScatterDimensionNumbers)),
            INDICES_ARE_SORTED,
            AttributeSpec("unique_indices", BOOL, optional=True, default=False),
        ),
        regions=("update_computation",),
        infer=checked(SCATTER_RULES, _infer_scatter),
        constraints=(*SCATTER_RULES, Constraint("C24", _scatter_shapes), inferred("C25")),
        reference=reduces_quantized(_scatter_reference),
        syntax="generic",
        lowering=Kernel("scatter", expansion=expand_scatter),
        symbolic=shape_rules.scatter,
        parts={ElementType: SEPARATELY, QuantizedType: reduced_parts},
        derivative=derivatives.SCATTER,
        batching=batching.scatter,
        summary="combines updates into the inputs at indices given by a tensor; those out of bounds are skipped",
    )
)


# dynamic_update_slice


def _start_types(call: OpCall) -> list[TensorType]:
    return operand_tensors(call, 2)


def _starts_are_scalars(call: OpCall) -> str | None:
    for type in _start_types(call):
        if type.shape or not is_index(type.element_type):
            return f"start indices must be integer scalars, found {type}"
    return None


def _update_fits(call: OpCall) -> str | None:
    operand, update = operand_tensor(call, 0), operand_tensor(call, 1)
    if all(DYNAMIC in (a, b) or a <= b for a, b in zip(update.shape, operand.shape)):
        return None
    return f"update {update} is larger than operand {operand}"


DYNAMIC_UPDATE_SLICE_RULES = (
    Constraint("I3", _starts_are_scalars),
    Constraint("C2", lambda c: same_elements("operand and update", [operand_tensor(c, 0), operand_tensor(c, 1)])),
    Constraint(
        "C3",
        lambda c: (
            None
            if operand_tensor(c, 0).rank == operand_tensor(c, 1).rank
            else f"update {operand_tensor(c, 1)} and operand {operand_tensor(c, 0)} have different ranks"
        ),
    ),
    Constraint("C4", lambda c: has_size("start_indices", _start_types(c), operand_tensor(c, 0).rank)),
    Constraint("C5", lambda c: same_types("start_indices", _start_types(c))),
    Constraint("C6", _update_fits),
)


def clamp_starts(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Array]) -> list[int]:
    """Start indices moved so that a slice of ``sizes`` lies inside ``shape``."""
    return [min(max(int(start), 0), extent - size) for start, extent, size in zip(starts, shape, sizes)]


def _dynamic_update_slice_reference(call: ReferenceCall, operand: Array, update: Array, *starts: Array) -> Array:
    result = operand.copy()
    begin = clamp_starts(operand.shape, update.shape, starts)
    result[tuple(slice(b, b + size) for b, size in zip(begin, update.shape))] = update
    return result


DYNAMIC_UPDATE_SLICE = define(
    OpDefinition(
        "stablehlo.dynamic_update_slice",
        operands=(Operand("operand"), Operand("update"), Operand("start_indices", variadic=True)),
        infer=checked(DYNAMIC_UPDATE_SLICE_RULES, lambda request: (request.operand_types[0],)),
        constraints=(*DYNAMIC_UPDATE_SLICE_RULES, inferred("C1")),
        reference=_dynamic_update_slice_reference,
        syntax="pretty-function-type",
        traits=frozenset({Trait.ASYNCHRONOUS, Trait.BEGINS}),
        lowering=Kernel("dynamic_update_slice"),
        symbolic=shape_rules.dynamic_update_slice,
        parts={BlockFormat: BLOCK_UPDATE, ElementType: each_part},
        derivative=UPDATE_DERIVATIVE,
        batching=update_batching,
        summary="the operand with a slice overwritten",
    )
)

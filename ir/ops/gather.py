"""Gather: slices at indices computed at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import GatherDimensionNumbers
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import ElementType, IntegerType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops import shape_rules
from hlojit.ir.ops.attribute_kinds import BOOL, I64_ARRAY, RecordKind
from hlojit.ir.ops.batching import reductions as batching
from hlojit.ir.ops.block_movement import BLOCK_GATHER
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Indexed,
    InferenceRequest,
    OpDefinition,
    Operand,
    define,
)
from hlojit.ir.ops.derivatives import indexing as derivatives
from hlojit.ir.ops.rules import (
    OpCall,
    ascending,
    checked,
    compatible_extents,
    has_shape,
    has_size,
    in_range,
    operand_tensor,
    outside,
    same_elements,
    same_size,
    show,
    unique,
)
from hlojit.ir.ops.views import GatherView
from hlojit.ir.scalar.builder import Scalar
from hlojit.ir.scalar.elements import ElementEmitter, IndexExpression
from hlojit.ir.scalar.formats import compute_kind
from hlojit.ir.types import DYNAMIC, TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

INDICES_ARE_SORTED = AttributeSpec("indices_are_sorted", BOOL, optional=True, default=False)


def _indices_are_integers(call: OpCall) -> str | None:
    type = operand_tensor(call, 1)
    return None if is_index(type.element_type) else f"start_indices must be integers, found {type}"


def is_index(element: ElementType) -> bool:
    """Whether an element type can be an index."""
    return isinstance(element, IntegerType)


# gather


def gather_numbers(call: OpCall) -> GatherDimensionNumbers:
    """The dimension numbers of a gather."""
    return GatherView.of(call).numbers


def _slice_sizes(call: OpCall) -> tuple[int, ...]:
    return GatherView.of(call).sizes


def _small_slices(call: OpCall, name: str, dimensions: Sequence[int]) -> str | None:
    sizes = _slice_sizes(call)
    if all(sizes[d] in (0, 1) for d in dimensions):
        return None
    return f"slice_sizes {show(sizes)} must be at most 1 at {name} {show(dimensions)}"


def _slices_fit(call: OpCall) -> str | None:
    shape, sizes = operand_tensor(call, 0).shape, _slice_sizes(call)
    if all(size >= 0 and (size <= extent or extent == DYNAMIC) for size, extent in zip(sizes, shape)):
        return None
    return f"slice_sizes {show(sizes)} must lie within the operand's shape {show(shape)}"


def index_vector_size(indices: TensorType, index_vector_dim: int) -> int:
    """How many coordinates one index has."""
    return indices.shape[index_vector_dim] if index_vector_dim < indices.rank else 1


def index_map_size(name: str, values: Sequence[int], indices: TensorType, index_vector_dim: int) -> str | None:
    size = index_vector_size(indices, index_vector_dim)
    return None if size == DYNAMIC else has_size(name, values, size, "the size of an index vector")


def batch_extents(
    operand: TensorType, dimensions: Sequence[int], indices: TensorType, index_dimensions: Sequence[int]
) -> str | None:
    for a, b in zip(dimensions, index_dimensions):
        found, expected = operand.shape[a], indices.shape[b]
        if not compatible_extents(found, expected):
            return f"batching dimension {a} has size {found} but dimension {b} of the indices {expected}"
    return None


def _result_rank(call: OpCall) -> int:
    """Rank of a gather: the batch dimensions of the indices and the offset dimensions."""
    dims, indices = gather_numbers(call), operand_tensor(call, 1)
    return indices.rank - (dims.index_vector_dim < indices.rank) + len(dims.offset_dims)


def _operand_rank(call: OpCall) -> str | None:
    dims, rank = gather_numbers(call), operand_tensor(call, 0).rank
    total = len(dims.offset_dims) + len(dims.collapsed_slice_dims) + len(dims.operand_batching_dims)
    if total == rank:
        return None
    return f"offset_dims, collapsed_slice_dims and operand_batching_dims are {total} together, expected the rank {rank}"


def index_vector_dim_complaint(value: int, indices: TensorType) -> str | None:
    """``index_vector_dim`` is a dimension of the indices, or the one behind the last."""
    if 0 <= value <= indices.rank:
        return None
    return f"index_vector_dim {value} must lie in [0, {indices.rank}], the rank of the indices"


def _index_vector_dim(call: OpCall) -> str | None:
    return index_vector_dim_complaint(gather_numbers(call).index_vector_dim, operand_tensor(call, 1))


g = gather_numbers

GATHER_RULES = (
    Constraint("I2", _indices_are_integers),
    Constraint("C1", _operand_rank),
    Constraint("C2", _index_vector_dim),
    Constraint(
        "C3",
        lambda c: index_map_size("start_index_map", g(c).start_index_map, operand_tensor(c, 1), g(c).index_vector_dim),
    ),
    Constraint("C4", lambda c: unique("offset_dims", g(c).offset_dims) or ascending("offset_dims", g(c).offset_dims)),
    Constraint("C5", lambda c: in_range("offset_dims", g(c).offset_dims, _result_rank(c), "rank of the result")),
    Constraint(
        "C6",
        lambda c: unique(
            "collapsed_slice_dims + operand_batching_dims", g(c).collapsed_slice_dims + g(c).operand_batching_dims
        ),
    ),
    Constraint("C7", lambda c: ascending("collapsed_slice_dims", g(c).collapsed_slice_dims)),
    Constraint("C8", lambda c: in_range("collapsed_slice_dims", g(c).collapsed_slice_dims, operand_tensor(c, 0).rank)),
    Constraint("C20", lambda c: has_size("slice_sizes", _slice_sizes(c), operand_tensor(c, 0).rank)),
    Constraint("C9", lambda c: _small_slices(c, "collapsed_slice_dims", g(c).collapsed_slice_dims)),
    Constraint("C10", lambda c: ascending("operand_batching_dims", g(c).operand_batching_dims)),
    Constraint(
        "C11", lambda c: in_range("operand_batching_dims", g(c).operand_batching_dims, operand_tensor(c, 0).rank)
    ),
    Constraint("C12", lambda c: _small_slices(c, "operand_batching_dims", g(c).operand_batching_dims)),
    Constraint("C13", lambda c: unique("start_indices_batching_dims", g(c).start_indices_batching_dims)),
    Constraint(
        "C14",
        lambda c: in_range("start_indices_batching_dims", g(c).start_indices_batching_dims, operand_tensor(c, 1).rank),
    ),
    Constraint(
        "C15",
        lambda c: outside(
            "index_vector_dim",
            g(c).index_vector_dim,
            "start_indices_batching_dims",
            g(c).start_indices_batching_dims,
        ),
    ),
    Constraint(
        "C16",
        lambda c: same_size(
            "operand_batching_dims",
            g(c).operand_batching_dims,
            "start_indices_batching_dims",
            g(c).start_indices_batching_dims,
        ),
    ),
    Constraint(
        "C17",
        lambda c: batch_extents(
            operand_tensor(c, 0), g(c).operand_batching_dims, operand_tensor(c, 1), g(c).start_indices_batching_dims
        ),
    ),
    Constraint(
        "C18",
        lambda c: unique("start_index_map + operand_batching_dims", g(c).start_index_map + g(c).operand_batching_dims),
    ),
    Constraint("C19", lambda c: in_range("start_index_map", g(c).start_index_map, operand_tensor(c, 0).rank)),
    Constraint("C21", _slices_fit),
)


def gather_shape(dims: GatherDimensionNumbers, indices: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The shape of a gather."""
    batch = iter([extent for d, extent in enumerate(indices) if d != dims.index_vector_dim])
    dropped = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    offset = iter([size for d, size in enumerate(sizes) if d not in dropped])
    rank = len(indices) - (dims.index_vector_dim < len(indices)) + len(dims.offset_dims)
    return tuple(next(offset if d in dims.offset_dims else batch, DYNAMIC) for d in range(rank))


def _infer_gather(request: InferenceRequest) -> Sequence[Type]:
    shape = gather_shape(gather_numbers(request), operand_tensor(request, 1).shape, _slice_sizes(request))
    return [tensor(shape, operand_tensor(request, 0).element_type)]


def _gather_result(instruction: Instruction) -> str | None:
    shape = gather_shape(gather_numbers(instruction), operand_tensor(instruction, 1).shape, _slice_sizes(instruction))
    return has_shape("result", instruction.results[0].tensor_type, shape)


def _gather_element(instruction: Instruction) -> str | None:
    return same_elements("operand and result", [operand_tensor(instruction, 0), instruction.results[0].tensor_type])


def _largest_start(extent: int, size: int) -> int:
    """The largest start of a slice in a dimension.

    A slice of size 0 may be dropped (``collapsed_slice_dims``) and an element is taken from it nevertheless: the size
    counts as 1, so that the start is that of an element.
    """
    return max(extent - max(size, 1), 0)


def gather_array(operand: Array, indices: Array, dims: GatherDimensionNumbers, sizes: Sequence[int]) -> Array:
    """Gather slices of ``operand``; start indices are clamped so that every slice lies inside."""
    shape = gather_shape(dims, indices.shape, sizes)
    grid = np.indices(shape, sparse=True)
    batch = [grid[d] for d in range(len(shape)) if d not in dims.offset_dims]
    dropped = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    position: list[Any] = [np.zeros((), np.int64)] * operand.ndim
    for number, d in enumerate(dims.start_index_map):
        start = indices[index_position(batch, dims.index_vector_dim, number, indices.ndim)]
        position[d] = np.clip(signed_indices(start), 0, _largest_start(operand.shape[d], sizes[d]))
    for d, of_indices in zip(dims.operand_batching_dims, dims.start_indices_batching_dims):
        position[d] = batch[of_indices - (of_indices > dims.index_vector_dim)]
    for d, result_dimension in zip((d for d in range(operand.ndim) if d not in dropped), dims.offset_dims):
        position[d] = position[d] + grid[result_dimension]
    if 0 in shape or not operand.size:
        return np.zeros(shape, operand.dtype)
    return np.broadcast_to(operand[tuple(position)], shape)


def index_position(batch: Sequence[Any], index_vector_dim: int, number: int, rank: int) -> tuple[Any, ...]:
    """Where coordinate ``number`` of the index of a batch position stands in the indices."""
    if index_vector_dim >= rank:
        return tuple(batch)
    return (*batch[:index_vector_dim], number, *batch[index_vector_dim:])


def signed_indices(indices: Array) -> Array:
    """Indices as int64; unsigned ones beyond its range count as very large."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
    return indices.astype(np.int64)


def _emit_gather(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    dims, sizes = gather_numbers(instruction), _slice_sizes(instruction)
    operand, indices = operand_tensor(instruction, 0), operand_tensor(instruction, 1)
    if not operand.size:
        return emitter.builder.constant(compute_kind(operand.element_type), 0)
    batch = [index[d] for d in range(len(index)) if d not in dims.offset_dims]
    dropped = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    position: list[Any] = [0] * operand.rank
    for number, d in enumerate(dims.start_index_map):
        start = emitter.operand(1, index_position(batch, dims.index_vector_dim, number, indices.rank))
        position[d] = emitter.run_time_index(start, indices.element_type, 0, _largest_start(operand.shape[d], sizes[d]))
    for d, of_indices in zip(dims.operand_batching_dims, dims.start_indices_batching_dims):
        position[d] = batch[of_indices - (of_indices > dims.index_vector_dim)]
    for d, result_dimension in zip((d for d in range(operand.rank) if d not in dropped), dims.offset_dims):
        # index + 0 and 0 + index alike: the emitter's expressions take integers on either side
        position[d] = index[result_dimension] + position[d]
    return emitter.operand(0, position)


GATHER = define(
    OpDefinition(
        "stablehlo.gather",
        operands=(Operand("operand"), Operand("start_indices")),
        attributes=(
            AttributeSpec("dimension_numbers", RecordKind(GatherDimensionNumbers)),
            AttributeSpec("slice_sizes", I64_ARRAY),
            INDICES_ARE_SORTED,
        ),
        infer=checked(GATHER_RULES, _infer_gather),
        constraints=(*GATHER_RULES, Constraint("C22", _gather_result), Constraint("C23", _gather_element)),
        reference=lambda call, operand, indices: gather_array(
            operand, indices, gather_numbers(call.instruction), _slice_sizes(call.instruction)
        ),
        syntax="generic",
        parts={BlockFormat: BLOCK_GATHER},
        lowering=Indexed(_emit_gather, moves=True, looks_up=True),
        symbolic=shape_rules.gather,
        derivative=derivatives.GATHER,
        batching=batching.gather,
        summary="slices of the operand at indices given by a tensor",
    )
)

"""Batches of products, reductions, windows, sorts and lookups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.attributes import (
    DotDimensionNumbers,
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
)
from hlojit.ir.ops.batching.kinds import Lane
from hlojit.ir.ops.views import ConvolutionView, DimensionsView, DotView, GatherView, ScatterView, SortView, WindowView

if TYPE_CHECKING:
    from hlojit.ir.blocks import Instruction, Value

Lanes = Sequence[Lane]


def _shifted(dimensions: Sequence[int]) -> tuple[int, ...]:
    return tuple(d + 1 for d in dimensions)


def dot_general(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """A batch of both sides is one more batching dimension, of one side one more free dimension."""
    n = DotView.of(i).numbers
    left, right = lanes[0].batched, lanes[1].batched
    dimensions = (n.lhs_batching, n.rhs_batching, n.lhs_contracting, n.rhs_contracting)
    sides = [_shifted(dims) if each else dims for dims, each in zip(dimensions, (left, right, left, right))]
    if left and right:
        sides[0], sides[1] = (0, *sides[0]), (0, *sides[1])
    numbers = DotDimensionNumbers(*sides)
    values = [lane.value for lane in lanes]
    batches, rank = len(n.lhs_batching), i.result.tensor_type.rank
    if left and right:
        place = 0
    elif left:
        place = batches
    else:
        place = batches + i.operands[0].tensor_type.rank - batches - len(n.lhs_contracting)
    shape = list(i.result.tensor_type.shape)
    shape.insert(place, work.size)
    type = i.result.tensor_type.with_shape(shape)
    (found,) = work.again(i, values, result_types=[type], dot_dimension_numbers=numbers)
    order = [place, *(d for d in range(rank + 1) if d != place)]
    return [work.transposed(found, order)]


def reduce(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value] | None:
    """Other dimensions go; initial values that have a batch are not for this rule."""
    count = len(lanes) // 2
    if any(lane.batched for lane in lanes[count:]):
        return None
    operands = [*(work.spread(lane) for lane in lanes[:count]), *(lane.value for lane in lanes[count:])]
    return work.again(i, operands, dimensions=_shifted(DimensionsView.of(i).dimensions))  # type: ignore[no-any-return]


def reduce_window(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value] | None:
    """Windows of one element of the batch."""
    count, view = len(lanes) // 2, WindowView.of(i)
    if any(lane.batched for lane in lanes[count:]):
        return None
    operands = [*(work.spread(lane) for lane in lanes[:count]), *(lane.value for lane in lanes[count:])]
    return work.again(  # type: ignore[no-any-return]
        i,
        operands,
        window_dimensions=(1, *view.sizes),
        window_strides=(1, *view.strides),
        base_dilations=(1, *view.base_dilations),
        window_dilations=(1, *view.dilations),
        padding=((0, 0), *view.padding),
    )


def sort(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """Along the same dimension, one further back."""
    dimension = SortView.of(i).position(i.operands[0].tensor_type.rank) + 1
    return work.again(i, [work.spread(lane) for lane in lanes], dimension=dimension)  # type: ignore[no-any-return]


def gather(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """Of a batch of operands at the same places all of it, at places of their own by a batching dimension."""
    n, sizes = GatherView.of(i).numbers, GatherView.of(i).sizes
    operand, indices = lanes
    vector = n.index_vector_dim + indices.batched
    starts = _shifted(n.start_indices_batching_dims) if indices.batched else n.start_indices_batching_dims
    if not operand.batched:
        numbers = GatherDimensionNumbers(
            _shifted(n.offset_dims),
            n.collapsed_slice_dims,
            n.operand_batching_dims,
            starts,
            n.start_index_map,
            vector,
        )
        return work.again(i, [operand.value, indices.value], dimension_numbers=numbers)  # type: ignore[no-any-return]
    offsets, batching = _shifted(n.offset_dims), _shifted(n.operand_batching_dims)
    if indices.batched:
        batching, starts = (0, *batching), (0, *starts)
    else:
        offsets = (0, *offsets)
    numbers = GatherDimensionNumbers(
        offsets, _shifted(n.collapsed_slice_dims), batching, starts, _shifted(n.start_index_map), vector
    )
    first = 1 if indices.batched else work.size
    return work.again(  # type: ignore[no-any-return]
        i, [operand.value, indices.value], dimension_numbers=numbers, slice_sizes=(first, *sizes)
    )


def scatter(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """Each element of the batch by a batching dimension; at the same places, as one window."""
    n, count = ScatterView.of(i).numbers, len(lanes) // 2
    inputs, indices, updates = lanes[:count], lanes[count], lanes[count + 1 :]
    windows, batching = _shifted(n.update_window_dims), _shifted(n.input_batching_dims)
    vector, starts = n.index_vector_dim, n.scatter_indices_batching_dims
    if indices.batched:
        vector, starts, batching = vector + 1, (0, *_shifted(starts)), (0, *batching)
    else:
        windows = (0, *windows)
    numbers = ScatterDimensionNumbers(
        windows,
        _shifted(n.inserted_window_dims),
        batching,
        starts,
        _shifted(n.scatter_dims_to_operand_dims),
        vector,
    )
    operands = [*map(work.spread, inputs), indices.value, *map(work.spread, updates)]
    return work.again(i, operands, scatter_dimension_numbers=numbers)  # type: ignore[no-any-return]


def convolution(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value] | None:
    """A batch of inputs joins the batch of the convolution; of kernels, their output features."""
    view, n = ConvolutionView.of(i), ConvolutionView.of(i).numbers
    left, right = lanes
    if left.batched == right.batched or view.feature_groups > 1 or view.batch_groups > 1:
        return None
    values = [left.value, right.value]
    side, into, out = (
        (0, n.input_batch, n.output_batch) if left.batched else (1, n.kernel_output_feature, n.output_feature)
    )
    values[side] = work.folded(values[side], into)
    shape = list(i.result.tensor_type.shape)
    shape[out] *= work.size
    (found,) = work.again(i, values, result_types=[i.result.tensor_type.with_shape(shape)])
    return [work.unfolded(found, out)]

"""Batches of ops that move elements: the batch is one more dimension in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.ops.batching.kinds import Lane
from hlojit.ir.ops.views import (
    BroadcastView,
    DimensionsView,
    DimensionView,
    DynamicSliceView,
    PadView,
    SliceView,
    TransposeView,
)

if TYPE_CHECKING:
    from hlojit.ir.blocks import Instruction, Value

Lanes = Sequence[Lane]


def _shifted(dimensions: Sequence[int]) -> tuple[int, ...]:
    return tuple(d + 1 for d in dimensions)


def reshape(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """To the shape behind the batch."""
    return [work.builder.reshape(lanes[0].value, (work.size, *i.result.tensor_type.shape))]


def broadcast_in_dim(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """The batch stays in front."""
    dimensions = (0, *_shifted(BroadcastView.of(i).dimensions))
    shape = (work.size, *i.result.tensor_type.shape)
    return [work.builder.broadcast_in_dim(lanes[0].value, shape, dimensions)]


def transpose(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """The batch stays in front."""
    return work.again(i, [lanes[0].value], permutation=(0, *_shifted(TransposeView.of(i).permutation)))  # type: ignore[no-any-return]


def reverse(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """Other dimensions are turned round."""
    return work.again(i, [lanes[0].value], dimensions=_shifted(DimensionsView.of(i).dimensions))  # type: ignore[no-any-return]


def slice(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """All of the batch."""
    view = SliceView.of(i)
    return work.again(  # type: ignore[no-any-return]
        i,
        [lanes[0].value],
        start_indices=(0, *view.starts),
        limit_indices=(work.size, *view.limits),
        strides=(1, *view.strides),
    )


def pad(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value] | None:
    """Nothing around the batch; padding that has a batch itself is not for this rule."""
    if lanes[1].batched:
        return None
    view = PadView.of(i)
    return work.again(  # type: ignore[no-any-return]
        i,
        [lanes[0].value, lanes[1].value],
        edge_padding_low=(0, *view.low),
        edge_padding_high=(0, *view.high),
        interior_padding=(0, *view.interior),
    )


def concatenate(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """Behind each other for each element of the batch."""
    return work.again(i, [work.spread(lane) for lane in lanes], dimension=DimensionView.of(i).dimension + 1)  # type: ignore[no-any-return]


def dynamic_slice(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value] | None:
    """One place for all of the batch; different places are not for this rule."""
    if any(lane.batched for lane in lanes[1:]):
        return None
    starts = [lane.value for lane in lanes[1:]]
    zero = work.zero(starts)
    return work.again(  # type: ignore[no-any-return]
        i, [lanes[0].value, zero, *starts], slice_sizes=(work.size, *DynamicSliceView.of(i).sizes)
    )


def dynamic_update_slice(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value] | None:
    """As ``dynamic_slice``."""
    if any(lane.batched for lane in lanes[2:]):
        return None
    starts = [lane.value for lane in lanes[2:]]
    return work.again(i, [work.spread(lanes[0]), work.spread(lanes[1]), work.zero(starts), *starts])  # type: ignore[no-any-return]


def native(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """Ops that take any number of dimensions in front."""
    return work.again(i, [work.spread(lane) for lane in lanes])  # type: ignore[no-any-return]

"""Derivatives of ops that move elements: all are linear, and pulling moves cotangents back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.ops.derivatives.kinds import Into, Linear, instantiated
from hlojit.ir.ops.views import (
    BroadcastView,
    DimensionsView,
    DimensionView,
    PadView,
    SliceView,
    TransposeView,
)
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Instruction, Value

Values = Sequence["Value | Into | None"]


def add_up(b: Any, value: Value, dimensions: Sequence[int]) -> Any:
    """The sums over some dimensions, which go."""
    if not dimensions:
        return value
    element = value.tensor_type.element_type
    zero = b.constant(0.0, tensor((), element))
    return b.reduce([value], [zero], b.combiner("add", element), dimensions=tuple(dimensions))


def padded(b: Any, value: Value, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Any:
    """Zeros around and between the elements; negative amounts cut."""
    zero = b.constant(0.0, tensor((), value.tensor_type.element_type))
    attributes = {
        "edge_padding_low": tuple(low),
        "edge_padding_high": tuple(high),
        "interior_padding": tuple(interior),
    }
    return b.create("pad", [value, zero], attributes=attributes).result


def sliced(b: Any, value: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] = ()) -> Any:
    """A part of a value."""
    strides = strides or (1,) * len(starts)
    attributes = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": tuple(strides)}
    return b.create("slice", [value], attributes=attributes).result


def transposed(b: Any, value: Value, permutation: Sequence[int]) -> Any:
    """The dimensions in another order."""
    if tuple(permutation) == tuple(range(len(permutation))):
        return value
    return b.create("transpose", [value], attributes={"permutation": tuple(permutation)}).result


def concatenated(b: Any, values: Sequence[Value], dimension: int) -> Any:
    """Values behind each other."""
    if len(values) == 1:
        return values[0]
    return b.create("concatenate", list(values), attributes={"dimension": dimension}).result


def _pull_reshape(b: Any, i: Instruction, t: Value) -> Values:
    return [b.reshape(t, i.operands[0].tensor_type.shape)]


def _pull_broadcast(b: Any, i: Instruction, t: Value) -> Values:
    """Sum over the dimensions that are new, and over those that had one element."""
    operand, dimensions = i.operands[0].tensor_type, BroadcastView.of(i).dimensions
    spread = [d for n, d in zip(operand.shape, dimensions) if n == 1 and t.tensor_type.shape[d] != 1]
    kept = [d for d in dimensions if d not in spread]
    found = add_up(b, t, [d for d in range(t.tensor_type.rank) if d not in kept])
    ascending = sorted(kept)
    found = transposed(b, found, [ascending.index(d) for d in kept])
    return [b.reshape(found, operand.shape) if spread else found]


def _pull_transpose(b: Any, i: Instruction, t: Value) -> Values:
    return [transposed(b, t, np.argsort(TransposeView.of(i).permutation).tolist())]


def _pull_reverse(b: Any, i: Instruction, t: Value) -> Values:
    return [b.create("reverse", [t], attributes={"dimensions": DimensionsView.of(i).dimensions}).result]


def _pull_slice(b: Any, i: Instruction, t: Value) -> Values:
    shape, view = i.operands[0].tensor_type.shape, SliceView.of(i)
    spans = [(n - 1) * stride + 1 if n else 0 for n, stride in zip(t.tensor_type.shape, view.strides)]
    high = [extent - start - span for extent, start, span in zip(shape, view.starts, spans)]
    return [padded(b, t, view.starts, high, [stride - 1 for stride in view.strides])]


def _pull_pad(b: Any, i: Instruction, t: Value) -> Values:
    """The elements' own cotangents; the padding has the rest of the sum."""
    shape, view = i.operands[0].tensor_type.shape, PadView.of(i)
    whole = padded(b, t, [-low for low in view.low], [-high for high in view.high], [0] * len(shape))
    steps = [interior + 1 for interior in view.interior]
    own = sliced(b, whole, [0] * len(shape), whole.tensor_type.shape, steps) if any(view.interior) else whole
    everywhere = range(len(shape))
    return [own, b.subtract(add_up(b, t, everywhere), add_up(b, own, everywhere))]


def _pull_concatenate(b: Any, i: Instruction, t: Value) -> Values:
    dimension = DimensionView.of(i).dimension
    sizes = [operand.tensor_type.shape[dimension] for operand in i.operands]
    found = []
    for size, end in zip(sizes, accumulate(sizes)):
        starts, limits = [0] * t.tensor_type.rank, list(t.tensor_type.shape)
        starts[dimension], limits[dimension] = end - size, end
        found.append(sliced(b, t, starts, limits))
    return found


def _pull_dynamic_slice(b: Any, i: Instruction, t: Value) -> Values:
    operand, *starts = i.operands
    sizes = t.tensor_type.shape

    def add(b: Any, total: Value | None) -> Value:
        update = t
        if total is not None:
            own = b.create("dynamic_slice", [total, *starts], attributes={"slice_sizes": sizes}).result
            update = b.add(own, t)
        made: Value = b.dynamic_update_slice(instantiated(b, total, operand.type), update, *starts)
        return made

    return [Into(add), *[None] * len(starts)]


def _pull_dynamic_update_slice(b: Any, i: Instruction, t: Value) -> Values:
    _, update, *starts = i.operands
    own = b.dynamic_update_slice(t, instantiated(b, None, update.type), *starts)
    taken = b.create("dynamic_slice", [t, *starts], attributes={"slice_sizes": update.tensor_type.shape}).result
    return [own, taken, *[None] * len(starts)]


RESHAPE = Linear(_pull_reshape)
BROADCAST_IN_DIM = Linear(_pull_broadcast)
TRANSPOSE = Linear(_pull_transpose)
REVERSE = Linear(_pull_reverse)
SLICE = Linear(_pull_slice)
PAD = Linear(_pull_pad)
CONCATENATE = Linear(_pull_concatenate)
DYNAMIC_SLICE = Linear(_pull_dynamic_slice, operands=(0,))
DYNAMIC_UPDATE_SLICE = Linear(_pull_dynamic_update_slice, operands=(0, 1))

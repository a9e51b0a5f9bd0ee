"""Derivatives of reductions, windows and sorts.

A sum is linear.  An extremum hands on the tangents of the elements that are equal to it, their mean where there are several, as
JAX does.  Any other combiner is differentiated as the tree of its applications; of the maximum of windows, the element that is
chosen is looked up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.attributes import GatherDimensionNumbers
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.derivatives.kinds import (
    Chosen,
    Derivative,
    Linear,
    Pushed,
    Rewritten,
    Tangents,
    is_differentiable,
)
from hlojit.ir.ops.derivatives.movement import add_up, concatenated, padded, sliced, transposed
from hlojit.ir.ops.views import DimensionsView, SortView, WindowView
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block, Instruction, Value

UNROLLED_WINDOW = 64
"""Windows of more elements, of combiners that are neither sums nor extrema, are not differentiated."""


def combiner_trait(region: Block) -> Trait | None:
    """What a region of two scalars is, if it is one op on both: ADDS, MAXIMUM, MINIMUM."""
    body = list(region)
    if len(body) != 2 or body[1].operands != body[0].results or len(region.arguments) != 2:
        return None
    if {*body[0].operands} != {*region.arguments}:
        return None
    return next((t for t in (Trait.ADDS, Trait.MAXIMUM, Trait.MINIMUM) if t in body[0].op.traits), None)


# reduce


def _spread(b: Any, i: Instruction, value: Value) -> Any:
    """What has the result's shape, in the operand's."""
    shape, gone = i.operands[0].tensor_type.shape, DimensionsView.of(i).dimensions
    return b.broadcast_in_dim(value, shape, [d for d in range(len(shape)) if d not in gone])


def _pull_sum(b: Any, i: Instruction, t: Value) -> Sequence[Value | None]:
    return [_spread(b, i, t), add_up(b, t, range(t.tensor_type.rank))]


def _push_extremum(b: Any, i: Instruction, tangents: Tangents) -> Tangents:
    (x, _), t = i.operands, tangents[0]
    if t is None:
        return [None]
    zero, one = b.constant(0.0, x.type), b.constant(1.0, x.type)
    chosen = b.compare(x, _spread(b, i, i.result), "EQ")
    dimensions = DimensionsView.of(i).dimensions
    counts = add_up(b, b.select(chosen, one, zero), dimensions)
    return [b.divide(add_up(b, b.select(chosen, t, zero), dimensions), counts)]


def _tree(b: Any, i: Instruction) -> Sequence[Value] | None:
    """Combine halves until one element is left: ``log2`` applications of the region to whole tensors."""
    count = len(i.operands) // 2
    inputs, starts, gone = i.operands[:count], i.operands[count:], DimensionsView.of(i).dimensions
    shape = inputs[0].tensor_type.shape
    kept = [d for d in range(len(shape)) if d not in gone]
    rest = [shape[d] for d in kept]
    left = math.prod(shape[d] for d in gone)
    values = [b.reshape(transposed(b, x, [*gone, *kept]), [left, *rest]) for x in inputs]
    while left > 1:
        half = left // 2
        zeros, whole = [0] * len(rest), list(rest)
        first = [sliced(b, x, [0, *zeros], [half, *whole]) for x in values]
        second = [sliced(b, x, [half, *zeros], [2 * half, *whole]) for x in values]
        made = b.lift_region(i.regions[0], [*first, *second], [half, *rest])
        if made is None:
            return None
        odd = [sliced(b, x, [2 * half, *zeros], [left, *whole]) for x in values] if left % 2 else None
        values = [concatenated(b, pair, 0) for pair in zip(made, odd)] if odd else list(made)
        left = half + left % 2
    spread = [b.broadcast_in_dim(x, rest) for x in starts]
    if not left:
        return spread
    found: Sequence[Value] | None = b.lift_region(i.regions[0], [*spread, *(b.reshape(x, rest) for x in values)], rest)
    return found


def _reduce(instruction: Instruction) -> Derivative | str:
    trait = combiner_trait(instruction.regions[0])
    if trait is Trait.ADDS:
        return Linear(_pull_sum)
    constant_start = all(
        start.producer is not None and Trait.CONSTANT in start.producer.op.traits for start in instruction.operands[1:]
    )
    if trait is not None and constant_start:
        return Pushed(_push_extremum)
    return Rewritten(_tree)


REDUCE = Chosen(_reduce)

# windows


def _pull_window_sum(b: Any, i: Instruction, t: Value) -> Sequence[Value | None]:
    """Windows over the cotangent, dilated by the strides: what an element was added to."""
    view, shape = WindowView.of(i), i.operands[0].tensor_type.shape
    padding = []
    sizes = zip(shape, t.tensor_type.shape, view.sizes, view.strides, view.base_dilations, view.dilations, view.padding)
    for n, results, window, stride, base, dilation, (low, _) in sizes:
        padding.append(((window - 1) * dilation - low, (n - 1) * base + low - (results - 1) * stride))
    element = t.tensor_type.element_type
    zero = b.constant(0.0, tensor((), element))
    # Negative amounts of padding cut, which windows do not.
    low_edges, high_edges = [low for low, _ in padding], [high for _, high in padding]
    dilated = padded(b, t, low_edges, high_edges, [stride - 1 for stride in view.strides])
    attributes = {
        "window_dimensions": view.sizes,
        "window_strides": view.base_dilations,
        "window_dilations": view.dilations,
    }
    own = b.create("reduce_window", [dilated, zero], attributes=attributes, regions=[b.combiner("add", element)]).result
    return [own, add_up(b, t, range(t.tensor_type.rank))]


def _window_choice(b: Any, i: Instruction) -> Sequence[Value]:
    """The extremum of windows as what lies at the chosen place, the first one of equal elements."""
    x, start = i.operands
    shape = x.tensor_type.shape
    names = tensor((), "i32")
    flat = b.reshape(b.iota(tensor((math.prod(shape),), "i32"), 0), shape)
    direction = "GE" if combiner_trait(i.regions[0]) is Trait.MAXIMUM else "LE"

    def body(inner: Any, a: Value, m: Value, c: Value, n: Value) -> list[Value]:
        better = inner.compare(a, c, direction)
        tied = inner.and_(inner.compare(a, c, "EQ"), inner.compare(n, m, "LT"))
        none = inner.constant(-1, names)
        tied = inner.and_(tied, inner.compare(n, none, "NE"))
        first = inner.or_(inner.and_(better, inner.not_(tied)), inner.compare(a, a, "NE"))
        first = inner.or_(inner.and_(first, inner.compare(m, none, "NE")), inner.compare(n, none, "EQ"))
        return [inner.select(first, a, c), inner.select(first, m, n)]

    scalar = tensor((), x.tensor_type.element_type)
    region = b.region([scalar, names, scalar, names], body)
    found, place = b.create(
        "reduce_window", [x, flat, start, b.constant(-1, names)], attributes=i.attributes, regions=[region]
    ).results
    inside = b.compare(place, b.constant(0, place.type), "GE")
    row = b.reshape(x, (math.prod(shape),))
    taken = taken_along(
        b, row, b.reshape(b.select(inside, place, b.constant(0, place.type)), (found.tensor_type.size,)), 0
    )
    return [b.select(inside, b.reshape(taken, found.tensor_type.shape), found)]


def _window_places(b: Any, i: Instruction) -> Sequence[Value] | None:
    """Combine strided parts, one a place in the window."""
    view, count = WindowView.of(i), len(i.operands) // 2
    shape = i.results[0].tensor_type.shape
    starts = i.operands[count:]
    laid = []
    for x, start in zip(i.operands[:count], starts):
        attributes = {
            "edge_padding_low": tuple(low for low, _ in view.padding),
            "edge_padding_high": tuple(high for _, high in view.padding),
            "interior_padding": tuple(base - 1 for base in view.base_dilations),
        }
        laid.append(b.create("pad", [x, start], attributes=attributes).result)
    values: Sequence[Value] = [b.broadcast_in_dim(start, shape) for start in starts]
    for number in range(math.prod(view.sizes)):
        place, offsets = number, list[int]()
        for size in reversed(view.sizes):
            place, offset = divmod(place, size)
            offsets.insert(0, offset)
        begins = [offset * dilation for offset, dilation in zip(offsets, view.dilations)]
        ends = [at + (n - 1) * step + 1 for at, n, step in zip(begins, shape, view.strides)]
        parts = [sliced(b, x, begins, ends, view.strides) for x in laid]
        made = b.lift_region(i.regions[0], [*values, *parts], shape)
        if made is None:
            return None
        values = made
    return values


def _reduce_window(instruction: Instruction) -> Derivative | str:
    trait = combiner_trait(instruction.regions[0])
    if trait is Trait.ADDS:
        return Linear(_pull_window_sum)
    view = WindowView.of(instruction)
    if trait is not None:
        return Rewritten(_window_choice)
    if math.prod(view.sizes) > UNROLLED_WINDOW or not instruction.results[0].tensor_type.size:
        return f"windows of more than {UNROLLED_WINDOW} elements have no derivative for this combiner"
    return Rewritten(_window_places)


REDUCE_WINDOW = Chosen(_reduce_window)

# sort


def taken_along(b: Any, value: Value, indices: Value, dimension: int) -> Any:
    """``numpy.take_along_axis`` for indices in range; of a vector, any number of indices."""
    shape = indices.tensor_type.shape
    others = tuple(d for d in range(len(shape)) if d != dimension)
    numbers = GatherDimensionNumbers(
        collapsed_slice_dims=(dimension,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
        start_index_map=(dimension,),
        index_vector_dim=len(shape),
    )
    attributes = {"dimension_numbers": numbers, "slice_sizes": (1,) * len(shape)}
    return b.create("gather", [value, indices], attributes=attributes).result


def _sort_by_places(b: Any, i: Instruction) -> Sequence[Value]:
    """The places are sorted along; what has a derivative is looked up there."""
    type = i.operands[0].tensor_type
    dimension = SortView.of(i).position(type.rank)
    places = b.iota(type.with_element_type("i32"), dimension)
    comparator = i.regions[0]
    types = [argument.type for argument in comparator.arguments] + [tensor((), "i32")] * 2
    region = b.region(types, lambda inner, *arguments: inner.inline(comparator, arguments[:-2]))
    attributes = {**i.attributes, "is_stable": True}
    *found, order = b.create("sort", [*i.operands, places], attributes=attributes, regions=[region]).results
    return [
        taken_along(b, x, order, dimension) if is_differentiable(x.type) else result
        for x, result in zip(i.operands, found)
    ]


SORT = Rewritten(_sort_by_places)

"""Scatters and sorts by regions that are no expressions of scalars, as loops of the program itself.

    scatter(%x, %i, %u) { loop }    =>    while(%n, %x) { %x[at(%n)] = region(%x[at(%n)], %u[%n]) }
    sort(%x) { loop }               =>    merges of runs of 1, 2, 4 ... elements

A scatter combines update after update, in the order of ``docs/decisions/scatter-order.md``; the places are computed before.
A sort is stable: runs of all lines are merged until a run is a line, which takes n log2(n) comparisons.  Memory is linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import IntegerType
from hlojit.ir.ops.region_loops import counted, element_at, rewritten, with_element
from hlojit.ir.ops.views import ScatterView, SortView
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block, Instruction, Value
    from hlojit.ir.builder import Builder

PLACE = tensor((), "i64")


def expand_scatter(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """A scatter whose region kernels do not take."""
    return rewritten(builder, instruction, _scattered)


def _scattered(builder: Builder, instruction: Instruction, region: Block) -> Sequence[Value]:
    count = len(instruction.operands) // 2
    inputs, updates = instruction.operands[:count], instruction.operands[count + 1 :]
    windows = ScatterView.of(instruction).numbers.update_window_dims
    order = (*(d for d in range(updates[0].tensor_type.rank) if d not in windows), *windows)
    size, number = inputs[0].tensor_type.size, updates[0].tensor_type.size
    if not size * number:
        return inputs

    def in_order(value: Value) -> Value:
        return builder.reshape(builder.transpose(value, permutation=order), (number,))

    places = in_order(_places(builder, instruction))
    taken = [in_order(update) for update in updates]

    def step(inner: Any, n: Value, state: Sequence[Value]) -> list[Value]:
        place = element_at(inner, places, n)
        zero = inner.constant(0, PLACE)
        inside, at = inner.compare(place, zero, "GE"), inner.maximum(place, zero)
        old = [element_at(inner, value, at) for value in state]
        new = inner.if_(
            inside,
            lambda branch: branch.inline(region, [*old, *(element_at(branch, update, n) for update in taken)]),
            lambda branch: old,
        )
        return [with_element(inner, value, at, scalar) for value, scalar in zip(state, new)]

    flat = [builder.reshape(value, (size,)) for value in inputs]
    results = counted(builder, number, flat, step)
    return [builder.reshape(value, result.tensor_type) for value, result in zip(results, instruction.results)]


def _places(builder: Any, instruction: Instruction) -> Value:
    """For each element of the updates the place of the input, in row-major order, that it goes to; -1 for none."""
    count = len(instruction.operands) // 2
    indices, update = instruction.operands[count], instruction.operands[count + 1].tensor_type
    shape, dims = instruction.operands[0].tensor_type.shape, ScatterView.of(instruction).numbers
    type = tensor(update.shape, "i64")
    batch = [d for d in range(update.rank) if d not in dims.update_window_dims]
    positions = {}
    for number, d in enumerate(dims.scatter_dims_to_operand_dims):
        component = _component(builder, indices, dims.index_vector_dim, number)
        positions[d] = builder.broadcast_in_dim(_as_place(builder, component), type, batch)
    for d, of_indices in zip(dims.input_batching_dims, dims.scatter_indices_batching_dims):
        positions[d] = builder.iota(type, batch[of_indices - (of_indices > dims.index_vector_dim)])
    dropped = {*dims.inserted_window_dims, *dims.input_batching_dims}
    for d, window in zip((d for d in range(len(shape)) if d not in dropped), dims.update_window_dims):
        offset = builder.iota(type, window)
        positions[d] = builder.add(positions[d], offset) if d in positions else offset
    inside, place = builder.constant(True, tensor(update.shape, "i1")), builder.constant(0, type)
    for d, extent in enumerate(shape):
        if d in positions:
            within = builder.compare(positions[d], builder.constant(0, type), "GE")
            inside = builder.and_(inside, within)
            inside = builder.and_(inside, builder.compare(positions[d], builder.constant(extent, type), "LT"))
        place = builder.multiply(place, builder.constant(extent, type))
        place = builder.add(place, positions[d]) if d in positions else place
    found: Value = builder.select(inside, place, builder.constant(-1, type))
    return found


def _component(builder: Any, indices: Value, vector_dimension: int, number: int) -> Value:
    """One of the numbers that make an index, for all indices."""
    shape = indices.tensor_type.shape
    if vector_dimension == len(shape):
        return indices
    start, limit = [0] * len(shape), list(shape)
    start[vector_dimension], limit[vector_dimension] = number, number + 1
    part = builder.slice(indices, start_indices=start, limit_indices=limit, strides=[1] * len(shape))
    component: Value = builder.reshape(part, (*shape[:vector_dimension], *shape[vector_dimension + 1 :]))
    return component


def _as_place(builder: Any, value: Value) -> Value:
    """Integers as i64; unsigned ones beyond its range are the largest."""
    element = value.tensor_type.element_type
    if isinstance(element, IntegerType) and not element.signed and element.bits == 64:
        value = builder.minimum(value, builder.constant(np.iinfo(np.int64).max, value.tensor_type))
    place: Value = builder.convert(value, "i64")
    return place


# sort


def expand_sort(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """A sort whose comparator kernels do not take."""
    return rewritten(builder, instruction, _sorted)


def _sorted(builder: Builder, instruction: Instruction, region: Block) -> Sequence[Value]:
    shape = instruction.operands[0].tensor_type.shape
    axis = SortView.of(instruction).position(len(shape))
    order = (*(d for d in range(len(shape)) if d != axis), axis)
    lines = tuple(shape[d] for d in order)
    size, length = instruction.operands[0].tensor_type.size, shape[axis]
    if size == 0 or length < 2:
        return instruction.operands
    flat = [builder.reshape(builder.transpose(operand, permutation=order), (size,)) for operand in instruction.operands]

    def merged(inner: Any, width: Value, *state: Value) -> list[Value]:
        results = _merged(inner, region, width, state, size, length)
        return [inner.add(width, width), *results]

    _, *results = builder.while_(
        [builder.constant(1, PLACE), *flat],
        lambda inner, width, *_: inner.compare(width, inner.constant(length, PLACE), "LT"),
        merged,
    )
    back = tuple(order.index(d) for d in range(len(shape)))
    return [builder.transpose(builder.reshape(value, lines), permutation=back) for value in results]


def _merged(
    builder: Any, region: Block, width: Value, sources: Sequence[Value], size: int, length: int
) -> Sequence[Value]:
    """Merge neighbouring runs of ``width`` elements in lines of ``length``."""
    zero = builder.constant(0, PLACE)

    def step(inner: Any, number: Value, state: Sequence[Value]) -> list[Value]:
        left, right, *targets = state
        place = inner.convert(number, "i64")
        one, extent = inner.constant(1, PLACE), inner.constant(length, PLACE)
        within, both = inner.remainder(place, extent), inner.add(width, width)
        offset = inner.remainder(within, both)
        begin, line_end = inner.subtract(place, offset), inner.add(inner.subtract(place, within), extent)
        middle = inner.minimum(inner.add(begin, width), line_end)
        end = inner.minimum(inner.add(begin, both), line_end)
        begins = inner.compare(offset, inner.constant(0, PLACE), "EQ")
        left, right = inner.select(begins, begin, left), inner.select(begins, middle, right)
        # Of a run that is used up the last element is compared, and not taken.
        left_at, right_at = (
            inner.minimum(left, inner.subtract(middle, one)),
            inner.minimum(right, inner.subtract(end, one)),
        )
        pairs = [(element_at(inner, each, right_at), element_at(inner, each, left_at)) for each in sources]
        (before,) = inner.inline(region, [scalar for pair in pairs for scalar in pair])
        takes_right = inner.and_(inner.compare(right, end, "LT"), inner.or_(inner.compare(left, middle, "GE"), before))
        steps = inner.convert(takes_right, "i64")
        chosen = [inner.select(takes_right, *pair) for pair in pairs]
        return [
            inner.add(left, inner.subtract(one, steps)),
            inner.add(right, steps),
            *(with_element(inner, target, place, scalar) for target, scalar in zip(targets, chosen)),
        ]

    return counted(builder, size, [zero, zero, *sources], step)[2:]

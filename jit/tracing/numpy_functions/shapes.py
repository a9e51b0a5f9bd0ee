"""NumPy's functions that rearrange elements: reshape, transpose, concatenate, roll, pad and so on."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.graph import Value
from hlojit.tracing.arrays import layouts, views
from hlojit.tracing.arrays.kinds import as_kind, element_of, kind_of
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions import products
from hlojit.tracing.numpy_functions.rules import (
    Axis,
    Rules,
    casting_of,
    extents_of,
    implements,
    letter_of,
    normalized_axes,
    places_of,
    single_axis,
    weak_kind,
)
from hlojit.tracing.operations import Operations, row_number
from hlojit.tracing.tracer import Tracer, kind_of_element

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""


@implements(RULES, np.shape)
def shape(ops: Operations, a: Tracer) -> tuple[int, ...]:
    return a.shape


@implements(RULES, np.ndim)
def ndim(ops: Operations, a: Tracer) -> int:
    return a.ndim


@implements(RULES, np.size)
def size(ops: Operations, a: Tracer, axis: int | None = None) -> int:
    if axis is None:
        return a.size
    return math.prod(a.shape[each] for each in normalized_axes(int(axis) if isinstance(axis, bool) else axis, a.ndim))


@implements(RULES, np.reshape)
def reshape(ops: Operations, a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tracer:
    return views.in_shape(ops, ops.tracer(a), shape, letter_of(order, "CFA"), copy)


@implements(RULES, np.ravel)
def ravel(ops: Operations, a: Any, order: str = "C") -> Tracer:
    operand, order = ops.tracer(a), letter_of(order)
    if order == "K":
        lies = layouts.outer_first(operand.shape, ops.known_strides(operand))
        if lies is not None:
            operand = views.in_order(ops, operand, lambda own: own.transpose(lies))
        order = "C"
    order = views.reading_order(ops, operand, order)
    strides = ops.strides(operand)
    # Other than reshape it copies whatever does not lie in a row in just this order.
    copies = strides is not None and not layouts.is_contiguous(operand.shape, strides, order)
    return views.in_shape(ops, operand, -1, order, copies or None)


@implements(RULES, np.transpose, np.permute_dims)
def transpose(ops: Operations, a: Any, axes: Any = None) -> Tracer:
    return views.in_order(ops, ops.tracer(a), lambda own: np.transpose(own, axes))


@implements(RULES, np.matrix_transpose)
def matrix_transpose(ops: Operations, x: Any, /) -> Tracer:
    return views.in_order(ops, ops.tracer(x), np.matrix_transpose)


@implements(RULES, np.swapaxes)
def swapaxes(ops: Operations, a: Any, axis1: int, axis2: int) -> Tracer:
    return views.in_order(ops, ops.tracer(a), lambda own: np.swapaxes(own, axis1, axis2))


@implements(RULES, np.moveaxis)
def moveaxis(ops: Operations, a: Any, source: Any, destination: Any) -> Tracer:
    return views.in_order(ops, ops.tracer(a), lambda own: np.moveaxis(own, source, destination))


@implements(RULES, np.rollaxis)
def rollaxis(ops: Operations, a: Any, axis: int, start: int = 0) -> Tracer:
    return views.in_order(ops, ops.tracer(a), lambda own: np.rollaxis(own, axis, start))


@implements(RULES, np.broadcast_to)
def broadcast_to(ops: Operations, array: Any, shape: Any) -> Tracer:
    return views.spread(ops, ops.tracer(array), extents_of(shape))


@implements(RULES, np.expand_dims)
def expand_dims(ops: Operations, a: Any, axis: Any) -> Tracer:
    return views.with_units(ops, ops.tracer(a), lambda own: np.expand_dims(own, axis))


@implements(RULES, np.squeeze)
def squeeze(ops: Operations, a: Any, axis: Any = None) -> Tracer:
    return views.with_units(ops, ops.tracer(a), lambda own: np.squeeze(own, axis))


def _joined(ops: Operations, arrays: Sequence[Any], dtype: Any, casting: Any) -> list[Value]:
    """Arrays in the dtype in which they are put together."""
    casting = casting_of(casting)
    if not len(arrays):
        raise ValueError("need at least one array to concatenate")
    values = products.common_values(ops, arrays)
    wanted = element_of(as_kind(dtype)) if dtype is not None else values[0].tensor_type.element_type
    for array in arrays:
        here, there = kind_of(array), kind_of_element(wanted)
        if (
            isinstance(here, np.dtype)
            and isinstance(there, np.dtype)
            and weak_kind(array) is None
            and not np.can_cast(here, there, casting)
        ):
            raise TypeError(f"Cannot cast array data from {here!r} to {there!r} according to the rule {casting!r}")
    return [ops.converted(value, kind_of_element(wanted)) for value in values]


def _are_rows(arrays: Sequence[Any]) -> bool:
    """Whether they are rows of one array, which need not be taken apart, all of one type."""
    return all(row_number(each) is not None and each.type == arrays[0].type for each in arrays)


@implements(RULES, np.concatenate)
def concatenate(
    ops: Operations, arrays: Sequence[Any], axis: int | None = 0, *, dtype: Any = None, casting: Any = "same_kind"
) -> Tracer:
    if dtype is None and len(arrays) and _are_rows(arrays) and arrays[0].ndim and axis == 0:
        rows = ops.tracer(list(arrays))
        return reshape(ops, rows, (rows.shape[0] * rows.shape[1], *rows.shape[2:]))
    values = _joined(ops, arrays, dtype, casting)
    if axis is None:
        values, axis = [ops.builder.reshape(value, (value.tensor_type.size,)) for value in values], 0
    first = values[0].tensor_type
    if not first.rank:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    dimension = single_axis(axis, first.rank)
    for number, value in enumerate(values):
        shape = value.tensor_type.shape
        if len(shape) != first.rank:
            raise ValueError(
                "all the input array dimensions except for the concatenation axis must match exactly, but the array at index "
                f"0 has {first.rank} dimension(s) and the array at index {number} has {len(shape)} dimension(s)"
            )
        if any(a != b for d, (a, b) in enumerate(zip(shape, first.shape)) if d != dimension):
            raise ValueError(
                "all the input array dimensions except for the concatenation axis must match exactly, but the array at index "
                f"0 has shape {first.shape} and the array at index {number} has shape {shape}"
            )
    if len(values) == 1:
        return ops.wrap(values[0])
    return ops.wrap(ops.builder.create("concatenate", values, attributes={"dimension": dimension}).result)


@implements(RULES, np.stack)
def stack(
    ops: Operations, arrays: Sequence[Any], axis: int = 0, *, dtype: Any = None, casting: Any = "same_kind"
) -> Tracer:
    if not len(arrays):
        raise ValueError("need at least one array to stack")
    if len({np.shape(each) for each in arrays}) > 1:
        raise ValueError("all input arrays must have the same shape")
    axis = operator.index(axis)
    if dtype is None and _are_rows(arrays):
        rows: Any = ops.tracer(list(arrays))
        made = np.moveaxis(rows, 0, single_axis(axis, arrays[0].ndim + 1))
        return ops.wrap(made.value)
    return concatenate(ops, [expand_dims(ops, array, axis) for array in arrays], axis, dtype=dtype, casting=casting)


@implements(RULES, np.vstack)
def vstack(ops: Operations, tup: Sequence[Any], *, dtype: Any = None, casting: Any = "same_kind") -> Tracer:
    if len(tup) and _are_rows(tup) and tup[0].ndim == 1:
        return stack(ops, tup, dtype=dtype, casting=casting)
    return concatenate(ops, [_at_least_2d(ops, each) for each in tup], 0, dtype=dtype, casting=casting)


@implements(RULES, np.hstack)
def hstack(ops: Operations, tup: Sequence[Any], *, dtype: Any = None, casting: Any = "same_kind") -> Tracer:
    arrays = [reshape(ops, each, -1) if not ops.tracer(each).ndim else ops.tracer(each) for each in tup]
    axis = 0 if not arrays or arrays[0].ndim == 1 else 1
    return concatenate(ops, arrays, axis, dtype=dtype, casting=casting)


def _at_least_2d(ops: Operations, array: Any) -> Tracer:
    operand = ops.tracer(array)
    return reshape(ops, operand, (1,) * (2 - operand.ndim) + operand.shape) if operand.ndim < 2 else operand


@implements(RULES, np.split)
def split(ops: Operations, ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    if np.ndim(indices_or_sections) == 0:
        operand = ops.tracer(ary)
        if operand.shape[single_axis(operator.index(axis), operand.ndim)] % indices_or_sections:
            raise ValueError("array split does not result in an equal division")
    return array_split(ops, ary, indices_or_sections, axis)


@implements(RULES, np.array_split)
def array_split(ops: Operations, ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    operand = ops.tracer(ary)
    dimension = single_axis(operator.index(axis), operand.ndim)
    extent = operand.shape[dimension]
    if np.ndim(indices_or_sections) == 0:
        count = int(indices_or_sections)
        if count <= 0:
            raise ValueError("number sections must be larger than 0.")
        small, more = divmod(extent, count)
        sizes = [small + 1] * more + [small] * (count - more)
        bounds = [0, *np.cumsum(sizes).tolist()]
    else:
        bounds = [0, *(operator.index(each) for each in indices_or_sections), extent]
    return [operand[(*[slice(None)] * dimension, slice(start, stop))] for start, stop in zip(bounds, bounds[1:])]


@implements(RULES, np.flip)
def flip(ops: Operations, m: Any, axis: Axis = None) -> Tracer:
    operand = ops.tracer(m)
    axes = normalized_axes(axis, operand.ndim)
    return operand[tuple(slice(None, None, -1) if d in axes else slice(None) for d in range(operand.ndim))]


@implements(RULES, np.roll)
def roll(ops: Operations, a: Any, shift: Any, axis: Any = None) -> Tracer:
    operand = ops.tracer(a)
    if isinstance(shift, Tracer):
        raise TracingError(
            "np.roll: shift must be known when tracing; make it static, or index with (np.arange(n) - shift) % n"
        )
    if axis is None:
        return reshape(ops, roll(ops, operand.reshape(-1), shift, 0), operand.shape)
    # Axes may be repeated: their shifts add up.
    axes = [
        single_axis(operator.index(each), operand.ndim)
        for each in (axis if isinstance(axis, (tuple, list)) else (axis,))
    ]
    pairs = np.broadcast(shift, axes)
    if pairs.ndim > 1:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    amounts = dict.fromkeys(axes, 0)
    for amount, dimension in pairs:
        amounts[int(dimension)] += int(amount)
    for dimension, amount in amounts.items():
        extent = operand.shape[dimension]
        if extent and amount % extent:
            first, second = split(ops, operand, [extent - amount % extent], dimension)
            operand = concatenate(ops, [second, first], dimension)
    return operand


@implements(RULES, np.tile)
def tile(ops: Operations, A: Any, reps: Any) -> Tracer:
    operand = ops.tracer(A)
    counts = extents_of(reps)
    rank = max(len(counts), operand.ndim)
    counts = (1,) * (rank - len(counts)) + counts
    extents = (1,) * (rank - operand.ndim) + operand.shape
    spread = reshape(ops, operand, [each for extent in extents for each in (1, extent)])
    wide = broadcast_to(ops, spread, [each for pair in zip(counts, extents) for each in pair])
    return reshape(ops, wide, [count * extent for count, extent in zip(counts, extents)])


@implements(RULES, np.repeat)
def repeat(ops: Operations, a: Any, repeats: Any, axis: int | None = None) -> Tracer:
    operand = ops.tracer(a)
    if isinstance(repeats, Tracer):
        raise TracingError("np.repeat: the counts decide the result's shape, and must be known when tracing")
    counts = np.asarray(places_of(repeats, "repeats"))
    if axis is None or not operand.ndim:
        single_axis(0 if axis is None else axis, max(operand.ndim, 1))
        operand, axis = operand.reshape(-1), 0
    dimension = single_axis(axis, operand.ndim)
    extent = operand.shape[dimension]
    if counts.ndim > 1:
        raise ValueError("object too deep for desired array")
    if (counts < 0).any():
        raise ValueError("repeats may not contain negative values.")
    if counts.size != 1:
        if counts.size != extent:
            raise ValueError(f"operands could not be broadcast together with shape ({extent},) ({counts.size},)")
        return operand[(*[slice(None)] * dimension, np.repeat(np.arange(extent), counts))]
    count = int(counts.reshape(()))
    wide = list(operand.shape)
    wide.insert(dimension + 1, count)
    spread = broadcast_to(ops, expand_dims(ops, operand, dimension + 1), wide)
    wide[dimension : dimension + 2] = [extent * count]
    return reshape(ops, spread, wide)

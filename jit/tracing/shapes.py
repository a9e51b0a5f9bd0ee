"""NumPy's functions that rearrange elements: reshape, transpose, concatenate, roll, pad and so on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.tracing import layouts, products, views
from hlojit.tracing.errors import TracingError
from hlojit.tracing.kinds import as_kind
from hlojit.tracing.operations import Operations
from hlojit.tracing.rules import Axis, Rules, extents_of, implements, normalized_axes, refuse
from hlojit.tracing.tracer import Tracer

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
    return a.size if axis is None else a.shape[axis]


@implements(RULES, np.reshape)
def reshape(
    ops: Operations, a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: bool | None = None
) -> Tracer:
    wanted = newshape if shape is None else shape
    return views.in_shape(ops, ops.tracer(a), wanted, order, copy)


@implements(RULES, np.ravel)
def ravel(ops: Operations, a: Any, order: str = "C") -> Tracer:
    operand = ops.tracer(a)
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
def broadcast_to(ops: Operations, array: Any, shape: Any, subok: bool = False) -> Tracer:
    return views.spread(ops, ops.tracer(array), extents_of(shape))


@implements(RULES, np.expand_dims)
def expand_dims(ops: Operations, a: Any, axis: Any) -> Tracer:
    return views.with_units(ops, ops.tracer(a), lambda own: np.expand_dims(own, axis))


@implements(RULES, np.squeeze)
def squeeze(ops: Operations, a: Any, axis: Any = None) -> Tracer:
    return views.with_units(ops, ops.tracer(a), lambda own: np.squeeze(own, axis))


@implements(RULES, np.concatenate)
def concatenate(
    ops: Operations,
    arrays: Sequence[Any],
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: Any = None,
) -> Tracer:
    refuse("concatenate", out=out)
    values = products.common_values(ops, arrays)
    if dtype is not None:
        values = [ops.converted(value, as_kind(dtype)) for value in values]
    if axis is None:
        values, axis = [ops.builder.reshape(value, (value.tensor_type.size,)) for value in values], 0
    (dimension,) = normalized_axes(axis, values[0].tensor_type.rank)
    if len(values) == 1:
        return ops.wrap(values[0])
    return ops.wrap(ops.builder.create("concatenate", values, attributes={"dimension": dimension}).result)


@implements(RULES, np.stack)
def stack(ops: Operations, arrays: Sequence[Any], axis: int = 0, out: Any = None, **options: Any) -> Tracer:
    return concatenate(ops, [expand_dims(ops, array, axis) for array in arrays], axis, out, **options)


@implements(RULES, np.vstack)
def vstack(ops: Operations, tup: Sequence[Any], **options: Any) -> Tracer:
    return concatenate(ops, [_at_least_2d(ops, each) for each in tup], 0, **options)


@implements(RULES, np.hstack)
def hstack(ops: Operations, tup: Sequence[Any], **options: Any) -> Tracer:
    arrays = [reshape(ops, each, -1) if not ops.tracer(each).ndim else ops.tracer(each) for each in tup]
    return concatenate(ops, arrays, 0 if arrays[0].ndim == 1 else 1, **options)


def _at_least_2d(ops: Operations, array: Any) -> Tracer:
    operand = ops.tracer(array)
    return reshape(ops, operand, (1,) * (2 - operand.ndim) + operand.shape) if operand.ndim < 2 else operand


@implements(RULES, np.split)
def split(ops: Operations, ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    if isinstance(indices_or_sections, (int, np.integer)) and ops.tracer(ary).shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ops, ary, indices_or_sections, axis)


@implements(RULES, np.array_split)
def array_split(ops: Operations, ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    operand = ops.tracer(ary)
    extent = operand.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        count = int(indices_or_sections)
        small, more = divmod(extent, count)
        sizes = [small + 1] * more + [small] * (count - more)
        bounds = [0, *np.cumsum(sizes).tolist()]
    else:
        bounds = [0, *(int(each) for each in indices_or_sections), extent]
    (dimension,) = normalized_axes(axis, operand.ndim)
    return [operand[(*[slice(None)] * dimension, slice(start, stop))] for start, stop in zip(bounds, bounds[1:])]


@implements(RULES, np.flip)
def flip(ops: Operations, m: Any, axis: Axis = None) -> Tracer:
    operand = ops.tracer(m)
    axes = normalized_axes(axis, operand.ndim)
    return operand[tuple(slice(None, None, -1) if d in axes else slice(None) for d in range(operand.ndim))]


@implements(RULES, np.roll)
def roll(ops: Operations, a: Any, shift: Any, axis: Any = None) -> Tracer:
    operand = ops.tracer(a)
    if axis is None:
        return reshape(ops, roll(ops, operand.reshape(-1), shift, 0), operand.shape)
    for amount, dimension in zip(np.atleast_1d(shift).tolist(), np.atleast_1d(axis).tolist()):
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
def repeat(ops: Operations, a: Any, repeats: int, axis: int | None = None) -> Tracer:
    operand = ops.tracer(a)
    if not isinstance(repeats, (int, np.integer)):
        raise TracingError("np.repeat: the count must be one number")
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    (dimension,) = normalized_axes(axis, operand.ndim)
    wide = list(operand.shape)
    wide.insert(dimension + 1, int(repeats))
    spread = broadcast_to(ops, expand_dims(ops, operand, dimension + 1), wide)
    wide[dimension : dimension + 2] = [operand.shape[dimension] * int(repeats)]
    return reshape(ops, spread, wide)


@implements(RULES, np.pad)
def pad(ops: Operations, array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Tracer:
    operand = ops.tracer(array)
    if mode != "constant":
        raise TracingError(f"np.pad: mode {mode!r} cannot be compiled yet; only 'constant'")
    widths = np.broadcast_to(np.asarray(pad_width), (operand.ndim, 2)).tolist()
    fill = ops.value(options.get("constant_values", 0), operand.kind)
    attributes = {
        "edge_padding_low": tuple(low for low, _ in widths),
        "edge_padding_high": tuple(high for _, high in widths),
        "interior_padding": (0,) * operand.ndim,
    }
    return ops.wrap(ops.builder.create("pad", [operand.value, fill], attributes=attributes).result)

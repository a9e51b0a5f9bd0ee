"""NumPy's functions that rearrange elements: reshape, transpose, concatenate, roll, pad and so on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.tracing import products
from hlojit.tracing.kinds import as_kind
from hlojit.tracing.operations import Operations
from hlojit.tracing.rules import Axis, Rules, extents_of, implements, normalized_axes, refuse
from hlojit.tracing.tracer import Tracer, TracingError

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
def reshape(ops: Operations, a: Any, shape: Any = None, order: str = "C", **options: Any) -> Tracer:
    operand = ops.tracer(a)
    if order != "C":
        raise TracingError("np.reshape: only order='C' can be compiled")
    wanted = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(each) for each in shape)
    known = math.prod(each for each in wanted if each != -1)
    if wanted.count(-1) == 1 and known and operand.size % known == 0:
        wanted = tuple(operand.size // known if each == -1 else each for each in wanted)
    if -1 in wanted or math.prod(wanted) != operand.size:
        raise ValueError(f"cannot reshape array of size {operand.size} into shape {tuple(shape)}")
    return ops.wrap(ops.builder.reshape(operand.value, wanted))


@implements(RULES, np.ravel)
def ravel(ops: Operations, a: Any, order: str = "C") -> Tracer:
    return reshape(ops, a, -1, order)


@implements(RULES, np.transpose, np.permute_dims)
def transpose(ops: Operations, a: Any, axes: Any = None) -> Tracer:
    operand = ops.tracer(a)
    order = tuple(reversed(range(operand.ndim))) if axes is None else tuple(int(x) % operand.ndim for x in axes)
    if sorted(order) != list(range(operand.ndim)):
        raise ValueError(f"axes {axes} do not match an array of {operand.ndim} dimensions")
    if order == tuple(range(operand.ndim)):
        return operand
    return ops.wrap(ops.builder.create("transpose", [operand.value], attributes={"permutation": order}).result)


@implements(RULES, np.swapaxes)
def swapaxes(ops: Operations, a: Any, axis1: int, axis2: int) -> Tracer:
    order = list(range(ops.tracer(a).ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose(ops, a, order)


@implements(RULES, np.moveaxis)
def moveaxis(ops: Operations, a: Any, source: Any, destination: Any) -> Tracer:
    rank = ops.tracer(a).ndim
    sources = [x % rank for x in np.atleast_1d(source).tolist()]
    targets = [x % rank for x in np.atleast_1d(destination).tolist()]
    order = [axis for axis in range(rank) if axis not in sources]
    for target, origin in sorted(zip(targets, sources)):
        order.insert(target, origin)
    return transpose(ops, a, order)


@implements(RULES, np.broadcast_to)
def broadcast_to(ops: Operations, array: Any, shape: Any, subok: bool = False) -> Tracer:
    return ops.wrap(ops.broadcast(ops.value(array), extents_of(shape)))


@implements(RULES, np.expand_dims)
def expand_dims(ops: Operations, a: Any, axis: Any) -> Tracer:
    operand = ops.tracer(a)
    axes = extents_of(axis)
    rank = operand.ndim + len(axes)
    positions = {each % rank for each in axes}
    extents = iter(operand.shape)
    return reshape(ops, operand, [1 if d in positions else next(extents) for d in range(rank)])


@implements(RULES, np.squeeze)
def squeeze(ops: Operations, a: Any, axis: Any = None) -> Tracer:
    operand = ops.tracer(a)
    axes = [d for d, n in enumerate(operand.shape) if n == 1] if axis is None else normalized_axes(axis, operand.ndim)
    if any(operand.shape[d] != 1 for d in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshape(ops, operand, [n for d, n in enumerate(operand.shape) if d not in axes])


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
    return ops.wrap(ops.builder.create("reverse", [operand.value], attributes={"dimensions": axes}).result)


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

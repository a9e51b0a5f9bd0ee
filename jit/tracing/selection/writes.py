"""``y[mask] = v``, ``y[positions] = v`` and writes into arrays whose length is known when the function runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.aligned import fitted
from hlojit.tracing.selection.extents import Extent, unchecked
from hlojit.tracing.selection.keys import expanded, index_arrays, is_array, is_mask, mask_along, place_of, width
from hlojit.tracing.selection.reads import as_arrays, bounds, known_masks, position_of, require_elements
from hlojit.tracing.selection.selected import Extents, Selected
from hlojit.tracing.tracer import Tracer

_COUNTS = (
    "NumPy boolean array indexing assignment cannot assign the input values: there are not as many as the mask names"
)
_SHAPES = "could not broadcast input array: it is of another length than what is written"


def set_item(ops: Operations, operand: Selected, key: Any, value: Any) -> None:
    """``operand[key] = value``, of an array or of a ``Tracer`` as one of which everything counts."""
    operand.elements.window.require_writable()
    keys = known_masks(expanded(key, operand.ndim), operand)
    operand, keys = _with_masks(ops, operand, keys)
    arrays = [each for each in keys if is_array(each)]
    if len(arrays) == 1 and is_mask(arrays[0]):
        _by_mask(ops, operand, keys, value)
    elif arrays:
        _by_arrays(ops, operand, keys, value)
    else:
        extents = _left(operand.extents, keys)
        target = operand.elements[tuple(keys)] if operand.ndim else operand.elements
        if isinstance(target, Tracer) and target.is_scalar:
            operand.elements[tuple(keys)] = value
            return
        target[...] = fitted(ops, value, target.shape, extents, _SHAPES)


def _left(extents: Extents, keys: Sequence[Any]) -> Extents:
    """The extents of what slices leave of dimensions, and new ones."""
    found: list[Extent | None] = []
    dimension = 0
    for each in keys:
        if each is None:
            found.append(None)
            continue
        if isinstance(each, slice):
            found.append(extents[dimension])
        dimension += width(each)
    return tuple(found)


def _with_masks(ops: Operations, operand: Selected, keys: list[Any]) -> tuple[Selected, list[Any]]:
    """Along dimensions whose length is not known, slices as masks and numbers as positions."""
    left = list(keys)
    dimension = 0
    extents = list(operand.extents)
    for number, each in enumerate(keys):
        extent = operand.extents[dimension] if each is not None and width(each) == 1 else None
        if extent is not None and not is_array(each):
            if not isinstance(each, slice):
                left[number] = position_of(ops, extent, each, dimension)
                extents[dimension] = None
            elif each != slice(None):
                left[number] = _slice_as_mask(ops, extent, each)
        dimension += width(each)
    return Selected(operand.elements, extents), left


def _slice_as_mask(ops: Operations, extent: Extent, key: slice) -> Any:
    start, count, step = bounds(ops, extent.count, key)
    if step < 0:
        raise TracingError("a write through a slice that goes backwards, of an array whose length depends on values")
    after = np.subtract(extent.ranks, start)
    hit = np.logical_and(np.greater_equal(after, 0), np.less(after, count * step))
    if step != 1:
        hit = np.logical_and(hit, np.equal(after % step, 0))
    return Selected(ops.tracer(hit), (extent,))


def _by_mask(ops: Operations, operand: Selected, keys: list[Any], value: Any) -> None:
    """One mask: the other elements are written as they were."""
    number = next(number for number, each in enumerate(keys) if is_array(each))
    mask, dimension = keys[number], sum(map(width, keys[:number]))
    count = mask.ndim
    covered = slice(dimension, dimension + count)
    truths = ops.tracer(mask_along(ops, mask, operand.elements.shape[covered], operand.extents[covered], dimension))
    basic = (*keys[:number], *[slice(None)] * count, *keys[number + 1 :])
    target = operand.elements[basic]
    before = sum(1 for each in keys[:number] if each is None or isinstance(each, slice))
    shape = target.shape
    extents = (
        *_left(operand.extents, keys[:number]),
        Extent.of_mask(ops, truths.reshape(-1)),
        *_left(operand.extents[dimension + count :], keys[number + 1 :]),
    )
    flat = (*shape[:before], truths.size, *shape[before + count :])
    in_front = place_of(keys).position == 0 and before > 0
    if in_front:
        flat = (flat[before], *flat[:before], *flat[before + 1 :])
        extents = (extents[before], *extents[:before], *extents[before + 1 :])
    written = fitted(ops, value, flat, extents, _COUNTS)
    if np.ndim(written):
        written = np.broadcast_to(written, flat)
        written = np.moveaxis(written, 0, before) if in_front else written
        written = written.reshape(shape)
    own = ops.broadcast(ops.cast(written, operand.kind), shape)
    chosen = truths.reshape((*truths.shape, *(1,) * (len(shape) - before - count)))
    target.window.write(ops, ops.builder.select(ops.broadcast(chosen.value, shape), own, target.value))


def _by_arrays(ops: Operations, operand: Selected, keys: list[Any], value: Any) -> None:
    """Arrays of positions; of several that are equal the last one counts."""
    keys = as_arrays(ops, keys, operand)
    place = place_of(keys)
    own = [each for each in keys if each is not None]
    made, extents, counts = index_arrays(ops, own, operand.elements.shape, operand.extents)
    require_elements(ops, operand.elements.shape, made, extents)
    for dimension, each in enumerate(own):
        extent = operand.extents[dimension]
        if is_array(each) and extent is not None and not extent.is_packed:
            with unchecked(ops):
                made[dimension] = extent.positions[made[dimension]]
    if counts is not None:
        first = next(number for number, each in enumerate(own) if not isinstance(each, slice))
        # Beyond the end: left out.
        made[first] = np.where(counts, made[first], operand.elements.shape[first])
    rest = _left(operand.extents, keys)
    kept = (*rest[: place.position], *extents, *rest[place.position :])
    remaining = iter(made)
    whole = tuple(None if each is None else next(remaining) for each in keys)
    lengths = [1 if each is None else n for each, n in _lengths(keys, operand.elements.shape)]
    batch = np.broadcast_shapes(*(np.shape(each) for each in made if not isinstance(each, slice)))
    shape = (*lengths[: place.position], *batch, *lengths[place.position :])
    with unchecked(ops):
        operand.elements[whole] = fitted(ops, value, shape, kept, _SHAPES)


def _lengths(keys: Sequence[Any], shape: Sequence[int]) -> list[tuple[Any, int]]:
    """Of new dimensions and those that slices leave."""
    found: list[tuple[Any, int]] = []
    dimension = 0
    for each in keys:
        if each is None:
            found.append((None, 1))
            continue
        if isinstance(each, slice):
            found.append((each, len(range(*each.indices(shape[dimension])))))
        dimension += 1
    return found


def as_selected(operand: Tracer) -> Selected:
    """An array of which everything counts, whose memory is that of another one."""
    return Selected(operand, (None,) * operand.ndim)

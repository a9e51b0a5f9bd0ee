"""``x[mask]``, ``x[positions]`` of a length that is known when the function runs, and what is read of such arrays."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.tracing.arrays.indexing import gathered_strides
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.aligned import repacked, replaced, taken, wrapped
from hlojit.tracing.selection.extents import Extent, unchecked
from hlojit.tracing.selection.keys import (
    expanded,
    index_arrays,
    is_array,
    is_mask,
    mask_along,
    nonzero_of,
    place_of,
    width,
)
from hlojit.tracing.selection.selected import Extents, Selected
from hlojit.tracing.tracer import Tracer


def get_item(ops: Operations, operand: Selected, key: Any) -> Any:
    """``operand[key]`` of an array, or of a ``Tracer`` as one of which everything counts."""
    keys = known_masks(expanded(key, operand.ndim), operand)
    whole = operand
    operand, keys, is_copy = _without_bounds(ops, operand, keys)
    arrays = [each for each in keys if is_array(each)]
    if not arrays:
        return _basic(operand, keys, whole if is_copy else None)
    if len(arrays) == 1 and is_mask(arrays[0]):
        return _by_mask(ops, operand, keys)
    return _by_arrays(ops, operand, keys)


def known_masks(keys: Sequence[Any], operand: Selected) -> list[Any]:
    """Masks that are the same at every call are arrays of positions."""
    found: list[Any] = []
    for number, each in enumerate(keys):
        if isinstance(each, (list, np.ndarray)) and not isinstance(each, Tracer | Selected) and is_mask(each):
            dimension = sum(map(width, keys[:number]))
            covered = operand.extents[dimension : dimension + np.ndim(each)]
            if all(extent is None for extent in covered):
                mask_along(operand.context, each, operand.elements.shape[dimension:], covered, dimension)
                found += np.nonzero(each)
                continue
        found.append(each)
    return found


def _without_bounds(ops: Operations, operand: Selected, keys: list[Any]) -> tuple[Selected, list[Any], bool]:
    """Apply numbers and slices along dimensions whose length is not known; what is left is for the elements."""
    left = list(keys)
    is_copy = False
    dimension = operand.ndim
    for number in reversed(range(len(left))):
        each = left[number]
        dimension -= width(each)
        extent = operand.extents[dimension] if width(each) == 1 else None
        if extent is None or is_array(each):
            continue
        if not isinstance(each, slice):
            place = position_of(ops, extent, each, dimension)
            with unchecked(ops):
                picked = operand.elements[(*[slice(None)] * dimension, place)]
            operand = Selected(ops.tracer(picked), replaced(operand.extents, dimension))
            del left[number]
        elif each != slice(None):
            operand = sliced(ops, operand, dimension, each)
            left[number] = slice(None)
            is_copy = True
    return operand, left, is_copy


def position_of(ops: Operations, extent: Extent, key: Any, dimension: int) -> Any:
    """Where the element of a number lies that counts from either end; the call raises where there is none."""
    number = ops.tracer(key if isinstance(key, Tracer) else np.int64(operator.index(key)))
    if number.dtype.kind not in "iu":
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays "
                         "are valid indices")  # fmt: skip
    wide: Any = ops.scalar(ops.converted(number.value, np.dtype(np.int64)))
    rank = np.where(np.less(wide, 0), wide + extent.count, wide)[()]
    if ops.checks_indices:
        bad = np.logical_or(np.less(rank, 0), np.greater_equal(rank, extent.count))
        shown = key if isinstance(key, int) else "an index"
        message = f"index {shown} is out of bounds for axis {dimension}, whose length depends on values"
        ops.check(bad.value, IndexError, message)
    rank = np.clip(rank, 0, max(extent.capacity - 1, 0))
    if extent.is_packed:
        return rank
    if type(key) is int and key == 0:
        return np.argmax(extent.mask)
    if type(key) is int and key == -1:
        return np.max(np.where(extent.mask, extent.numbers, 0), initial=0)
    with unchecked(ops):
        return extent.positions[rank]


def bounds(ops: Operations, count: Any, key: slice) -> tuple[Any, Any, int]:
    """First position, number of positions, and step of a slice of a length, as Python has it."""
    step = 1 if key.step is None else ops.known_index(key.step)
    if step is None:
        raise TracingError("a slice whose step depends on values, of an array whose length does")
    if not step:
        raise ValueError("slice step cannot be zero")
    low, high = (0, count) if step > 0 else (-1, count - 1)

    def bound(given: Any, otherwise: Any) -> Any:
        if given is None:
            return otherwise
        wide = np.int64(given) if not isinstance(given, Tracer) else ops.scalar(ops.value(given, np.dtype(np.int64)))
        return np.clip(np.where(np.less(wide, 0), np.add(wide, count), wide)[()], low, high)

    start = bound(key.start, low if step > 0 else high)
    stop = bound(key.stop, high if step > 0 else low)
    distance = stop - start if step > 0 else start - stop
    return start, np.maximum((distance + (abs(step) - 1)) // abs(step), 0), step


def sliced(ops: Operations, operand: Selected, dimension: int, key: slice) -> Selected:
    """A slice along a dimension whose length is not known; a copy."""
    front = repacked(operand, dimension)
    extent = front.extents[dimension]
    assert extent is not None
    start, count, step = bounds(ops, extent.count, key)
    capacity = -(-extent.capacity // abs(step))
    if type(key.stop) is int and key.stop >= 0 and step > 0:
        capacity = min(capacity, -(-key.stop // step))
    made = Extent.of_count(ops, ops.tracer(count), capacity)
    places = np.clip(np.add(start, np.multiply(made.numbers, step)), 0, max(extent.capacity - 1, 0))
    return Selected(taken(front.elements, places, dimension), replaced(front.extents, dimension, made))


def _basic(operand: Selected, keys: list[Any], viewed: Selected | None) -> Any:
    """What is left of an index: along dimensions of known length.

    ``viewed``: of what NumPy would give a view here, where there is a copy.
    """
    extents: list[Extent | None] = []
    dimension = 0
    for each in keys:
        if each is None:
            extents.append(None)
            continue
        if isinstance(each, slice):
            extents.append(operand.extents[dimension])
        dimension += 1
    elements = operand.elements[tuple(keys)] if operand.ndim else operand.elements
    # Without such a dimension it is a view, of a copy if there is a slice.
    if not any(each is not None for each in extents):
        return elements
    return Selected(elements, extents, viewed)


def _by_mask(ops: Operations, operand: Selected, keys: list[Any]) -> Any:
    """One mask and numbers and slices: the elements stay where they are."""
    place = place_of(keys)
    number = next(number for number, each in enumerate(keys) if is_array(each))
    mask = keys[number]
    count = mask.ndim
    dimension = sum(map(width, keys[:number]))
    covered = slice(dimension, dimension + count)
    truths = mask_along(ops, mask, operand.elements.shape[covered], operand.extents[covered], dimension)
    basic = [*keys[:number], *[slice(None)] * count, *keys[number + 1 :]]
    elements: Any = operand.elements[tuple(basic)]
    before = sum(1 for each in keys[:number] if each is None or isinstance(each, slice))
    shape = elements.shape
    if count != 1:
        covered_size = math.prod(shape[before : before + count])
        elements = elements.reshape((*shape[:before], covered_size, *shape[before + count :]))
    extents = [*_kept(operand, keys[:number], 0), Extent.of_mask(ops, ops.tracer(truths).reshape(-1))]
    extents += _kept(operand, keys[number + 1 :], dimension + count)
    if place.position == 0 and before:
        elements = np.moveaxis(elements, before, 0)
        extents.insert(0, extents.pop(before))
    return Selected(ops.wrap(elements.value, gathered_strides(1, place.position, elements.shape)), extents)


def _kept(operand: Selected, keys: Sequence[Any], dimension: int) -> list[Extent | None]:
    """The extents of what slices leave."""
    found: list[Extent | None] = []
    for each in keys:
        if each is None:
            found.append(None)
            continue
        if isinstance(each, slice):
            found.append(operand.extents[dimension])
        dimension += width(each)
    return found


def as_arrays(ops: Operations, keys: Sequence[Any], operand: Selected) -> list[Any]:
    """Masks as arrays of positions, one for each dimension."""
    found: list[Any] = []
    dimension = 0
    for each in keys:
        if is_array(each) and is_mask(each):
            covered = slice(dimension, dimension + each.ndim)
            shape, extents = operand.elements.shape[covered], operand.extents[covered]
            truths = mask_along(ops, each, shape, extents, dimension)
            found += nonzero_of(ops, wrapped(ops.tracer(truths), extents))
        else:
            found.append(each)
        dimension += width(each)
    return found


def _by_arrays(ops: Operations, operand: Selected, keys: list[Any]) -> Any:
    """Several arrays, or one of positions."""
    keys = as_arrays(ops, keys, operand)
    place = place_of(keys)
    own = [each for each in keys if each is not None]
    for dimension, each in enumerate(own):
        if is_array(each):
            operand = repacked(operand, dimension)
    made, extents, _ = index_arrays(ops, own, operand.elements.shape, operand.extents)
    require_elements(ops, operand.elements.shape, made, extents)
    remaining = iter(made)
    whole = tuple(None if each is None else next(remaining) for each in keys)
    with unchecked(ops):
        elements = operand.elements[whole]
    rest = _kept(operand, keys, 0)
    return wrapped(elements, (*rest[: place.position], *extents, *rest[place.position :]))


def require_elements(ops: Operations, shape: Sequence[int], keys: Sequence[Any], extents: Extents) -> None:
    """An array without elements is indexed by nothing."""
    is_empty = any(not extent and not isinstance(key, slice) for extent, key in zip(shape, keys))
    if is_empty and any(each is not None for each in extents):
        raise TracingError("an array without elements is indexed by an array whose length depends on values")

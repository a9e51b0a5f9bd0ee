"""What an index is made of, where part of it is a mask or an array whose length is known when the function runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.aligned import INDICES, aligned, mask_of, taken
from hlojit.tracing.selection.extents import Extent
from hlojit.tracing.selection.selected import Selected
from hlojit.tracing.tracer import Tracer


def is_array(key: Any) -> bool:
    """Whether a part of an index is an array: of numbers or truths, known or not."""
    if isinstance(key, Selected):
        return True
    if isinstance(key, Tracer):
        return not key.is_scalar
    return isinstance(key, (np.ndarray, list))


def is_mask(key: Any) -> bool:
    """Whether it is an array of truths."""
    if isinstance(key, list):
        key = np.asarray(key) if not _holds_traced(key) else None
    return is_array(key) and key.dtype == np.bool_


def _holds_traced(key: list[Any]) -> bool:
    return any(isinstance(each, (Tracer, Selected)) or (isinstance(each, list) and _holds_traced(each)) for each in key)


def selects(key: Any) -> bool:
    """Whether the length of what an index names depends on values, or on a mask."""
    return any(isinstance(each, Selected) or is_mask(each) for each in (key if isinstance(key, tuple) else (key,)))


def expanded(key: Any, rank: int) -> list[Any]:
    """One part for each dimension (a mask stands for all of its own), and None where there is a new one."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(each, (bool, np.bool_)) or (isinstance(each, Tracer) and _is_truth(each)) for each in keys):
        raise TracingError("a single truth value as an index makes a dimension of length 0 or 1; use np.where")
    used = sum(_width(each) for each in keys if each is not None and each is not Ellipsis)
    if used > rank:
        raise IndexError(f"too many indices for array: array is {rank}-dimensional, but {used} were indexed")
    places = [number for number, each in enumerate(keys) if each is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    whole = [slice(None)] * (rank - used)
    return keys + whole if not places else keys[: places[0]] + whole + keys[places[0] + 1 :]


def _is_truth(key: Tracer) -> bool:
    return not key.shape and key.dtype == np.bool_


def _width(key: Any) -> int:
    return np.ndim(key) if is_mask(key) and not isinstance(key, Selected) else key.ndim if is_mask(key) else 1


def width(key: Any) -> int:
    """How many dimensions a part of an index stands for."""
    return 0 if key is None else _width(key)


@final
@dataclass(frozen=True)
class Place:
    """Where the dimensions of arrays of an index stand in the result."""

    position: int
    first: int
    """The number of the first array among the parts."""


def place_of(keys: Sequence[Any]) -> Place:
    """Together at the place of the first, or in front if there are others between them; a number counts as an array."""
    advanced = [number for number, each in enumerate(keys) if not isinstance(each, slice) and each is not None]
    together = advanced == list(range(advanced[0], advanced[0] + len(advanced)))
    return Place(advanced[0] if together else 0, advanced[0])


def require_shape(mask: Any, shape: Sequence[int], dimension: int) -> None:
    """NumPy's error for a mask that is not of the array's shape."""
    for number, (own, extent) in enumerate(zip(mask.shape, shape)):
        if own != extent:
            raise IndexError(
                f"boolean index did not match indexed array along axis {dimension + number}; size of axis is {extent} but "
                f"size of corresponding boolean axis is {own}"
            )


def mask_along(
    ops: Operations, mask: Any, shape: Sequence[int], extents: Sequence[Extent | None], dimension: int
) -> Any:
    """A mask of any kind as truths at the capacity of the dimensions that it stands for, False where nothing counts."""
    message = f"boolean index did not match indexed array along axis {dimension}"
    if not isinstance(mask, Selected):
        mask = ops.tracer(mask if isinstance(mask, Tracer) else np.asarray(mask))
        if all(each is None for each in extents):
            require_shape(mask, shape, dimension)
            return mask
        mask = Selected(mask, (None,) * mask.ndim)
    if mask.extents == tuple(extents):
        return np.logical_and(mask.elements, mask_of(mask, range(mask.ndim)))
    if mask.ndim > 1:
        raise TracingError(f"{message}: a mask of several dimensions of another length")
    (own,), (wanted,) = mask.extents, extents
    here = mask.elements.shape[0] if own is None else own.count
    length = shape[0] if wanted is None else wanted.count
    ops.check(ops.tracer(np.not_equal(here, length)).value, IndexError, message)
    ranks = np.minimum(np.arange(shape[0]) if wanted is None else wanted.ranks, max(mask.elements.shape[0] - 1, 0))
    ranks = np.maximum(ranks, 0)
    found = taken(mask.elements, ranks if own is None else taken(own.positions, ranks, 0), 0)
    return found if wanted is None else np.logical_and(found, wanted.mask)


def nonzero_of(ops: Operations, mask: Any) -> tuple[Any, ...]:
    """``np.nonzero``: along each dimension the positions; without moving anything."""
    if not isinstance(mask, Selected):
        return _nonzero(ops, ops.tracer(mask))
    whole = ops.tracer(np.logical_and(mask.elements, mask_of(mask, range(mask.ndim))))
    found = _nonzero(ops, whole)
    # Positions among those that count.
    return tuple(
        each if extent is None else Selected(taken(extent.ranks, each.elements, 0), each.extents)
        for each, extent in zip(found, mask.extents)
    )


def _nonzero(ops: Operations, mask: Tracer) -> tuple[Selected, ...]:
    extent = Extent.of_mask(ops, mask.reshape(-1))
    kind = mask.type.with_element_type("i64")
    lines = [ops.wrap(ops.builder.iota(kind, d)) for d in range(mask.ndim)]
    return tuple(Selected(each.reshape(-1).copy(), (extent,)) for each in lines)


def index_arrays(
    ops: Operations, keys: Sequence[Any], shape: Sequence[int], extents: Sequence[Extent | None]
) -> tuple[list[Any], tuple[Extent | None, ...], Any]:
    """Integer arrays for the dimensions that arrays and numbers index, of one shape, counted from the front and checked.

    ``keys`` says for each dimension an array, a number or a slice.  Gives the keys, the extents of the arrays' dimensions, and
    where what they name counts (None: everywhere).
    """
    places = [number for number, each in enumerate(keys) if not isinstance(each, slice)]
    own, found = aligned(ops, [keys[number] for number in places], INDICES)
    common = np.broadcast_shapes(*(np.shape(each) for each in own))
    counts = mask_of(Selected(ops.wrap(ops.full(0, np.dtype(np.int64), common)), found), range(len(found)))
    made = list(keys)
    for number, each in zip(places, own):
        extent = extents[number]
        length = shape[number] if extent is None else extent.count
        made[number] = _in_bounds(ops, ops.tracer(each), counts, length, number)
    return made, found, counts


def _in_bounds(ops: Operations, index: Tracer, counts: Any, length: Any, dimension: int) -> Any:
    if index.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    wide = index.astype(np.int64) if index.dtype != np.int64 else index
    wrapped = np.where(np.less(wide, 0), np.add(wide, length), wide)
    if ops.checks_indices:
        bad = np.logical_or(np.less(wrapped, 0), np.greater_equal(wrapped, length))
        if counts is not None:
            bad = np.logical_and(bad, counts)
        size = f" with size {length}" if isinstance(length, int) else ""
        ops.check(ops.tracer(bad).value, IndexError, f"an index is out of bounds for axis {dimension}{size}")
    return wrapped if counts is None else np.where(counts, wrapped, 0)

"""Searching in sorted arrays, partitions, choices among arrays, and copies into parts of arrays."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.choosing import argsort, in_bounds, sort
from hlojit.tracing.numpy_functions.rules import Rules, casting_of, implements, mask_of, single_axis, weak_kind
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection import sets
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}


@implements(RULES, np.searchsorted)
def searchsorted(ops: Operations, a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    if not isinstance(side, str):
        raise TypeError(f"search side must be str, not {type(side).__name__}")
    wanted = ops.tracer(v)
    array: Any = ops.tracer(a)
    if array.ndim != 1:
        depth = "of too small depth for desired array" if not array.ndim else "too deep for desired array"
        raise ValueError(f"object {depth}")
    if sorter is not None:
        order = ops.tracer(sorter)
        if order.dtype.kind not in "iub":
            raise TypeError("sorter must only contain integers")
        if order.ndim != 1:
            raise ValueError(f"object {'too deep for' if order.ndim else 'of too small depth for'} desired array")
        if order.size != array.size:
            raise ValueError("sorter.size must equal a.size")
        array = np.take(array, order)
    return sets.searchsorted(ops, array, wanted, side)


def _require_places(kth: Any, length: int) -> None:
    """NumPy's errors for the positions of a partition, which must be known."""
    if isinstance(kth, Tracer):
        raise TracingError("np.partition: kth must be known; make the argument static")
    places = np.asarray(kth)
    if places.dtype.kind == "b":
        raise ValueError("Booleans unacceptable as partition index")
    if places.dtype.kind not in "iu":
        raise TypeError("Partition index must be integer")
    if places.ndim > 1:
        raise ValueError("object too deep for desired array")
    for each in places.reshape(-1).tolist():
        if not -length <= each < length:
            raise ValueError(f"kth(={each + length if each < 0 else each}) out of bounds ({length})")


def _require_introselect(kind: Any, order: Any) -> None:
    if not isinstance(kind, str):
        raise TypeError(f"select kind must be str, not {type(kind).__name__}")
    if kind != "introselect":
        raise ValueError(f"select kind must be 'introselect' (got {kind!r})")
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")


def _length(operand: Tracer, axis: Any) -> int:
    return operand.size if axis is None else operand.shape[single_axis(operator.index(axis), operand.ndim)]


@implements(RULES, np.partition)
def partition(
    ops: Operations, a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None
) -> Tracer:
    """Sorted: one of the orders that NumPy may give."""
    _require_introselect(kind, order)
    _require_places(kth, _length(ops.tracer(a), axis))
    sorted_: Tracer = sort(ops, a, axis)
    return sorted_


@implements(RULES, np.argpartition)
def argpartition(
    ops: Operations, a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None
) -> Tracer:
    _require_introselect(kind, order)
    _require_places(kth, _length(ops.tracer(a), axis))
    places: Tracer = argsort(ops, a, axis)
    return places


@implements(RULES, np.choose)
def choose(ops: Operations, a: Any, choices: Any, mode: Any = "raise") -> Any:
    numbers = ops.tracer(a)
    if not np.can_cast(numbers.dtype, np.int64):
        raise TypeError(f"Cannot cast array data from {numbers.dtype!r} to dtype('int64') according to the rule 'safe'")
    arrays = [ops.tracer(each) for each in choices]
    if not arrays:
        raise ValueError("0-length sequence.")
    place: Any = in_bounds(ops, numbers.astype(np.int64), len(arrays), mode)
    if mode == "raise":
        ops.check(((place < 0) | (place >= len(arrays))).value, ValueError, "invalid entry in choice array")
    kind = np.result_type(*(weak(0) if (weak := weak_kind(each)) else ops.tracer(each).dtype for each in choices))
    shape = np.broadcast_shapes(place.shape, *(each.shape for each in arrays))
    chosen: Any = np.broadcast_to(arrays[-1].astype(kind), shape)
    for number in reversed(range(len(arrays) - 1)):
        chosen = np.where(place == number, arrays[number].astype(kind), chosen)
    return chosen


@implements(RULES, np.copyto)
def copyto(ops: Operations, dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Tracer):
        raise TracingError("np.copyto writes into an array that was made outside of what is traced; make it inside")
    if dst.is_scalar:
        raise TypeError(f"copyto() argument 1 must be a numpy.ndarray, not numpy.{dst.__class__.__name__}")
    source = _converted(ops, src, dst, casting_of(casting))
    while np.ndim(source) > dst.ndim and np.shape(source)[0] == 1:
        source = source[0]
    _require_shape(np.shape(source), dst.shape, "input array")
    mask = mask_of(where)
    if mask is True:
        dst[...] = source
        return
    mask = ops.tracer(mask)
    _require_shape(mask.shape, dst.shape, "where mask")
    dst[...] = np.where(np.broadcast_to(mask, dst.shape), source, dst)


def _require_shape(shape: tuple[int, ...], wanted: tuple[int, ...], what: str) -> None:
    fits = len(shape) <= len(wanted) and all(
        own in (1, extent) for own, extent in zip(reversed(shape), reversed(wanted))
    )
    if not fits:
        raise ValueError(f"could not broadcast {what} from shape {_spelt(shape)} into shape {_spelt(wanted)}")


def _spelt(shape: tuple[int, ...]) -> str:
    """A shape as NumPy's messages have it."""
    return f"({shape[0]},)" if len(shape) == 1 else f"({','.join(map(str, shape))})"


def _converted(ops: Operations, given: Any, target: Tracer, casting: Any) -> Any:
    """What is copied, in the target's dtype, or NumPy's error; a Python number counts by its kind, and must fit."""
    if isinstance(given, (str, bytes)):
        kinds = f"from {np.asarray(given).dtype!r} to {target.dtype!r}"
        raise TypeError(f"Cannot cast scalar {kinds} according to the rule {casting!r}")
    source = ops.tracer(given)
    weak = weak_kind(given)
    if weak is None:
        if not np.can_cast(source.dtype, target.dtype, casting):
            what = "array data" if source.ndim else "scalar"
            raise TypeError(
                f"Cannot cast {what} from {source.dtype!r} to {target.dtype!r} according to the rule {casting!r}"
            )
        return source.astype(target.dtype)
    if casting != "unsafe" and _RANKS[np.dtype(weak).kind] > _RANKS[target.dtype.kind]:
        raise TypeError(
            f"Cannot cast scalar from {np.dtype(weak)!r} to {target.dtype!r} according to the rule {casting!r}"
        )
    if weak is int and target.dtype.kind in "iu" and not isinstance(given, Tracer):
        return target.dtype.type(given)
    return given


_RANKS: Final = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


@implements(RULES, np.putmask)
def putmask(ops: Operations, a: Any, mask: Any, values: Any) -> None:
    """Elements of ``values`` go to where they stand, counted around."""
    if not isinstance(a, Tracer):
        raise TracingError("np.putmask writes into an array that was made outside of what is traced; make it inside")
    chosen = ops.tracer(mask).astype(bool)
    if chosen.size != a.size:
        raise ValueError("putmask: mask and data must be the same size")
    chosen = chosen.reshape(a.shape)
    weak = weak_kind(values) is not None
    if weak_kind(values) is complex and a.dtype.kind != "c":
        raise TypeError("float() argument must be a string or a real number, not 'complex'")
    given = _converted(ops, values, a, "unsafe" if weak else "safe")
    if weak:
        a[...] = np.where(chosen, given, a)
    elif given.size:
        around = np.take(given.reshape(-1), np.arange(a.size) % given.size).reshape(a.shape)
        a[...] = np.where(chosen, around, a)

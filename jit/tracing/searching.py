"""Searching in sorted arrays, partitions, choices among arrays, and copies into parts of arrays."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from hlojit.tracing.choosing import argsort, in_bounds, sort
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.rules import Rules, casting_of, implements, mask_of, single_axis
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}


@implements(RULES, np.searchsorted)
def searchsorted(ops: Operations, a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    """NumPy's search by halves, of all the numbers at once: as many steps as it takes at most."""
    if side not in ("left", "right"):
        raise ValueError(f"search side must be one of 'left' or 'right' (got {side!r})")
    array, wanted = ops.tracer(a), ops.tracer(v)
    if array.ndim != 1:
        raise ValueError("object of too small depth for desired array" if not array.ndim else "object too deep for desired array")
    if sorter is not None:
        array = np.take(array, ops.tracer(sorter))
    kind = np.promote_types(array.dtype, wanted.dtype)
    array, wanted = array.astype(kind), wanted.astype(kind)
    length = array.shape[0]
    low: Any = np.zeros_like(wanted, dtype=np.int64)
    if not length:
        return low
    high: Any = low + length
    for _ in range(length.bit_length()):
        middle = (low + high) // 2
        found = np.take(array, middle, mode="clip")
        before = _less(found, wanted) if side == "left" else ~_less(wanted, found)
        open_ = low < high
        low, high = np.where(open_ & before, middle + 1, low), np.where(open_ & ~before, middle, high)
    return low


def _less(x: Any, y: Any) -> Any:
    """The order of sorting: NaN is last."""
    return (x < y) | ((y != y) & (x == x)) if x.dtype.kind == "f" else x < y


def _require_places(kth: Any, length: int) -> None:
    """NumPy's errors for the positions of a partition, which must be known."""
    if isinstance(kth, Tracer):
        raise TracingError("np.partition: kth must be known; make the argument static")
    places = np.asarray(kth)
    if places.dtype.kind not in "iu":
        raise TypeError("Partition index must be integer")
    if places.ndim > 1:
        raise ValueError("object too deep for desired array")
    for each in places.reshape(-1).tolist():
        if not -length <= each < length:
            raise ValueError(f"kth(={each + length if each < 0 else each}) out of bounds ({length})")


def _require_introselect(kind: Any, order: Any) -> None:
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
    if numbers.dtype.kind not in "iub":
        raise TypeError(
            f"Cannot cast array data from {numbers.dtype!r} to dtype('int64') according to the rule 'safe'"
        )
    arrays = [ops.tracer(each) for each in choices]
    if not arrays:
        raise ValueError("0-length sequence.")
    place: Any = in_bounds(ops, numbers.astype(np.int64), len(arrays), mode)
    if mode == "raise":
        ops.check(((place < 0) | (place >= len(arrays))).value, ValueError, "invalid entry in choice array")
    kind = np.result_type(*(each.dtype for each in arrays))
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
        raise TypeError(f"copyto() argument 1 must be numpy.ndarray, not {dst.__class__.__name__}")
    source = ops.tracer(src)
    _require_cast(source, dst, casting_of(casting))
    while source.ndim > dst.ndim and source.shape[0] == 1:
        source = source[0]
    mask = mask_of(where)
    if mask is True:
        dst[...] = source
        return
    if np.broadcast_shapes(np.shape(source), dst.shape) != dst.shape:
        raise ValueError(f"could not broadcast input array from shape {source.shape} into shape {dst.shape}")
    mask = np.broadcast_to(ops.tracer(mask), dst.shape)
    dst[...] = np.where(mask, source.astype(dst.dtype), dst)


def _require_cast(source: Tracer, target: Tracer, casting: str) -> None:
    """NumPy's error for a copy that the rule of casting does not allow; a Python number counts by its kind."""
    if source.weak is not None:
        order = "biufc"
        letter = {bool: "b", int: "i", float: "f", complex: "c"}[source.weak]
        allowed = casting == "unsafe" or order.index(letter) <= order.index(target.dtype.kind)
    else:
        allowed = np.can_cast(source.dtype, target.dtype, casting)
    if not allowed:
        what = "scalar" if not source.ndim else "array data"
        raise TypeError(f"Cannot cast {what} from {source.dtype!r} to {target.dtype!r} according to the rule {casting!r}")


@implements(RULES, np.putmask)
def putmask(ops: Operations, a: Any, mask: Any, values: Any) -> None:
    """Elements of ``values`` go to where they stand, counted around."""
    if not isinstance(a, Tracer):
        raise TracingError("np.putmask writes into an array that was made outside of what is traced; make it inside")
    chosen, given = ops.tracer(mask).astype(bool), ops.tracer(values)
    if chosen.size != a.size:
        raise ValueError("putmask: mask and data must be the same size")
    _require_cast(given, a, "safe")
    if not given.size:
        return
    around = np.take(given.reshape(-1), np.arange(a.size) % given.size).reshape(a.shape)
    a[...] = np.where(chosen.reshape(a.shape), around.astype(a.dtype), a)

"""``np.histogram`` with bins of one width; by edges that are given it is NumPy's own source."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.numpy_source import own_source
from hlojit.tracing.numpy_functions.rules import Rules, implements, weak_kind
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.sets import sums_by_place
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}


@implements(RULES, np.histogram)
def histogram(
    ops: Operations, a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any]:
    if isinstance(bins, str):
        raise TracingError("np.histogram: the number of bins depends on values; give it, or compute the edges outside")
    if np.ndim(bins):
        by_edges: Any = own_source(np.histogram)
        made: tuple[Any, Any] = by_edges(a, bins, range, density, weights)
        return made
    try:
        count = operator.index(bins)
    except TypeError:
        raise TypeError("`bins` must be an integer, a string, or an array") from None
    if count < 1:
        raise ValueError("`bins` must be positive, when an integer")
    elements = ops.tracer(a)
    if elements.dtype == np.bool_:
        warnings.warn(
            f"Converting input from {elements.dtype} to {np.uint8} for compatibility.", RuntimeWarning, stacklevel=2
        )
        elements = elements.astype(np.uint8)
    weight = None if weights is None else ops.tracer(weights)
    if weight is not None and weight.shape != elements.shape:
        raise ValueError("weights should have the same shape as a.")
    first, last, edges, width = _edges(ops, elements, count, range)
    _require(ops, np.any(edges[:-1] >= edges[1:]), ValueError,
             f"Too many bins for data range. Cannot create {count} finite-sized bins.")  # fmt: skip
    if weight is None and elements.dtype.itemsize == 1 and type(edges) is np.ndarray:
        counted = _counted_bytes(ops, elements.reshape(-1), count, (first, last))
    else:
        counted = _counted(ops, elements.reshape(-1), weight, count, first, last, edges, width)
    if density:
        return counted / np.diff(edges).astype(np.float64) / counted.sum(), edges
    return counted, edges


def _require(ops: Operations, wrong: Any, error: type[Exception], message: str) -> None:
    """An error now where it is known, else when the function runs."""
    if not isinstance(wrong, Tracer):
        if wrong:
            raise error(message)
        return
    known = ops.known(wrong)
    if known is None:
        ops.check(ops.value(wrong), error, message)
    elif known:
        raise error(message)


def _edges(ops: Operations, elements: Tracer, count: int, given: Any) -> tuple[Any, Any, Any, Any]:
    """The outer edges, all of them, and how far the outer ones lie apart."""
    first: Any
    last: Any
    if given is not None:
        first, last = given
        _require(ops, first > last, ValueError, "max must be larger than min in range parameter.")
        _require(
            ops,
            ~(np.isfinite(first) & np.isfinite(last)),
            ValueError,
            f"supplied range of [{first}, {last}] is not finite",
        )
    elif not elements.size:
        first, last = 0, 1
    else:
        first, last = elements.min(), elements.max()
        finite = np.isfinite(first) & np.isfinite(last)
        _require(ops, ~finite, ValueError, "autodetected range is not finite")
    kind: Any = np.result_type(_stand_in(first), _stand_in(last), elements.dtype)
    if kind.kind in "iu":
        kind = np.result_type(kind, float)
    if not isinstance(first, Tracer) and not isinstance(last, Tracer):
        if first == last:
            first, last = first - 0.5, last + 0.5
        return first, last, np.linspace(first, last, count + 1, dtype=kind), _distance(last, first)
    return _traced_edges(first, last, count, kind)


def _traced_edges(first: Any, last: Any, count: int, kind: np.dtype[Any]) -> tuple[Any, Any, Any, Any]:
    """The same of outer edges that are known when the function runs; as ``np.linspace`` computes them."""
    is_one = first == last
    width = np.where(is_one, 1, _distance(last, first).astype(kind)).astype(kind)[()]
    low, high = first.astype(kind), last.astype(kind)
    low, high = np.where(is_one, low - 0.5, low)[()], np.where(is_one, high + 0.5, high)[()]
    steps = np.arange(count + 1, dtype=kind)
    step = (high - low) / count
    inner = np.where(step == 0, steps / count * (high - low), steps * step) + low
    return low, high, np.append(inner[:-1], high), width


def _stand_in(number: Any) -> Any:
    """What decides of the common dtype in place of a number."""
    weak = weak_kind(number)
    return weak(0) if weak is not None else number.dtype if isinstance(number, Tracer) else number


def _distance(a: Any, b: Any) -> Any:
    """``a - b``, of signed integers as an unsigned one, so that it fits."""
    kind = np.result_type(_stand_in(a), _stand_in(b))
    if kind.kind != "i":
        return np.subtract(a, b, dtype=kind)
    wide = kind.str.replace("i", "u")
    unsigned: list[Any] = [each if isinstance(each, Tracer) else np.asarray(each) for each in (a, b)]
    return np.subtract(*(each.astype(kind).astype(wide) for each in unsigned))


def _counted_bytes(ops: Operations, elements: Tracer, count: int, between: tuple[Any, Any]) -> Any:
    """How many elements of one byte each bin has: how often each of the 256 is there, put together as NumPy puts them."""
    limits = np.iinfo(elements.dtype)
    each = np.arange(limits.min, limits.max + 1).astype(elements.dtype)
    here: Any = ops.tracer(elements.astype(np.int64) - limits.min)
    times = sums_by_place(ops, here, ops.wrap(ops.full(1, np.dtype(np.int64), here.shape)), each.size)
    # Those of a bin follow one another.
    wide, _ = np.histogram(each, count, between)
    start = int((each < between[0]).sum())
    if (wide == 1).all():
        return times[start : start + count]
    ends = start + np.append(0, np.cumsum(wide))
    total: Any = np.append(0, np.cumsum(times))
    return total[ends[1:]] - total[ends[:-1]]


def _counted(
    ops: Operations, elements: Tracer, weight: Tracer | None, count: int, first: Any, last: Any, edges: Any, width: Any
) -> Any:
    """How many elements, or what weight, each bin has; as NumPy finds the bins of numbers beside an edge."""
    keep = (elements >= first) & (elements <= last)
    edges = ops.tracer(edges)
    values: Any = elements.astype(edges.dtype)
    scaled = (np.subtract(values, first) / width) * count
    place: Any = np.where(keep, scaled, 0).astype(np.int64)
    place = np.where(place == count, count - 1, place)
    place = place - (values < np.take(edges, place, mode="clip"))
    beyond = (values >= np.take(edges, place + 1, mode="clip")) & (place != count - 1)
    place = ops.tracer(np.where(keep, place + beyond, count))
    if weight is None:
        return sums_by_place(ops, place, ops.wrap(ops.full(1, np.dtype(np.int64), place.shape)), count)
    weight = weight.reshape(-1)
    if weight.dtype.kind == "c":
        return sums_by_place(ops, place, weight.astype(np.complex128), count).astype(weight.dtype)
    sums = sums_by_place(ops, place, weight.astype(np.float64), count)
    if weight.dtype.kind in "iu":
        sums = sums.astype(np.int64)
    return sums.astype(weight.dtype)

"""``np.unique`` and the functions of sets, searches in sorted arrays, and ``np.bincount``: by sorting."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np
from hlojit.ir.attributes import ScatterDimensionNumbers
from hlojit.ir.errors import ExecutionError
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.arrays.kinds import element_of
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.rules import Rules, implements
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.aligned import masked, repacked, taken
from hlojit.tracing.selection.extents import Extent
from hlojit.tracing.selection.reductions import argsort, in_one_dimension, sort
from hlojit.tracing.selection.selected import Selected
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}
"""By NumPy's function; the arguments may be ``Selected`` or ``Tracer``."""

SELECTING: Final = (
    np.unique, np.intersect1d, np.union1d, np.setdiff1d, np.setxor1d, np.isin, np.bincount,
)  # fmt: skip
"""Those that are done here for arrays of known length as well."""

_MOST_COMPARED: Final = 1 << 16
"""Pairs up to which a set is searched by comparing all of them."""


def _vector(ops: Operations, a: Any) -> Selected:
    """The elements in one dimension, in front, with an extent of their own."""
    if isinstance(a, Selected):
        return repacked(in_one_dimension(ops, a), 0)
    own = ops.tracer(a)
    own = own.reshape(-1)
    count = ops.scalar(ops.full(own.size, np.dtype(np.int64)))
    return Selected(own, (Extent.of_count(ops, count, own.size),))


def _starts(ops: Operations, ordered: Selected, equal_nan: bool) -> Tracer:
    """Where another element begins in what is sorted."""
    elements, extent = ordered.elements, _extent(ordered)
    differs = np.not_equal(elements[1:], elements[:-1])
    if equal_nan and elements.dtype.kind == "f":
        differs = np.logical_and(
            differs, np.logical_not(np.logical_and(np.isnan(elements[1:]), np.isnan(elements[:-1])))
        )
    first = ops.wrap(ops.full(True, np.dtype(bool), (min(1, elements.shape[0]),)))
    return ops.tracer(np.logical_and(np.concatenate([first, differs]), extent.mask))


def _extent(operand: Selected) -> Extent:
    (extent,) = operand.extents
    assert extent is not None
    return extent


@implements(RULES, np.unique)
def unique(
    ops: Operations, ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: Any = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """Sorted always, which is one of the orders that ``sorted=False`` allows."""
    shape = None if isinstance(ar, Selected) else ops.tracer(ar).shape
    if axis is not None and (shape is None or len(shape) != 1):
        raise TracingError("np.unique: axis= of an array of several dimensions cannot be compiled yet")
    if isinstance(ar, Selected) and ar.ndim > 1 and return_inverse:
        raise TracingError(
            "np.unique: return_inverse= of an array of several dimensions whose length depends on values"
        )
    operand = _vector(ops, ar)
    if not (return_index or return_inverse or return_counts):
        ordered = sort(ops, operand)
        return Selected(ordered.elements, (Extent.of_mask(ops, _starts(ops, ordered, equal_nan)),))
    order = argsort(ops, operand, kind="stable").elements
    ordered = Selected(taken(operand.elements, order, 0), operand.extents)
    starts = _starts(ops, ordered, equal_nan)
    extent = Extent.of_mask(ops, starts)
    made: list[Any] = [_packed(ordered.elements, extent)]
    if return_index:
        made.append(_packed(order, extent))
    if return_inverse:
        made.append(_inverse(ops, operand, order, starts, shape))
    if return_counts:
        made.append(Selected(_lengths(ops, extent, _extent(operand).count), (extent.packed(),)))
    return tuple(made)


def _packed(elements: Tracer, extent: Extent) -> Selected:
    return repacked(Selected(elements, (extent,)), 0)


def _inverse(ops: Operations, operand: Selected, order: Tracer, starts: Tracer, shape: tuple[int, ...] | None) -> Any:
    """Of each element the number of its group, which is less than the number of elements."""
    groups = np.cumsum(starts.astype(np.int64)) - 1
    made = np.zeros_like(order)
    made[order] = groups
    if shape is not None:
        made = made.reshape(shape).copy()
    ops.limits[made.value] = max(operand.elements.shape[0], 1)  # type: ignore[attr-defined]
    return made if shape is not None else Selected(ops.tracer(made), operand.extents)


def _lengths(ops: Operations, extent: Extent, total: Any) -> Tracer:
    """How many elements lie from each start to the next."""
    front = extent.positions
    following = np.concatenate([front[1:], front[:1]])
    ends = np.where(np.equal(extent.numbers, extent.count - 1), total, following)
    return ops.tracer(np.subtract(ends, front))


# ------------------------------------------------------------------------------------------------------------- sets


@implements(RULES, np.isin)
def isin(
    ops: Operations, element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
    kind: Any = None,
) -> Any:  # fmt: skip
    if isinstance(element, Selected):
        return Selected(isin(ops, element.elements, test_elements, invert=invert), element.extents)
    own, among = ops.tracer(element), _vector(ops, test_elements)
    common = np.result_type(own.dtype, among.dtype)
    own, among = own.astype(common), Selected(among.elements.astype(common), among.extents)
    if own.size * among.elements.shape[0] <= _MOST_COMPARED:
        equal = np.logical_and(np.equal(own[..., None], among.elements), _extent(among).mask)
        found = np.any(equal, axis=-1)
    else:
        ordered = sort(ops, among)
        place = _search(ops, ordered, own, "left")
        at = taken(ordered.elements, np.minimum(place, ordered.elements.shape[0] - 1), 0)
        found = np.logical_and(np.less(place, _extent(among).count), np.equal(at, own))
    return np.logical_not(found) if invert else found


def _both(ops: Operations, ar1: Any, ar2: Any) -> tuple[Any, Any]:
    """The two as arrays of one dimension and dtype."""
    one, other = (each if isinstance(each, Selected) else ops.tracer(each) for each in (ar1, ar2))
    common = np.result_type(one.dtype, other.dtype)
    return one.astype(common).reshape(-1), other.astype(common).reshape(-1)


@implements(RULES, np.intersect1d)
def intersect1d(ops: Operations, ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    one, other = _both(ops, ar1, ar2)
    own = unique(ops, one)
    return own[isin(ops, own, other)]


@implements(RULES, np.setdiff1d)
def setdiff1d(ops: Operations, ar1: Any, ar2: Any) -> Any:
    own = unique(ops, ar1)
    return own[isin(ops, own, ar2, invert=True)]


@implements(RULES, np.union1d)
def union1d(ops: Operations, ar1: Any, ar2: Any) -> Any:
    return unique(ops, np.concatenate(_both(ops, ar1, ar2)))


@implements(RULES, np.setxor1d)
def setxor1d(ops: Operations, ar1: Any, ar2: Any) -> Any:
    one, other = _both(ops, ar1, ar2)
    return np.sort(np.concatenate([setdiff1d(ops, one, other), setdiff1d(ops, other, one)]))


# --------------------------------------------------------------------------------------------------------- searches


@implements(RULES, np.searchsorted)
def searchsorted(ops: Operations, a: Any, v: Any, side: str = "left") -> Any:
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    among = _vector(ops, a)
    wanted = v.elements if isinstance(v, Selected) else ops.tracer(v)
    common = np.result_type(among.dtype, wanted.dtype)
    among = Selected(among.elements.astype(common), among.extents)
    found = _search(ops, among, wanted.astype(common), side)
    return Selected(found, v.extents) if isinstance(v, Selected) else found


def _search(ops: Operations, ordered: Selected, wanted: Tracer, side: str) -> Tracer:
    """How many elements stand before each wanted one, by bisection; NaN is behind all numbers."""
    extent = _extent(ordered)
    low: Any = np.zeros_like(wanted, np.int64)
    high: Any = np.add(low, extent.count)
    last = max(extent.capacity - 1, 0)
    for _ in range(extent.capacity.bit_length()):
        middle = (low + high) // 2
        at = taken(ordered.elements, np.minimum(middle, last), 0)
        before = np.less(at, wanted) if side == "left" else np.less_equal(at, wanted)
        if wanted.dtype.kind == "f":
            behind = (
                np.isnan(wanted) if side == "right" else np.logical_and(np.isnan(wanted), np.logical_not(np.isnan(at)))
            )
            before = np.logical_or(before, behind)
        is_open = np.less(low, high)
        low, high = (
            np.where(np.logical_and(is_open, before), middle + 1, low),
            np.where(np.logical_and(is_open, np.logical_not(before)), middle, high),
        )
    return ops.tracer(low)


# ------------------------------------------------------------------------------------------------------------ counts

_SHORT: Final = 1 << 16
"""Of counts whose number is not known, but a bound of it is."""


@implements(RULES, np.bincount)
def bincount(ops: Operations, x: Any, weights: Any = None, minlength: int = 0) -> Any:
    own = x if isinstance(x, Selected) else ops.tracer(x)
    if own.ndim != 1:
        raise ValueError(
            "object too deep for desired array" if own.ndim else "object of too small depth for desired array"
        )
    if own.dtype.kind not in "iub" or own.dtype == np.uint64:
        raise TypeError(f"Cannot cast array data from {own.dtype!r} to dtype('int64') according to the rule 'safe'")
    minlength = operator.index(minlength)
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    elements = own.elements if isinstance(own, Selected) else own
    if not elements.size:
        # Of nothing NumPy counts, and does not look at weights.
        return ops.wrap(ops.full(0, np.dtype(np.int64), (minlength,)))
    most = 2 if own.dtype == np.bool_ else 256 if own.dtype.itemsize == 1 else ops.limits.get(elements.value)
    if most is None and own.dtype.itemsize == 8:
        highest = ops.ranges.of(elements.value)[1]
        most = highest + 1 if highest < max(minlength, _SHORT) else None
    if most is None and not minlength:
        raise TracingError(
            "np.bincount gives as many elements as the largest number says, and it is not known how many these are at most: "
            "say so, np.bincount(x, minlength=most), or convert to np.uint8 first"
        )
    wide = own.astype(np.int64)
    ops.check(ops.value(np.any(np.less(wide, 0))), ValueError, "'list' argument must have no negative elements")
    if most is None:
        ops.check(
            ops.value(np.any(np.greater_equal(wide, minlength))),
            ExecutionError,
            f"np.bincount: a number is not below minlength={minlength}, which had to say how many there are at most",
        )
        most = minlength
    count = np.maximum(np.max(wide, initial=-1) + 1, minlength)
    extent = None if most <= minlength else Extent.of_count(ops, ops.tracer(count), most)
    capacity = minlength if extent is None else extent.capacity
    places = masked(wide, capacity) if isinstance(wide, Selected) else wide
    if weights is None:
        added: Any = ops.wrap(ops.full(1, np.dtype(np.int64), elements.shape))
    else:
        added = _weights(ops, own, weights)
    sums = sums_by_place(ops, ops.tracer(places), ops.tracer(added), capacity)
    return sums if extent is None else Selected(sums, (extent,))


def _weights(ops: Operations, own: Any, weights: Any) -> Any:
    given = weights if isinstance(weights, Selected) else ops.tracer(weights)
    if not np.can_cast(given.dtype, np.float64):
        raise TypeError(f"Cannot cast array data from {given.dtype!r} to dtype('float64') according to the rule 'safe'")
    extents = own.extents if isinstance(own, Selected) else (None,)
    others = given.extents if isinstance(given, Selected) else (None,)
    if extents != others:
        raise TracingError("np.bincount: weights of another mask than the numbers; index both by the same")
    elements = given.elements if isinstance(given, Selected) else given
    if elements.shape != (own.elements if isinstance(own, Selected) else own).shape:
        raise ValueError("The weights and list don't have the same length.")
    return elements.astype(np.float64)


def sums_by_place(ops: Operations, places: Tracer, added: Tracer, length: int) -> Tracer:
    """Sums by place; what lies beyond the end is left out."""
    return combined_by_place(ops, ops.full(0, added.dtype, (length,)), places, added, "add")


def combined_by_place(ops: Operations, base: Value, places: Tracer, added: Tracer, op: str) -> Tracer:
    """The elements of ``base`` combined with those added at their places, one after the other."""
    scalar = tensor((), element_of(added.dtype))
    numbers = ScatterDimensionNumbers(
        update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1
    )
    made = ops.builder.create(
        "scatter",
        [base, ops.builder.reshape(places.value, (places.shape[0], 1)), added.value],
        attributes={"scatter_dimension_numbers": numbers, "indices_are_sorted": False, "unique_indices": False},
        regions=[ops.builder.region([scalar, scalar], lambda inner, old, new: inner.create(op, [old, new]).result)],
        result_types=[base.type],
    ).result
    return ops.wrap(made)

"""Reductions of arrays whose length is known when the function runs: over the elements that count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions import reductions
from hlojit.tracing.numpy_functions.rules import Axis, Rules, flag, implements, normalized_axes, single_axis
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.aligned import aligned, mask_of, masked, repacked, replaced, wrapped
from hlojit.tracing.selection.extents import Extent, unchecked
from hlojit.tracing.selection.selected import Extents, Selected
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}
"""By NumPy's function; an argument is a ``Selected``, others may be."""


def _left(operand: Selected, axes: tuple[int, ...], keepdims: bool) -> Extents:
    """The extents of a reduction's result."""
    if keepdims:
        return tuple(None if d in axes else each for d, each in enumerate(operand.extents))
    return tuple(each for d, each in enumerate(operand.extents) if d not in axes)


def _chosen(ops: Operations, a: Any, where: Any, axis: Axis) -> tuple[Selected, tuple[int, ...], dict[str, Any]]:
    """The operand, the axes, and what of it is reduced, as an option."""
    if where is not np._NoValue and where is not True:
        (elements, where), extents = aligned(ops, [a, where])
        if not isinstance(a, Selected) or extents != a.extents or elements.shape != a.elements.shape:
            raise TracingError("where= of another length than the array: index the array by it, x[mask]")
        a = Selected(elements, extents)
    axes = normalized_axes(axis, a.ndim)
    mask = mask_of(a, axes)
    if where is np._NoValue or where is True:
        where = mask
    elif mask is not None:
        where = np.logical_and(where, mask)
    return a, axes, {} if where is None else {"where": where}


def _reduction(function: Callable[..., Any]) -> None:
    def rule(
        ops: Operations, a: Any, axis: Axis = None, keepdims: Any = False, where: Any = np._NoValue, **options: Any
    ) -> Any:
        operand, axes, chosen = _chosen(ops, a, where, axis)
        own = {name: value for name, value in options.items() if value is not np._NoValue}
        kept = flag(keepdims)
        # Named by number: all of them is what None says, of any number of dimensions.
        made = function(operand.elements, axis=axes, keepdims=kept, **chosen, **own)
        return wrapped(made, _left(operand, axes, kept))

    RULES[function] = rule


for _function in (np.sum, np.prod, np.any, np.all, np.mean, np.var, np.std):
    _reduction(_function)


@implements(RULES, np.count_nonzero)
def count_nonzero(ops: Operations, a: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    counted = np.not_equal(a, 0) if a.dtype != np.bool_ else a
    return RULES[np.sum](ops, counted, axis, keepdims, dtype=np.int64)


def _extreme(function: Callable[..., Any], name: str, identity: Callable[[np.dtype[Any]], Any]) -> Callable[..., Any]:
    def rule(
        ops: Operations, a: Any, axis: Axis = None, keepdims: Any = False, initial: Any = np._NoValue,
        where: Any = np._NoValue,
    ) -> Any:  # fmt: skip
        operand, axes, chosen = _chosen(ops, a, where, axis)
        reduced = [each for d in axes if (each := operand.extents[d]) is not None]
        if initial is np._NoValue or initial is None:
            if where is not np._NoValue and where is not True:
                raise ValueError(
                    f"reduction operation {name!r} does not have an identity, so to use a where mask one has to specify "
                    "'initial'"
                )
            message = f"zero-size array to reduction operation {name} which has no identity"
            if not all(operand.elements.shape[d] for d in axes):
                raise ValueError(message)
            _require_some(ops, reduced, message)
        if chosen:
            chosen["initial"] = identity(operand.dtype)
            if initial is not np._NoValue and initial is not None:
                chosen["initial"] = initial
        made = function(operand.elements, axis=axes, keepdims=flag(keepdims), **chosen)
        return wrapped(made, _left(operand, axes, flag(keepdims)))

    return rule


def _require_some(ops: Operations, extents: list[Extent], message: str) -> None:
    for each in extents:
        ops.check(ops.tracer(np.equal(each.count, 0)).value, ValueError, message)


RULES[np.max] = RULES[np.amax] = _extreme(np.max, "maximum", reductions.smallest)
RULES[np.min] = RULES[np.amin] = _extreme(np.min, "minimum", reductions.largest)


@implements(RULES, np.ptp)
def ptp(ops: Operations, a: Any, axis: Axis = None, keepdims: Any = False) -> Any:
    return np.max(a, axis, keepdims=flag(keepdims)) - np.min(a, axis, keepdims=flag(keepdims))


def in_one_dimension(ops: Operations, operand: Selected) -> Selected:
    """The elements in C order."""
    if operand.ndim == 1:
        return operand
    mask = mask_of(operand, range(operand.ndim))
    whole = ops.tracer(np.broadcast_to(mask, operand.elements.shape)).reshape(-1)
    return Selected(operand.elements.reshape(-1), (Extent.of_mask(ops, whole),))


def _position(name: str, extreme: Callable[..., Any]) -> Callable[..., Any]:
    def rule(ops: Operations, a: Selected, axis: int | None = None, *, keepdims: Any = False) -> Any:
        if flag(keepdims) and axis is None:
            return rule(ops, a).reshape((1,) * a.ndim)
        operand = in_one_dimension(ops, a) if axis is None else a
        dimension = 0 if axis is None else single_axis(axis, a.ndim)
        extent = operand.extents[dimension]
        if extent is None:
            made = getattr(np, name)(operand.elements, dimension, keepdims=flag(keepdims))
            return wrapped(made, _left(operand, (dimension,), flag(keepdims)))
        _require_some(ops, [extent], f"attempt to get {name} of an empty sequence")
        best = extreme(Selected(operand.elements, _only(operand, dimension)), dimension, keepdims=True)
        hit = np.equal(operand.elements, best)
        if operand.dtype.kind in "fc":
            # Where there is a NaN it is the extreme, and the first one counts.
            hit = np.logical_or(hit, np.not_equal(operand.elements, operand.elements))
        along = (-1,) + (1,) * (operand.ndim - dimension - 1)
        first = np.argmax(np.logical_and(hit, extent.mask.reshape(along)), dimension, keepdims=True)
        before = np.logical_and(np.less(extent.numbers.reshape(along), first), extent.mask.reshape(along))
        ranks = np.sum(before, axis=dimension, keepdims=flag(keepdims))
        return wrapped(ranks, _left(operand, (dimension,), flag(keepdims)))

    return rule


def _only(operand: Selected, dimension: int) -> Extents:
    return tuple(each if d == dimension else None for d, each in enumerate(operand.extents))


RULES[np.argmax] = _position("argmax", np.max)
RULES[np.argmin] = _position("argmin", np.min)


def _cumulative(function: Callable[..., Any], identity: int) -> None:
    def rule(ops: Operations, a: Selected, axis: int | None = None, dtype: Any = None) -> Any:
        operand = in_one_dimension(ops, a) if axis is None else a
        dimension = 0 if axis is None else single_axis(axis, a.ndim)
        made = function(masked(operand, identity, [dimension]), dimension, dtype)
        return Selected(made, operand.extents)

    RULES[function] = rule


_cumulative(np.cumsum, 0)
_cumulative(np.cumprod, 1)


# ------------------------------------------------------------------------------------------------------- in order


def last_of(dtype: np.dtype[Any]) -> Any:
    """What is sorted behind everything."""
    if dtype.kind == "c":
        raise TracingError("complex numbers of a length that depends on values cannot be sorted yet")
    return np.nan if dtype.kind == "f" else reductions.largest(dtype)


@implements(RULES, np.sort)
def sort(ops: Operations, a: Selected, axis: int | None = -1, **options: Any) -> Any:
    operand = in_one_dimension(ops, a) if axis is None else a
    dimension = 0 if axis is None else single_axis(axis, a.ndim)
    extent = operand.extents[dimension]
    if extent is None:
        return Selected(np.sort(operand.elements, dimension, **options), operand.extents)
    made = np.sort(masked(operand, last_of(operand.dtype), [dimension]), dimension, **options)
    return Selected(made, replaced(operand.extents, dimension, extent.packed()))


@implements(RULES, np.argsort)
def argsort(ops: Operations, a: Selected, axis: int | None = -1, **options: Any) -> Any:
    operand = in_one_dimension(ops, a) if axis is None else a
    dimension = 0 if axis is None else single_axis(axis, a.ndim)
    if operand.extents[dimension] is None:
        return Selected(np.argsort(operand.elements, dimension, **options), operand.extents)
    # In front first: what equals the filling stands before it, and the sort is stable.
    front = repacked(operand, dimension)
    made = np.argsort(masked(front, last_of(operand.dtype), [dimension]), dimension, **options)
    return Selected(made, front.extents)


_METHODS: Final = ("linear", "lower", "higher", "nearest", "midpoint")


@implements(RULES, np.quantile)
def quantile(
    ops: Operations, a: Selected, q: Any, axis: int | None = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    share = np.asarray(q, a.dtype) if type(q) in (int, float) and a.dtype.kind == "f" else _share(q)
    if not isinstance(share, Tracer) and not (np.all(share >= 0) and np.all(share <= 1)):
        raise ValueError("Quantiles must be in the range [0, 1]")
    return _quantile(ops, a, share, axis, method, keepdims)


@implements(RULES, np.percentile)
def percentile(
    ops: Operations, a: Selected, q: Any, axis: int | None = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    share = np.true_divide(
        _share(q) if not isinstance(q, (int, float)) else q, a.dtype.type(100) if a.dtype.kind == "f" else 100
    )
    if not isinstance(share, Tracer) and not (np.all(share >= 0) and np.all(share <= 1)):
        raise ValueError("Percentiles must be in the range [0, 100]")
    return _quantile(ops, a, share, axis, method, keepdims)


def _share(q: Any) -> Any:
    if isinstance(q, Tracer):
        return q
    given = np.asarray(q)
    return given if given.dtype.kind == "f" else given.astype(np.float64)


def _quantile(ops: Operations, a: Selected, share: Any, axis: int | None, method: str, keepdims: bool) -> Any:
    """By the number of the element, between two of which NumPy's ``method`` decides; computed in NumPy's dtypes."""
    if method not in (_METHODS if a.dtype.kind == "f" else _METHODS[:1]) or keepdims or a.dtype.kind not in "fiu":
        raise TracingError(
            f"np.quantile(method={method!r}) of {a.dtype} numbers whose count depends on values: method='linear', or of floats "
            f"{', '.join(_METHODS[1:])}"
        )
    if axis is not None and a.ndim > 1:
        raise TracingError("np.quantile along one of several dimensions, of an array whose length depends on values")
    operand = in_one_dimension(ops, a)
    (extent,) = operand.extents
    assert extent is not None
    _require_some(ops, [extent], "index -1 is out of bounds for axis 0 with size 0")
    ordered = sort(ops, operand).elements
    wide = ordered if ordered.dtype.kind == "f" else ordered.astype(np.float64)
    last = np.subtract(extent.count, 1)
    place = np.multiply(last.astype(share.dtype), share)
    low, high = np.floor(place), np.ceil(place)
    if method == "nearest":
        low = high = np.rint(place)
    with unchecked(ops):
        below, above, end = (wide[np.clip(each, 0, None).astype(np.int64)] for each in (low, high, last))
    part: Any = np.subtract(place, np.floor(place))
    if method == "midpoint":
        part = np.where(np.equal(low, high), share.dtype.type(0), share.dtype.type(0.5))
    elif method != "linear":
        part = share.dtype.type(method == "higher")
    found = _between(below, above, part)
    return found if ordered.dtype.kind != "f" else np.where(np.isnan(end), np.nan, found)[()]


def _between(below: Any, above: Any, part: Any) -> Any:
    """NumPy's interpolation, which is exact at both ends."""
    difference = np.subtract(above, below)
    found = np.where(
        np.greater_equal(part, 0.5),
        np.subtract(above, np.multiply(difference, np.subtract(1, part))),
        np.add(below, np.multiply(difference, part)),
    )
    return np.where(np.equal(below, above), below, found)[()]


@implements(RULES, np.median)
def median(ops: Operations, a: Selected, axis: int | None = None, *, keepdims: bool = False) -> Any:
    if keepdims or (axis is not None and a.ndim > 1):
        raise TracingError("np.median along one of several dimensions, of an array whose length depends on values")
    operand = in_one_dimension(ops, a)
    (extent,) = operand.extents
    assert extent is not None
    ordered = sort(ops, operand)
    if not extent.capacity:
        return np.mean(ordered.elements)
    half, end = extent.count // 2, max(extent.capacity - 1, 0)
    with unchecked(ops):
        below, above, last = (
            ordered.elements[np.clip(each, 0, end)] for each in (half - 1, np.add(half, 0), extent.count - 1)
        )
    # Of an odd number it is the one in the middle: twice it may be too large.
    found = np.mean(np.stack([np.where(np.equal(extent.count % 2, 1), above, below), above]))
    found = np.where(np.equal(extent.count % 2, 1), above.astype(found.dtype), found)
    # NumPy's is NaN of none, and where there is one, which is sorted to the end.
    nothing = np.equal(extent.count, 0)
    if ordered.dtype.kind == "f":
        nothing = np.logical_or(nothing, np.isnan(last))
    return np.where(nothing, np.nan, found)[()]

"""NumPy's functions whose arguments or results are arrays of a length that is known when the function runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.rules import Rules, flag, implements, normalized_axes
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection import reductions, sets
from hlojit.tracing.selection.aligned import aligned, elementwise, masked, wrapped
from hlojit.tracing.selection.extents import Extent
from hlojit.tracing.selection.keys import nonzero_of
from hlojit.tracing.selection.reductions import in_one_dimension
from hlojit.tracing.selection.selected import Selected
from hlojit.tracing.selection.ufuncs import outer, product

RULES: Rules = {**reductions.RULES, **sets.RULES}
"""By NumPy's function."""


def as_selected(ops: Operations, operand: Any) -> Selected:
    """An array, of which everything counts unless it says otherwise."""
    if isinstance(operand, Selected):
        return operand
    own = ops.tracer(operand)
    return Selected(own, (None,) * own.ndim)


# -------------------------------------------------------------------------------------------------- which, and where


def _truths(a: Any) -> Any:
    return a if a.dtype == np.bool_ else np.not_equal(a, 0)


@implements(RULES, np.nonzero)
def nonzero(ops: Operations, a: Any) -> Any:
    operand = a if isinstance(a, Selected) else ops.tracer(a)
    if not operand.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    return nonzero_of(ops, _truths(operand))


@implements(RULES, np.flatnonzero)
def flatnonzero(ops: Operations, a: Any) -> Any:
    return np.nonzero(np.ravel(a))[0]


@implements(RULES, np.argwhere)
def argwhere(ops: Operations, a: Any) -> Any:
    found = np.nonzero(a)
    # A view of a stack, as NumPy has it: the numbers of each dimension lie together.
    return stack(ops, found).T


@implements(RULES, np.where)
def where(ops: Operations, condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return nonzero(ops, condition)
    return elementwise(ops, np.where, [condition, x, y])


@implements(RULES, np.extract)
def extract(ops: Operations, condition: Any, arr: Any) -> Any:
    return np.compress(np.ravel(_truths(as_array(ops, condition))), np.ravel(as_array(ops, arr)), 0)


def as_array(ops: Operations, operand: Any) -> Any:
    """An array that can be asked for its dtype."""
    return operand if isinstance(operand, Selected) else ops.tracer(operand)


@implements(RULES, np.compress)
def compress(ops: Operations, condition: Any, a: Any, axis: int | None = None) -> Any:
    chosen, operand = _truths(as_array(ops, condition)), as_array(ops, a)
    if chosen.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    (dimension,) = normalized_axes(axis, operand.ndim)
    if not isinstance(chosen, Selected) and not isinstance(operand, Selected):
        length = operand.shape[dimension]
        if chosen.shape[0] > length:
            beyond = np.any(chosen[length:])
            ops.check(ops.tracer(beyond).value, IndexError, f"compress: an index is out of bounds for size {length}")
            chosen = chosen[:length]
        elif chosen.shape[0] < length:
            chosen = np.concatenate([chosen, np.zeros(length - chosen.shape[0], bool)])
    return operand[(*[slice(None)] * dimension, chosen)]


# ------------------------------------------------------------------------------------------------- element by element


def _elementwise(function: Callable[..., Any], arrays: Sequence[str]) -> None:
    """``arrays`` are those parameters that are broadcast to each other; NumPy's names."""

    def rule(ops: Operations, **given: Any) -> Any:
        names = [name for name in arrays if given.get(name) is not None]
        others = {name: value for name, value in given.items() if name not in names}
        return elementwise(ops, lambda *own: function(**dict(zip(names, own)), **others), [given[n] for n in names])

    RULES[function] = rule


_elementwise(np.clip, ("a", "a_min", "a_max", "min", "max"))
_elementwise(np.round, ("a",))
_elementwise(np.around, ("a",))
_elementwise(np.nan_to_num, ("x",))
_elementwise(np.isclose, ("a", "b"))
_elementwise(np.real, ("val",))
_elementwise(np.imag, ("val",))
_elementwise(np.copy, ("a",))


@implements(RULES, np.allclose)
def allclose(ops: Operations, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    return np.all(np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan))


def _like(function: Callable[..., Any]) -> None:
    name = "a" if function is not np.empty_like else "prototype"

    def rule(ops: Operations, **given: Any) -> Any:
        if given.get("shape") is not None:
            return function(given[name].elements, **{each: value for each, value in given.items() if each != name})
        return elementwise(
            ops, lambda own: function(own, **{k: v for k, v in given.items() if k != name}), [given[name]]
        )

    RULES[function] = rule


for _function in (np.zeros_like, np.ones_like, np.full_like):
    _like(_function)


@implements(RULES, np.diff)
def diff(ops: Operations, a: Any, n: int = 1, axis: int = -1) -> Any:
    if a.ndim > 1 or n != 1:
        raise TracingError("np.diff of an array whose length depends on values: of vectors, and n=1")
    return np.not_equal(a[1:], a[:-1]) if a.dtype == np.bool_ else a[1:] - a[:-1]


# -------------------------------------------------------------------------------------------------------- dimensions


@implements(RULES, np.ravel)
def ravel(ops: Operations, a: Any, order: str = "C") -> Any:
    if order != "C":
        raise TracingError("np.ravel of an array whose length depends on values: only order='C'")
    return in_one_dimension(ops, a)


@implements(RULES, np.reshape)
def reshape(ops: Operations, a: Any, shape: Any = None, order: str = "C") -> Any:
    wanted = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if order == "C" and wanted == (-1,):
        return in_one_dimension(ops, a)
    if order == "C" and a.ndim == 1 and sorted(map(str, wanted)) == ["-1", *["1"] * (len(wanted) - 1)]:
        return a[tuple(slice(None) if each == -1 else None for each in wanted)]
    raise TracingError(f"{a!r} is reshaped: only to (-1,), (-1, 1) and (1, -1), since its length depends on values")


@implements(RULES, np.transpose)
def transpose(ops: Operations, a: Any, axes: Any = None) -> Any:
    order = range(a.ndim)[::-1] if axes is None else normalized_order(axes, a.ndim)
    return Selected(np.transpose(a.elements, order), [a.extents[d] for d in order])


def normalized_order(axes: Any, rank: int) -> tuple[int, ...]:
    """A permutation of dimensions, counted from the front."""
    for each in axes:
        normalized_axes(each, rank)
    if len({each % rank for each in axes}) != rank or len(axes) != rank:
        raise ValueError("axes don't match array")
    return tuple(each % rank for each in axes)


@implements(RULES, np.expand_dims)
def expand_dims(ops: Operations, a: Any, axis: Any) -> Any:
    places = normalized_axes(axis, a.ndim + (len(axis) if isinstance(axis, (tuple, list)) else 1))
    key = iter([slice(None)] * a.ndim)
    return a[tuple(None if d in places else next(key) for d in range(a.ndim + len(places)))]


@implements(RULES, np.shape)
def shape(ops: Operations, a: Any) -> Any:
    return a.shape


@implements(RULES, np.ndim)
def ndim(ops: Operations, a: Any) -> Any:
    return a.ndim


@implements(RULES, np.size)
def size(ops: Operations, a: Any, axis: Any = None) -> Any:
    if axis is None:
        return a.size
    (dimension,) = normalized_axes(axis, a.ndim)
    return a.shape[dimension]


@implements(RULES, np.concatenate)
def concatenate(ops: Operations, arrays: Any, axis: Any = 0, dtype: Any = None, casting: str = "same_kind") -> Any:
    several = [as_selected(ops, each) for each in arrays]
    if axis is None:
        several, axis = [in_one_dimension(ops, each) for each in several], 0
    (dimension,) = normalized_axes(axis, several[0].ndim)
    rest = [each.extents[:dimension] + each.extents[dimension + 1 :] for each in several]
    if any(each != rest[0] for each in rest):
        raise TracingError("np.concatenate of arrays whose lengths depend on values: along that dimension only")
    options: Any = {} if dtype is None else {"dtype": dtype}
    elements: Any = np.concatenate([each.elements for each in several], dimension, casting=casting, **options)  # type: ignore[call-overload]
    masks = [_whole(ops, each, dimension) for each in several]
    extent = Extent.of_mask(ops, ops.tracer(np.concatenate(masks)))
    if all(each.extents[dimension] is None for each in several):
        return wrapped(elements, several[0].extents)
    return Selected(ops.tracer(elements), (*rest[0][:dimension], extent, *rest[0][dimension:]))


def _whole(ops: Operations, operand: Selected, dimension: int) -> Any:
    extent = operand.extents[dimension]
    if extent is not None:
        return extent.mask
    return ops.wrap(ops.full(True, np.dtype(bool), (operand.elements.shape[dimension],)))


@implements(RULES, np.hstack)
def hstack(ops: Operations, tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    several = [as_selected(ops, each) for each in tup]
    return concatenate(ops, several, 0 if several[0].ndim == 1 else 1, dtype, casting)


@implements(RULES, np.stack)
def stack(ops: Operations, arrays: Any, axis: int = 0, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    several = [as_selected(ops, each) for each in arrays]
    if any(each.extents != several[0].extents for each in several):
        raise TracingError("np.stack of arrays whose lengths depend on values: only of one mask")
    (place,) = normalized_axes(axis, several[0].ndim + 1)
    options: Any = {} if dtype is None else {"dtype": dtype}
    elements: Any = np.stack([each.elements for each in several], place, casting=casting, **options)  # type: ignore[call-overload]
    return Selected(ops.tracer(elements), (*several[0].extents[:place], None, *several[0].extents[place:]))


@implements(RULES, np.column_stack)
def column_stack(ops: Operations, tup: Any) -> Any:
    if any(each.ndim != 1 for each in tup):
        raise TracingError("np.column_stack of arrays whose lengths depend on values: only of vectors")
    return stack(ops, tup, 1)


# ---------------------------------------------------------------------------------------------------------- products


@implements(RULES, np.dot, np.matmul)
def dot(ops: Operations, a: Any, b: Any) -> Any:
    if not np.ndim(a) or not np.ndim(b):
        return np.multiply(a, b)
    return product(ops, a, b)


@implements(RULES, np.outer)
def outer_(ops: Operations, a: Any, b: Any) -> Any:
    return outer(ops, a, b)


@implements(RULES, np.linalg.norm)
def norm(ops: Operations, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord not in (None, 2) or (ord == 2 and x.ndim > 1 and not isinstance(axis, int)) or flag(keepdims):
        raise TracingError("np.linalg.norm of an array whose length depends on values: only the Euclidean norm")
    axes = normalized_axes(axis, x.ndim)
    made = np.linalg.norm(masked(x, 0, axes), axis=None if axis is None else axes if len(axes) > 1 else axes[0])
    return wrapped(made, tuple(each for d, each in enumerate(x.extents) if d not in axes))


@implements(RULES, np.average)
def average(ops: Operations, a: Any, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return np.mean(a, axis)
    if (np.ndim(weights) != np.ndim(a)) or (axis is not None and a.ndim > 1):
        raise TracingError("np.average of an array whose length depends on values: weights of the same shape, no axis")
    (values, shares), extents = aligned(ops, [a, weights])
    values, shares = Selected(values, extents), Selected(shares, extents)
    total: Any = np.sum(shares)
    ops.check(ops.tracer(np.equal(total, 0)).value, ZeroDivisionError, "Weights sum to zero, can't be normalized")
    return np.sum(values * shares) / total


def _without_nan(function: Callable[..., Any], inner: Callable[..., Any]) -> None:
    def rule(ops: Operations, a: Any, axis: Any = None, **options: Any) -> Any:
        if axis is not None and a.ndim > 1:
            raise TracingError(f"np.{function.__name__} along an axis of an array whose length depends on values")
        own = in_one_dimension(ops, a)
        return inner(own[~np.isnan(own)], **{k: v for k, v in options.items() if v is not np._NoValue})

    RULES[function] = rule


_WITHOUT_NAN: Final[dict[Any, Any]] = {
    np.nansum: np.sum, np.nanprod: np.prod, np.nanmean: np.mean, np.nanvar: np.var, np.nanstd: np.std,
    np.nanmedian: np.median,
}  # fmt: skip
for _ignoring, _inner in _WITHOUT_NAN.items():
    _without_nan(_ignoring, _inner)


SELECTING: Final[frozenset[Any]] = frozenset(
    {np.nonzero, np.flatnonzero, np.argwhere, np.extract, np.compress, *sets.SELECTING}
)
"""Functions whose results have a length that depends on values, whatever they are given."""


def is_selecting(function: Any, arguments: Sequence[Any], options: Any) -> bool:
    """Whether it makes an array of such a length."""
    return function in SELECTING or (function is np.where and len(arguments) + len(options) == 1)

"""Choosing, ordering, matrices and creation: where, sort, take, tril, zeros_like and so on."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.ir.formats import FloatFormat
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.arrays.kinds import as_kind, common_kind, kind_of
from hlojit.tracing.arrays.layouts import Strides, compact, contiguous, is_contiguous
from hlojit.tracing.arrays.views import picked, reading_order
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.rules import (
    Rules,
    extents_of,
    implements,
    letter_of,
    places_of,
    single_axis,
    weak_kind,
)
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""


@implements(RULES, np.where)
def where(ops: Operations, condition: Any, x: Any = None, y: Any = None) -> Tracer:
    if (x is None) != (y is None):
        raise ValueError("either both or neither of x and y should be given")
    if x is None:
        raise TracingError("np.where with one argument has a shape that depends on the data; give all three")
    weak = [kind(0) for kind in map(weak_kind, (x, y)) if kind is not None]
    typed = [each for each in (x, y) if not weak_kind(each)]
    kind = common_kind(map(kind_of, typed), "np.where", weak)
    values = [ops.value(condition, np.dtype(bool)), ops.value(x, kind), ops.value(y, kind)]
    extents = np.broadcast_shapes(*(value.tensor_type.shape for value in values))
    chosen = [ops.broadcast(value, extents) for value in values]
    return ops.elementwise(ops.builder.create("select", chosen).result, [condition, x, y])


@implements(RULES, np.clip)
def clip(
    ops: Operations, a: Any, a_min: Any = np._NoValue, a_max: Any = np._NoValue, *, min: Any = np._NoValue,
    max: Any = np._NoValue, dtype: Any = None,
) -> Tracer:  # fmt: skip
    if a_min is np._NoValue and a_max is np._NoValue:
        low, high = (None if each is np._NoValue else each for each in (min, max))
    elif a_min is np._NoValue or a_max is np._NoValue:
        missing = "a_min" if a_min is np._NoValue else "a_max"
        raise TypeError(f"clip() missing 1 required positional argument: {missing!r}")
    elif min is not np._NoValue or max is not np._NoValue:
        raise ValueError("Passing `min` or `max` keyword argument when `a_min` and `a_max` are provided is forbidden.")
    else:
        low, high = a_min, a_max
    operand = ops.tracer(a)
    limits = np.iinfo(operand.dtype) if isinstance(operand.kind, np.dtype) and operand.dtype.kind in "iu" else None
    # Bounds beyond the dtype bound nothing.
    if limits is not None and type(low) is int and low <= limits.min:
        low = None
    if limits is not None and type(high) is int and high >= limits.max:
        high = None
    kind: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
    if low is None and high is None:
        return operand if dtype is None else operand.astype(dtype)
    if low is None or high is None:
        bound: Any = high if low is None else low
        return ops.tracer((np.minimum if low is None else np.maximum)(operand, bound, **kind))
    if dtype is None and isinstance(operand.kind, np.dtype):
        bounds = [kind_of(each) if weak_kind(each) is None else weak_kind(each) for each in (operand, low, high)]
        kind = {"dtype": np._core.umath.clip.resolve_dtypes((*bounds, None))[-1]}  # type: ignore[attr-defined]
    raised: Any = np.maximum(operand, low, **kind)
    return ops.tracer(np.minimum(raised, high, **kind))


@implements(RULES, np.round, np.around)
def round_(ops: Operations, a: Any, decimals: Any = 0) -> Tracer:
    operand, places = ops.tracer(a), operator.index(decimals)
    whole = operand.dtype.kind in "iu"
    if whole and places >= 0:
        return operand
    if not places:
        return ops.tracer(np.rint(operand))
    if operand.dtype.kind == "b":
        # NumPy's own error.
        np.round(np.zeros(1, bool), places)
    if operand.dtype.kind == "c":
        parts = [round_(ops, each, places).value for each in (operand.real, operand.imag)]
        return ops.wrap(ops.builder.complex(*parts))
    scale = float(10.0 ** abs(places))
    # Integers are rounded as doubles.
    wide: Any = operand.astype(np.float64) if whole else operand
    found = np.rint(wide * scale) / scale if places > 0 else np.rint(wide / scale) * scale
    return found.astype(operand.dtype) if whole else ops.tracer(found)


def _sorted(ops: Operations, operands: Sequence[Value], axis: int) -> tuple[Value, ...]:
    """Stable ascending sort of several arrays by the first; NaN last."""
    b = ops.builder
    scalars = [tensor((), value.tensor_type.element_type) for value in operands for _ in range(2)]
    # Not what NumPy says of the buffer: formats that it has no dtype for lie in unsigned integers.
    is_float = isinstance(scalars[0].element_type, FloatFormat)

    def less(inner: Any, x: Value, y: Value, *rest: Value) -> Value:
        result: Value = inner.compare(x, y, "LT")
        if not is_float:
            return result
        nan_last = inner.create("and", [inner.compare(y, y, "NE"), inner.compare(x, x, "EQ")]).result
        combined: Value = inner.create("or", [result, nan_last]).result
        return combined

    return b.create(
        "sort",
        list(operands),
        attributes={"dimension": axis, "is_stable": True},
        regions=[b.region(scalars, less)],
        result_types=[value.type for value in operands],
    ).results


def _require_kind(kind: Any, order: Any, stable: Any) -> None:
    """Raise what NumPy does for a kind of sorting that there is not; all that there are give the same here."""
    if kind is not None and stable is not None:
        raise ValueError("`kind` and keyword parameters can't be provided at the same time. Use only one of them.")
    if kind is not None and not isinstance(kind, str):
        raise TypeError(f"sort kind must be str, not {type(kind).__name__}")
    if kind is not None and kind[:1].lower() not in ("q", "h", "m", "s"):
        raise ValueError(f"sort kind must be one of 'quick', 'heap', or 'stable' (got {kind!r})")
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")


@implements(RULES, np.sort)
def sort(
    ops: Operations, a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Tracer:
    _require_kind(kind, order, stable)
    operand = ops.tracer(a)
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    return ops.wrap(_sorted(ops, [operand.value], single_axis(operator.index(axis), operand.ndim))[0])


@implements(RULES, np.argsort)
def argsort(
    ops: Operations, a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Tracer:
    _require_kind(kind, order, stable)
    operand = ops.tracer(a)
    if axis is None or not operand.ndim:
        single_axis(0 if axis is None else axis, max(operand.ndim, 1))
        operand, axis = operand.reshape(-1), 0
    dimension = single_axis(axis, operand.ndim)
    indices = ops.builder.iota(operand.type.with_element_type("i64"), dimension)
    return ops.wrap(_sorted(ops, [operand.value, indices], dimension)[1])


def in_bounds(ops: Operations, indices: Any, extent: int, mode: Any) -> Any:
    """Positions by NumPy's ``mode``: as they are, counted around, or the nearest that there is."""
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    if mode == "raise":
        return indices
    if not extent and np.size(indices):
        raise IndexError("cannot do a non-empty take from an empty axes.")
    return np.clip(indices, 0, extent - 1) if mode == "clip" else np.remainder(indices, max(extent, 1))


@implements(RULES, np.take)
def take(ops: Operations, a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Tracer:
    operand = ops.tracer(a)
    if axis is None or not operand.ndim:
        single_axis(0 if axis is None else axis, max(operand.ndim, 1))
        operand, axis = operand.reshape(-1), 0
    dimension = single_axis(axis, operand.ndim)
    picked = places_of(indices)
    picked = in_bounds(ops, picked, operand.shape[dimension], mode)
    found = operand[(*[slice(None)] * dimension, picked)]
    return ops.wrap(found.value, contiguous(found.shape))


@implements(RULES, np.take_along_axis)
def take_along_axis(ops: Operations, arr: Any, indices: Any, axis: int | None = -1) -> Tracer:
    if indices.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    operand, picked = ops.tracer(arr), ops.tracer(indices)
    if axis is None:
        if picked.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        operand, axis = operand.reshape(-1), 0
    dimension = single_axis(operator.index(axis), operand.ndim)
    if operand.ndim != picked.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    keys: list[Any] = []
    for d, extent in enumerate(operand.shape):
        line = np.arange(extent).reshape([extent if k == d else 1 for k in range(operand.ndim)])
        keys.append(picked if d == dimension else line)
    return operand[tuple(keys)]


@implements(RULES, np.tril)
def tril(ops: Operations, m: Any, k: int = 0) -> Tracer:
    operand = ops.tracer(m)
    lines: Any = operand.shape[-2:]
    return ops.tracer(np.where(np.tri(*lines, k=k, dtype=bool), operand, operand.dtype.type(0)))  # type: ignore[call-overload]


@implements(RULES, np.triu)
def triu(ops: Operations, m: Any, k: int = 0) -> Tracer:
    operand = ops.tracer(m)
    lines: Any = operand.shape[-2:]
    return ops.tracer(np.where(np.tri(*lines, k=k - 1, dtype=bool), operand.dtype.type(0), operand))  # type: ignore[call-overload]


@implements(RULES, np.diagonal)
def diagonal(ops: Operations, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
    return picked(ops, ops.tracer(a), lambda own: np.diagonal(own, offset, axis1, axis2))


@implements(RULES, np.trace)
def trace(ops: Operations, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tracer:
    return ops.tracer(np.sum(diagonal(ops, a, offset, axis1, axis2), axis=-1, dtype=dtype))


def _extents_like(operand: Tracer, shape: Any) -> tuple[int, ...]:
    """The shape that is asked for, or the operand's."""
    if shape is None:
        return operand.shape
    return extents_of(shape)


def _laid_out_like(ops: Operations, value: Value, operand: Tracer, order: str, shape: Any) -> Tracer:
    """A new array in the layout that ``order`` asks for; ``K`` is the operand's."""
    extents = value.tensor_type.shape
    if order == "K" and len(extents) == operand.ndim:
        strides = compact(operand.shape, ops.strides(operand))
        if shape is None or strides is None or is_contiguous(operand.shape, strides):
            return ops.wrap(value, strides if shape is None else contiguous(extents))
        return ops.wrap(value, compact(extents, shadow_order(strides, extents)))
    return ops.wrap(value, contiguous(extents, memory_order(ops, operand, "C" if order == "K" else order)))


def memory_order(ops: Operations, operand: Tracer, order: Any) -> str:
    """``C`` or ``F`` of NumPy's letters for the order of a new array; ``A`` is ``F`` for what lies so and not in ``C``."""
    letter = letter_of(order)
    return reading_order(ops, operand, "C" if letter == "K" else letter)


def shadow_order(strides: Strides, extents: tuple[int, ...]) -> Strides:
    """Strides of an array of these extents whose dimensions lie in the order of ``strides``."""
    outer = sorted(range(len(strides)), key=lambda number: (-abs(strides[number]), number))
    inner = contiguous([extents[number] for number in outer])
    return tuple(inner[outer.index(number)] for number in range(len(extents)))


def _filled(number: Any) -> Callable[..., Any]:
    def rule(
        ops: Operations,
        a: Any,
        dtype: Any = None,
        order: str = "K",
        shape: Any = None,
    ) -> Tracer:
        operand = ops.tracer(a)
        value = ops.full(number, as_kind(dtype) if dtype else operand.kind, _extents_like(operand, shape))
        return _laid_out_like(ops, value, operand, order, shape)

    return rule


RULES[np.zeros_like] = RULES[np.empty_like] = _filled(0)
RULES[np.ones_like] = _filled(1)


@implements(RULES, np.full_like)
def full_like(
    ops: Operations,
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    shape: Any = None,
) -> Tracer:
    operand = ops.tracer(a)
    extents = _extents_like(operand, shape)
    value = ops.broadcast(ops.value(fill_value, as_kind(dtype) if dtype else operand.kind), extents)
    return _laid_out_like(ops, value, operand, order, shape)


@implements(RULES, np.copy)
def copy(ops: Operations, a: Any, order: str = "K") -> Tracer:
    operand = ops.tracer(a)
    if order == "K":
        return ops.wrap(operand.value, compact(operand.shape, ops.strides(operand)))
    return ops.wrap(operand.value, contiguous(operand.shape, memory_order(ops, operand, order)))


@implements(RULES, np.astype)
def astype(ops: Operations, x: Any, dtype: Any, /, *, copy: bool = True) -> Tracer:
    return ops.tracer(x).astype(dtype, copy=copy)


@implements(RULES, np.result_type)
def result_type(ops: Operations, *arguments: Any) -> np.dtype[Any]:
    return np.result_type(*(each.dtype if isinstance(each, Tracer) else each for each in arguments))


@implements(RULES, np.isclose)
def isclose(ops: Operations, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tracer:
    x, y = ops.tracer(a), ops.tracer(b)
    if y.dtype.kind in "bui":
        y = y * 1.0  # as NumPy: differences of unsigned integers would wrap, truth values have none
    close = (np.abs(x - y) <= atol + rtol * np.abs(y)) & np.isfinite(y)
    close = close | (x == y)
    return close | (np.isnan(x) & np.isnan(y)) if equal_nan else close


@implements(RULES, np.allclose)
def allclose(
    ops: Operations, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tracer:
    return ops.tracer(np.all(isclose(ops, a, b, rtol, atol, equal_nan)))

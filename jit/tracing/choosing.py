"""Choosing, ordering, matrices and creation: where, sort, take, tril, zeros_like and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.ir.formats import FloatFormat
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.errors import TracingError
from hlojit.tracing.kinds import as_kind, common_kind, kind_of
from hlojit.tracing.layouts import compact, contiguous
from hlojit.tracing.operations import Operations
from hlojit.tracing.rules import Rules, extents_of, implements, normalized_axes, refuse, weak_kind
from hlojit.tracing.tracer import Tracer
from hlojit.tracing.views import picked

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""


@implements(RULES, np.where)
def where(ops: Operations, condition: Any, x: Any = None, y: Any = None) -> Tracer:
    if x is None or y is None:
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
    ops: Operations,
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    **options: Any,
) -> Tracer:
    refuse("clip", out=out, **options)
    low, high = (a_min if a_min is not None else min), (a_max if a_max is not None else max)
    result = ops.tracer(a)
    if low is not None:
        result = np.maximum(result, low)
    return result if high is None else np.minimum(result, high)


@implements(RULES, np.round)
def round_(ops: Operations, a: Any, decimals: int = 0, out: Any = None) -> Tracer:
    refuse("round", out=out)
    operand = ops.tracer(a)
    if operand.dtype.kind in "iub":
        return operand
    return ops.tracer(np.rint(operand) if not decimals else np.rint(operand * 10.0**decimals) / 10.0**decimals)


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


@implements(RULES, np.sort)
def sort(ops: Operations, a: Any, axis: int | None = -1, **options: Any) -> Tracer:
    operand = ops.tracer(a)
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    return ops.wrap(_sorted(ops, [operand.value], normalized_axes(axis, operand.ndim)[0])[0])


@implements(RULES, np.argsort)
def argsort(ops: Operations, a: Any, axis: int | None = -1, **options: Any) -> Tracer:
    operand = ops.tracer(a)
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    (dimension,) = normalized_axes(axis, operand.ndim)
    indices = ops.builder.iota(operand.type.with_element_type("i64"), dimension)
    return ops.wrap(_sorted(ops, [operand.value, indices], dimension)[1])


@implements(RULES, np.take)
def take(
    ops: Operations, a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
) -> Tracer:
    refuse("take", out=out)
    operand = ops.tracer(a)
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    (dimension,) = normalized_axes(axis, operand.ndim)
    picked = indices if isinstance(indices, Tracer) else np.asarray(indices)
    found = operand[(*[slice(None)] * dimension, picked)]
    return ops.wrap(found.value, contiguous(found.shape))


@implements(RULES, np.take_along_axis)
def take_along_axis(ops: Operations, arr: Any, indices: Any, axis: int | None = -1) -> Tracer:
    operand, picked = ops.tracer(arr), ops.tracer(indices)
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    (dimension,) = normalized_axes(axis, operand.ndim)
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
    if order == "K" and shape is None:
        return ops.wrap(value, compact(extents, ops.strides(operand)))
    if order not in ("K", "C", "F"):
        raise TracingError(f"order={order!r} cannot be compiled; only 'K', 'C' and 'F'")
    return ops.wrap(value, contiguous(extents, "F" if order == "F" else "C"))


def _filled(number: Any) -> Callable[..., Any]:
    def rule(
        ops: Operations,
        a: Any,
        dtype: Any = None,
        order: str = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: Any = None,
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
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Tracer:
    operand = ops.tracer(a)
    extents = _extents_like(operand, shape)
    value = ops.broadcast(ops.value(fill_value, as_kind(dtype) if dtype else operand.kind), extents)
    return _laid_out_like(ops, value, operand, order, shape)


@implements(RULES, np.copy)
def copy(ops: Operations, a: Any, order: str = "K", subok: bool = False) -> Tracer:
    operand = ops.tracer(a)
    strides = ops.strides(operand)
    if order not in ("K", "C"):
        raise TracingError(f"np.copy: order={order!r} cannot be compiled; only 'K' and 'C'")
    return ops.wrap(operand.value, compact(operand.shape, strides) if order == "K" else contiguous(operand.shape))


@implements(RULES, np.astype)
def astype(ops: Operations, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tracer:
    return ops.tracer(x).astype(dtype, copy=copy)


@implements(RULES, np.result_type)
def result_type(ops: Operations, *arguments: Any) -> np.dtype[Any]:
    return np.result_type(*(each.dtype if isinstance(each, Tracer) else each for each in arguments))


@implements(RULES, np.isclose)
def isclose(ops: Operations, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tracer:
    x, y = ops.tracer(a), ops.tracer(b)
    close = (np.abs(x - y) <= atol + rtol * np.abs(y)) & np.isfinite(y)
    close = close | (x == y)
    return close | (np.isnan(x) & np.isnan(y)) if equal_nan else close


@implements(RULES, np.allclose)
def allclose(
    ops: Operations, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tracer:
    return ops.tracer(np.all(isclose(ops, a, b, rtol, atol, equal_nan)))

"""Ufuncs, their methods and products of arrays whose length is known when the function runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.aligned import elementwise, fitted, masked, wrapped
from hlojit.tracing.selection.selected import Selected
from hlojit.tracing.tracer import Tracer

_MISFIT = "non-broadcastable output operand: it is of another length than the result"
_LENGTHS = "matmul: the two arrays are of different lengths"
_INTO = "an array whose length depends on values is no result for out= of {}; index both by the same mask"

_REDUCTIONS: Final[Mapping[np.ufunc, Callable[..., Any]]] = {
    np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min, np.logical_and: np.all,
    np.logical_or: np.any,
}  # fmt: skip
_ACCUMULATIONS: Final[Mapping[np.ufunc, Callable[..., Any]]] = {np.add: np.cumsum, np.multiply: np.cumprod}


def call(ops: Operations, ufunc: np.ufunc, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """A ufunc's results, of which something may be a ``Selected``."""
    if options.get("where", True) is not True:
        raise TracingError(f"np.{ufunc.__name__}: where= with an array whose length depends on values; use np.where")
    if ufunc is np.matmul:
        return product(ops, *inputs)
    if ufunc.signature is not None:
        raise TracingError(f"np.{ufunc.__name__} of an array whose length depends on values cannot be compiled")
    if ufunc is np.power and isinstance(inputs[1], Selected) and inputs[1].dtype.kind in "iu":
        # Negative exponents raise: those that do not count do not.
        exponent = inputs[1]
        inputs = (inputs[0], Selected(ops.tracer(masked(exponent, 1)), exponent.extents))
    own = {name: value for name, value in options.items() if name != "where"}
    return elementwise(ops, lambda *given: ufunc(*given, **own), inputs)


def method(ufunc: np.ufunc, name: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """``ufunc.reduce`` and ``ufunc.accumulate``, along the first dimension unless told otherwise."""
    table = {"reduce": _REDUCTIONS, "accumulate": _ACCUMULATIONS}.get(name, {})
    function = table.get(ufunc)
    if function is None:
        raise TracingError(f"np.{ufunc.__name__}.{name} of an array whose length depends on values cannot be compiled")
    return function(*inputs, **{"axis": 0, **options})


def into(target: Any, made: Any, store: Callable[[Any, Tracer], Any]) -> Any:
    """Write a result where ``out=`` says; ``store(elements, array)`` does it for arrays."""
    if isinstance(target, Selected):
        target.elements.window.require_writable()
        store(fitted(target.context, made, target.elements.shape, target.extents, _MISFIT), target.elements)
        return target
    if isinstance(made, Selected):
        raise TracingError(_INTO.format("another length"))
    return store(made, target)


# -------------------------------------------------------------------------------------------------------- products


def product(ops: Operations, a: Any, b: Any) -> Any:
    """``a @ b`` of vectors and matrices: what does not count is zero where it is summed over."""
    (a, b) = (each if isinstance(each, Selected) else _plain(ops, each) for each in (a, b))
    if not (1 <= a.ndim <= 2 and 1 <= b.ndim <= 2):
        raise TracingError("products of arrays whose length depends on values: only of vectors and matrices")
    rows, columns = a.extents[:-1], b.extents[1:]
    over = (a.ndim - 1, 0)
    a, b = _alike(ops, a, b)
    one, other = (masked(each, 0, [dimension]) for each, dimension in zip((a, b), over))
    made = np.matmul(one, other)
    return wrapped(made, (*rows, *columns))


def _alike(ops: Operations, a: Selected, b: Selected) -> tuple[Selected, Selected]:
    """With the dimensions that are summed over fitted to each other: of one length, not broadcast."""
    one, other = a.extents[-1], b.extents[0]
    if one is other:
        if one is None and a.elements.shape[-1] != b.elements.shape[0]:
            raise ValueError(f"matmul: {a.elements.shape[-1]} is different from {b.elements.shape[0]}")
        return a, b
    length = a.elements.shape[-1] if one is None else one.count
    differs: Any = np.not_equal(length, b.elements.shape[0] if other is None else other.count)
    ops.check(ops.tracer(differs).value, ValueError, _LENGTHS)
    turned = b if b.ndim == 1 else Selected(b.elements.T, b.extents[::-1])
    shape = (*turned.elements.shape[:-1], a.elements.shape[-1])
    elements = ops.tracer(fitted(ops, turned, shape, (*turned.extents[:-1], one), _LENGTHS))
    return a, Selected(elements.T, (one, *b.extents[1:]))


def _plain(ops: Operations, operand: Any) -> Selected:
    own = ops.tracer(operand)
    return Selected(own, (None,) * own.ndim)


def outer(ops: Operations, a: Any, b: Any) -> Any:
    """``np.outer`` of vectors."""
    (a, b) = (each if isinstance(each, Selected) else _plain(ops, each) for each in (a, b))
    if a.ndim != 1 or b.ndim != 1:
        raise TracingError("np.outer of arrays whose length depends on values: only of vectors")
    return wrapped(np.multiply(a.elements[:, None], b.elements[None, :]), (*a.extents, *b.extents))

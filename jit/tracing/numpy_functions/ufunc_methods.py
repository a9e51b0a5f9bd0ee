"""``ufunc.at`` and ``ufunc.reduceat``: operands at places that are named one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.rules import refuse, single_axis, weak_kind
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.sets import combined_by_place
from hlojit.tracing.tracer import Tracer

_COMBINED: Final[dict[np.ufunc, str]] = {
    np.add: "add", np.subtract: "add", np.multiply: "multiply", np.maximum: "maximum", np.minimum: "minimum",
    np.bitwise_or: "or", np.bitwise_and: "and", np.bitwise_xor: "xor", np.logical_or: "or", np.logical_and: "and",
}  # fmt: skip


def at(ops: Operations, ufunc: np.ufunc, inputs: Sequence[Any], options: Mapping[str, Any]) -> None:
    """``ufunc.at(a, indices, b)``: each place as often as it is named, in order."""
    refuse(f"{ufunc.__name__}.at", **options)
    if ufunc.nin != 2 or len(inputs) != 3:
        raise TracingError(
            f"np.{ufunc.__name__}.at cannot be compiled yet; name each place once and write a[i] = f(a[i])"
        )
    target, indices, given = inputs
    if not isinstance(target, Tracer):
        raise TracingError(
            f"np.{ufunc.__name__}.at writes into an array that was made outside of what is traced; make it inside"
        )
    op = _COMBINED.get(ufunc)
    is_logical = ufunc in (np.logical_or, np.logical_and)
    if op is None or (is_logical and target.dtype != np.bool_):
        raise TracingError(f"np.{ufunc.__name__}.at cannot be compiled yet")
    kinds: Any = (target.dtype, weak_kind(given) or ops.tracer(given).dtype, None)
    made = ufunc.resolve_dtypes(kinds)[-1]
    if made != target.dtype:
        raise TracingError(
            f"np.{ufunc.__name__}.at of {target.dtype} and {ops.tracer(given).dtype}: convert one with .astype"
        )
    numbers: Any = ops.tracer(np.arange(target.size).reshape(target.shape))[indices]
    values: Any = np.broadcast_to(ops.tracer(given).astype(target.dtype), numbers.shape)
    values = np.negative(values) if ufunc is np.subtract else values
    flat = ops.tracer(target.reshape(-1))
    found: Any = combined_by_place(ops, flat.value, ops.tracer(numbers.reshape(-1)), ops.tracer(values.reshape(-1)), op)
    target[...] = found.reshape(target.shape)


def reduceat(ops: Operations, ufunc: np.ufunc, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """``ufunc.reduceat(a, indices)`` for places that are known when the function is traced."""
    rest = dict(options)
    operand: Any = ops.tracer(inputs[0])
    axis = single_axis(rest.pop("axis", 0), operand.ndim)
    dtype = rest.pop("dtype", None)
    refuse(f"{ufunc.__name__}.reduceat", **rest)
    places = ops.known(inputs[1]) if isinstance(inputs[1], Tracer) else np.asarray(inputs[1])
    if places is None:
        raise TracingError(f"np.{ufunc.__name__}.reduceat: the places must be known; make the argument static")
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise TypeError("reduceat takes one-dimensional integer indices")
    length = operand.shape[axis]
    begins = places.tolist()
    for each in begins:
        if not 0 <= each < length:
            raise IndexError(f"index {each} out-of-bounds in {ufunc.__name__}.reduceat [0, {length})")
    front = (slice(None),) * axis
    parts = []
    for begin, end in zip(begins, [*begins[1:], length]):
        piece = operand[(*front, slice(begin, end if end > begin else begin + 1))]
        parts.append(ufunc.reduce(piece, axis=axis, **({} if dtype is None else {"dtype": dtype})))
    return np.stack(parts, axis=axis)

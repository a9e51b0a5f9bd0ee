"""``numpy.linalg.norm``, ``matrix_norm`` and ``vector_norm`` on tracers: of every order and along all axes, as NumPy has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hlojit.tracing.numpy_functions.complex_numbers import squared_size
from hlojit.tracing.numpy_functions.fourier import position
from hlojit.tracing.numpy_functions.rules import Axis, Rules, implements
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""


@implements(RULES, np.linalg.norm)
def norm(ops: Operations, x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Tracer:
    operand = ops.tracer(x)
    if not np.issubdtype(operand.dtype, np.inexact):
        # As NumPy does: integers, and floats that are not its own.
        operand = operand.astype(np.float64)
    rank = operand.ndim
    euclidean = ord is None or (ord in ("f", "fro") and rank == 2) or (ord == 2 and rank == 1)
    if axis is None and euclidean:
        found = np.sqrt(np.sum(squared_size(operand)))
        return ops.tracer(found.reshape((1,) * rank) if keepdims else found)
    axes = tuple(range(rank)) if axis is None else _as_axes(axis)
    if len(axes) == 1:
        return ops.tracer(_of_vectors(operand, ord, axes[0], keepdims))
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    rows, columns = (position(each, rank) for each in axes)
    if rows == columns:
        raise ValueError("Duplicate axes given.")
    found = _of_matrices(operand, ord, rows, columns)
    if keepdims:
        found = found.reshape([1 if d in (rows, columns) else extent for d, extent in enumerate(operand.shape)])
    return ops.tracer(found)


def _as_axes(axis: Any) -> tuple[int, ...]:
    if isinstance(axis, tuple):
        return axis
    try:
        return (int(axis),)
    except Exception as error:
        raise TypeError("'axis' must be None, an integer or a tuple of integers") from error


def _of_vectors(operand: Tracer, ord: Any, axis: int, keepdims: bool) -> Any:
    options: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    if ord is None or ord == 2:
        return np.sqrt(np.sum(squared_size(operand), **options))
    if ord == 0:
        return np.sum((operand != 0).astype(operand.real.dtype), **options)
    sizes = np.abs(operand)
    if ord == math.inf:
        return np.max(sizes, initial=0, **options)
    if ord == -math.inf:
        return np.min(sizes, **options)
    if ord == 1:
        return np.sum(sizes, **options)
    real = sizes.dtype.type
    return np.sum(sizes ** real(ord), **options) ** real(1 / real(ord))


_OF_SUMS: Final[dict[float, tuple[bool, bool]]] = {
    1: (True, True), -1: (True, False), math.inf: (False, True), -math.inf: (False, False)
}  # fmt: skip
"""Orders that are the largest (second element) or least sum along columns (first one) or rows."""
_OF_SINGULAR_VALUES: Final[dict[Any, Callable[[Any], Any]]] = {
    2: lambda values: np.max(values, axis=-1, initial=0),
    -2: lambda values: np.min(values, axis=-1),
    "nuc": lambda values: np.sum(values, axis=-1),
}


def _of_matrices(operand: Any, ord: Any, rows: int, columns: int) -> Any:
    if ord in (None, "fro", "f"):
        return np.sqrt(np.sum(squared_size(operand), axis=(rows, columns)))
    if ord in _OF_SINGULAR_VALUES:
        moved = np.moveaxis(operand, (rows, columns), (-2, -1))
        return _OF_SINGULAR_VALUES[ord](np.linalg.svd(moved, compute_uv=False))
    if ord not in _OF_SUMS:
        raise ValueError("Invalid norm order for matrices.")
    along_columns, largest = _OF_SUMS[ord]
    summed, rest = (rows, columns) if along_columns else (columns, rows)
    sums = np.sum(np.abs(operand), axis=summed)
    left = rest - (rest > summed)
    return np.max(sums, axis=left, initial=0) if largest else np.min(sums, axis=left)


@implements(RULES, np.linalg.matrix_norm)
def matrix_norm(ops: Operations, x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tracer:
    return norm(ops, x, ord, (-2, -1), keepdims)


@implements(RULES, np.linalg.vector_norm)
def vector_norm(ops: Operations, x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Tracer:
    operand = ops.tracer(x)
    if axis is not None and not isinstance(axis, tuple):
        return norm(ops, operand, ord, axis, keepdims)
    chosen = tuple(range(operand.ndim)) if axis is None else tuple(position(each, operand.ndim) for each in axis)
    if len(set(chosen)) != len(chosen):
        raise ValueError("repeated axis")
    rest = tuple(d for d in range(operand.ndim) if d not in chosen)
    count = math.prod(operand.shape[d] for d in chosen)
    joined = operand.transpose((*chosen, *rest)).reshape(count, *(operand.shape[d] for d in rest))
    found = norm(ops, joined, ord, 0)
    if keepdims:
        return found.reshape([1 if d in chosen else extent for d, extent in enumerate(operand.shape)])
    return found

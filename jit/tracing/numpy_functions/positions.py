"""Grids of coordinates, numbers of elements and their positions, and windows that slide over an array."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.tracing.arrays import views
from hlojit.tracing.arrays.steps import Windows
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.choosing import in_bounds
from hlojit.tracing.numpy_functions.rules import Rules, extents_of, flag, implements, letter_of
from hlojit.tracing.numpy_functions.shapes import broadcast_to
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}


@implements(RULES, np.meshgrid)
def meshgrid(ops: Operations, *xi: Any, copy: Any = True, sparse: Any = False, indexing: Any = "xy") -> Any:
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    axes = list(range(len(xi)))
    if indexing == "xy" and len(xi) > 1:
        axes[:2] = [1, 0]
    operands = [ops.tracer(each) for each in xi]
    shape = [1] * len(xi)
    for axis, operand in zip(axes, operands):
        shape[axis] = operand.size
    grids = []
    for axis, operand in zip(axes, operands):
        own = [operand.size if d == axis else 1 for d in range(len(xi))]
        grid: Any = operand.reshape(own)
        if not sparse:
            grid = broadcast_to(ops, grid, shape)
        grids.append(grid.copy() if copy else grid)
    # As NumPy has it: a tuple where something was made of the grids.
    return grids if sparse and not copy else tuple(grids)


def _weights(shape: Sequence[int], order: str) -> list[int]:
    """By how much the number of an element grows along each dimension."""
    if order == "C":
        return [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return [math.prod(shape[:d]) for d in range(len(shape))]


def _integers(ops: Operations, given: Any) -> Tracer:
    operand = ops.tracer(given)
    if operand.dtype.kind not in "iub" and operand.size:
        raise TypeError("only int indices permitted")
    return operand.astype(np.int64)


@implements(RULES, np.unravel_index)
def unravel_index(ops: Operations, indices: Any, shape: Any, order: Any = "C") -> Any:
    extents = extents_of(shape)
    order = letter_of(order, "CF")
    number: Any = _integers(ops, indices)
    size = math.prod(extents)
    if not extents:
        raise TracingError("np.unravel_index into an array without dimensions cannot be compiled: the position is ()")
    if not size and number.size:
        raise ValueError(f"an index is out of bounds for array with size {size}")
    least, most = ops.ranges.of(number.value)
    if number.size and not (least >= 0 and most < size):
        wrong = (number < 0) | (number >= size)
        ops.check(ops.value(wrong), ValueError, f"an index is out of bounds for array with size {size}")
    return tuple(
        (number // weight) % extent if weight * extent < size else number // weight
        for weight, extent in zip(_weights(extents, order), (max(each, 1) for each in extents))
    )


@implements(RULES, np.ravel_multi_index)
def ravel_multi_index(ops: Operations, multi_index: Any, dims: Any, mode: Any = "raise", order: Any = "C") -> Any:
    extents = extents_of(dims)
    order = letter_of(order, "CF")
    parts = [_integers(ops, each) for each in multi_index]
    modes = tuple(mode) if isinstance(mode, (tuple, list)) else (mode,) * len(extents)
    if len(parts) != len(extents):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(extents)}")
    if len(modes) < len(extents):
        raise ValueError("not enough modes")
    total: Any = 0
    for part, extent, each, weight in zip(parts, extents, modes, _weights(extents, order)):
        place: Any = in_bounds(ops, part, extent, each)
        if each == "raise" and part.size:
            ops.check(ops.value((place < 0) | (place >= extent)), ValueError, "invalid entry in coordinates array")
        total = total + place * weight
    if isinstance(total, Tracer):
        ops.ranges.note(total.value, 0, math.prod(extents) - 1)
    return total


@implements(RULES, np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    ops: Operations, x: Any, window_shape: Any, axis: Any = None, *, subok: Any = False, writeable: Any = False
) -> Tracer:
    if writeable:
        raise TracingError(
            "np.lib.stride_tricks.sliding_window_view: writeable windows overlap; write into the array itself"
        )
    flag(subok)
    operand = ops.tracer(x)
    window_shape = extents_of(window_shape) if np.iterable(window_shape) else operator.index(window_shape)
    # NumPy itself says what is wrong, and how it lies.
    probe = np.lib.stride_tricks.sliding_window_view(np.broadcast_to(np.int8(0), operand.shape), window_shape, axis)
    lengths = probe.shape[operand.ndim :]
    axes = range(operand.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    positions = tuple(int(each) % operand.ndim for each in axes)
    shadow = views.asked(ops, operand, lambda own: np.lib.stride_tricks.sliding_window_view(own, window_shape, axis))
    seen = views.viewed(ops, operand, Windows(positions, lengths), shadow, probe.shape)
    seen.window.is_writable = False
    return seen

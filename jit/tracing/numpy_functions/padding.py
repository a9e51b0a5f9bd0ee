"""``np.pad``: what lies around an array, from its own elements, from numbers, or from statistics of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.numpy_source import own_source
from hlojit.tracing.numpy_functions.rules import Rules, implements
from hlojit.tracing.numpy_functions.shapes import broadcast_to, concatenate
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}

_MOVING: Final = ("edge", "wrap", "symmetric", "reflect")
"""Modes in which all that is added are elements of the array, chosen axis by axis."""

_OPTIONS: Final[dict[str, set[str]]] = {
    "empty": set(), "edge": set(), "wrap": set(), "constant": {"constant_values"}, "linear_ramp": {"end_values"},
    "maximum": {"stat_length"}, "mean": {"stat_length"}, "median": {"stat_length"}, "minimum": {"stat_length"},
    "reflect": {"reflect_type"}, "symmetric": {"reflect_type"},
}  # fmt: skip


@implements(RULES, np.pad)
def pad(ops: Operations, array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    operand = ops.tracer(array)
    widths = _widths(operand, pad_width)
    if callable(mode):
        raise TracingError(
            "np.pad: a function as mode writes into parts of the array; write the loop over the axes itself"
        )
    if mode not in _OPTIONS:
        raise ValueError(f"mode '{mode}' is not supported")
    unknown = set(options) - _OPTIONS[mode]
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    if mode in ("constant", "empty"):
        return _constant(ops, operand, widths, options.get("constant_values", 0))
    if not operand.size:
        for axis, width in enumerate(widths):
            if not operand.shape[axis] and any(width):
                raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        return _constant(ops, operand, widths, 0)
    if mode in _MOVING and options.get("reflect_type", "even") != "odd":
        for axis, width in enumerate(widths):
            if any(width):
                line = np.pad(np.arange(operand.shape[axis]), width, mode=mode)
                operand = concatenate(ops, list(_runs(ops, operand, axis, line)), axis)
        return operand
    if not operand.ndim:
        return operand.copy()
    source: Any = own_source(np.pad)
    return source(operand, widths, mode, **options)


def _widths(operand: Tracer, given: Any) -> list[tuple[int, int]]:
    """How many elements come before and behind along each axis."""
    if isinstance(given, dict):
        pairs: list[Any] = [(0, 0)] * operand.ndim
        for axis, width in given.items():
            pairs[axis] = width if isinstance(width, tuple) else (width, width)
        given = pairs
    array = np.asarray(given)
    if array.dtype.kind != "i":
        raise TypeError("`pad_width` must be of integral type.")
    if (array < 0).any():
        raise ValueError("index can't contain negative values")
    return [(low, high) for low, high in np.broadcast_to(array, (operand.ndim, 2)).tolist()]


def _runs(ops: Operations, operand: Tracer, axis: int, line: np.ndarray[Any, Any]) -> Iterator[Tracer]:
    """The elements that ``line`` numbers along an axis, cut where they stop to be one slice."""
    front: list[Any] = [slice(None)] * axis
    begin = 0
    while begin < len(line):
        end = begin + 1
        step = int(line[end] - line[begin]) if end < len(line) else 0
        step = step if abs(step) <= 1 else 0
        while end < len(line) and line[end] - line[end - 1] == step:
            end += 1
        first, last = int(line[begin]), int(line[end - 1])
        if step:
            stop: int | None = last + step
            yield operand[(*front, slice(first, stop if stop is not None and stop >= 0 else None, step))]
        else:
            one = operand[(*front, slice(first, first + 1))]
            shape = [end - begin if d == axis else extent for d, extent in enumerate(operand.shape)]
            yield broadcast_to(ops, one, shape)
        begin = end


def _constant(ops: Operations, operand: Tracer, widths: Sequence[tuple[int, int]], values: Any) -> Tracer:
    fills = ops.tracer(values).astype(operand.kind)
    if not fills.shape:
        return _padded(ops, operand, widths, fills)
    spread = ops.tracer(np.broadcast_to(fills, (operand.ndim, 2)))
    for dimension, (low, high) in enumerate(widths):
        for side, width in enumerate([(low, 0), (0, high)]):
            edges = [width if d == dimension else (0, 0) for d in range(operand.ndim)]
            operand = _padded(ops, operand, edges, spread[dimension, side])
    return operand


def _padded(ops: Operations, operand: Tracer, widths: Sequence[tuple[int, int]], fill: Tracer) -> Tracer:
    attributes = {
        "edge_padding_low": tuple(low for low, _ in widths),
        "edge_padding_high": tuple(high for _, high in widths),
        "interior_padding": (0,) * operand.ndim,
    }
    return ops.wrap(ops.builder.create("pad", [operand.value, fill.value], attributes=attributes).result)

"""What the rules for NumPy's functions share: the decorator that fills a module's table, axes, options, dtypes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.tracing.arrays.kinds import as_dtype
from hlojit.tracing.errors import TracingError
from hlojit.tracing.tracer import Tracer

Axis = int | tuple[int, ...] | None
Rules = dict[Callable[..., Any], Callable[..., Any]]
"""NumPy's function to the rule ``rule(operations, *arguments, **options)`` that builds it."""


def implements(rules: Rules, *functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated rule into ``rules`` for NumPy functions."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            rules[function] = rule
        return rule

    return register


def normalized_axes(axis: Axis, rank: int) -> tuple[int, ...]:
    """Axes as positions from 0 in their order, all of them for None; raises NumPy's errors."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, tuple) else (axis,)
    axes = [operator.index(each) for each in given]
    for each in axes:
        if not -rank <= each < rank:
            raise np.exceptions.AxisError(each, rank)
    found = sorted(each % rank for each in axes)
    if len(set(found)) < len(found):
        raise ValueError("duplicate value in 'axis'")
    return tuple(found)


def reduced_axes(axis: Axis, rank: int) -> tuple[int, ...]:
    """The same for reductions, which take a number for an array of one dimension."""
    if isinstance(axis, (bool, np.bool_)):
        raise TypeError("an integer is required for the axis")
    if not rank and isinstance(axis, (int, np.integer)) and axis in (0, -1):
        return ()
    return normalized_axes(axis, rank)


def single_axis(axis: Any, rank: int) -> int:
    """One axis as a position from 0."""
    if isinstance(axis, (tuple, list)):
        raise TypeError(f"{type(axis).__name__!r} object cannot be interpreted as an integer")
    if axis is None or isinstance(axis, (bool, np.bool_)):
        raise TypeError("an integer is required for the axis")
    return normalized_axes(axis, rank)[0]


def places_of(given: Any, what: str = "indices") -> Any:
    """Positions or counts as integers: of lists and numbers NumPy takes the whole part, of arrays integers only."""
    if not isinstance(given, (Tracer, np.ndarray, np.generic)):
        return np.asarray(given).astype(np.int64)
    if given.dtype.kind not in "iub":
        raise TypeError(
            f"Cannot cast array data from {given.dtype!r} to dtype('int64') according to the rule 'safe': {what}"
        )
    return given.astype(np.int64) if given.dtype == np.bool_ else given


def mask_of(where: Any) -> Any:
    """A ``where=`` of booleans, or NumPy's error."""
    if type(where) in (bool, int):
        return bool(where)
    if isinstance(where, (list, tuple)) and not any(isinstance(each, Tracer) for each in where):
        where = np.asarray(where)
    dtype = np.result_type(where.dtype if isinstance(where, Tracer) else where)
    if dtype != np.bool_:
        raise TypeError(f"Cannot cast array data from {dtype!r} to dtype('bool') according to the rule 'safe'")
    return where


def letter_of(order: Any, letters: str = "CFAK") -> str:
    """NumPy's letter for an order of elements, or its error."""
    if not isinstance(order, str):
        raise TypeError(f"order must be str, not {type(order).__name__}")
    if order.upper() not in tuple(letters):
        raise ValueError(f"order must be one of {', '.join(map(repr, letters))} (got {order!r})")
    return order.upper()


def casting_of(casting: Any) -> str:
    """NumPy's word for a rule of casting, or its error."""
    if not isinstance(casting, str):
        raise TypeError(f"casting must be str, not {type(casting).__name__}")
    if casting not in ("no", "equiv", "safe", "same_kind", "unsafe"):
        raise ValueError(f"casting must be one of 'no', 'equiv', 'safe', 'same_kind', 'unsafe' (got {casting!r})")
    return casting


def extents_of(shape: Any) -> tuple[int, ...]:
    """A shape as NumPy takes it: one whole number or several, Python's or NumPy's."""
    given = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    extents = tuple(operator.index(each) for each in given)
    if any(extent < 0 for extent in extents):
        raise ValueError("negative dimensions are not allowed")
    return extents


def refuse(name: str, **options: Any) -> None:
    """Raise for options that have a value but cannot be compiled."""
    for key, value in options.items():
        if value is not None and value is not np._NoValue:
            raise TracingError(f"np.{name}: {key}= cannot be compiled yet")


def flag(value: Any) -> bool:
    """An option of NumPy's that may be left out."""
    return bool(operator.index(value)) if value is not np._NoValue else False


def float_dtype(dtype: np.dtype[Any], wanted: Any = None) -> np.dtype[Any]:
    """The float dtype in which NumPy computes a mean of a dtype."""
    if wanted is not None:
        return as_dtype(wanted)
    return np.dtype(np.float64) if dtype.kind in "iub" else dtype


def weak_kind(operand: Any) -> type | None:
    """``int``, ``float`` or ``complex`` for a Python number (or a tracer of one), else None."""
    if isinstance(operand, Tracer):
        return operand.weak if operand.weak is not bool else None
    return type(operand) if type(operand) in (int, float, complex) else None

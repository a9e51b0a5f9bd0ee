"""What the rules for NumPy's functions share: the decorator that fills a module's table, axes, options, dtypes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.kinds import as_dtype
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
    """Axes as positions from 0, all of them for None."""
    if axis is None:
        return tuple(range(rank))
    axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    for each in axes:
        if not -rank <= each < rank:
            raise np.exceptions.AxisError(each, rank)
    return tuple(sorted({int(each) % rank for each in axes}))


def extents_of(shape: Any) -> tuple[int, ...]:
    """A shape as NumPy takes it: one whole number or several, Python's or NumPy's."""
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(operator.index(each) for each in shape)


def refuse(name: str, **options: Any) -> None:
    """Raise for options that have a value but cannot be compiled."""
    for key, value in options.items():
        if value is not None and value is not np._NoValue:
            raise TracingError(f"np.{name}: {key}= cannot be compiled yet")


def flag(value: Any) -> bool:
    """An option of NumPy's that may be left out."""
    return bool(value) if value is not np._NoValue else False


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

"""What a ``for`` goes through that is long, or of a length that is known at run time only: ranges and arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np
from hlojit.tracing.calls.specializing import NeedsValues
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.aligned import wrapped
from hlojit.tracing.selection.extents import unchecked
from hlojit.tracing.selection.selected import Selected
from hlojit.tracing.tracer import Tracer


@final
class Walk:
    """Items by number: Python's, where the number is one of Python's, else traced."""

    def __init__(self, count: Any, at: Callable[[Any], Any], what: str):
        self.count = count
        """An ``int``, or a traced one."""
        self.at = at
        self.what = what

    def __len__(self) -> int:
        if isinstance(self.count, Tracer):
            raise TracingError(f"the number of rounds of {self.what} is known only when the compiled function runs")
        return int(self.count)

    def __iter__(self) -> Iterator[Any]:
        return (self.at(number) for number in range(len(self)))


def walk_of(value: Any) -> Walk | None:
    """An iterable by number; None for what Python iterates over."""
    if isinstance(value, Walk):
        return value
    if type(value) is range:
        return Walk(len(value), lambda number: value.start + number * value.step, f"{value!r}")
    if type(value) is Tracer:
        if not value.shape:
            return None
        return Walk(value.shape[0], lambda number: value[number], "an array")
    if type(value) is Selected:
        return _walk_of_selected(value)
    return None


def _walk_of_selected(array: Selected) -> Walk:
    """Elements, or views of rows, where they lie now: what the body writes is seen by the next round."""
    extent = array.extents[0]
    if extent is None:
        return Walk(array.elements.shape[0], lambda number: array[number], "an array")
    # In front of the loop: once.
    positions = extent.positions

    def at(number: Any) -> Any:
        with unchecked(array.context):
            return wrapped(array.elements[positions[number]], array.extents[1:])

    return Walk(extent.length, at, "an array")


def traced_range(ops: Operations, *bounds: Any) -> Walk:
    """``range`` of traced bounds."""
    numbers = [_whole(ops, each) for each in bounds]
    start, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    if isinstance(step, Tracer):
        parameters = ops.parameters_behind(step)
        if parameters:
            raise NeedsValues(parameters)
        raise TracingError("range: the step must be known when the function is traced; use while")
    if not step:
        raise ValueError("range() arg 3 must not be zero")
    distance = (stop - start) if step > 0 else (start - stop)
    count = (distance + (abs(step) - 1)) // abs(step)
    return Walk(_or_none(ops, count), lambda number: start + number * step, "a range")


def _whole(ops: Operations, bound: Any) -> Any:
    if not isinstance(bound, Tracer):
        return bound
    if bound.shape or bound.dtype.kind not in "biu":
        raise TypeError(f"{bound.__class__.__name__!r} object cannot be interpreted as an integer")
    return ops.python_number(bound) if bound.weak is None else bound


def _or_none(ops: Operations, count: Tracer) -> Tracer:
    """A number of rounds: not below zero."""
    made = ops.builder.maximum(count.value, ops.full(0, np.dtype(np.int64)))
    return Tracer(ops.wrap(made).window, ops, weak=int)


def enumerated(value: Any, start: int = 0) -> Any:
    """``enumerate``."""
    walk = walk_of(value)
    if walk is None:
        return enumerate(value, start)
    return Walk(walk.count, lambda number: (start + number, walk.at(number)), f"enumerate of {walk.what}")


def zipped(*values: Any, strict: bool = False) -> Any:
    """``zip``."""
    walks = [walk_of(each) for each in values]
    known = [walk for walk in walks if walk is not None]
    counts = [walk.count for walk in known]
    if (
        not walks
        or len(known) < len(walks)
        or (strict and (any(isinstance(each, Tracer) for each in counts) or len(set(counts)) > 1))
    ):
        return zip(*values, strict=strict)
    return Walk(_least(counts), lambda number: tuple(walk.at(number) for walk in known), "zip of arrays")


def _least(counts: Sequence[Any]) -> Any:
    """The least of several counts, as Python's number."""
    traced = [each for each in counts if isinstance(each, Tracer)]
    if not traced:
        return min(counts)
    return traced[0].context.python_number(functools.reduce(np.minimum, counts))


def backwards(value: Any) -> Any:
    """``reversed``."""
    walk = walk_of(value)
    if walk is None:
        return reversed(value)
    return Walk(walk.count, lambda number: walk.at(walk.count - 1 - number), f"reversed of {walk.what}")

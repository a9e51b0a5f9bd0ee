"""The bounds of integers, and numbers between them that are all as likely.

What lies between is ``span`` numbers.  A random word of 64 bits (of 128, where the span has more than 32) times the span has the
number above its binary point: the probabilities of two numbers differ by at most one part in 2^32 (2^64).  Nothing is rejected,
so that each number takes the same time and its own place in the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from hlojit.ir.builder import Builder
from hlojit.ir.errors import ArgumentError
from hlojit.ir.graph import Value
from hlojit.ir.ops.random_expansion import Words
from hlojit.random.arguments import dtype_of
from hlojit.random.streams import Stream
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

_NARROW = 1 << 32


@final
@dataclass(frozen=True)
class Bounds:
    """The least number and the last one, both of the result's dtype."""

    low: Any
    last: Any
    is_narrow: bool
    """Whether no span is larger than 2^32, as far as is known before the function runs."""

    def numbers(self, stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Random ones."""
        operations = stream.operations
        b = operations.builder
        words = Words(b)
        first = stream.bits(64, shape).value
        low, last = (operations.broadcast(self._word(operations, each), shape) for each in (self.low, self.last))
        width = words.op("subtract", last, low)
        span = words.op("add", width, 1)
        offset = _of_narrow(words, first, span)
        if not self.is_narrow:
            second = stream.apart(1).bits(64, shape).value
            is_small = b.compare(width, b.constant(_NARROW - 1, width.tensor_type), "LE")
            offset = b.select(is_small, offset, _of_wide(b, words, first, second, span))
        return operations.wrap(operations.converted(words.op("add", low, offset), dtype))

    @staticmethod
    def _word(operations: Operations, bound: Any) -> Value:
        """64 bits; of a negative number its two's complement."""
        value = operations.tracer(bound).value
        wide = operations.converted(value, np.dtype(np.int64 if bound.dtype.kind == "i" else np.uint64))
        return operations.converted(wide, np.dtype(np.uint64))


def _of_narrow(words: Words, drawn: Value, span: Value) -> Value:
    """The upper half of 64 random bits times at most 2^32."""
    high = words.op("multiply", words.op("shift_right_logical", drawn, 32), span)
    low = words.op("multiply", words.op("and", drawn, _NARROW - 1), span)
    return words.op("shift_right_logical", words.op("add", high, words.op("shift_right_logical", low, 32)), 32)


def _of_wide(b: Builder, words: Words, first: Value, second: Value, span: Value) -> Value:
    """The upper half of 128 random bits times 64; a span of 2^64 is 0 here."""
    high, low = b.mulhi(first, span), words.op("multiply", first, span)
    total = words.op("add", low, b.mulhi(second, span))
    carried = b.convert(b.compare(total, low, "LT"), "ui64")
    is_whole = b.compare(span, b.constant(0, span.tensor_type), "EQ")
    found: Value = b.select(is_whole, first, words.op("add", high, carried))
    return found


def bounds_of(low: Any, high: Any, dtype: np.dtype[Any], endpoint: bool) -> Bounds:
    """Bounds as ``dtype`` holds them; raises ``ValueError``, now or when the function runs, where it does not."""
    for name, value in (("low", low), ("high", high)):
        if isinstance(value, float) or (
            type(value) is not int and (dtype_of(value) or np.dtype(bool)).kind not in "biu"
        ):
            raise ArgumentError(f"integers: {name} is {value!r}, and must be a whole number or an array of them")
    if isinstance(low, Tracer) or isinstance(high, Tracer):
        return _traced(low, high, dtype, endpoint)
    if type(low) is int and type(high) is int:
        return _of_numbers(low, high, dtype, endpoint)
    low, high = (int(each) if isinstance(each, (bool, int)) else np.asarray(each) for each in (low, high))
    if np.any(low > high if endpoint else low >= high):
        raise ValueError("integers: low > high" if endpoint else "integers: low >= high")
    last = high if endpoint else high - 1
    limits = np.iinfo(dtype)
    for name, value, compare in (("low", low, limits.min), ("high", last, limits.max)):
        if np.any(value < compare) if name == "low" else np.any(value > compare):
            raise ValueError(f"integers: {name} is out of bounds for {dtype}")
    low, last = (np.asarray(each).astype(dtype) for each in (low, last))
    with np.errstate(over="ignore"):
        widths = last.astype(np.uint64) - low.astype(np.uint64)
    return Bounds(low, last, not widths.size or int(widths.max()) < _NARROW)


def _of_numbers(low: int, high: int, dtype: np.dtype[Any], endpoint: bool) -> Bounds:
    last, limits = high if endpoint else high - 1, np.iinfo(dtype)
    if low > last:
        raise ValueError("integers: low > high" if endpoint else "integers: low >= high")
    if low < limits.min or last > limits.max:
        raise ValueError(f"integers: {'low' if low < limits.min else 'high'} is out of bounds for {dtype}")
    return Bounds(np.asarray(low, dtype), np.asarray(last, dtype), last - low < _NARROW)


def _traced(low: Any, high: Any, dtype: np.dtype[Any], endpoint: bool) -> Bounds:
    operations: Operations = next(each.context for each in (low, high) if isinstance(each, Tracer))
    operations.mark()
    # The type in which bounds of any kind are compared; what it does not hold, the dtype does not either.
    wide = np.dtype(np.uint64 if dtype == np.uint64 else np.int64)
    limits = np.iinfo(dtype)
    low = _in_limits(operations, f"low is out of bounds for {dtype}", low, wide, (limits.min, limits.max))
    top = limits.max if endpoint else min(limits.max + 1, np.iinfo(wide).max)
    high = _in_limits(operations, f"high is out of bounds for {dtype}", high, wide, (limits.min, top))
    bad = operations.value(low > high if endpoint else low >= high)
    operations.check(bad, ValueError, "integers: low > high" if endpoint else "integers: low >= high")
    last = high if endpoint else high - wide.type(1)
    return Bounds(low.astype(dtype), last.astype(dtype), dtype.itemsize < 8)


def _in_limits(operations: Operations, fault: str, bound: Any, wide: np.dtype[Any], limits: tuple[int, int]) -> Any:
    """A bound in a wide type, checked; a Python number is checked at once."""
    message = f"integers: {fault}"
    if isinstance(bound, (bool, int)) and not isinstance(bound, Tracer):
        if not limits[0] <= bound <= limits[1]:
            raise ValueError(message)
        return operations.tracer(np.asarray(bound, wide))
    traced = operations.tracer(bound)
    own = np.iinfo(traced.dtype) if traced.dtype.kind in "iu" else np.iinfo(np.uint8)
    below = traced < max(limits[0], own.min) if limits[0] > own.min else None
    above = traced > limits[1] if limits[1] < own.max else None
    for bad in (below, above):
        if bad is not None:
            operations.check(operations.value(bad), ValueError, message)
    return operations.convert(traced, wide)

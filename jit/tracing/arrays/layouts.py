"""Where elements of arrays lie in memory, as far as NumPy's meaning depends on it: what is a view and what is a copy.

NumPy itself is asked.  A *shadow* is an array of one byte an element with the same shape and strides, whose memory nobody
reads or writes (the system gives it no page); what an operation makes of it tells whether a view comes out, and how it lies.
Strides are counted in elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import numpy as np

NDArray = np.ndarray[Any, Any]
Strides = tuple[int, ...]


def contiguous(shape: Sequence[int], order: str = "C") -> Strides:
    """Strides of a new array."""
    strides = []
    stride = 1
    for extent in reversed(shape) if order == "C" else shape:
        strides.append(stride)
        stride *= max(extent, 1)
    return tuple(reversed(strides)) if order == "C" else tuple(strides)


def is_contiguous(shape: Sequence[int], strides: Strides | None, order: str = "C") -> bool:
    """Whether elements are known to lie in a row; strides of single elements do not count."""
    if strides is None:
        return False
    wanted = contiguous(shape, order)
    return 0 in shape or all(extent == 1 or a == b for extent, a, b in zip(shape, strides, wanted))


@final
class Flags:
    """``a.flags`` of a traced array, as far as it tells how elements lie."""

    def __init__(self, shape: Sequence[int], strides: Strides):
        self.c_contiguous = self.contiguous = is_contiguous(shape, strides)
        self.f_contiguous = self.fortran = is_contiguous(shape, strides, "F")
        self.fnc = self.f_contiguous and not self.c_contiguous
        self.forc = self.f_contiguous or self.c_contiguous
        self.aligned = True

    def __getitem__(self, name: str) -> bool:
        """By NumPy's name for it, in capital letters."""
        short = {"C": "c_contiguous", "F": "f_contiguous", "A": "aligned"}
        found: bool = getattr(self, short.get(name, name.lower()))
        return found


def overlaps_itself(shape: Sequence[int], strides: Strides) -> bool:
    """Whether two elements may be one place in memory."""
    reach = 1
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape) if extent > 1):
        if stride < reach:
            return True
        reach = stride * (extent - 1) + reach
    return False


def shadow(shape: Sequence[int], strides: Strides) -> NDArray:
    """An array of bytes that lies so; its contents mean nothing."""
    below = sum(min(0, stride * (extent - 1)) for stride, extent in zip(strides, shape))
    above = sum(max(0, stride * (extent - 1)) for stride, extent in zip(strides, shape))
    memory = np.empty(above - below + 1, np.int8)
    return np.ndarray(tuple(shape), np.int8, memory, -below, strides)


def strides_of(array: NDArray) -> Strides:
    """The strides of what is seen of it; those of all arrays alike that nothing here tells apart.

    Kept are the order and the direction of dimensions, and between which of them there is a gap, but not how wide it is.
    """
    canonical = list(contiguous(array.shape))
    expected, unit = array.itemsize, 1
    seen = [number for number in range(array.ndim) if array.shape[number] > 1]
    # Of equal strides the later dimension is the inner one.
    for number in sorted(seen, key=lambda number: (abs(array.strides[number]), -number)):
        stride, extent = array.strides[number], array.shape[number]
        if abs(stride) < expected:
            canonical[number] = 0
            continue
        if abs(stride) != expected:
            unit += 1
        canonical[number] = unit if stride > 0 else -unit
        expected, unit = abs(stride) * extent, unit * extent
    return tuple(canonical)


def of_elementwise_result(
    operands: Iterable[tuple[Sequence[int], Strides | None]], shape: Sequence[int]
) -> Strides | None:
    """How NumPy's iterator lays out a result of operands of these shapes and strides; None if one is not known."""
    shadows = []
    for extents, strides in operands:
        if strides is None:
            return None
        shadows.append(shadow(extents, strides))
    if len(shape) < 2 or all(is_contiguous(each.shape, _strides(each)) for each in shadows):
        return contiguous(shape)
    flags: Any = [*(["readonly"] for _ in shadows), ["writeonly", "allocate"]]
    iterator = np.nditer([*shadows, None], ["zerosize_ok"], flags, order="K")
    return _strides(iterator.operands[-1])


def permutation(function: Callable[[NDArray], NDArray], rank: int) -> tuple[int, ...]:
    """The dimensions' order in what a function makes of an array that only exchanges them."""
    tags = np.ndarray((1,) * rank, np.int8, np.empty(rank + 1, np.int8), 0, tuple(range(rank)))
    return tuple(function(tags).strides)


def reshaped(shape: Sequence[int], wanted: Any, order: str = "C") -> tuple[int, ...]:
    """The shape that ``reshape`` makes; raises NumPy's errors."""
    # All elements are one: no reshape of it copies.
    return np.reshape(np.broadcast_to(np.int8(0), tuple(shape)), wanted, order=order).shape  # type: ignore[call-overload]


def outer_first(shape: Sequence[int], strides: Strides) -> tuple[int, ...] | None:
    """The order of dimensions in which the elements lie in a row, from the outermost; None if there is none."""
    order = sorted(range(len(shape)), key=lambda number: (-abs(strides[number]), number))
    inner = [shape[number] for number in order]
    return tuple(order) if is_contiguous(inner, tuple(strides[number] for number in order)) else None


def compact(shape: Sequence[int], strides: Strides | None) -> Strides | None:
    """The strides of a copy (``order="K"``): the same order of dimensions, without gaps."""
    if strides is None or is_contiguous(shape, strides):
        return None if strides is None else contiguous(shape)
    return tuple(np.empty_like(shadow(shape, strides)).strides)


def _strides(array: NDArray) -> Strides:
    return tuple(array.strides)

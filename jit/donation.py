"""Calls with donated arguments: arrays whose memory a program takes for its results and temporaries.

The native call path takes the memory of an array that is writable, owns its memory (or is a result of a compiled program),
is aligned to eight bytes and overlaps no other argument; it marks it as read-only, and neither it nor the result owns the
memory then, so that NumPy does not free it under the other.  What cannot be taken is copied here, and stays as it is.
Which arrays can be taken is decided natively, in one atomic step; the test here only saves copies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.lib.array_utils import byte_bounds

Array = np.ndarray[Any, Any]

_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_CAPSULES = (b"hlojit.block", b"hlojit.donor")
"""Bases of arrays that own blocks of the memory pool, or the memory of an array that was donated."""


def can_be_given(array: Array) -> bool:
    """Whether a program may take the memory of ``array``, unless another argument overlaps it."""
    base = array.base
    if not array.flags.writeable or array.ctypes.data % 8:
        return False
    return array.flags.owndata if base is None else any(_is_valid(base, name) for name in _CAPSULES)


def overlapping(arrays: Sequence[Array]) -> set[int]:
    """Numbers of the arrays whose memory, from their first byte to their last, overlaps that of another one."""
    bounds = sorted((*byte_bounds(array), number) for number, array in enumerate(map(np.asarray, arrays)) if array.size)
    found: set[int] = set()
    # Of those that begin before: where the last one ends, and which that is.
    end, last = 0, -1
    for low, high, number in bounds:
        if low < end:
            found |= {number, last}
        if high > end:
            end, last = high, number
    return found


@final
class GivingCall:
    """Copies those donated arguments that cannot be taken, and calls the native function."""

    __slots__ = ("function", "numbers")

    def __init__(self, numbers: Sequence[int], function: Callable[..., Any]):
        self.numbers = tuple(numbers)
        self.function = function

    def __call__(self, *arrays: Array) -> Any:
        given = list(arrays)
        # Of what the caller gave: of one array given twice every donated one is copied, and it stays as it was.
        overlaps = overlapping(arrays)
        for number in self.numbers:
            if number in overlaps or not can_be_given(arrays[number]):
                given[number] = arrays[number].copy()
        return self.function(*given)


@final
class CopyingCall:
    """Copies every donated argument: another thread took one of them after it was found free."""

    __slots__ = ("function", "numbers")

    def __init__(self, numbers: Sequence[int], function: Callable[..., Any]):
        self.numbers = tuple(numbers)
        self.function = function

    def __call__(self, *arrays: Array) -> Any:
        given = list(arrays)
        for number in self.numbers:
            given[number] = given[number].copy()
        return self.function(*given)

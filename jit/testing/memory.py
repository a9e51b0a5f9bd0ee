"""Memory that no program may depend on: what nobody has written, and what lies beside arguments.

with unwritten_memory(0x5A):
    executable(x)                    # what is not written is 0x5A, byte by byte

guarded = Guarded(arrays, 0xFF)      # copies with bytes in front and behind
executable(*guarded.arrays)
guarded.complaint()                  # "it wrote behind argument 1"; empty: it kept to its results
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from hlojit.ir import unwritten

NDArray = np.ndarray[Any, Any]

PATTERNS: Final = (0x5A, 0xFF)
"""Bytes of runs that are compared with each other: large numbers, and NaN."""
OF_MEANING: Final = 0xA5
"""The byte where it is worked out what is right: what is not written there, and not here, differs."""
_GUARD: Final = 64


@contextmanager
def unwritten_memory(byte: int) -> Iterator[None]:
    """Memory for results and temporaries is filled with a byte, in the whole process: what a program does not write shows."""
    with unwritten.filled(byte):
        yield


class Guarded:
    """Copies of arrays with bytes in front of each and behind it, which are looked at again."""

    def __init__(self, arrays: Sequence[NDArray], byte: int):
        made = [_with_guards(array, byte) for array in arrays]
        self.arrays = [array for _, array in made]
        self._wholes = [whole for whole, _ in made]
        self._before = [whole.copy() for whole in self._wholes]

    def complaint(self) -> str:
        """What was written that is nobody's to write; empty if nothing was."""
        for number, (whole, before, array) in enumerate(zip(self._wholes, self._before, self.arrays)):
            changed = np.flatnonzero(whole != before)
            if changed.size:
                first = int(changed[0]) - (array.ctypes.data - whole.ctypes.data)
                where = "in front of" if first < 0 else "to" if first < array.nbytes else "behind"
                return f"it wrote {where} argument {number}"
        return ""


def _with_guards(array: NDArray, byte: int) -> tuple[NDArray, NDArray]:
    """Memory, and the array in it, where it lies as arrays of hlojit's do."""
    whole = np.full(array.nbytes + 3 * _GUARD, byte, np.uint8)
    first = _GUARD + -(whole.ctypes.data + _GUARD) % _GUARD
    part = whole[first : first + array.nbytes]
    part[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return whole, part.view(array.dtype).reshape(array.shape)

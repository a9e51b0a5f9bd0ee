"""Memory that no program may depend on: what nobody has written, and what lies beside arguments.

with unwritten_memory(0x5A):
    executable(x)                    # what is not written is 0x5A, byte by byte

guarded = Guarded(arrays, 0xFF)      # copies with bytes in front and behind
executable(*guarded.arrays)
guarded.complaint()                  # "it wrote behind argument 1"; empty: it kept to its results
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
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
    with (_fillings.get() or Fillings()).filled(byte):
        yield


class Fillings:
    """What a piece of work fills memory with.  Work that nobody waits for is given up: from then on it fills nothing.

    context.run(fillings.begin)      # in the context of the work
    fillings.give_up()               # on any other thread
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[ExitStack] = []
        self._is_given_up = False

    def begin(self) -> None:
        """What ``unwritten_memory`` fills in this context from now on is of this work."""
        _fillings.set(self)

    @contextmanager
    def filled(self, byte: int) -> Iterator[None]:
        """Memory is filled with a byte, as long as the work is not given up."""
        mine = ExitStack()
        with self._lock:
            if not self._is_given_up:
                mine.enter_context(unwritten.filled(byte))
                self._open.append(mine)
        try:
            yield
        finally:
            with self._lock:
                mine.close()
                self._open = [each for each in self._open if each is not mine]

    def give_up(self) -> None:
        """Memory is no longer filled by this work, whatever it still does."""
        with self._lock:
            self._is_given_up = True
            for each in self._open:
                each.close()


_fillings: Final[ContextVar[Fillings | None]] = ContextVar("hlojit_testing_fillings", default=None)


class Guarded:
    """Copies of arrays with bytes in front of each and behind it, which are looked at again."""

    def __init__(self, arrays: Sequence[NDArray], byte: int):
        made = [_with_guards(array) for array in arrays]
        self.arrays = [array for _, array in made]
        self._wholes = [whole for whole, _ in made]
        self.fill(arrays, byte)

    def fill(self, arrays: Sequence[NDArray], byte: int) -> None:
        """Other numbers in the same memory: whoever knows an argument by where it lies takes it for the one before."""
        for whole, mine, array in zip(self._wholes, self.arrays, arrays):
            whole[...] = byte
            mine.reshape(-1).view(np.uint8)[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
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


def _with_guards(array: NDArray) -> tuple[NDArray, NDArray]:
    """Memory, and room for the array in it, where it lies as arrays of hlojit's do."""
    whole = np.empty(array.nbytes + 3 * _GUARD, np.uint8)
    first = _GUARD + -(whole.ctypes.data + _GUARD) % _GUARD
    part = whole[first : first + array.nbytes]
    return whole, part.view(array.dtype).reshape(array.shape)

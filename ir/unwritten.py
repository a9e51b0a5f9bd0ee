"""What memory holds that nobody has written: by default what lay there, or zeros where functions of plugins are checked.

    with unwritten.filled(0x5A):
        executable(x)           # each byte of a result that is not written is 0x5A, on every back end of hlojit's

For whoever looks for elements that are not written (``hlojit.testing``): of two runs with different bytes such elements
differ.  It holds for the whole process, in children made by fork too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

USUAL: Final = -1
"""Memory is as it is."""

_lock: Final = threading.Lock()
_told: Final[list[Callable[[int], None]]] = []
_wanted: Final[list[tuple[object, int]]] = []
"""By whoever has asked, the last one behind: threads begin and end in any order."""


def watch(told: Callable[[int], None]) -> None:
    """Have a function told the byte, now and whenever it changes; ``USUAL`` is none."""
    with _lock:
        _told.append(told)
        told(_byte())


@contextmanager
def filled(byte: int) -> Iterator[None]:
    """Fill memory that is given out with a byte, in the whole process; ``USUAL`` leaves it as it is."""
    if not USUAL <= byte <= 0xFF:
        raise ValueError(f"{byte} is no byte")
    mine = object(), byte
    with _lock:
        _wanted.append(mine)
        _tell()
    try:
        yield
    finally:
        with _lock:
            _wanted.remove(mine)
            _tell()


def _byte() -> int:
    return _wanted[-1][1] if _wanted else USUAL


def _tell() -> None:
    for told in _told:
        told(_byte())


def zeros(shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """An array for results that are to be written: zeros, or what unwritten memory is filled with."""
    array = np.zeros(shape, dtype)
    if (byte := _byte()) != USUAL and array.size:
        array.reshape(-1).view(np.uint8)[...] = byte
    return array

"""llvmlite's lock is given back whatever happens where it is taken.

llvmlite holds one reentrant lock around each call of LLVM, and numba has a callback at each end.  Where the callback raises
(a finalizer deep in a recursion: no stack is left for a function of Python, while the lock, in C, has been taken), llvmlite
0.50 keeps the lock for ever, and every other thread waits for it.  At the other end it would say that a call has failed that
has not: its caller would free memory again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from llvmlite.binding import ffi


def _enter(self: Any) -> None:
    before, taken = self._lock._is_owned(), False
    try:
        taken = self._lock.acquire()
        for acquired, _ in self._cblist:
            acquired()
    except BaseException:
        # Ctrl-C may have come between the lock and the note of it.
        if taken or (not before and self._lock._is_owned()):
            self._lock.release()
        raise


def _exit(self: Any, *_: object) -> None:
    try:
        # What these report is for those who look on: the call itself has been made.
        with suppress(RecursionError, MemoryError):
            for _, released in self._cblist:
                released()
    finally:
        self._lock.release()


def mend() -> None:
    """Do so from now on, in front of LLVM's first use; a llvmlite that keeps its lock in another way is left as it is."""
    kind: Any = getattr(ffi, "_LLVMLock", None)
    if kind is not None and {"_lock", "_cblist"} <= vars(kind()).keys():
        kind.__enter__, kind.__exit__ = _enter, _exit

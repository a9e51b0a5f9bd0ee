"""Python's cyclic garbage collector, held off while a large graph is built.

The collector's full passes visit every live object; while 100,000 instructions are being made it runs again and again and
finds nothing, which would make compilation superlinear.
"""

from __future__ import annotations

import gc
import threading
from types import TracebackType
from typing import Final, final

from hlojit.ir.current_process import in_children

_holders: Final[dict[int, int]] = {}
"""The pauses that have not ended, by their addresses, with the threads that they are of."""
_is_ours = False
"""Whether the collector is off because of them."""


@final
class collection_paused:
    """Keeps the cyclic collector from running inside a ``with`` block; nested and concurrent uses count.

    There is no lock that a signal handler could find taken: whoever begins turns the collector off if it is on, and whoever
    leaves none behind turns it on again; the worst that a switch of threads in between does is a collection.
    """

    _ending = False
    """Whether `__exit__` has begun and not ended."""

    def __enter__(self) -> None:
        global _is_ours
        _holders[id(self)] = threading.get_ident()
        if gc.isenabled():
            _is_ours = True
            gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        _end(id(self))
        self._ending = False

    def __del__(self) -> None:
        # Ctrl-C may come before the block is entered, or between any two steps of `__exit__`.
        if self._ending or id(self) in _holders:
            _end(id(self), is_ours=self._ending)


def _end(holder: int, is_ours: bool = False) -> None:
    global _is_ours
    _holders.pop(holder, None)
    if not _holders and (_is_ours or is_ours):
        # Before it is on: whoever begins in between finds it off, and leaves it to this one.
        _is_ours = False
        gc.enable()


@in_children
def _after_fork() -> None:
    """The other threads are not here, and will not let go."""
    for holder, thread in list(_holders.items()):
        if thread != threading.get_ident():
            _end(holder)

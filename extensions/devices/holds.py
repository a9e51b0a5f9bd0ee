"""Who reads buffers, so that no program is given their memory meanwhile.

A program that is given (donated) the memory of a buffer overwrites it.  Whoever reads the buffer - a transfer to the host, a
call that runs on the caller's thread, a program that is being started - holds it from the look at the memory until it has
read it, or until the device's own order sees to the rest.  One lock for all buffers makes the look at several of them, and
the donation of several of them, one step; it is held for moments, and never while something is waited for.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from hlojit.extensions.devices.events import Event
from hlojit.ir.current_process import in_children

if TYPE_CHECKING:
    from hlojit.extensions.devices.buffers import Buffer, Memory

# Reentrant: the collector may free a buffer, and a vendor's `free` do anything, within any section.
_lock = threading.RLock()


@in_children
def _after_fork() -> None:
    # The lock may be held by a thread that does not exist in the child.
    global _lock
    _lock = threading.RLock()


@final
class Hold:
    """Buffers that somebody reads; ended by leaving its ``with`` block.

    Where it is ``queued``, a program that is to be given one of the buffers is started all the same and runs when the hold
    has ended; otherwise whoever starts the program waits.  What a queued hold waits for must have been started before it.
    """

    __slots__ = ("__weakref__", "_buffers", "_ended", "_process", "_self", "_thread", "memories", "queued")

    def __init__(self, buffers: Sequence[Buffer], *, queued: bool = False):
        # First, for the destructor: Ctrl-C may come between any two lines.
        self._buffers: Sequence[Buffer] = ()
        self._ended: Event | None = None
        self.queued = queued
        self._thread: Final = threading.get_ident()
        self._process: Final = os.getpid()
        # Buffers know it weakly: Ctrl-C may come before the block is entered, and it must end all the same.
        self._self: Final = weakref.ref(self)
        with _lock:
            self.memories: list[Memory] = [buffer.memory() for buffer in buffers]
            self._buffers = buffers
            for buffer in buffers:
                buffer.holds = (*buffer.holds, self._self)

    @property
    def ended(self) -> Event:
        """The event that it has ended; made when somebody asks, under the lock."""
        if self._ended is None:
            self._ended = Event()
        return self._ended

    @property
    def counts(self) -> bool:
        """Whether its reader goes on meanwhile: not in a child of fork, and not if this very thread is the reader."""
        return self._process == os.getpid() and self._thread != threading.get_ident()

    def __enter__(self) -> list[Memory]:
        return self.memories

    def __exit__(self, *_: Any) -> None:
        self.end()

    def end(self) -> None:
        """The buffers have been read; once more has no effect."""
        if not self._buffers:
            return
        with _lock:
            for buffer in self._buffers:
                buffer.holds = tuple(each for each in buffer.holds if each is not self._self)
            self._buffers = ()
            self.memories = []
            ended, self._ended = self._ended, None
        if ended is not None:
            ended.complete()

    def __del__(self) -> None:
        # Ctrl-C may have come before it was made.
        if hasattr(self, "_buffers"):
            self.end()


class Given(NamedTuple):
    """The arguments' memories of a program that is being started, and what it has to wait for."""

    memories: list[Memory]
    after: list[Event]
    hold: Hold


def give(program: str, buffers: Sequence[Buffer], donated: Sequence[int]) -> Given:
    """Hold the arguments of a program, and take the donated ones away from their buffers: all of them, or none.

    The hold is to end when the program is started.
    """
    if not donated:
        hold = Hold(buffers)
        return Given(hold.memories, [buffer.ready for buffer in buffers], hold)
    taken = frozenset(donated)
    while True:
        with _lock:
            memories = [buffer.memory() for buffer in buffers]
            found = {reader() for number in taken for reader in buffers[number].holds}
            readers = [hold for hold in found if hold is not None and hold.counts]
            busy = next((hold.ended for hold in readers if not hold.queued), None)
            if busy is None:
                after = [buffer.ready for buffer in buffers] + [hold.ended for hold in readers]
                hold = Hold([buffer for number, buffer in enumerate(buffers) if number not in taken])
                viewed = [number for number in donated if buffers[number].give(program)]
                break
        # Without the lock, and holding nothing: the other thread may be about to be given what is held here.
        busy.wait()
    return Given(memories, after, hold) if not viewed else _copied(buffers, viewed, Given(memories, after, hold))


def _copied(buffers: Sequence[Buffer], viewed: Sequence[int], given: Given) -> Given:
    """With copies of the memories that others look at: what they show does not change."""
    memories, after, hold = given
    try:
        for number in viewed:
            # Whoever looks at it has waited for it.
            copy = buffers[number].copy_of(memories[number])
            memories[number] = copy.memory()
            after.append(copy.ready)
    except BaseException:
        hold.end()
        raise
    return given

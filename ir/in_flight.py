"""Work that one thread does while others wait for its outcome, with no lock held meanwhile.

    works = InFlight()
    while (found := made.get(key)) is None:
        with works.turn(key) as role:
            if role is not Role.AFTER:
                made[key] = make(key)       # code of users or vendors may run here

What others make may start threads and wait for them, call what is being made, be interrupted, or fork.  Under a lock all
that can hang.  Here only threads that want the same key wait, and a wait ends when

* the thread that works has ended, well or with an exception: the others look again, and one of them works if need be,
* it would wait, directly or through others, for the thread that wants to wait,
* it takes longer than ``patience``: it may wait for this thread in a way that nobody can see.

Nothing here takes a lock that a signal handler could find taken: tables change in single steps.
"""

from __future__ import annotations

import enum
from _thread import LockType, allocate_lock, get_ident
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final, final
from weakref import WeakSet

from hlojit.ir.current_process import in_children

PATIENCE: Final = 10.0
"""Seconds; far beyond what most work takes, and not too long for somebody who would wait for ever."""


class Role(enum.Enum):
    """What a thread is to do about a piece of work that it wants done."""

    FIRST = "do it: the others wait for this thread"
    AFTER = "look again: another thread was at it and has ended, well or not"
    INSIDE = "this thread is in the middle of it: do it once more, or go on with what is there"
    BESIDE = "another thread is at it and cannot be waited for: do it too, or go on with what is there"


@final
class _Work:
    """A piece of work that is being done."""

    __slots__ = ("ended", "gates", "impatient", "thread")

    def __init__(self, thread: int):
        self.thread = thread
        self.ended = False
        self.gates: list[LockType] = []
        """One for each thread that waits; all are opened at the end."""
        self.impatient: set[int] = set()
        """Threads that have waited long enough, and do not begin again."""

    def end(self) -> None:
        """Let those go on who wait.  Who comes later sees the mark: it is set before the gates are looked at."""
        self.ended = True
        while self.gates:
            self.gates.pop().release()


_waits: Final[dict[int, _Work]] = {}
"""What each thread waits for, of all tables."""


@final
class InFlight:
    """The pieces of work that are being done, by key; see the module's docstring."""

    def __init__(self, patience: float = PATIENCE):
        self.patience = patience
        self._works: dict[Hashable, _Work] = {}
        _tables.add(self)

    @contextmanager
    def turn(self, key: Hashable, *, take_over: bool = True) -> Iterator[Role]:
        """Say that this thread wants the work ``key`` done, wait for whoever is at it, and learn what to do.

        A thread that has waited too long takes the work over (``FIRST``), so that not all of them do it at once; with
        ``take_over=False`` it stays ``BESIDE``.
        """
        mine = _Work(get_ident())
        # Around the entry as well: Ctrl-C may come behind it.
        try:
            work = self._works.setdefault(key, mine)
            if work is not mine:
                role = self._wait(work)
                if role is not Role.BESIDE or not take_over:
                    yield role
                    return
                # Whoever was faster is the one to wait for: the caller looks again, and comes back.
                if self._works.get(key) is not work:
                    yield Role.AFTER
                    return
                self._works[key] = mine
            yield Role.FIRST
        finally:
            if self._works.get(key) is mine:
                del self._works[key]
            mine.end()

    def _wait(self, work: _Work) -> Role:
        """Wait for the thread that is at it, where that can end."""
        me = get_ident()
        if work.thread == me:
            return Role.INSIDE
        if me in work.impatient:
            return Role.BESIDE
        before = _waits.get(me)
        # Noted before it is looked for: of two threads that begin to wait for each other, one at least sees it.
        _waits[me] = work
        try:
            if _leads_to(me, work):
                return Role.BESIDE
            gate = allocate_lock()
            gate.acquire()
            work.gates.append(gate)
            if work.ended or gate.acquire(timeout=self.patience):
                return Role.AFTER
            work.impatient.add(me)
            return Role.BESIDE
        finally:
            if before is None:
                del _waits[me]
            else:
                # A signal handler ran while this thread waited for something else.
                _waits[me] = before

    def forget_other_threads(self) -> None:
        """In the child of a fork: nobody else is at work."""
        self._works = {key: work for key, work in self._works.items() if work.thread == get_ident()}


def _leads_to(thread: int, work: _Work) -> bool:
    """Whether the thread that is at ``work`` waits, directly or through others, for ``thread``."""
    seen: set[int] = set()
    following: _Work | None = work
    while following is not None and following.thread not in seen:
        if following.thread == thread:
            return True
        seen.add(following.thread)
        following = _waits.get(following.thread)
    return False


_tables: Final[WeakSet[InFlight]] = WeakSet()


@in_children
def _after_fork() -> None:
    for thread in list(_waits):
        if thread != get_ident():
            del _waits[thread]
    for table in list(_tables):
        table.forget_other_threads()

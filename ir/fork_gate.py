"""Fork waits until no other thread is in the middle of a compilation.

    with fork_gate:
        ...  # take locks, call LLVM or numba, import modules for the first time

The child of a fork has one thread.  A lock that another thread held, a module that it was importing, LLVM in the middle of
a call: all that would stay as it was for ever, and the child's first compilation would wait for it.  So whoever enters
such a region says so; ``os.fork`` waits for the others to leave it, and holds numba's and llvmlite's own locks while it
copies the process.  A thread that itself waits to fork, inside the region, does not hold up others who fork.
"""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import Any, Final, final


@final
class ForkGate:
    """Counts the threads inside; see the module's docstring.  There is one per process: ``fork_gate``."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._inside: dict[int, int] = {}
        self._forking: set[int] = set()
        self._foreign: list[Any] = []

    def __enter__(self) -> None:
        thread = threading.get_ident()
        with self._condition:
            self._inside[thread] = self._inside.get(thread, 0) + 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread = threading.get_ident()
        with self._condition:
            self._inside[thread] -= 1
            if not self._inside[thread]:
                del self._inside[thread]
                if self._forking:
                    self._condition.notify_all()

    def before_fork(self) -> None:
        """Wait for other threads to leave, and keep them out until the fork is done."""
        self._condition.acquire()
        self._forking.add(threading.get_ident())
        self._condition.notify_all()
        while not self._inside.keys() <= self._forking:
            self._condition.wait()
        self._foreign = _foreign_locks()
        for lock in self._foreign:
            lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Let the other threads go on."""
        self._release_foreign()
        # Not there if this module was imported while the fork was already on its way.
        if threading.get_ident() in self._forking:
            self._forking.discard(threading.get_ident())
            self._condition.release()

    def after_fork_in_child(self) -> None:
        """Forget the other threads: they are not here."""
        self._release_foreign()
        thread = threading.get_ident()
        self._condition = threading.Condition(threading.Lock())
        self._inside = {thread: self._inside[thread]} if thread in self._inside else {}
        self._forking = set()

    def _release_foreign(self) -> None:
        for lock in reversed(self._foreign):
            lock.release()
        self._foreign = []


def _foreign_locks() -> list[Any]:
    """numba's lock and llvmlite's, as far as they are loaded, in the order in which numba takes them.

    Somebody else's numba function, or an executable that is dropped, may be inside of them without having entered here.
    """
    compiler = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    wrapped = getattr(getattr(library, "_lock", None), "_lock", None)
    return [lock for lock in (compiler, wrapped) if lock is not None]


fork_gate: Final = ForkGate()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=fork_gate.before_fork,
        after_in_parent=fork_gate.after_fork_in_parent,
        after_in_child=fork_gate.after_fork_in_child,
    )

"""Fork waits until no other thread is in the middle of a compilation.

    with fork_gate.inside:
        ...  # take locks, call LLVM or numba, import modules for the first time
        fork_gate.outside(function, argument)    # code of users and vendors

The child of a fork has one thread.  A lock that another thread held, a module that it was importing, LLVM in the middle of
a call: all that would stay as it was for ever, and the child's first compilation would wait for it.  So whoever enters
such a region says so; ``os.fork`` waits for the others to leave it, and holds numba's and llvmlite's own locks while it
copies the process.  A thread that itself waits to fork, inside the region, does not hold up others who fork.

Every thread has a lock of its own, which it holds while it is inside; who forks takes all of them.  They are reentrant locks
of C: a signal handler may enter where it interrupted its own thread, and Ctrl-C finds no moment in which a lock is taken
that a ``with`` block does not give back.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import methodcaller
from typing import Any, Final, ParamSpec, TypeVar, final

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_COURTESY: Final = 5.0
"""Seconds that a thread lets another one fork before it comes inside: who is inside may be waiting for it."""
_COURTESY_STEP: Final = 0.002
_STEPS_OUTSIDE: Final = 10
_PATIENCE: Final = 0.02
"""Seconds between looks at a thread that is inside: it may begin to wait for a fork itself."""
_LIBRARY_SECONDS: Final = 0.001
"""Between looks at a library's calls."""
# What threading.Condition makes of a reentrant lock, too: give it back however often it was taken, and take it as often.
_let_go = methodcaller("_release_save")


@final
class ForkGate:
    """The threads inside; see the module's docstring.  There is one per process: ``fork_gate``."""

    def __init__(self, courtesy: float = _COURTESY) -> None:
        self._courtesy = courtesy
        self._gates: dict[int, Any] = {}
        """Each thread's lock; of threads that have ended, until another one has the number."""
        self._forking: set[int] = set()
        self._closing: Any = threading.RLock()
        """Held by a thread that forks or sees whether it can; never while it waits."""
        self._held: dict[int, list[Any]] = {}
        """What a thread that forks has taken, or was about to take."""
        self._wanted: list[int] = []
        """Threads that somebody waits for until they are outside."""
        self._local = _OfThread(self)
        self.libraries: list[tuple[Callable[[], int], Callable[[], None]]] = []
        """Gates of foreign libraries that cannot be forked in the middle of a call: what closes one and says how many calls
        are under way, and what opens it."""

    @property
    def inside(self) -> Any:
        """The lock of this thread, for a ``with`` block: no other thread forks before its end.

        Who is not inside yet lets those fork who wait for that, or they would wait for as long as several threads compile;
        a thread that is wanted outside stays there for a moment.
        """
        gate: Any = self._local.gate
        if (self._held or self._wanted) and not gate._is_owned():
            self._let_others_fork()
            self._stay_outside()
        return gate

    @property
    def inside_for_another(self) -> Any:
        """The same for a thread that another one, which is inside, waits for: it does not let others fork first."""
        gate: Any = self._local.gate
        return gate

    def _let_others_fork(self) -> None:
        # No lock is waited at: Ctrl-C may come anywhere here.
        patient_until = time.monotonic() + self._courtesy
        while self._held and not self.is_forking() and time.monotonic() < patient_until:
            time.sleep(_COURTESY_STEP)

    def _stay_outside(self) -> None:
        # Not for long: it may be wanted out of something else as well.
        for _ in range(_STEPS_OUTSIDE):
            if threading.get_ident() in self._wanted:
                time.sleep(_COURTESY_STEP)

    @contextmanager
    def wanted_outside(self, thread: int) -> Iterator[None]:
        """While this block runs, the thread pauses before it comes inside."""
        self._wanted.append(thread)
        try:
            yield
        finally:
            self._wanted.remove(thread)

    def is_forking(self) -> bool:
        """Whether this thread is about to fork, or has just done so: it may hold what others wait for."""
        return threading.get_ident() in self._held

    def is_inside(self) -> bool:
        """Whether this thread is."""
        return bool(self._local.gate._is_owned())

    def outside(
        self, function: Callable[_Parameters, _Result], /, *arguments: _Parameters.args, **named: _Parameters.kwargs
    ) -> _Result:
        """What ``function`` returns; while it runs, this thread is not inside: it may wait for threads that fork."""
        gate = self._local.gate
        if not gate._is_owned():
            return function(*arguments, **named)
        released: list[Any] = []
        try:
            # Released and noted in one step: Ctrl-C comes before both or after.
            released.extend(map(_let_go, (gate,)))
            return function(*arguments, **named)
        finally:
            for state in released:
                gate._acquire_restore(state)

    def enrolled(self) -> Any:
        """A lock for this thread."""
        gate = self._gates[threading.get_ident()] = threading.RLock()
        # Who forks this very moment may not have seen it; who begins from now on will.
        with self._closing:
            return gate

    def before_fork(self) -> None:
        """Wait for other threads to leave, and keep them out until the fork is done."""
        me = threading.get_ident()
        held = self._held.setdefault(me, [])
        _release(held)
        self._forking.add(me)
        while (busy := self._close(me, held)) is not None:
            # Nothing is held meanwhile: who is inside may wait for a thread that has to come inside first.
            _release(held)
            if busy.acquire(timeout=_PATIENCE):
                busy.release()
        for lock in self.foreign_locks():
            held.append(lock)
            lock.acquire()
        # Behind all that waits for threads of Python: who is inside may be calling such a library.
        for close, _ in self.libraries:
            while close():
                time.sleep(_LIBRARY_SECONDS)

    def _close(self, me: int, held: list[Any]) -> Any:
        """Take all locks but those of threads that wait to fork themselves; return one that cannot be had, or None."""
        # Noted before it is taken: Ctrl-C may come in between, and what is not held is not released.
        held.append(self._closing)
        self._closing.acquire()
        for thread, gate in list(self._gates.items()):
            if thread != me:
                held.append(gate)
                if not gate.acquire(blocking=False) and thread not in self._forking:
                    return gate
        return None

    def after_fork_in_parent(self) -> None:
        """Let the other threads go on."""
        me = threading.get_ident()
        self._forking.discard(me)
        for _, open_again in self.libraries:
            open_again()
        # Empty if this module was imported while the fork was already on its way.
        _release(self._held.get(me, []))
        self._held.pop(me, None)

    def after_fork_in_child(self) -> None:
        """Forget the other threads: they are not here."""
        me = threading.get_ident()
        self.after_fork_in_parent()
        self._gates = {me: self._gates[me]} if me in self._gates else {}
        self._forking, self._held, self._wanted, self._closing = set(), {}, [], threading.RLock()

    def foreign_locks(self) -> list[Any]:
        """numba's lock and llvmlite's, as far as they are loaded, in the order in which numba takes them.

        Somebody else's numba function, or an executable that is dropped, may be inside of them without having entered here.
        """
        compiler = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
        library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
        found = (getattr(compiler, "_lock", None), getattr(getattr(library, "_lock", None), "_lock", None))
        return [lock for lock in found if lock is not None]


def _release(held: list[Any]) -> None:
    while held:
        # It may never have been taken: its thread waits to fork, or this one was interrupted.
        with suppress(RuntimeError):
            held[-1].release()
        held.pop()


class _OfThread(threading.local):
    """A thread's lock, made when it first asks."""

    def __init__(self, gate: ForkGate) -> None:
        self.gate = gate.enrolled()


fork_gate: Final = ForkGate()
if hasattr(os, "register_at_fork"):
    # Twice, and once more has no effect: Ctrl-C may end one of them before it has done anything.
    for _ in range(2):
        os.register_at_fork(
            before=fork_gate.before_fork,
            after_in_parent=fork_gate.after_fork_in_parent,
            after_in_child=fork_gate.after_fork_in_child,
        )

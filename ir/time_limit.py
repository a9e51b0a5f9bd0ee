"""A limit on the time that a function of a plugin takes: what has not ended by then is ended, and says so.

Python code is interrupted between two of its steps; a call of C that does not come back is not.  The function may be in the
middle of hlojit's own code, which it has called, so that an interruption waits for the end of what would be torn:

* what runs inside of the gate (``hlojit.ir.fork_gate``): locks, LLVM, numba, first imports, caches,
* what says so (``with uninterrupted():``), where others would miss the rest of it,
* calls of numba and llvmlite that the function makes itself, and its imports: their locks are taken in Python.

Graphs are not among it: one that a pass was changing is thrown away with the compilation.
"""

from __future__ import annotations

import ctypes
import operator
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, TypeVar

from hlojit.ir.errors import PluginError
from hlojit.ir.fork_gate import fork_gate

_Result = TypeVar("_Result")

PATIENCE: float = 30.0
"""Seconds that an interruption waits: a section that has not ended by then is torn like any other code."""
_MOMENT: Final = 0.005
"""Seconds between looks at a thread that is in such a section."""

_AGAIN: Final = 0.5
"""Seconds after which a function that swallowed the interruption is interrupted again."""


def call_within(
    seconds: float | None, what: Callable[[], str], function: Callable[..., _Result], /, *arguments: Any
) -> _Result:
    """What the function returns; raises ``PluginError`` when it has not returned after ``seconds`` (None: no limit).

    It runs outside of the gate, and what it sets of context variables counts if it returns.
    """
    if seconds is None:
        return function(*arguments)
    watch, context = _Watch(seconds), copy_context()
    try:
        watch.start()
        try:
            result = fork_gate.outside(context.run, function, *arguments)
        finally:
            watch.stop()
    except watch.time_up:
        watch.end()
    if watch.interrupted:
        raise PluginError(f"{what()} had not ended after {seconds:g} s, the limit that pass_time_limit sets") from None
    _take_over(context)
    return result


def uninterrupted() -> Any:
    """A lock of this thread's own, for a ``with`` block in which no limit interrupts it."""
    return _local.section


class _OfThread(threading.local):
    def __init__(self) -> None:
        # A reentrant lock of C: there is no moment in which it is taken and nobody gives it back.
        self.section: Any = threading.RLock()


_local: Final = _OfThread()


def _take_over(context: Context) -> None:
    """Set what was set in a copy of this context."""
    for variable, value in context.items():
        if variable.get(_NOTHING) is not value:
            variable.set(value)


_NOTHING: Final = object()


class _Watch:
    """Interrupts the thread that made it, until it is told to stop."""

    def __init__(self, seconds: float) -> None:
        # A class of its own: the interruption of a limit around this one passes through.  Derived from BaseException,
        # so that no ``except Exception`` in the function takes it.
        self.time_up: type[BaseException] = type("TimeUp", (BaseException,), {})
        self.interrupted = False
        self.seconds = seconds
        self.thread = threading.get_ident()
        self.limited = id(sys._getframe(1))
        """The frame that calls the function."""
        self.sections: Sequence[Any] = (fork_gate.inside_for_another, uninterrupted())
        """Locks that this thread holds where it is not to be interrupted."""
        self.lock = threading.Lock()
        self.done = threading.Event()

    def start(self) -> None:
        """Begin to count."""
        threading.Thread(target=self._watch, name="hlojit-time-limit", daemon=True).start()

    def _watch(self) -> None:
        """Wait, then interrupt, again and again."""
        seconds = self.seconds
        while not self.done.wait(seconds):
            patient_until = time.monotonic() + PATIENCE
            with fork_gate.wanted_outside(self.thread):
                while not self._strike(at_any_price=time.monotonic() >= patient_until):
                    self.done.wait(_MOMENT)
            seconds = _AGAIN

    def _strike(self, *, at_any_price: bool) -> bool:
        """Interrupt the thread; False if it is where it is not to be interrupted."""
        with self.lock:
            if self.done.is_set():
                return True
            interrupt = partial(
                ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(self.thread), ctypes.py_object(self.time_up)
            )
            if at_any_price:
                interrupt()
                is_struck = True
            else:
                is_struck = not self._is_in_libraries() and _while_free(self.sections, interrupt)
            self.interrupted |= is_struck
            return is_struck

    def _is_in_libraries(self) -> bool:
        """Whether the function is in the middle of an import, or of numba or llvmlite: these take locks in Python."""
        frame = sys._current_frames().get(self.thread)
        while frame is not None and id(frame) != self.limited:
            if str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES:
                return True
            frame = frame.f_back
        return False

    def stop(self) -> None:
        """No interruption comes once this has returned; one that was on its way comes in here."""
        with self.lock:
            self.done.set()
        # An interruption is not taken back: of "no exception" CPython 3.11 remembers for ever that something is to be
        # looked at, after which all code is slow, and a function that a profiler follows never begins.
        for _ in range(_STEPS if self.interrupted else 0):
            pass

    def end(self) -> None:
        """Stop, after an interruption that may have come in the middle of stopping."""
        while True:
            try:
                return self.stop()
            except self.time_up:
                continue


_STEPS: Final = 10
"""Of a loop, at each of which Python raises what another thread asked for."""


def _while_free(locks: Sequence[Any], function: Callable[[], int]) -> bool:
    """Call the function, which returns 1, with all of the locks taken; False, and not called, if one cannot be had.

    It is one step for Python, C that calls C, as which no other thread comes in between: one that waited for a lock here
    would be interrupted behind it, where it holds the lock.
    """
    steps = [*(partial(lock.acquire, False) for lock in locks), function, *(lock.release for lock in locks)]
    outcomes = [*(True for _ in locks), 1, *(None for _ in locks)]
    left = iter(steps)
    if all(map(operator.eq, map(operator.call, left), outcomes)):
        return True
    taken = len(steps) - len(list(left)) - 1
    for lock in locks[:taken]:
        lock.release()
    return False


_LIBRARIES: Final = frozenset({"_frozen_importlib", "importlib", "numba", "llvmlite"})

"""A limit on the time that a function of a plugin takes: what has not ended by then is ended, and says so.

Python code is interrupted between two of its steps, wherever it is; a call of C that does not come back is not.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hlojit.ir.errors import PluginError

_Result = TypeVar("_Result")

_AGAIN: Final = 0.5
"""Seconds after which a function that swallowed the interruption is interrupted again."""


def call_within(
    seconds: float | None, what: Callable[[], str], function: Callable[..., _Result], /, *arguments: Any
) -> _Result:
    """What the function returns; raises ``PluginError`` when it has not returned after ``seconds`` (None: no limit)."""
    if seconds is None:
        return function(*arguments)
    watch = _Watch(seconds)
    try:
        watch.start()
        try:
            result = function(*arguments)
        finally:
            watch.stop()
    except watch.time_up:
        watch.end()
    if watch.interrupted:
        raise PluginError(f"{what()} had not ended after {seconds:g} s, the limit that pass_time_limit sets") from None
    return result


class _Watch:
    """Interrupts the thread that made it, until it is told to stop."""

    def __init__(self, seconds: float) -> None:
        # A class of its own: the interruption of a limit around this one passes through.  Derived from BaseException,
        # so that no ``except Exception`` in the function takes it.
        self.time_up: type[BaseException] = type("TimeUp", (BaseException,), {})
        self.interrupted = False
        self.seconds = seconds
        self.watched = ctypes.c_ulong(threading.get_ident())
        self.lock = threading.Lock()
        self.done = threading.Event()

    def start(self) -> None:
        """Begin to count."""
        threading.Thread(target=self._strike, name="hlojit-time-limit", daemon=True).start()

    def _strike(self) -> None:
        """Wait, then interrupt, again and again."""
        seconds = self.seconds
        while not self.done.wait(seconds):
            with self.lock:
                if not self.done.is_set():
                    self.interrupted = True
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(self.watched, ctypes.py_object(self.time_up))
            seconds = _AGAIN

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

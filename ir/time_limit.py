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


class _TimeUp(BaseException):
    """Raised inside of the function; no ``except Exception`` there takes it."""


def call_within(
    seconds: float | None, what: Callable[[], str], function: Callable[..., _Result], /, *arguments: Any
) -> _Result:
    """What the function returns; raises ``PluginError`` when it has not returned after ``seconds`` (None: no limit)."""
    if seconds is None:
        return function(*arguments)
    watch = _Watch()
    timer = threading.Thread(target=watch.strike, args=(seconds,), name="hlojit-time-limit", daemon=True)
    try:
        timer.start()
        try:
            return function(*arguments)
        finally:
            watch.stop()
    except _TimeUp:
        # It may have come in the middle of the line above.
        watch.stop()
        raise PluginError(f"{what()} had not ended after {seconds:g} s, the limit that pass_time_limit sets") from None


class _Watch:
    """Interrupts the thread that made it, until it is told to stop."""

    def __init__(self) -> None:
        self.thread = ctypes.c_ulong(threading.get_ident())
        self.lock = threading.Lock()
        self.done = threading.Event()

    def strike(self, seconds: float) -> None:
        """Wait, then interrupt, again and again."""
        while not self.done.wait(seconds):
            with self.lock:
                if not self.done.is_set():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(self.thread, ctypes.py_object(_TimeUp))
            seconds = _AGAIN

    def stop(self) -> None:
        """No interruption comes once this has returned."""
        with self.lock:
            self.done.set()
            # What was asked for and has not come yet is taken back.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(self.thread, None)

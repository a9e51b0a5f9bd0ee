"""LLVM is worked with where no signal handler runs.

    image = undisturbed(function, argument)    # function(argument), on a thread of its own if this is the main one

Python handles signals between two steps of its main thread.  llvmlite's objects are Python code around pointers that LLVM
owns: Ctrl-C between a pointer's end and the note of it (``ModuleRef.close``, ``link_in``, ``OutputString.close``) frees it a
second time, and Ctrl-C before an object is known to whoever closes it lets it outlive the context that it lies in.  Neither
can be mended from outside: what the main thread wants of LLVM is done by another thread, for which it waits.  Whoever waits
hears Ctrl-C; the other thread ends what it has begun, and only then may the process end.
"""

from __future__ import annotations

import atexit
import sys
import threading
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar, final

from hlojit.ir.current_process import in_children
from hlojit.ir.fork_gate import fork_gate

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_MOST_ASIDE: Final = 8
"""Calls on their way that nobody waits for, at most about so many."""

lock: Any = threading.RLock()
"""Held while LLVM is at work: target machines and passes are shared."""


def undisturbed(
    function: Callable[_Parameters, _Result], /, *arguments: _Parameters.args, **named: _Parameters.kwargs
) -> _Result:
    """What ``function`` returns or raises, called where Ctrl-C does not come."""
    if not _may_be_disturbed():
        return function(*arguments, **named)
    job = _Job(partial(function, *arguments, **named))
    try:
        job.start()
        job.done.acquire()
    finally:
        # Without effect if it has begun.
        job.withdraw()
    result: _Result = job.outcome()
    return result


def aside(
    function: Callable[_Parameters, object], /, *arguments: _Parameters.args, **named: _Parameters.kwargs
) -> None:
    """Have ``function`` called where Ctrl-C does not come, soon.  For finalizers: an exception in one of them is lost."""
    if not _may_be_disturbed():
        function(*arguments, **named)
        return
    job = _Job(partial(function, *arguments, **named))
    job.start()
    if len(_running) > _MOST_ASIDE:
        job.done.acquire()


def _may_be_disturbed() -> bool:
    """Whether this thread handles signals, and nobody would wait for what it holds itself.

    A signal handler may come here while its thread is inside of LLVM, or forks.
    """
    return (
        get_ident() == threading.main_thread().ident
        and not sys.is_finalizing()
        and not lock._is_owned()
        and not fork_gate.is_forking()
        and not any(foreign._is_owned() for foreign in fork_gate.foreign_locks())
    )


@final
class _Job:
    """A call on its way."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._calls = [call]
        """Empty as soon as somebody has taken it: to call it, or to have nobody call it."""
        self._results: list[Any] = []
        self._errors: list[BaseException] = []
        self.done = allocate_lock()
        """Held until the call has ended."""
        self.done.acquire()

    def start(self) -> None:
        """Have another thread call it, or this one if there can be no more."""
        _running[self] = None
        try:
            start_new_thread(self.run, ())
        except RuntimeError:
            self.run()

    def run(self) -> None:
        """Call it, unless it was withdrawn."""
        try:
            self._results.append(self._calls.pop()())
        except BaseException as error:
            self._errors.append(error)
        finally:
            _running.pop(self, None)
            self.done.release()

    def withdraw(self) -> bool:
        """Whether the call had not begun; it never will."""
        if not self._calls:
            return False
        with suppress(IndexError):
            self._calls.pop()
            _running.pop(self, None)
            return True
        return False

    def outcome(self) -> Any:
        """What the call returned; raises what it raised."""
        if self._errors:
            raise self._errors.pop()
        return self._results.pop()


_running: Final[dict[_Job, None]] = {}
in_children(_running.clear)


@atexit.register
def _end_jobs() -> None:
    """Nothing is taken apart while LLVM is at work, however often Ctrl-C is pressed."""
    while _running:
        try:
            for job in list(_running):
                if not job.withdraw():
                    job.done.acquire()
                _running.pop(job, None)
        except KeyboardInterrupt:
            continue

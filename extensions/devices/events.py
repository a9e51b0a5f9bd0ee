"""Events: something that will have happened on a device, and the ordered queues that make it happen.

    queue = Queue("null:0")
    event = queue.submit(lambda: print("on the queue's thread"))
    event.wait()                      # returns when it has happened; raises if it failed
    event.then(lambda done: ...)      # is called when it has happened, at once if it has already

An event belongs to the process that made it: a child made by fork never sees it happen, and is told so.

Where asking is cheaper than being told - a GPU's mark on a stream - an event has a *source* that is asked when somebody wants to
know, so that no thread wakes up for an event that nobody waits for.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import math
import os
import queue
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Protocol, final

from hlojit.ir.current_process import in_children, process
from hlojit.ir.errors import ArgumentError, ExecutionError, HlojitError, text_of
from hlojit.ir.time_limit import uninterrupted

_local = threading.local()
# Of all events: it is held for moments.  Reentrant: the collector may free a buffer, and a vendor's `free` use an event, within
# any section.
_lock = threading.RLock()


@in_children
def _after_fork() -> None:
    # The lock may be held by a thread that does not exist in the child.
    global _lock
    _lock = threading.RLock()


def in_callback() -> bool:
    """Whether this thread runs callbacks of an event or work of a queue: it must not wait for later work of a device."""
    return getattr(_local, "callbacks", 0) > 0


class Source(Protocol):
    """What knows whether an event has happened that nobody completes by himself; safe to use from every thread."""

    def look(self, event: Event, *, patiently: bool) -> None:
        """``settle`` the event if it has happened; ``patiently``: wait for it for a short time, as long as Ctrl-C can wait."""

    def watch(self, event: Event) -> None:
        """Have the event settled by another thread when it happens: somebody is to be told, or waits for long."""


@final
class Event:
    """Something that will have happened, or failed, once; safe to use from every thread.

    Who makes the event calls ``complete`` when it has happened; everyone else waits or leaves a callback.
    """

    hlojit_runtime: ClassVar[bool] = True
    __slots__ = ("__weakref__", "_callbacks", "_error", "_is_ready", "_process", "_stop", "nanoseconds", "source")

    def __init__(self, stop: Callable[[], Any] | None = None, source: Source | None = None) -> None:
        """``stop`` has what is waited for end early, with an error; it may be called from any thread, or be None."""
        self._stop = stop
        self._is_ready = False
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Event], Any]] = []
        self._process = process.id
        self.source = source
        """Who is asked; None when the event has happened, and for events that are completed."""
        self.nanoseconds: float | None = None
        """How long what it is the end of took on the device, if the device has measured that, before it completes the event."""

    @classmethod
    def completed(cls, error: BaseException | None = None) -> Event:
        """An event that has happened already, or failed with ``error``."""
        event = cls()
        event.complete(error)
        return event

    @staticmethod
    def all(events: Iterable[Event]) -> Event:
        """The event that all of ``events`` have happened; fails with the error of the first of them that has one."""
        open_ = [event for event in events if not event._is_ready or event._error is not None]
        if not open_:
            return READY
        return open_[0] if len(open_) == 1 else _combined(open_)

    @property
    def ready(self) -> bool:
        """Whether it has happened or failed."""
        if not self._is_ready and self.source is not None:
            self._look(patiently=False)
        return self._is_ready

    @property
    def is_settled(self) -> bool:
        """Whether it is known to have happened or failed: nobody is asked."""
        return self._is_ready

    @property
    def error(self) -> BaseException | None:
        """Why it failed; None if it did not, or not yet."""
        return self._error

    def complete(self, error: BaseException | None = None) -> None:
        """Say that it has happened, or that it failed; runs the callbacks on this thread."""
        if not self.settle(error):
            raise HlojitError("an event completes once; this one was completed before")

    def settle(self, error: BaseException | None = None) -> bool:
        """``complete`` it unless it is already, and return whether it was not: for sources, which several threads ask."""
        # Together: nobody says it again to those who have not heard.
        with uninterrupted():
            with _lock:
                if self._is_ready:
                    return False
                self._error = error
                self._is_ready = True
                self.source = None
                callbacks = self._callbacks
                self._callbacks = []
            for callback in callbacks:
                self._call(callback)
        return True

    def stop(self) -> None:
        """Ask that what is waited for ends early, where that can be done; who waits then gets an error."""
        if self._stop is not None and not self.ready:
            self._stop()

    def then(self, callback: Callable[[Event], Any]) -> None:
        """Have ``callback(event)`` called when the event is ready: at once, or on the thread that completes it.

        A callback must not wait for later work of the same device.  What it raises goes to ``threading.excepthook``.
        """
        with _lock:
            is_pending = not self._is_ready
            if is_pending:
                self._callbacks.append(callback)
            source = self.source
        if not is_pending:
            self._call(callback)
        elif source is not None and self._process == process.id:
            source.watch(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is ready; False if ``timeout`` seconds were not enough.

        Raises ``ExecutionError`` if the event failed.  Ctrl-C interrupts the waiting, not what is waited for.
        """
        if not self._is_ready and self.source is not None:
            self._look(patiently=timeout is None)
        if not self._is_ready and not self._wait(timeout):
            return False
        if self._error is not None:
            # A new exception each time: one that is raised in several threads would collect their tracebacks.
            raise ExecutionError(text_of(self._error)) from self._error
        return True

    def _look(self, *, patiently: bool) -> None:
        source = self.source
        if source is not None and self._process == process.id:
            source.look(self, patiently=patiently)

    def _wait(self, timeout: float | None) -> bool:
        if self._process != process.id:
            raise ExecutionError(
                "this result was pending when the process was forked, and only the parent process gets it; "
                "wait for results before forking, or compute them in the child"
            )
        seconds = seconds_of(timeout)
        gate = threading.Lock()
        gate.acquire()

        def open_gate(_: Event) -> None:
            gate.release()

        self.then(open_gate)
        try:
            return acquire(gate, seconds)
        finally:
            with _lock:
                if open_gate in self._callbacks:
                    self._callbacks.remove(open_gate)

    def _call(self, callback: Callable[[Event], Any]) -> None:
        _local.callbacks = getattr(_local, "callbacks", 0) + 1
        try:
            callback(self)
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        finally:
            _local.callbacks -= 1

    def __repr__(self) -> str:
        state = (
            "pending" if not self._is_ready else "ready" if self._error is None else f"failed: {text_of(self._error)}"
        )
        return f"<Event {state}>"


_SLICE_SECONDS: Final = 0.05
"""How long the main thread sleeps without looking for signals."""


def acquire(lock: threading.Lock, seconds: float = -1.0) -> bool:
    """``lock.acquire`` with a timeout, or -1, that a signal ends: the system may have given it to another thread, which wakes
    nobody, and Python's handlers run on the main thread only.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return lock.acquire(timeout=seconds)
    end = math.inf if seconds < 0 else time.monotonic() + seconds
    while not lock.acquire(timeout=min(_SLICE_SECONDS, max(end - time.monotonic(), 0.0))):
        if time.monotonic() >= end:
            return False
    return True


def seconds_of(timeout: float | None) -> float:
    """A timeout as locks take it."""
    if timeout is None:
        return -1.0
    try:
        seconds = float(timeout)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if math.isnan(seconds):
        raise ArgumentError(f"a timeout is a number of seconds or None, not {timeout!r}")
    return min(max(seconds, 0.0), threading.TIMEOUT_MAX)


READY: Final = Event.completed()
"""The event that has always happened."""


def _combined(events: Sequence[Event]) -> Event:
    combined = Event()
    # Counting by list operations, which are atomic: the thread that takes the last token completes the event.
    tokens = [None] * (len(events) - 1)

    def arrived(_: Event) -> None:
        try:
            tokens.pop()
        except IndexError:
            combined.complete(next((event.error for event in events if event.error is not None), None))

    for event in events:
        event.then(arrived)
    return combined


# ---------------------------------------------------------------------------------------------------------- queues

_Job = tuple[Callable[[], Any], Event, Event]
_CLOSING_SECONDS: Final = 2.0
"""How long the end of the interpreter waits for work that is being done; work that has not begun is dropped."""


@final
class Queue:
    """Work in the order in which it was submitted, on a thread of the queue's own.

    The thread starts with the first piece of work and ends with the queue.  In a child made by fork the queue is empty
    and starts a thread of its own.  When the interpreter ends, work that has not begun is dropped.
    """

    hlojit_runtime: ClassVar[bool] = True

    def __init__(self, name: str):
        self.name = name
        self._lock = threading.RLock()
        self._process = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._close: weakref.finalize[..., Any] | None = None

    def submit(self, work: Callable[[], Any], after: Event | None = None) -> Event:
        """Have ``work()`` called after everything submitted before, and after the event ``after``; returns at once.

        The event fails with what ``work`` raises.  If ``after`` failed, ``work`` is not called and the event fails with
        the same error.  ``work`` runs in a copy of the caller's context (``contextvars``): what is in scope here, a
        plugin in a ``with using(...)`` block for instance, is in scope there.
        """
        if self._process != os.getpid():
            self._start()
        done = Event()
        self._jobs.put((partial(contextvars.copy_context().run, work), after or READY, done))
        return done

    def _start(self) -> None:
        if self._process and self._process != os.getpid():
            # A child of fork: the lock may be held by a thread that does not exist here.
            self._lock = threading.RLock()
        with self._lock:
            if self._process == os.getpid():
                return
            if self._close is not None:
                self._close.detach()
            # The thread knows the jobs, not the queue, which can then be dropped.
            self._jobs = queue.SimpleQueue()
            thread = threading.Thread(target=_work, args=(self._jobs,), name=f"hlojit {self.name}", daemon=True)
            self._close = weakref.finalize(self, self._jobs.put, None)
            self._close.atexit = False
            thread.start()
            _register(thread, self._jobs)
            self._process = os.getpid()


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    _local.callbacks = 1
    while (job := jobs.get()) is not None:
        _do(*job)
        # Not held while waiting for the next one: inputs and results belong to whoever still wants them.
        del job


def _do(work: Callable[[], Any], after: Event, done: Event) -> None:
    try:
        after.wait()
        if _is_closing:
            raise ExecutionError("the interpreter ends; this work had not begun")
        work()
    except BaseException as error:
        if after.error is not None:
            done.complete(after.error)
            return
        done.complete(without_frames(error))
    else:
        done.complete()


def without_frames(error: BaseException) -> BaseException:
    """The error with its traceback as text (a note): frames would keep alive what they use, inputs for instance."""
    with contextlib.suppress(Exception):  # of a class of somebody else's, whose text may not be had
        error.add_note("".join(traceback.format_exception(error)).rstrip())
    seen: set[int] = set()
    linked: list[BaseException | None] = [error]
    while linked:
        each = linked.pop()
        # Causes may form a circle.
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        linked += (each.__cause__, each.__context__)
        if isinstance(each, BaseExceptionGroup):
            linked += each.exceptions
    return error


_is_closing = False
_running: list[tuple[weakref.ref[threading.Thread], weakref.ref[queue.SimpleQueue[_Job | None]]]] = []
_at_closing: list[Callable[[], Any]] = []


def at_closing(function: Callable[[], Any]) -> None:
    """Have ``function`` called when the interpreter ends, before queues are waited for: to stop what is running."""
    _at_closing.append(function)


def _register(thread: threading.Thread, jobs: queue.SimpleQueue[_Job | None]) -> None:
    if not _running:
        atexit.register(_close_all)
    _running.append((weakref.ref(thread), weakref.ref(jobs)))


def _close_all() -> None:
    """End all queues' threads: one that runs Python while the interpreter is taken apart could not be helped."""
    global _is_closing
    # First, since what stops a device may have to be put on one of its queues.
    for function in _at_closing:
        function()
    _is_closing = True
    threads = []
    for thread, jobs in _running:
        found, waiting = thread(), jobs()
        if found is not None and waiting is not None and found.is_alive():
            waiting.put(None)
            threads.append(found)
    for each in threads:
        each.join(_CLOSING_SECONDS / len(threads))

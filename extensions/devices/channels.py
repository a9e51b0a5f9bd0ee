"""The host's side of channels: what programs send, receive, feed in and feed out while they run.

    hlojit.channel("infeed").put(x)                # the next infeed gives x
    hlojit.channel("outfeed").get()                # what the next outfeed gave: a tuple of arrays
    hlojit.channel("7").handle(sends=print)        # called with the arrays of every send through channel 7

A channel is a queue in which both sides put and from which both get, by name and process: a program that sends to the host
and one that receives from it through the same channel need no more.  A program waits for what is not there yet, until
Ctrl-C, or until another process of its run fails.  Handlers run on the program's thread instead.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np
from hlojit.extensions.devices.events import seconds_of
from hlojit.extensions.devices.rendezvous import current_participant
from hlojit.ir.errors import ArgumentError, ExecutionError
from hlojit.ir.ops.channel_expansion import TO_HOST
from hlojit.ir.ops.random_distribution import RANDOM

Arrays = tuple[np.ndarray[Any, Any], ...]

_LOOK_SECONDS: Final = 0.05
"""A program that waits looks that often whether its run has failed."""


@final
class Channel:
    """One channel of one process; made by ``channel``."""

    def __init__(self, name: str, process: int):
        self.name: Final = name
        self.process: Final = process
        self._filled = threading.Condition()
        self._queue: deque[Arrays] = deque()
        self._sends: Callable[..., Any] | None = None
        self._receives: Callable[[], Any] | None = None

    def put(self, *arrays: Any) -> None:
        """Put arrays, one for each result of the op that will take them; they are copied."""
        self._put(tuple(np.array(array) for array in arrays))

    def get(self, timeout: float | None = None) -> Arrays:
        """The arrays that came first; raises ``TimeoutError`` when there are none after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + seconds_of(timeout)
        while True:
            found = self._taken(_LOOK_SECONDS if deadline is None else min(_LOOK_SECONDS, deadline - time.monotonic()))
            if found is not None:
                return found
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"nothing came through {self} in {timeout:g} seconds")

    def handle(self, *, sends: Callable[..., Any] | None = None, receives: Callable[[], Any] | None = None) -> None:
        """Call ``sends(*arrays)`` for what the program sends, and ``receives()`` for what it asks for; None: the queue."""
        for function in (sends, receives):
            if function is not None and not callable(function):
                raise ArgumentError(f"{self}: {function!r} is not a function")
        self._sends, self._receives = sends, receives

    def clear(self) -> None:
        """Forget what is in the queue."""
        with self._filled:
            self._queue.clear()

    def __len__(self) -> int:
        return len(self._queue)

    def __repr__(self) -> str:
        return f"channel {self.name!r} of process {self.process}"

    # ------------------------------------------------------------------------------------------ the program's side

    def sent(self, arrays: Arrays) -> None:
        """The program sends."""
        if self._sends is not None:
            self._sends(*arrays)
        else:
            self._put(arrays)

    def received(self, stop: Callable[[], bool] | None = None) -> Arrays:
        """The program asks for what is next; where nothing is there, ``stop`` says whether it gives up waiting."""
        receives = self._receives or (_random_state if self.name == RANDOM else None)
        if receives is not None:
            given = receives()
            return tuple(map(np.asarray, given if isinstance(given, tuple) else (given,)))
        participant = current_participant()
        while (found := self._taken(_LOOK_SECONDS, stop)) is None:
            if participant is not None:
                participant.check()
        return found

    def _put(self, arrays: Arrays) -> None:
        with self._filled:
            self._queue.append(arrays)
            self._filled.notify()

    def _taken(self, seconds: float, stop: Callable[[], bool] | None = None) -> Arrays | None:
        with self._filled:
            if not self._queue:
                self._filled.wait(max(seconds, 0))
            if stop is not None and stop():
                # What has come meanwhile is for somebody else.
                raise ExecutionError(f"nobody waits for what comes through {self} any more")
            return self._queue.popleft() if self._queue else None


def _random_state() -> np.ndarray[Any, Any]:
    return np.frombuffer(os.urandom(16), np.uint64)


_channels: Final[dict[tuple[str, int], Channel]] = {}


def channel(name: str | int, process: int = 0) -> Channel:
    """The channel of a process that programs call ``name``: ``infeed``, ``outfeed``, a handle's number or handler's name."""
    if isinstance(name, bool) or not isinstance(name, (str, int)) or not str(name):
        raise ArgumentError(f"a channel's name is a text or a number, not {name!r}")
    if isinstance(process, bool) or not isinstance(process, int) or process < 0:
        raise ArgumentError(f"a process is a number from 0 on, not {process!r}")
    key = (str(name), process)
    return _channels.get(key) or _channels.setdefault(key, Channel(*key))


def transferred(*arrays: Any, channel: str, direction: str, stop: Callable[[], bool] | None = None) -> Any:
    """What a program's op on a channel does: nothing is returned for what goes to the host."""
    participant = current_participant()
    found = _of(channel, 0 if participant is None else participant.process)
    if direction == TO_HOST:
        found.sent(tuple(np.array(array) for array in arrays))
        return ()
    return found.received(stop)


_of: Final = channel


def matching(given: Arrays, expected: Arrays, what: str) -> None:
    """Write arrays that came into those that are wanted; ``ExecutionError`` where they are others."""
    wanted = [(array.shape, array.dtype) for array in expected]
    if [(array.shape, array.dtype) for array in given] != wanted:
        came = ", ".join(f"{array.dtype}{list(array.shape)}" for array in given) or "nothing"
        raise ExecutionError(f"{what} takes {', '.join(f'{d}{list(s)}' for s, d in wanted)}, and was given {came}")
    for source, target in zip(given, expected):
        target[...] = source

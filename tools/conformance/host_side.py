"""The host's side of a run of several processes: what goes through channels, and processes that run different programs.

    with HostSide(text, grid, infeed) as host:
        results = host.run([lambda: first(), lambda: second()])

As in the interpreter of the specification the processes of a run share their channels: what one sends through channel 1 another
one receives from it, and an infeed gives the next of a list to whoever asks first.  Nobody waits for ever: a process that
asks for what never comes gets an error, at once when another process of the run has failed.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import hlojit
from hlojit.extensions.devices.rendezvous import current_participant

Arrays = tuple[Any, ...]
SECONDS: Final = 20.0
"""A process waits that long for what others send."""
_LOOK_SECONDS: Final = 0.05
_HANDLE: Final = re.compile(r"#stablehlo\.channel_handle<\s*handle\s*=\s*(\d+)")


class HostSide:
    """Channels of one run, which handle what its processes send and receive while the block is entered."""

    def __init__(self, text: str, processes: int, infeed: Iterable[Arrays]):
        names = ["infeed", "outfeed", *sorted(set(_HANDLE.findall(text)))]
        self._channels: Final = [
            (name, hlojit.channel(name, process)) for name in names for process in range(processes)
        ]
        self._queues: Final[dict[str, deque[Arrays]]] = defaultdict(deque, {"infeed": deque(infeed)})
        self._seconds: Final = SECONDS
        self._filled: Final = threading.Condition()
        self._error: BaseException | None = None

    def __enter__(self) -> HostSide:
        for name, channel in self._channels:
            channel.handle(sends=partial(self._sent, name), receives=partial(self._received, name))
        return self

    def __exit__(self, *_: object) -> None:
        for _name, channel in self._channels:
            channel.handle()

    def run(self, programs: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run each program on a thread of its own and return what they return; the first error of one ends all."""
        found: list[Any] = [None] * len(programs)
        threads = [
            threading.Thread(target=self._process, args=(number, program, found), daemon=True)
            for number, program in enumerate(programs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return found

    def _process(self, number: int, program: Callable[[], Any], found: list[Any]) -> None:
        try:
            found[number] = program()
        except BaseException as error:
            with self._filled:
                self._error = self._error or error
                self._filled.notify_all()

    def _sent(self, name: str, *arrays: Any) -> None:
        with self._filled:
            self._queues[name].append(arrays)
            self._filled.notify_all()

    def _received(self, name: str) -> Arrays:
        deadline = time.monotonic() + self._seconds
        participant = current_participant()
        with self._filled:
            while not self._queues[name]:
                if self._error is not None:
                    raise RuntimeError(f"another process of the run has failed: {self._error}")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"nothing came through channel {name!r} in {self._seconds:g} s")
                if participant is not None:
                    participant.check()
                self._filled.wait(_LOOK_SECONDS)
            return self._queues[name].popleft()

"""Executions of a device that have not ended: there are so many at most, so that a fast producer does not fill the memory."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Final, final

from hlojit.extensions.devices.events import Event, in_callback
from hlojit.ir.current_process import process
from hlojit.ir.errors import ExecutionError


@final
class Pending:
    """The ends of executions, in the order of their starts.

    Nothing is taken before a start that would have to be given back when it fails: Ctrl-C may come between any two steps.
    """

    def __init__(self, most: int):
        """More than ``most`` there are only of callbacks, and of several threads that start at once."""
        self._most: Final = most
        self._ends: deque[Event] = deque()
        self._process = process.id

    def wait_for_room(self) -> None:
        """Return when one more may be started."""
        if self._process != process.id:
            # What was pending in the parent of a fork never ends here.
            self._ends, self._process = deque(), process.id
        # A callback of an event may run on the very thread that has executions end.
        while len(self._ends) >= self._most and not in_callback():
            # Another thread may have waited for the first one meanwhile.
            with suppress(IndexError):
                first = self._ends[0]
                with suppress(ExecutionError):
                    first.wait()
                self.remove(first)

    def add(self, end: Event) -> None:
        """One was started."""
        if not end.is_settled:
            self._ends.append(end)

    def remove(self, end: Event) -> None:
        """It has ended; without effect if that is known."""
        with suppress(ValueError, IndexError):
            self._ends.remove(end)

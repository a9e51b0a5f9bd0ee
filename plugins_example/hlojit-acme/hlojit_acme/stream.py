"""Acme's command stream: commands for its units, begun in order, each behind the commands whose results it reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hlojit.extensions import READY, Event, Queue

from hlojit_acme.memory import Region

Unit = Literal["dma", "matrix", "vector", "scalar"]
RECENT = 1000


class CommandError(RuntimeError):
    """A command failed: which one, on which unit, and why."""


@dataclass(frozen=True, slots=True)
class Command:
    """What one unit is told to do: ``work``, for ``cycles``, from ``reads`` into ``writes``."""

    unit: Unit
    what: str
    cycles: int
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    work: Callable[[], None]
    keeps: tuple[Any, ...] = ()
    """Objects that hold the memory of ``reads`` until the command has run."""


class Stream:
    """Runs commands on a thread of its own; a clock of cycles says when they would have ended on units that work side by side."""

    def __init__(self, name: str) -> None:
        self._queue = Queue(name)
        self._units: dict[Unit, int] = {"dma": 0, "matrix": 0, "vector": 0, "scalar": 0}
        self.busy: dict[Unit, int] = dict(self._units)
        self.log: deque[tuple[Unit, str, int, int]] = deque(maxlen=RECENT)
        """Unit, what, first and last cycle of the latest commands."""

    def submit(self, command: Command) -> Event:
        """Enqueue a command; returns the event that it has run, or failed."""
        done = self._queue.submit(lambda: self._run(command), Event.all([region.written for region in command.reads]))
        done.then(lambda event: self._written(command.writes, event))
        return done

    def drain(self) -> int:
        """Wait until every command has run, or failed; returns the clock."""
        self._queue.submit(self._barrier, READY).wait()
        return max(self._units.values())

    def _barrier(self) -> None:
        """All units have ended; what is told next begins at one time."""
        clock = max(self._units.values())
        self._units = dict.fromkeys(self._units, clock)

    def _run(self, command: Command) -> None:
        begin = max(self._units[command.unit], *(region.ready for region in command.reads), 0)
        end = begin + command.cycles
        self._units[command.unit] = end
        self.busy[command.unit] += command.cycles
        self.log.append((command.unit, command.what, begin, end))
        for region in command.writes:
            region.cycle = end
        try:
            command.work()
        except Exception as error:
            raise CommandError(f"{command.what} on the {command.unit} unit: {type(error).__name__}: {error}") from error

    @staticmethod
    def _written(regions: Sequence[Region], event: Event) -> None:
        for region in regions:
            region.written.complete(event.error)

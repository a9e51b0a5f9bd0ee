"""Executables of programs that several devices run together, each with arguments of its own.

    executable = hlojit.compile(text, num_replicas=2, num_partitions=2)
    results = executable([[x0], [x1], [x2], [x3]])          # one list of arguments in, one list of results out for each process

Process ``replica * num_partitions + partition`` runs on the back end's device of that number, or where its arguments are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, final

from hlojit.arrays import Array
from hlojit.compiled import CompiledProgram
from hlojit.device_call import has_device_array
from hlojit.executable import Executable, ExecutableSpec
from hlojit.extensions import Buffer, Device
from hlojit.extensions.devices.events import Event
from hlojit.extensions.devices.rendezvous import Meeting
from hlojit.ir.current_process import in_children
from hlojit.ir.errors import ArgumentError, ExecutionError, HlojitError, text_of
from hlojit.ir.process_grid import ProcessGrid
from hlojit.ir.types import TensorType
from hlojit.placement import to_outside

# All processes of a run are put on their devices before those of the next one: two runs on the same devices come to all of
# them in the same order.  Reentrant for signal handlers, whose runs may then have to be ended by the timeout.
_starting = threading.RLock()


@in_children
def _after_fork() -> None:
    # The lock may be held by a thread that does not exist in the child.
    global _starting
    _starting = threading.RLock()


@final
class ParallelExecutable:
    """A program for ``num_replicas * num_partitions`` processes; see the module's docstring."""

    dynamic_shapes: Final = "static"

    def __init__(self, executable: Executable, grid: ProcessGrid):
        self._call: Final = executable.device_call
        self._executable: Final = executable
        self._grid: Final = grid

    def __call__(self, *arguments: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Run all processes and wait: a list of results for each, on its device if an argument of its is on one.

        There is one argument, the list of the processes' lists of arguments.
        """
        rows = self._rows(arguments[0] if len(arguments) == 1 else None, given=len(arguments))
        run = self._start(rows, None)
        try:
            run.wait()
        except BaseException:
            run.give_up("was interrupted")
            raise
        return [
            [Array.from_buffer(each) if has_device_array(row) else to_outside(each) for each in results]
            for row, results in zip(rows, run.results)
        ]

    def execute(
        self, arguments: Sequence[Sequence[Any]], *, devices: Sequence[Device | str] | None = None
    ) -> list[list[Array]]:
        """Start all processes and return at once: their results on their devices, pending.

        ``devices`` names one for each process.  What goes wrong in one of them is raised by the results of all.
        """
        run = self._start(self._rows(arguments), devices)
        return [[Array.from_buffer(each) for each in results] for results in run.results]

    @property
    def num_replicas(self) -> int:
        """Of the grid of processes."""
        return self._grid.replicas

    @property
    def num_partitions(self) -> int:
        """Of each replica."""
        return self._grid.partitions

    @property
    def spec(self) -> ExecutableSpec:
        """What every process runs."""
        return self._executable.spec

    @property
    def devices(self) -> tuple[Device, ...]:
        """Where processes can run, one on each; process number n runs on device number n where nothing else is said."""
        return self._executable.devices

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        """Types of one process's arguments."""
        return self.spec.inputs

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """Types of one process's results."""
        return self.spec.outputs

    def save(self, path: str | os.PathLike[str]) -> None:
        """As ``Executable.save``."""
        self._executable.save(path)

    def compiled_program(self) -> CompiledProgram:
        """As ``Executable.compiled_program``."""
        return self._executable.compiled_program()

    def __repr__(self) -> str:
        return f"{self._executable!r} as {self._grid.processes} processes ({self._grid})"

    def _rows(self, arguments: object, *, given: int = 1) -> list[list[Any]]:
        count, name = self._grid.processes, self.spec.name
        rows = list(arguments) if isinstance(arguments, (list, tuple)) else None
        if rows is None or len(rows) != count or not all(isinstance(row, (list, tuple)) for row in rows):
            kind = f"a list of {len(rows)}" if rows is not None else f"an object of type {type(arguments).__name__}"
            found = kind if given == 1 else f"{given} arguments"
            raise ArgumentError(
                f"{name} is run by {count} processes ({self._grid}): pass a list of {count} lists of arguments, one for each "
                f"process, not {found}"
            )
        return [list(row) for row in rows]

    def _start(self, rows: Sequence[list[Any]], chosen: Sequence[Device | str] | None) -> _Run:
        assigned = self._assigned(rows, chosen)
        placed = [self._call.placed(row, device) for row, device in zip(rows, assigned)]
        meeting = Meeting(self.spec.name, [f"process {number} on {device}" for number, device in enumerate(assigned)])
        run, number = _Run(meeting), 0
        try:
            with _starting:
                for number, (device, buffers) in enumerate(placed):
                    results, done = device.start_among(self._call.program, buffers, meeting.participant(number))
                    run.ends.append(done)
                    run.add(number, results, done)
            run.bind()
        except BaseException as error:
            # Those that were started wait for this one.
            run.give_up(f"{meeting.who[number]} did not start: {text_of(error)}")
            raise
        return run

    def _assigned(self, rows: Sequence[list[Any]], chosen: Sequence[Device | str] | None) -> list[Device]:
        """A device for every process, no two the same."""
        count, name, known = self._grid.processes, self.spec.name, self.devices
        if count > len(known):
            raise HlojitError(
                f"{name} is run by {count} processes ({self._grid}), and the back end has {len(known)} devices: "
                f"{', '.join(map(str, known))} (HLOJIT_CPU_DEVICES={count}, or HLOJIT_CUDA='simulator devices={count}', makes "
                "virtual ones)"
            )
        if chosen is not None and (not isinstance(chosen, (list, tuple)) or len(chosen) != count):
            named = f"names {len(chosen)}" if isinstance(chosen, (list, tuple)) else f"is {chosen!r}"
            raise ArgumentError(f"{name} is run by {count} processes; devices= {named}")
        found = [
            self._call.device_for(row, known[number] if chosen is None else chosen[number], chosen is not None)
            for number, row in enumerate(rows)
        ]
        if len({id(each) for each in found}) != count:
            raise ArgumentError(
                f"{name}: every process runs on a device of its own, not on {', '.join(map(str, found))}; say which by "
                "execute(..., devices=...)"
            )
        return found


@final
class _Run:
    """One run: the results of its processes, and when they have ended."""

    def __init__(self, meeting: Meeting):
        self.results: list[list[Buffer]] = []
        self._meeting = meeting
        self.ends: Final[list[Event]] = []
        """Of the processes that were started."""

    def add(self, number: int, results: list[Buffer], done: Event) -> None:
        """A process was started."""
        self.results.append(results)
        done.then(partial(_ended, self._meeting, number))

    def bind(self) -> None:
        """No result is there before all processes have ended well: each may hold what one that failed has sent."""
        every = Event.all(self.ends)
        for results in self.results:
            for each in results:
                each.ready = every

    def wait(self) -> None:
        """Wait for all; raises what went wrong first."""
        for each in self.ends:
            _settled(each)
        first = self._meeting.error or next((each.error for each in self.ends if each.error is not None), None)
        if first is not None:
            raise ExecutionError(text_of(first)) from first

    def give_up(self, why: str) -> None:
        """Nobody waits for it any more: no process waits for another one, and all are asked to end."""
        self._meeting.fail(ExecutionError(f"{self._meeting.program}: {why}"))
        for each in self.ends:
            each.stop()


def _ended(meeting: Meeting, number: int, done: Event) -> None:
    if done.error is not None:
        meeting.fail(done.error)
    meeting.leave(number)


def _settled(done: Event) -> None:
    """Wait for an end, well or not."""
    try:
        done.wait()
    except ExecutionError:
        if done.error is None:
            raise

"""Worker processes that take programs one by one; what ends a process or does not end itself is a failure of its program.

A worker is a process of its own for some hundred programs.  When one dies, its program counts as ``crash`` with the signal; when
the time is over, the process is killed and the program counts as ``hang``.  Either way the next program has a new process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from tools.conformance.programs import Outcome, Program

Perform = Callable[[Program, str], tuple[str, str]]
PROGRAMS_OF_A_PROCESS = 400
"""After so many a worker is replaced: what one program leaves behind does not spoil all that follow."""
START_SECONDS = 120.0
_CONTEXT = multiprocessing.get_context("spawn")


def serve(connection: Connection, perform: Perform, backend: str, environment: dict[str, str]) -> None:
    """The loop of a worker."""
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection.send("ready")
    while (program := connection.recv()) is not None:
        start = time.perf_counter()
        kind, reason = perform(program, backend)
        connection.send((kind, reason, time.perf_counter() - start))


@dataclass
class Worker:
    """One process and the program that it has."""

    perform: Perform
    backend: str
    environment: dict[str, str]
    done: int = 0
    program: Program | None = None
    deadline: float = 0.0
    ready: bool = False
    connection: Connection = field(init=False)
    process: Any = field(init=False)

    def __post_init__(self) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(
            target=serve, args=(theirs, self.perform, self.backend, self.environment), daemon=True
        )
        self.process.start()
        theirs.close()
        self.deadline = time.monotonic() + START_SECONDS

    def give(self, program: Program, limit: float) -> None:
        self.program = program
        self.connection.send(program)
        self.deadline = time.monotonic() + limit

    def stop(self) -> None:
        if self.process.is_alive() and self.program is None and self.ready:
            self.connection.send(None)
            self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()

    def outcome(self, limit: float) -> Outcome | None:
        """What became of the program, if that is known by now."""
        program = self.program
        assert program is not None
        try:
            if self.connection.poll():
                kind, reason, seconds = self.connection.recv()
                return Outcome(program, reason, kind, seconds, program.ops())
        except (EOFError, OSError):
            self.process.join(5)
            return Outcome(program, f"the process ended: {_ending(self.process.exitcode)}", "crash", 0.0, program.ops())
        if time.monotonic() > self.deadline:
            return Outcome(program, f"not done after {limit:g} s", "hang", limit, program.ops())
        return None


def _ending(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"


def outcomes(
    programs: Iterable[Program],
    perform: Perform,
    backend: str,
    *,
    workers: int = 2,
    limit: float = 60.0,
    environment: dict[str, str] | None = None,
) -> Iterator[Outcome]:
    """What became of every program, in the order in which they end."""
    waiting = iter(programs)
    pool = [Worker(perform, backend, environment or {}) for _ in range(workers)]
    try:
        while pool:
            wait([worker.connection for worker in pool], timeout=1.0)
            for number in range(len(pool) - 1, -1, -1):
                worker = pool[number]
                if worker.program is None:
                    if not _began(worker):
                        continue
                elif (outcome := worker.outcome(limit)) is not None:
                    worker.program = None
                    worker.done += 1
                    yield outcome
                    if outcome.kind in ("crash", "hang") or worker.done >= PROGRAMS_OF_A_PROCESS:
                        worker.ready = outcome.kind not in ("crash", "hang")
                        worker.stop()
                        pool[number] = Worker(perform, backend, environment or {})
                        continue
                else:
                    continue
                program = next(waiting, None)
                if program is None:
                    worker.stop()
                    del pool[number]
                else:
                    worker.give(program, limit)
    finally:
        for worker in pool:
            worker.process.kill()


def _began(worker: Worker) -> bool:
    """Whether a new process has said that it is ready; one that dies before that is an error of this tool."""
    try:
        if worker.connection.poll():
            worker.ready = worker.connection.recv() == "ready"
    except (EOFError, OSError) as error:
        raise RuntimeError("a worker ended before it began") from error
    if not worker.ready and time.monotonic() > worker.deadline:
        raise RuntimeError(f"a worker did not begin in {START_SECONDS:g} s")
    return worker.ready

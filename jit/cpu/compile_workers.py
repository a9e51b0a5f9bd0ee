"""Kernels of one program, compiled over the cores: by the thread that asks for them and by worker processes.

    with compilation(target) as batch:
        batch.add(symbol, request)   # workers may begin with it at once
        images = batch.finish()      # this thread takes what they have not taken

There is one queue, and the kernel that takes longest comes first.  A batch is offered to workers only once it holds so much
work that they pay.  Workers (``hlojit.machine_code.compile_worker``) start in the background, stay for a while, and are
never needed: what one of them does not deliver, for whatever reason, is compiled by the thread that waits for it.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from _thread import LockType, allocate_lock
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from hlojit.ir.current_process import in_children
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.switches import COMPILE_WORKERS
from hlojit.lowering.target import Target
from hlojit.machine_code.worker_process import spawn_worker
from hlojit.runtime.quota import cpu_quota, default_threads

MAXIMUM_WORKERS: Final = 64
DEFAULT_WORKERS: Final = 8
"""At most so many where the switch says nothing: the emission of the next kernels does not keep more of them busy."""

SECONDS_PER_BYTE: Final[Mapping[str, float]] = {"plain": 0.8e-6, "host": 0.1e-6}
"""What compiling a byte of text takes, about, by pipeline (one core of a Sapphire Rapids server)."""
SECONDS_PER_OPTIMIZED_BYTE: Final = 3.6e-6

START_SECONDS: Final = 0.25
"""Work of a program that pays for each worker to be started: it takes 0.1 s of another core until it has loaded LLVM."""
SHARE_SECONDS: Final = 0.03
"""Work of a program that pays for sending kernels to workers that are there."""
IDLE_SECONDS: Final = 20.0
"""A worker without work ends after this time."""
START_PATIENCE: Final = 30.0
"""A worker that has not greeted by then is given up."""
PATIENCE: Final = 2.0
PATIENCE_PER_SECOND: Final = 20.0
"""A worker hangs if a kernel takes it longer than the sum of both, the second times what the kernel should take."""
MAXIMUM_FAILURES: Final = 3
"""After so many workers that did not start or did not answer, no more are started."""


@dataclass(frozen=True, slots=True)
class Request:
    """One object to be compiled: ``compile_to_object`` says what the fields mean."""

    ir: str
    pipeline: str
    linked: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """What compiling it should take."""
        nbytes = len(self.ir) + sum(map(len, self.linked))
        return nbytes * SECONDS_PER_BYTE.get(self.pipeline, SECONDS_PER_OPTIMIZED_BYTE)


@dataclass(eq=False, slots=True)
class _Task:
    request: Request
    target: Target
    image: bytes | None = None
    worker: _Worker | None = None
    """Who is at work on it, if not the thread that waits."""
    deadline: float = inf
    delivered: LockType = field(default_factory=allocate_lock)
    """Held while a worker is at work on it."""


@final
class Batch:
    """What one compilation needs."""

    def __init__(self, target: Target, workers: CompileWorkers | None):
        self._target = target
        self._workers = workers
        self._tasks: dict[str, _Task] = {}
        self._seconds = 0.0
        self._offered = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._offered and self._workers is not None:
            self._workers.withdraw(self)

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def add(self, name: str, request: Request) -> None:
        """Announce that an object will be needed."""
        if name in self._tasks:
            return
        task = self._tasks[name] = _Task(request, self._target)
        self._seconds += request.seconds
        if self._workers is None:
            return
        if self._offered:
            self._workers.offer([task], self._seconds)
        elif self._workers.pays(self._seconds):
            self._offered = True
            self._workers.offer(self.tasks(), self._seconds)

    def finish(self) -> Mapping[str, bytes]:
        """All objects by name; raises what compiling one of them raises."""
        workers = self._workers if self._offered else None
        largest_first = sorted(self.tasks(), key=lambda task: -task.request.seconds)
        for task in largest_first:
            if task.image is None and (workers is None or workers.take_back(task)):
                self._compile(task)
        for task in largest_first:
            if workers is not None and not workers.wait(task):
                self._compile(task)
        return {name: task.image for name, task in self._tasks.items() if task.image is not None}

    def tasks(self) -> list[_Task]:
        """What was added."""
        return list(self._tasks.values())

    def _compile(self, task: _Task) -> None:
        from hlojit.machine_code.object_code import compile_to_object

        request = task.request
        task.image = compile_to_object(request.ir, self._target, pipeline=request.pipeline, linked=request.linked)


@final
class CompileWorkers:
    """The workers of this process and what they are to do; threads share them."""

    def __init__(self, limit: int, idle_seconds: float = IDLE_SECONDS):
        self.limit = limit
        self.idle_seconds = idle_seconds
        self.failures = 0
        self.workers: list[_Worker] = []
        # Taken as it is, not as the condition: `Condition.__enter__` is Python code, in which Ctrl-C may come after the lock
        # is taken and before the block is entered.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._queue: list[_Task] = []

    def pays(self, seconds: float) -> bool:
        """Whether to offer a batch of so much work."""
        return seconds >= (SHARE_SECONDS if any(each.ready for each in self.workers) else START_SECONDS)

    def offer(self, tasks: Sequence[_Task], batch_seconds: float) -> None:
        """Let workers have tasks, and start one if their batch is worth it."""
        with self._lock:
            self._queue += tasks
            self._changed.notify_all()
            wanted = min(self.limit, int(batch_seconds / START_SECONDS))
            if len(self.workers) >= wanted or self.failures >= MAXIMUM_FAILURES or not idle_cores():
                return
            worker = _Worker(self)
            self.workers.append(worker)
        try:
            worker.start()
        except RuntimeError:  # no more threads: the interpreter is about to end, say
            self.remove(worker)

    def withdraw(self, batch: Batch) -> None:
        """Nobody waits for the batch any more."""
        with self._lock:
            gone = set(map(id, batch.tasks()))
            self._queue = [task for task in self._queue if id(task) not in gone]

    def take(self, worker: _Worker) -> _Task | None:
        """The largest task for a worker, or None if there was none for a while."""
        with self._lock:
            if not self._changed.wait_for(lambda: self._queue or worker.dead, self.idle_seconds) or worker.dead:
                self.remove(worker)
                return None
            task = max(self._queue, key=lambda task: task.request.seconds)
            self._queue.remove(task)
            task.worker = worker
            task.delivered.acquire()
            task.deadline = time.monotonic() + PATIENCE + PATIENCE_PER_SECOND * task.request.seconds
            return task

    def take_back(self, task: _Task) -> bool:
        """Whether nobody has begun with a task; nobody will."""
        with self._lock:
            if task not in self._queue:
                return False
            self._queue.remove(task)
            return True

    def deliver(self, task: _Task, image: bytes | None) -> None:
        """A worker is done with a task, with or without success."""
        with self._lock:
            if image is not None:
                self.failures = 0
            if task.worker is not None:
                task.image = image
                task.worker = None
                task.delivered.release()

    def wait(self, task: _Task) -> bool:
        """Wait for whoever has begun with a task; whether there is a result."""
        if task.worker is not None:
            # Not at the condition, whose `wait` is Python code: Ctrl-C may come anywhere in it.
            task.delivered.acquire(timeout=max(0.0, task.deadline - time.monotonic()))
        with self._lock:
            if task.worker is not None:
                hung, task.worker = task.worker, None
                hung.kill()
                self.failures += 1
            return task.image is not None

    def remove(self, worker: _Worker) -> None:
        """A worker is about to end."""
        with self._lock:
            if worker in self.workers:
                self.workers.remove(worker)

    def failed(self) -> None:
        """A worker did not start, or died."""
        with self._lock:
            self.failures += 1

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            workers, self.workers, self.failures = self.workers, [], MAXIMUM_FAILURES
            for worker in workers:
                worker.kill()
            self._changed.notify_all()
        for worker in workers:
            if worker.is_alive():
                worker.join(1.0)

    def forget(self) -> None:
        """In the child of a fork: these are the parent's.  No lock is taken, since a thread that is not here may hold it."""
        for worker in self.workers:
            worker.forget()
        self.workers = []


class _Worker(threading.Thread):
    """One process, and the thread that talks to it.

    The thread starts the process itself and outlives it: Linux signals the death of the parent's thread, not that of the parent.
    """

    def __init__(self, pool: CompileWorkers):
        super().__init__(name="hlojit-compile-worker", daemon=True)
        self.pool = pool
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.dead = False

    def run(self) -> None:
        try:
            with fork_gate.inside:
                if self.dead:
                    return
                self.process = spawn_worker()
            self._serve(self.process)
        except Exception:
            # Whatever it was, the work is done without this worker.
            if not self.dead:
                self.pool.failed()
        finally:
            self.pool.remove(self)
            self.kill()
            self._reap()

    def _serve(self, process: subprocess.Popen[bytes]) -> None:
        from hlojit.machine_code.compile_worker import Closed, greeting, receive, send

        assert process.stdin is not None and process.stdout is not None
        source, sink = process.stdout.fileno(), process.stdin.fileno()
        late = threading.Timer(START_PATIENCE, self.kill)
        late.daemon = True
        late.start()
        try:
            if receive(source) != greeting():
                raise Closed
        finally:
            late.cancel()
        self.ready = True
        while task := self.pool.take(self):
            image = None
            try:
                request, target = task.request, task.target
                texts = (target.triple, target.cpu, target.features, request.pipeline, request.ir, *request.linked)
                send(sink, [text.encode() for text in texts])
                status, result = receive(source)
                if status == b"ok":
                    image = result
            finally:
                self.pool.deliver(task, image)

    def kill(self) -> None:
        """End the process, at once."""
        self.dead = True
        if self.process is not None:
            with suppress(OSError):
                self.process.kill()

    def _reap(self) -> None:
        process = self.process
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()

    def forget(self) -> None:
        """Close the ends of the pipes that fork has copied."""
        process, self.process, self.dead = self.process, None, True
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.returncode = 0  # it is not our child


_pool: CompileWorkers | None = None


def compilation(target: Target) -> Batch:
    """A batch for one compilation, for a ``with`` block."""
    limit = worker_limit()
    return Batch(target, _workers(limit) if limit else None)


def worker_limit() -> int:
    """``HLOJIT_COMPILE_WORKERS`` if set, else one worker for every core besides that of the thread that compiles."""
    limit = COMPILE_WORKERS.count(_default_limit(), least=0, most=MAXIMUM_WORKERS)
    if os.name != "posix" or not sys.executable or getattr(sys, "frozen", False):
        return 0  # there is no interpreter to start
    return limit


def idle_cores() -> int:
    """Cores of the machine on which nothing runs right now, as far as the system says so."""
    cores = os.cpu_count() or 1
    try:
        running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
    except (OSError, IndexError):
        return cores
    return max(0, cores - int(running)) if running.isdigit() else cores


@cache
def _default_limit() -> int:
    # Part of a core is none to spare: who takes more than the quota is stopped for the rest of the period.
    quota = cpu_quota()
    cores = default_threads() if quota is None else min(default_threads(), int(quota))
    return max(0, min(cores - 1, DEFAULT_WORKERS))


def _workers(limit: int) -> CompileWorkers:
    global _pool
    pool = _pool
    if pool is None:
        made = CompileWorkers(limit)
        # Looked at again after the last call: no thread and no signal handler comes in between.
        if _pool is None:
            _pool = made
        pool = _pool
        if pool is made:
            atexit.register(made.close)
    pool.limit = limit
    return pool


@in_children
def _forget() -> None:
    global _pool
    if _pool is not None:
        _pool.forget()
        atexit.unregister(_pool.close)
        _pool = None

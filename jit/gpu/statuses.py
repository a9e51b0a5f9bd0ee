"""The statuses of a program's kernels: one piece of memory for a run, zero before it and read after it.

Kernels with the same failures share one (``hlojit.simt.status`` says what is in it).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
from hlojit.extensions.calls.function_places import with_place
from hlojit.gpu.driver import ALIGNMENT, DeviceFault, Driver, Stream
from hlojit.gpu.memory import DeviceMemory, MemoryPool
from hlojit.ir.errors import ExecutionError
from hlojit.ir.plugin_names import with_sources
from hlojit.simt.status import WORD, status_bytes


@final
class StatusLayout:
    """Where the statuses of kernels lie, by their failures."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, ...], int] = {}
        self.nbytes = 0

    def offset(self, reports: tuple[str, ...]) -> int:
        """Where the status of kernels with these failures begins."""
        found = self._offsets.get(reports)
        if found is None:
            found = self._offsets[reports] = self.nbytes
            self.nbytes += -(-status_bytes(reports) // ALIGNMENT) * ALIGNMENT
        return found

    @property
    def has_failures(self) -> bool:
        """Whether there is anything that can be noted but that a run was stopped."""
        return any(self._offsets)

    def failure(self, content: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> str:
        """The first failure that was noted, or an empty string."""
        words = content.view(np.uint32)
        for reports, offset in self._offsets.items():
            stop, *failed = words[offset // WORD : offset // WORD + 1 + len(reports)].tolist()
            if stop:
                return "was stopped"
            if any(failed):
                return next(message for message, has_happened in zip(reports, failed) if has_happened)
        return ""


@final
class Statuses:
    """Memory for the statuses of one program on one device; a run takes a piece, all zeros, and gives it back.

    Nothing clears a status while its run may have begun: whoever asks a run to stop is heard, even if that comes first.
    """

    def __init__(self, layout: StatusLayout, driver: Driver, pool: MemoryPool, uploads: Stream, name: str):
        self._layout = layout
        self._driver = driver
        self._pool = pool
        self._uploads = uploads
        self._name = name
        self._free: list[DeviceMemory] = []

    def take(self) -> DeviceMemory:
        """Zeros; the last that was given back, so that graphs find their addresses."""
        try:
            return self._free.pop()
        except IndexError:
            memory = self._pool.allocate(self._layout.nbytes, f"statuses of {self._name}", self._uploads)
            self._write(memory, 0)
            return memory

    def finish(self, memory: DeviceMemory, stream: Stream, *, was_stopped: bool) -> str:
        """What went wrong in the run, which is over, or an empty string; ``stream`` is one for copies to the host."""
        message = ""
        if was_stopped or self._layout.has_failures:
            content = np.zeros(self._layout.nbytes, np.uint8)
            self._driver.copy_out(content, memory.address, stream)
            message = self._layout.failure(content)
            if content.any():
                self._write(memory, 0)
        self._free.append(memory)
        return message

    def stop(self, memory: DeviceMemory) -> None:
        """Have loops in the run end soon; waits until they are told."""
        self._write(memory, 1)

    def _write(self, memory: DeviceMemory, value: int) -> None:
        """Beside the programs that run, and wait for it: it must not be skipped because of what others did."""
        driver, uploads = self._driver, self._uploads
        try:
            driver.copy_in(memory.address, np.full(self._layout.nbytes, value, np.uint8), uploads)
            driver.synchronize(driver.record(uploads))
        except DeviceFault as fault:
            driver.recover(uploads, fault)
            raise


@final
class Run:
    """One run of a program: what can be asked of it, and what is left to do when the stream has done it."""

    def __init__(self, name: str, statuses: Statuses | None, places: Mapping[str, str], launched: Sequence[str]):
        self._name = name
        self.launched = launched
        """What it launches, for messages."""
        self._statuses = statuses
        self._places = places
        self._lock = threading.RLock()
        self._was_stopped = False
        self.status = None if statuses is None else statuses.take()

    def check(self, stream: Stream) -> None:
        """Raise what functions in the kernels reported; ``stream`` is one for copies to the host."""
        with self._lock:
            status, self.status = self.status, None
            if status is None or self._statuses is None:
                return
            message = self._statuses.finish(status, stream, was_stopped=self._was_stopped)
        if message:
            raise ExecutionError(f"{self._name}: {with_sources(with_place(message, self._places))}")

    def stop(self) -> None:
        """Have loops that do not end do so."""
        with self._lock:
            if self.status is not None and self._statuses is not None:
                self._was_stopped = True
                self._statuses.stop(self.status)

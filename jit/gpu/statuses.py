"""The statuses of a program's kernels: one piece of memory for a run, cleared before it and read after it.

Kernels with the same failures share one (``hlojit.simt.status`` says what is in it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
from hlojit.extensions.function_places import with_place
from hlojit.gpu.driver import ALIGNMENT, Driver, Stream
from hlojit.gpu.memory import DeviceMemory, MemoryPool
from hlojit.ir.errors import ExecutionError
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
    """Memory for the statuses of one program on one device; a run takes a piece and gives it back when it was read."""

    def __init__(self, layout: StatusLayout, pool: MemoryPool, name: str):
        self._layout = layout
        self._pool = pool
        self._name = name
        self._free: list[DeviceMemory] = []

    def take(self) -> DeviceMemory:
        """Memory whose contents are not defined; the last that was given back, so that graphs find their addresses."""
        try:
            return self._free.pop()
        except IndexError:
            return self._pool.allocate(self._layout.nbytes, f"statuses of {self._name}")

    def check(self, memory: DeviceMemory, driver: Driver, stream: Stream, places: Mapping[str, str]) -> None:
        """Raise ``ExecutionError`` if a function failed in the run, which is over."""
        content = np.zeros(self._layout.nbytes, np.uint8)
        driver.copy_out(content, memory.address, stream)
        self._free.append(memory)
        if message := self._layout.failure(content):
            raise ExecutionError(f"{self._name}: {with_place(message, places)}")

    def stop(self, memory: DeviceMemory, driver: Driver, stream: Stream) -> None:
        """Have loops of functions in the run end soon; waits until they are told."""
        driver.copy_in(memory.address, np.ones(self._layout.nbytes, np.uint8), stream)
        driver.synchronize(driver.record(stream))

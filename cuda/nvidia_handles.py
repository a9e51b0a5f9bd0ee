"""What the driver of NVIDIA's GPUs hands out: streams, marks, functions, modules and graphs, which give back what they hold."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from hlojit.cuda.nvidia_driver import NvidiaDriver


@final
@dataclass(eq=False)
class NvidiaStream:
    """A stream, what was launched on it since the last mark, and what a library works with there."""

    handle: Any
    launched: list[str] = field(default_factory=list)
    workspace: int = 0
    """Memory for cuBLASLt, once it has run here."""


@final
class NvidiaMark:
    """An event, and what was launched between the mark before it and itself."""

    __slots__ = ("_events", "event", "launched")

    def __init__(self, event: Any, launched: list[str], events: list[Any]):
        self.event = event
        self.launched = launched
        self._events = events

    def __del__(self) -> None:
        # Used again: making events costs more than recording them.
        self._events.append(self.event)


@final
@dataclass(eq=False)
class NvidiaFunction:
    """A kernel function and memory for its parameters: their values, and the addresses of these."""

    handle: Any
    module: NvidiaModule
    values: ctypes.Array[ctypes.c_uint64]
    pointers: ctypes.Array[ctypes.c_void_p]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def set_parameters(self, addresses: Sequence[int]) -> None:
        """The caller holds the lock until the driver has read them."""
        if len(self.values) != len(addresses):
            self.values, self.pointers = parameters_of(len(addresses))
        self.values[:] = list(addresses)


@final
class NvidiaModule:
    """A loaded image."""

    def __init__(self, driver: NvidiaDriver, handle: Any):
        self.handle = handle
        self._driver = driver

    def __del__(self) -> None:
        self._driver.unload(self.handle)


@final
class NvidiaGraph:
    """A graph that can be launched, and what is in it."""

    def __init__(self, driver: NvidiaDriver, handle: Any, launched: list[str]):
        self.handle = handle
        self.launched = launched
        self._driver = driver

    def __del__(self) -> None:
        self._driver.drop_graph(self.handle)


def parameters_of(count: int) -> tuple[ctypes.Array[ctypes.c_uint64], ctypes.Array[ctypes.c_void_p]]:
    """Memory for so many parameters: their values, and the addresses of these."""
    values = (ctypes.c_uint64 * count)()
    first = ctypes.addressof(values)
    return values, (ctypes.c_void_p * count)(*(first + 8 * number for number in range(count)))

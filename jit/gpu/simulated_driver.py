"""A ``Driver`` whose GPU is the simulator of ``hlojit.simt.simulator``: for machines without one, and to find faults.

Memory is the host's, with *red zones* around every piece that are looked at when it is given back, and *poison* in it when
it is fresh; streams are queues with threads of their own.  What goes wrong on a stream is kept by it, and all that follows
is skipped, as on a GPU; ``recover`` ends that.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns
from typing import Final, final

import numpy as np
from hlojit.extensions.devices.events import Event, Queue
from hlojit.gpu.device_functions import SubstituteModule, substitute_module
from hlojit.gpu.driver import (
    ALIGNMENT,
    Communicator,
    DeviceFault,
    DriverError,
    Grid,
    NDArray,
    OutOfDeviceMemory,
    Properties,
)
from hlojit.gpu.graph_nodes import Conditions, CopyNode, GraphNode, LaunchNode
from hlojit.gpu.simulated_graph import SimulatedConditionals
from hlojit.simt.simulator.module import SimulatedModule

RED_ZONE: Final = ALIGNMENT
_RED: Final = 0xA5
_POISON: Final = 0xFF
"""NaN in every float format that has one, -1 in integers."""
DEFAULT_MEMORY: Final = 4 << 30
NOTE: Final = "simulator on the host's processor: correct, slow, no measure of speed"


@final
class SimulatedStream:
    """A queue, and what went wrong on it."""

    def __init__(self, name: str):
        self.name = name
        self._queue = Queue(name)
        self.fault: DeviceFault | None = None
        self.met: list[DeviceFault] = []
        """All that ever went wrong here."""

    def meet(self, fault: DeviceFault) -> None:
        """Skip what follows."""
        self.fault = fault
        self.met.append(fault)

    def put(self, work: Callable[[], None]) -> Event:
        """Have ``work`` done after all that was put here before; not if something of that went wrong."""
        return self._queue.submit(partial(self._do, work))

    def put_always(self, work: Callable[[], None]) -> Event:
        """Have ``work`` done in any case."""
        return self._queue.submit(work)

    def _do(self, work: Callable[[], None]) -> None:
        if self.fault is not None:
            return
        try:
            work()
        except BaseException as error:
            # Without its frames, which keep memory.
            self.meet(DeviceFault(str(error) or repr(error), getattr(error, "kernel", "")))


@final
@dataclass
class SimulatedMark:
    """A point of a stream, and what had gone wrong when it was passed: what is skipped, and how much there had ever been."""

    passed: Event
    fault: DeviceFault | None = None
    met: tuple[DeviceFault, ...] = ()
    nanoseconds: int = 0
    """The host's clock at that time."""

    def check(self, since: SimulatedMark | None) -> None:
        """Raise what had gone wrong; anew each time, since one exception would collect the tracebacks of all threads."""
        fault = self.fault
        if fault is None and since is not None:
            met = self.met[len(since.met) :]
            fault = since.fault or (met[-1] if met else None)
        if fault is not None:
            raise DeviceFault(str(fault), fault.kernel) from fault


@final
@dataclass(frozen=True)
class SimulatedFunction:
    """A kernel function."""

    module: SimulatedModule | SubstituteModule
    symbol: str
    shared_bytes: int


@final
@dataclass
class SimulatedGraph:
    """What was captured: work that is done in order."""

    name: str = "graph"
    work: list[Callable[[], None]] = field(default_factory=list)

    def put(self, work: Callable[[], None]) -> None:
        """Keep it for later."""
        self.work.append(work)


@final
@dataclass(frozen=True, slots=True)
class _Allocation:
    """Memory with red zones on both sides."""

    memory: NDArray
    address: int
    nbytes: int

    @classmethod
    def of(cls, nbytes: int) -> _Allocation:
        whole = -(-nbytes // ALIGNMENT) * ALIGNMENT
        memory = np.empty(whole + 2 * RED_ZONE + ALIGNMENT, np.uint8)
        start = RED_ZONE + -(memory.ctypes.data + RED_ZONE) % ALIGNMENT
        memory[:start] = _RED
        memory[start : start + nbytes] = _POISON
        memory[start + nbytes :] = _RED
        return cls(memory, memory.ctypes.data + start, nbytes)

    def check(self) -> None:
        """Raise ``DeviceFault`` if a red zone was written."""
        start = self.address - self.memory.ctypes.data
        for name, zone in (("before", self.memory[:start]), ("behind", self.memory[start + self.nbytes :])):
            if (zone != _RED).any():
                raise DeviceFault(f"memory {name} a buffer of {self.nbytes:,} bytes was written")


@final
class SimulatedDriver:
    """One simulated GPU with so much memory."""

    def __init__(self, kind: str, total_memory: int = DEFAULT_MEMORY):
        self.properties: Final = Properties(
            kind, total_memory, NOTE, recovers=True, no_conditional_graphs="", has_clock=False
        )
        self._lock = threading.RLock()
        self._live: dict[int, _Allocation] = {}
        self._addresses: list[int] = []
        self._used = 0
        self._streams: list[SimulatedStream] = []

    def open(self) -> None:
        """In a child of fork the lock may be held by a thread that does not exist."""
        self._lock = threading.RLock()
        self._streams = []

    # ------------------------------------------------------------------------------------------------------- memory

    @property
    def current(self) -> AbstractContextManager[None]:
        """Nothing is saved."""
        return nullcontext()

    native = None
    """Everything goes through the streams' threads."""

    def memory(self) -> tuple[int, int]:
        """Bytes: free, in all."""
        return self.properties.total_memory - self._used, self.properties.total_memory

    def allocate(self, nbytes: int, stream: SimulatedStream) -> int:
        """Poisoned memory between red zones."""
        with self._lock:
            if self._used + nbytes > self.properties.total_memory:
                raise OutOfDeviceMemory(nbytes)
            self._used += nbytes
        try:
            made = _Allocation.of(nbytes)
        except MemoryError as error:
            with self._lock:
                self._used -= nbytes
            raise OutOfDeviceMemory(nbytes) from error
        with self._lock:
            self._live[made.address] = made
            bisect.insort(self._addresses, made.address)
        return made.address

    def free(self, address: int, stream: SimulatedStream) -> None:
        """When the stream gets there, look at the red zones and give the memory back."""
        stream.put_always(partial(self._released, address, stream))

    def _released(self, address: int, stream: SimulatedStream) -> None:
        with self._lock:
            found = self._live.pop(address)
            del self._addresses[bisect.bisect_left(self._addresses, address)]
            self._used -= found.nbytes
        try:
            found.check()
        except DeviceFault as fault:
            if stream.fault is None:
                stream.meet(fault)

    def trim(self) -> None:
        """Wait for what was freed."""
        self.drain()

    def drain(self) -> None:
        """Wait for all streams: there are no others."""
        for stream in list(self._streams):
            stream.put_always(lambda: None).wait()

    def copy_in(self, target: int, source: NDArray, stream: SimulatedStream) -> None:
        """Copy twice: the array may change, and the stream may have work to do before."""
        staged = source.copy()
        stream.put(partial(self._move, target, staged.ctypes.data, staged.nbytes, staged))

    def copy_out(self, target: NDArray, source: int, stream: SimulatedStream) -> None:
        """Copy, and wait."""
        stream.put(partial(self._move, target.ctypes.data, source, target.nbytes, target))
        self.synchronize(self.record(stream))

    def copy(self, target: int, source: int, nbytes: int, stream: SimulatedStream | SimulatedGraph) -> None:
        """Copy."""
        stream.put(partial(self._move, target, source, nbytes, None))

    def copy_from(
        self, peer: SimulatedDriver, target: int, source: int, nbytes: int, stream: SimulatedStream | SimulatedGraph
    ) -> None:
        """Copy from what is another device's memory, and no memory of this one's."""

        def move() -> None:
            self._check(target, nbytes, "a copy from another device")
            peer._check(source, nbytes, "a copy to another device")
            ctypes.memmove(target, source, nbytes)

        stream.put(move)

    def communicator(self, group: Sequence[SimulatedDriver]) -> Communicator | None:
        """No library."""
        return None

    def _move(self, target: int, source: int, nbytes: int, host: NDArray | None) -> None:
        start = host.ctypes.data if host is not None else -1
        for address in (target, source):
            if address != start:
                self._check(address, nbytes, "a copy")
        ctypes.memmove(target, source, nbytes)

    def _check(self, address: int, nbytes: int, what: str) -> None:
        """Whether so many bytes of one allocation lie there."""
        with self._lock:
            position = bisect.bisect_right(self._addresses, address) - 1
            found = self._live[self._addresses[position]] if position >= 0 else None
        if found is None or address + nbytes > found.address + found.nbytes:
            raise DeviceFault(f"{what} of {nbytes:,} bytes at {address:#x}, which is no memory of the device")

    # ------------------------------------------------------------------------------------------------------ streams

    def stream(self, name: str) -> SimulatedStream:
        """A queue."""
        made = SimulatedStream(f"{self.properties.kind} {name}")
        self._streams.append(made)
        return made

    def foreign_stream(self, number: int) -> SimulatedStream:
        """There are no other libraries: a stream on which nothing is."""
        return self.stream(f"foreign {number}")

    def number(self, stream: SimulatedStream) -> int:
        """Its place among the streams, from 1 on."""
        return self._streams.index(stream) + 1

    def record(self, stream: SimulatedStream) -> SimulatedMark:
        """Note what had gone wrong by then."""
        mark = SimulatedMark(Event())

        def pass_() -> None:
            mark.fault, mark.met, mark.nanoseconds = stream.fault, tuple(stream.met), perf_counter_ns()
            mark.passed.complete()

        stream.put_always(pass_)
        return mark

    def record_time(self, stream: SimulatedStream) -> SimulatedMark:
        """Every mark notes the host's time."""
        return self.record(stream)

    def elapsed(self, first: SimulatedMark, last: SimulatedMark) -> float:
        """Of the host's clock: how long the simulator took, which says nothing of a GPU."""
        self.synchronize(last, first)
        return float(last.nanoseconds - first.nanoseconds)

    def wait_for(self, stream: SimulatedStream, mark: SimulatedMark) -> None:
        """The stream's thread waits, and takes over what went wrong."""

        def arrive() -> None:
            mark.passed.wait()
            # The same one: whoever recovers from it does so on both streams.
            if mark.fault is not None and stream.fault is None:
                stream.meet(mark.fault)

        stream.put_always(arrive)

    def synchronize(self, mark: SimulatedMark, since: SimulatedMark | None = None) -> None:
        """Wait, and raise what had gone wrong."""
        mark.passed.wait()
        mark.check(since)

    def recover(self, stream: SimulatedStream, fault: DeviceFault) -> bool:
        """Forget what went wrong when all that was put on the stream before has been skipped."""

        def forget() -> None:
            if stream.fault is fault.__cause__:
                stream.fault = None

        stream.put_always(forget)
        return True

    # ------------------------------------------------------------------------------------------------------ kernels

    def load(self, image: bytes | memoryview, symbols: Sequence[str]) -> SimulatedModule | SubstituteModule:
        """Load object code, or find the function that stands for it."""
        return substitute_module(image) or SimulatedModule([image], symbols)

    def function(self, module: SimulatedModule | SubstituteModule, symbol: str, shared_bytes: int) -> SimulatedFunction:
        """A kernel function."""
        return SimulatedFunction(module, symbol, shared_bytes)

    def name_faults(self, under_way: Callable[[], Sequence[str]]) -> None:
        """It knows which kernel it was."""

    def library(self, call: str) -> None:
        """No library: our own kernels stand in for all of them."""

    def launch(
        self,
        function: SimulatedFunction,
        grid: Grid,
        addresses: Sequence[int],
        stream: SimulatedStream | SimulatedGraph,
        what: str,
    ) -> None:
        """Run the blocks on the stream's thread."""
        if grid.shared_bytes > function.shared_bytes:
            raise DriverError(f"{function.symbol} is launched with {grid.shared_bytes} bytes of shared memory")
        stream.put(partial(self._run, function, grid, tuple(addresses), what))

    def _run(self, function: SimulatedFunction, grid: Grid, addresses: tuple[int, ...], what: str) -> None:
        symbol, module = function.symbol, function.module
        for address, buffer in zip(addresses, module.facts(symbol).buffers):
            if buffer.nbytes:
                self._check(address, buffer.nbytes, f"kernel {symbol} ({what}): {buffer.what}")
        module.launch(symbol, addresses, grid.blocks, grid.threads, grid.shared_bytes, what=what)

    def capture(self, issue: Callable[[SimulatedGraph], None]) -> SimulatedGraph:
        """Keep what would be done."""
        graph = SimulatedGraph()
        issue(graph)
        return graph

    def conditional_graph(self, nodes: Sequence[GraphNode], conditions: Conditions) -> SimulatedGraph:
        """Keep the nodes: they run on the stream's thread, which looks at words that kernels wrote and at nothing else."""
        graph = SimulatedGraph()
        self.readdress(graph, nodes, conditions)
        return graph

    def readdress(self, graph: SimulatedGraph, nodes: Sequence[GraphNode], conditions: Conditions) -> bool:
        """Launches that are on a stream already keep the list that they have."""

        def launch(node: LaunchNode) -> None:
            self._run(node.function, node.grid, node.addresses, node.what)

        def copy(node: CopyNode) -> None:
            self._move(node.target, node.source, node.nbytes, None)

        graph.work = [partial(SimulatedConditionals(conditions, launch, copy).run, nodes)]
        return True

    def launch_graph(self, graph: SimulatedGraph, stream: SimulatedStream) -> None:
        """Do what was kept, as one piece of work."""
        kept = graph.work

        def run() -> None:
            for work in kept:
                work()

        stream.put(run)

"""The narrow interface of the runtime to one GPU.

Everything that runs is put on a *stream* and happens in the order in which it was put there; calls return at once, except
those that say that they wait.  Addresses are numbers, multiples of 256; streams, modules, functions, marks and graphs are
whatever the driver likes.

    stream = driver.stream("compute")
    x = driver.allocate(4096, stream)
    driver.copy_in(x, array, stream)
    driver.launch(function, Grid(blocks=4, threads=256), [x, y], stream, "tanh at model.mlir:3")
    mark = driver.record(stream)
    driver.synchronize(mark)            # waits; raises DeviceFault if something before the mark failed

**Times.** What lies between two marks of a stream is timed by the device, without the host's part::

    first = driver.record_time(stream)
    driver.launch(...)
    nanoseconds = driver.elapsed(first, driver.record_time(stream))

**Faults.** A stream that meets a fault (an access out of range, say) skips all that follows.  Marks that it passes then
carry the fault, ``synchronize`` raises it, and streams that wait for such a mark meet it as well.  ``recover`` ends that
where the machine can; what was put on the stream before is still skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from hlojit.ir.errors import ExecutionError

if TYPE_CHECKING:
    from hlojit.gpu.graph_nodes import Conditions, GraphNode
    from hlojit.gpu.native_launch import NativeDriver

ALIGNMENT = 256
"""What addresses are multiples of."""

NDArray: TypeAlias = np.ndarray[Any, Any]
Stream: TypeAlias = Any
Module: TypeAlias = Any
Function: TypeAlias = Any
Mark: TypeAlias = Any
Graph: TypeAlias = Any


class DriverError(ExecutionError):
    """A driver refused something: what, and its own words for the reason."""


class DriverRefusal(DriverError):
    """A driver cannot do what it was asked, and will not the next time either."""


class OutOfDeviceMemory(DriverError):
    """There are no ``nbytes`` bytes left, or not in one piece.

    The number is 0 of what a driver takes for itself: then the message says what that is.
    """

    def __init__(self, nbytes: int, message: str = ""):
        self.nbytes = nbytes
        super().__init__(message or f"no {nbytes:,} bytes of device memory are left")


class DeviceFault(DriverError):
    """Something went wrong while a kernel ran; ``kernel`` is its symbol, empty where the machine does not say."""

    def __init__(self, message: str, kernel: str = ""):
        self.kernel = kernel
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Properties:
    """What a GPU says of itself.

    ``kind`` is the model; ``note`` is what its user should know of it.
    """

    kind: str
    total_memory: int
    note: str = ""
    recovers: bool = False
    """Whether streams recover from faults."""
    dlpack_device: tuple[int, int] | None = None
    """Type and number of the device for other libraries (DLPack), if they can use its memory."""
    has_graphs: bool = True
    no_conditional_graphs: str = "its driver makes no graphs with conditions"
    """Why loops and branches cannot be parts of graphs; empty if they can."""
    has_clock: bool = True
    """Whether ``elapsed`` tells which of two kernels is faster."""


@dataclass(frozen=True, slots=True)
class Grid:
    """How a function is launched: blocks of threads, and the bytes of memory that the threads of a block share."""

    blocks: int
    threads: int
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """What goes to, or comes from, the member of a group at the place ``partner``."""

    partner: int
    address: int
    nbytes: int


class Communicator(Protocol):
    """One GPU's part in a library that moves among a group.

    The host threads of all members make the same calls, each with its own stream (in the numbers of ``Driver.number``).
    """

    def all_gather(self, source: int, target: int, nbytes: int, stream: int) -> None:
        """Every target gets all sources, ``nbytes`` each, in the order of the group."""

    def move(self, sends: Sequence[Message], receives: Sequence[Message], stream: int) -> None:
        """Send and receive, all at once; at most one message goes from one member to another."""

    def abort(self) -> None:
        """End what streams wait for in it, of all members: one of them will not come.  From any thread, more than once."""


class Driver(Protocol):
    """One GPU; see the module's docstring.  May be used from several threads.

    A driver does nothing that takes long before it is first used: listing GPUs opens none.
    """

    @property
    def properties(self) -> Properties:
        """What it is."""

    def open(self) -> None:
        """Make the GPU ready for this process: called before anything else, and again in a child made by fork."""

    @property
    def current(self) -> AbstractContextManager[None]:
        """For a thread that is about to call several functions: they cost less within this block."""

    def name_faults(self, under_way: Callable[[], Sequence[str]]) -> None:
        """Have faults name what may have caused them, where the machine does not say which kernel it was."""

    @property
    def native(self) -> NativeDriver | None:
        """What native code needs to launch by itself; None of a driver that is no C functions like CUDA's."""

    def memory(self) -> tuple[int, int]:
        """Bytes of memory: free, and in all."""

    def stream(self, name: str) -> Stream:
        """A new stream; the name is for people."""

    def foreign_stream(self, number: int) -> Stream:
        """Another library's stream, by its number, to record and to wait on."""

    def number(self, stream: Stream) -> int:
        """What other libraries call a stream."""

    def allocate(self, nbytes: int, stream: Stream) -> int:
        """The address of memory without contents, usable on the stream from now on; raises ``OutOfDeviceMemory``."""

    def free(self, address: int, stream: Stream) -> None:
        """Give memory back when the stream gets there.  Called from anywhere, destructors included."""

    def trim(self) -> None:
        """Wait for what was freed and give the machine all that is not used."""

    def drain(self) -> None:
        """Wait for all that was put on any stream of the GPU by this process, by other libraries too."""

    def copy_in(self, target: int, source: NDArray, stream: Stream) -> None:
        """Copy a C-contiguous host array to the device; the array has been read when this returns."""

    def copy_out(self, target: NDArray, source: int, stream: Stream) -> None:
        """Copy to a C-contiguous host array, and wait for it; raises the stream's fault."""

    def copy(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        """Copy on the device."""

    def copy_from(self, peer: Any, target: int, source: int, nbytes: int, stream: Stream) -> None:
        """Copy from another GPU, whose driver ``peer`` is of the same class, without the host where the machine can.

        The stream is one of this GPU's.  The contents must be there, by the order of the streams: nothing is waited for.
        """

    def communicator(self, group: Sequence[Any]) -> Communicator | None:
        """What this GPU has of a library that moves among GPUs, whose drivers these are, this one among them.

        None where none is wanted: they copy from each other.
        """

    def load(self, image: bytes | memoryview, symbols: Sequence[str]) -> Module:
        """Load an image with the kernel functions ``symbols``.  It is unloaded when the object is dropped."""

    def function(self, module: Module, symbol: str, shared_bytes: int) -> Function:
        """A kernel function that is launched with up to so many bytes of shared memory."""

    def library(self, call: str) -> Function | None:
        """What does a call (``Phase.library``) in a library, to be launched like a kernel over the same buffers.

        None where there is no such library: the kernel itself stands in.
        """

    def launch(self, function: Function, grid: Grid, addresses: Sequence[int], stream: Stream, what: str) -> None:
        """Run a kernel function over buffers; ``what`` tells people which instruction it is, and where."""

    def record(self, stream: Stream) -> Mark:
        """The point that the stream has reached when it has done all that was put on it so far."""

    def record_time(self, stream: Stream) -> Mark:
        """A mark at which the device notes its time, for ``elapsed``."""

    def elapsed(self, first: Mark, last: Mark) -> float:
        """Nanoseconds from one ``record_time`` of a stream to a later one; waits for it, as ``synchronize`` does."""

    def wait_for(self, stream: Stream, mark: Mark) -> None:
        """Have a stream wait for another one's mark."""

    def synchronize(self, mark: Mark, since: Mark | None = None) -> None:
        """Wait for a mark; raises ``DeviceFault`` if something before it went wrong that the stream has not recovered from.

        With ``since``, an earlier mark of the stream, also if anything between both was skipped, recovered from or not.
        """

    def capture(self, issue: Callable[[Stream], None]) -> Graph:
        """What ``issue`` puts on the stream that it is given - launches and copies - as one thing to launch; runs nothing."""

    def conditional_graph(self, nodes: Sequence[GraphNode], conditions: Conditions) -> Graph:
        """Nodes with loops and branches as one thing to launch, where ``properties.no_conditional_graphs`` is empty.

        ``conditions`` are the kernels that say what a node does next, given the driver's handle of it.  Raises
        ``DriverRefusal`` for what can never be one.
        """

    def readdress(self, graph: Graph, nodes: Sequence[GraphNode], conditions: Conditions) -> bool:
        """Have later launches of a graph be over the addresses of these nodes, like those that it was made of otherwise.

        False where that cannot be: then the graph is not launched again.
        """

    def launch_graph(self, graph: Graph, stream: Stream) -> None:
        """Run a graph."""

    def recover(self, stream: Stream, fault: DeviceFault) -> bool:
        """Let a stream that met this fault run what is put on it from now on; False where the machine cannot.

        ``fault`` is what ``synchronize`` or ``copy_out`` raised; one that the stream has met since stays.
        """

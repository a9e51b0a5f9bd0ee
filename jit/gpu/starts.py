"""The short way of a fixed program to its stream: checks that cannot fail twice, memory from shelves, one call of native code.

A driver on which nothing goes on after a fault (a real GPU) needs nobody who waits behind each program: a mark that is passed
says that all before it went well.  So the event of a program has the mark as its source, and no thread wakes up for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, final

from hlojit.extensions.devices import Buffer, DeviceProgram, Memory, failure
from hlojit.extensions.events import Event, without_frames
from hlojit.extensions.holds import Given, give
from hlojit.gpu.driver import DeviceFault, Driver, Mark
from hlojit.gpu.memory import DeviceMemory, Shelf
from hlojit.gpu.native_launch import NativeDriver, Watch
from hlojit.gpu.program_runner import GRAPH_LAUNCHES, GpuProgram, Resident, Site

if TYPE_CHECKING:
    from hlojit.gpu.device import GpuDevice, Lanes

LOOKS: Final = 200
"""At an event before signals are handled: some tens of microseconds."""
CALLS_BEFORE_GRAPH: Final = 1
"""Many programs are called once, and a graph costs as much as many launches."""
ROUNDS: Final = 20
"""Of as many looks before a thread is asked to wait."""


@final
class Passing:
    """The end of a program on a stream: the source of its event."""

    __slots__ = ("_device", "_mark", "_name", "_number", "_seen", "lanes")

    def __init__(self, device: GpuDevice, lanes: Lanes, name: str, mark: Mark, number: int, seen: Seen):
        self.lanes = lanes
        """Where: what is put on this stream later need not wait."""
        self._device = device
        self._name = name
        self._mark = mark
        self._number = number
        self._seen = seen

    def look(self, event: Event, *, patiently: bool) -> None:
        """Ask the driver."""
        look, pending = self._seen.look, self._seen.pending
        status = look(self._number, LOOKS if patiently else 1)
        for _ in range(ROUNDS if patiently else 0):
            if status != pending:
                break
            status = look(self._number, LOOKS)
        if status == 0:
            event.settle()
        elif status != pending:
            self._finish(event)

    def watch(self, event: Event) -> None:
        """By the thread that waits for programs."""
        self.lanes.completions.submit(partial(self._finish, event))

    def _finish(self, event: Event) -> None:
        try:
            self._device.driver.synchronize(self._mark)
        except BaseException as error:
            event.settle(failure(self._name, self._device, without_frames(error)))
            if isinstance(error, DeviceFault):
                self._device.recover(self.lanes.site.stream, error)
        else:
            event.settle()


@final
class Seen:
    """How events of a device are looked at."""

    def __init__(self, native: NativeDriver, site: Site):
        # Kept with the function, whose record it has.
        self._watch = Watch(native, site.stream)
        self.look: Final[Callable[[int, int], int]] = self._watch.look
        self.pending: Final = native.functions.pending


@final
class Starter:
    """Starts one program on one device, in the short way; see the module's docstring."""

    def __init__(
        self, device: GpuDevice, lanes: Lanes, program: DeviceProgram, resident: Resident, native: NativeDriver
    ):
        self._device = device
        self._lanes = lanes
        # Not the program, which keeps this.
        self._name = program.name
        self._donated = program.donated
        self._resident = resident
        self._native = native
        assert isinstance(program.code, GpuProgram)
        givers = {output: number for number, output in program.code.compiled.donated if output >= 0}
        pool = lanes.site.pool
        self._results: list[Shelf | int] = [
            givers[number] if number in givers else pool.shelf(type.nbytes, f"results of {program.name} ({type})")
            for number, type in enumerate(program.outputs)
        ]
        self._arena_bytes = resident.arena_bytes
        self._native_program = resident.native_program(native)
        self._issue: Callable[..., int] = self._native_program.run
        self._calls_before_graph = CALLS_BEFORE_GRAPH if len(resident.names) >= GRAPH_LAUNCHES else -1
        self._launched = resident.names
        self._types = program.outputs
        self._space = device.memory_spaces[0]
        self._seen = lanes.seen(native)

    def start(self, buffers: Sequence[Buffer]) -> tuple[list[Buffer], Event] | Given | None:
        """Results and their event, as ``Device.start``; or None, or what was given, for what the other way has to do."""
        lanes = self._lanes
        if self._donated:
            return self._start_giving(buffers)
        # Who is given one of the buffers comes later to this lock, and then to the stream.
        with lanes.lock:
            if lanes.waiting:
                return None
            memories = [buffer.memory() for buffer in buffers]
            if not self._takes(memories, [buffer.ready for buffer in buffers]):
                return None
            return self._started(memories)

    def _start_giving(self, buffers: Sequence[Buffer]) -> tuple[list[Buffer], Event] | Given | None:
        ready = [buffer.ready for buffer in buffers]
        if not self._takes([buffer.memory() for buffer in buffers], ready):
            return None
        # Without the lock: whoever reads one of them meanwhile is waited for.
        given = give(self._name, buffers, self._donated)
        with self._lanes.lock:
            if self._lanes.waiting or len(given.after) != len(ready) or not self._takes(given.memories, given.after):
                return given
            with given.hold:
                return self._started(given.memories)

    def _takes(self, memories: Sequence[Memory], ready: Sequence[Event]) -> bool:
        """Whether arguments are our own memory, filled without a mistake by what is on the stream already."""
        lanes = self._lanes
        for memory, event in zip(memories, ready):
            # The owner of borrowed memory is kept until the program has run.
            if type(memory.handle) is not DeviceMemory:
                return False
            if event.is_settled:
                if event.error is not None:
                    return False
            else:
                source = event.source
                if type(source) is not Passing or source.lanes is not lanes:
                    return False
        return True

    def _started(self, memories: Sequence[Memory]) -> tuple[list[Buffer], Event]:
        handles = [memory.handle for memory in memories]
        results = [handles[each] if isinstance(each, int) else each.take() for each in self._results]
        addresses = [handle.address for handle in handles]
        addresses += [handle.address for handle in results]
        # Referred to until the program is on the stream.
        arena = self._lanes.site.pool.scratch(self._arena_bytes) if self._arena_bytes else None
        addresses.append(0 if arena is None else arena.address)
        if self._calls_before_graph >= 0:
            self._count(addresses)
        mark, number = self._native.mark(self._launched)
        status = self._issue(number, *addresses)
        if status:
            # What is in a graph now is not known.
            self._issue = self._native_program.run
            raise self._resident.failed(self._native, status)
        device, space = self._device, self._space
        done = Event(None, Passing(device, self._lanes, self._name, mark, number, self._seen))
        return [
            Buffer(device, type_, space, Memory(device, handle), done) for type_, handle in zip(self._types, results)
        ], done

    def _count(self, addresses: Sequence[int]) -> None:
        """Make the graph when it is worth while."""
        self._calls_before_graph -= 1
        if self._calls_before_graph < 0:
            status = self._native_program.build(*addresses)
            if status:
                raise self._resident.failed(self._native, status)
            self._issue = self._native_program.replay


def starter(device: GpuDevice, lanes: Lanes, program: DeviceProgram) -> Starter | None:
    """The short way of a program, if it has one: known launches, kernels only, a driver with C functions."""
    driver: Driver = device.driver
    native = driver.native
    if native is None or driver.properties.recovers:
        return None
    assert isinstance(program.code, GpuProgram)
    with lanes.lock, driver.current:
        resident = program.code.on(lanes.site)
        return Starter(device, lanes, program, resident, native) if resident.is_native(native) else None

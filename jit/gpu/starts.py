"""The short way of a fixed program to its stream: checks that cannot fail twice, memory from shelves, one call of native code.

A driver on which nothing goes on after a fault (a real GPU) needs nobody who waits behind each program: a mark that is passed
says that all before it went well.  So the event of a program has the mark as its source, and no thread wakes up for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, final

from hlojit.extensions.devices.buffers import Buffer, Memory, failure
from hlojit.extensions.devices.device import DeviceProgram
from hlojit.extensions.devices.events import Event, without_frames
from hlojit.extensions.devices.holds import Given, give
from hlojit.gpu.driver import DeviceFault, DriverError, Mark
from hlojit.gpu.memory import DeviceMemory, Shelf
from hlojit.gpu.native_launch import NativeDriver, NativeProgram, Watch
from hlojit.gpu.program_runner import GRAPH_LAUNCHES, GpuProgram, Resident

if TYPE_CHECKING:
    from hlojit.gpu.device import GpuDevice, Lanes

LOOKS: Final = 200
"""At an event before signals are handled: some tens of microseconds."""
CALLS_BEFORE_GRAPH: Final = 1
"""Many programs are called once, and a graph costs as much as many launches."""
ROUNDS: Final = 20
"""Of as many looks before a thread is asked to wait."""


@final
class Marks:
    """Ends of programs of one name on a stream: what is common to them."""

    def __init__(self, device: GpuDevice, lanes: Lanes, name: str, launched: Sequence[str], native: NativeDriver):
        self.lanes: Final = lanes
        self._device = device
        self._name = name
        self.launched = launched
        self._native = native
        # Kept with the function, whose record it has.
        self._watch = Watch(native, lanes.site.stream)
        self.look: Final = self._watch.look
        self.pending: Final = native.functions.pending
        self._events = native.events
        self.back: Final = self._events.append

    def event(self) -> int:
        """An event that nobody uses."""
        try:
            return self._events.pop()
        except IndexError:
            return self._native.event()

    def finish(self, event: Event, passing: Passing, number: int) -> None:
        """Wait, and settle the event."""
        try:
            # A fault names what is under way (``Lanes``).
            self._device.driver.synchronize(self._native.mark(number, []))
        except BaseException as error:
            event.settle(failure(self._name, self._device, without_frames(error)))
            if isinstance(error, DeviceFault):
                self._device.recover(self.lanes.site.stream, error)
        else:
            self.passed(event, passing)

    def passed(self, event: Event, passing: Passing) -> None:
        """All went well, before it as well."""
        event.settle()
        recent = self.lanes.recent
        # Another thread may come in between; then one name too few is told of a fault.
        with suppress(IndexError):
            while recent[0].turn <= passing.turn:
                recent.popleft()


@final
class Passing:
    """The end of a program on a stream: the source of its event."""

    __slots__ = ("_mark", "_number", "marks", "turn")

    def __init__(self, marks: Marks, turn: int, number: int, mark: Mark = None):
        """The event with this number is our own, or that of ``mark``; programs take turns, transfers have 0."""
        self.marks = marks
        self.turn = turn
        self._number = number
        self._mark = mark

    def __del__(self) -> None:
        if self._mark is None:
            self.marks.back(self._number)

    def look(self, event: Event, *, patiently: bool) -> None:
        """Ask the driver."""
        look, pending = self.marks.look, self.marks.pending
        status = look(self._number, LOOKS if patiently else 1)
        for _ in range(ROUNDS if patiently else 0):
            if status != pending:
                break
            status = look(self._number, LOOKS)
        if status == 0:
            self.marks.passed(event, self)
        elif status != pending:
            # After what is watched already, which may be what went wrong.
            self.watch(event)

    def watch(self, event: Event) -> None:
        """By the thread that waits for programs."""
        self.marks.lanes.completions.submit(partial(self._finish, event))

    def _finish(self, event: Event) -> None:
        self.marks.finish(event, self, self._number)


@final
class Uploads:
    """Ends of transfers to the device, which the stream for programs waits for: events like those of programs."""

    def __init__(self, device: GpuDevice, lanes: Lanes, native: NativeDriver):
        self._driver = device.driver
        self._native = native
        self._lanes = lanes
        self._marks = Marks(device, lanes, "transfer", [], native)
        # Nothing but the event.
        self._program = NativeProgram(native, lanes.site.uploads, [], {}, [], {})

    def end(self) -> Event:
        """Of what has been put on the stream for uploads; the caller holds the lock."""
        passing = Passing(self._marks, 0, number := self._marks.event())
        if status := self._program.run(number):
            raise self._native.error(status & 0xFFFF_FFFF, "transfer")
        self._driver.wait_for(self._lanes.site.stream, self._native.mark(number, []))
        return Event(None, passing)


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
        self._program = resident.native_program(native) if resident.is_native(native) else None
        self._issue: Callable[..., int] | None = None if self._program is None else self._program.run
        self._calls_before_graph = CALLS_BEFORE_GRAPH if len(resident.names) >= GRAPH_LAUNCHES else -1
        self._types = program.outputs
        self._space = device.memory_spaces[0]
        self._marks = Marks(device, lanes, program.name, resident.names, native)

    def start(self, buffers: Sequence[Buffer]) -> tuple[list[Buffer], Event] | Given | None:
        """Results and their event, as ``Device.start``; or None, or what was given, for what the other way has to do."""
        lanes = self._lanes
        if self._donated:
            return self._start_giving(buffers)
        # Who is given one of the buffers comes later to this lock, and then to the stream.
        with lanes.lock:
            handles: list[DeviceMemory] = []
            for buffer in buffers:
                if not self._takes(buffer.memory(), buffer.ready, handles):
                    return None
            return None if lanes.waiting else self._started(handles)

    def _start_giving(self, buffers: Sequence[Buffer]) -> tuple[list[Buffer], Event] | Given | None:
        handles: list[DeviceMemory] = []
        if not all(self._takes(each.memory(), each.ready, handles) for each in buffers):
            return None
        # First: what is given cannot be taken back when there is no memory.
        reserved = self._reserved()
        # Without the lock: whoever reads one of them meanwhile is waited for.
        given = give(self._name, buffers, self._donated)
        with self._lanes.lock:
            handles = []
            is_plain = not self._lanes.waiting and len(given.after) == len(buffers)
            arguments = zip(given.memories, given.after)
            if not is_plain or not all(self._takes(memory, ready, handles) for memory, ready in arguments):
                return given
            with given.hold:
                return self._started(handles, reserved)

    def _takes(self, memory: Memory, ready: Event, handles: list[DeviceMemory]) -> bool:
        """Whether an argument is our own memory, filled without a mistake by what is on the stream already; notes its handle."""
        handle = memory.handle
        # The owner of borrowed memory is kept until the program has run.
        if type(handle) is not DeviceMemory:
            return False
        if ready.is_settled:
            if ready.error is not None:
                return False
        else:
            source = ready.source
            if type(source) is not Passing or source.marks.lanes is not self._lanes:
                return False
        handles.append(handle)
        return True

    def _reserved(self) -> tuple[list[DeviceMemory | int], DeviceMemory | None]:
        """Memory for results, or the number of the argument that is one; memory for temporaries."""
        results = [place if isinstance(place, int) else place.take() for place in self._results]
        return results, self._lanes.site.pool.scratch(self._arena_bytes) if self._arena_bytes else None

    def _started(
        self,
        handles: list[DeviceMemory],
        reserved: tuple[list[DeviceMemory | int], DeviceMemory | None] | None = None,
    ) -> tuple[list[Buffer], Event]:
        # All are referred to until the program is on the stream.
        addresses = [each.address for each in handles]
        places, arena = self._reserved() if reserved is None else reserved
        results = [handles[place] if isinstance(place, int) else place for place in places]
        addresses += [each.address for each in results]
        device, space = self._device, self._space
        passing = self._put(addresses, 0 if arena is None else arena.address)
        self._lanes.recent.append(passing)
        done = Event(None, passing)
        return [
            Buffer(device, type_, space, Memory(device, handle), done) for type_, handle in zip(self._types, results)
        ], done

    def _put(self, addresses: Sequence[int], arena: int) -> Passing:
        if self._program is None or self._issue is None:
            return self._put_by_python(addresses, arena)
        if self._calls_before_graph >= 0:
            self._calls_before_graph -= 1
            if self._calls_before_graph < 0:
                self._make_graph(self._program, addresses, arena)
        passing = Passing(self._marks, self._lanes.next_turn(), number := self._marks.event())
        status = self._issue(number, *addresses, arena)
        if status and self._issue == self._program.replay and not self._program.is_put(status):
            # Nothing is on the stream, and what is in the graph now is not known.
            self._issue = self._program.run
            self._program.drop_graph()
            status = self._issue(number, *addresses, arena)
        self._checked(status)
        return passing

    def _make_graph(self, program: NativeProgram, addresses: Sequence[int], arena: int) -> None:
        """From the next launch on; a program whose graph the driver refuses is launched kernel by kernel."""

        def build() -> None:
            self._checked(program.build(*addresses, arena))

        with suppress(DriverError):
            self._lanes.site.pool.supplied(f"the graph of {self._name}", build)
            self._issue = program.replay

    def _put_by_python(self, addresses: Sequence[int], arena: int) -> Passing:
        """A library does a part of it."""
        driver = self._device.driver
        with driver.current:
            self._resident.put_at(addresses, arena, 0, _never)
            mark = driver.record(self._lanes.site.stream)
        return Passing(self._marks, self._lanes.next_turn(), self._native.number(mark), mark)

    def _checked(self, status: int) -> None:
        if status:
            raise self._resident.failed(self._native, status)


def _never() -> bool:
    return False


def starter(device: GpuDevice, lanes: Lanes, program: DeviceProgram) -> Starter | None:
    """The short way of a program, if it has one: what it launches is known, and when it has run, all is done."""
    assert isinstance(program.code, GpuProgram)
    native = lanes.site.native
    if native is None:
        return None
    with lanes.lock, device.driver.current:
        resident = program.code.on(lanes.site)
        return Starter(device, lanes, program, resident, native) if resident.is_short else None

"""``GpuDevice``: a GPU as a device of hlojit's, over any ``Driver``.

Programs run on one stream, transfers to and from the host on two others.  A program is put on its stream by the thread that
calls ``execute``; one about whose loops or branches the host decides, looking at what was computed, by a thread of the
device, and so is what comes after it meanwhile.  Another thread waits for the marks behind programs and completes events;
in the short way (``starts.py``) nobody does but who asks.

Handles are written by what is on the program stream, or what it waits for, and by nothing else: so the order of the stream
is the order that ``after`` asks for, and nothing waits for ``after`` itself.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, final

import numpy as np
from hlojit.extensions.devices.buffers import DEVICE_MEMORY, Buffer, MemorySpace, NDArray
from hlojit.extensions.devices.device import Device, DeviceProgram, ForeignMemory
from hlojit.extensions.devices.events import READY, Event, Queue, at_closing, without_frames
from hlojit.extensions.devices.holds import Given
from hlojit.extensions.devices.rendezvous import Participant
from hlojit.gpu.conditional_graphs import ConditionImages, reason_for_host
from hlojit.gpu.driver import ALIGNMENT, DeviceFault, Driver, Mark, Properties, Stream
from hlojit.gpu.memory import BorrowedMemory, DeviceMemory, Handle
from hlojit.gpu.program_runner import GpuProgram, Resident, Site
from hlojit.gpu.starts import Passing, Starter, Uploads, starter
from hlojit.gpu.statuses import Run
from hlojit.ir.current_process import process
from hlojit.ir.errors import ExecutionError
from hlojit.ir.types import TensorType

MOST_RECENT: Final = 256
"""Programs whose kernels a fault may name."""


@final
class Lanes:
    """What a device has once it is in use: streams, threads, locks; made anew in a child of fork."""

    def __init__(self, name: str, driver: Driver, condition_images: Callable[[], ConditionImages]):
        self.process = os.getpid()
        self.site: Final = Site(name, driver, condition_images)
        self.downloads: Final[Stream] = driver.stream("downloads")
        # Reentrant: the collector runs destructors and callbacks anywhere.
        self.lock: Final = threading.RLock()
        self.issuing: Final = Queue(f"{name} programs")
        self.completions: Final = Queue(f"{name} completions")
        self.arrivals: Final = Queue(f"{name} arrivals")
        self.runs: Final[dict[threading.Event, Run]] = {}
        """Runs whose end nobody has seen yet."""
        self.waiting: Final[set[threading.Event]] = set()
        """Programs (their ``asked``) that a thread is to put on the stream: what comes later must not overtake them."""
        self.uploaded: Uploads | None = None
        self.recent: Final[deque[Passing]] = deque(maxlen=MOST_RECENT)
        """Programs on the stream, by turns, of which nobody knows yet whether they went well."""
        self._turns = 0
        driver.name_faults(self._under_way)

    def _under_way(self) -> list[str]:
        """What was launched on the stream since it was last known to be well."""
        launched = [name for each in list(self.recent) for name in each.marks.launched]
        return launched + [name for run in list(self.runs.values()) for name in run.launched]

    def next_turn(self) -> int:
        """Of the next program of these; the caller holds the lock."""
        self._turns += 1
        return self._turns


@final
@dataclass(frozen=True, slots=True)
class _Call:
    """A program that is to be put on the stream."""

    resident: Resident
    run: Run
    arguments: Sequence[Handle]
    results: Sequence[Handle]
    done: Event
    asked: threading.Event
    """Set when nobody waits for it any more."""
    participant: Participant | None
    """The process, of a program that several devices run."""


@final
class GpuDevice(Device):
    """One GPU; see the module's docstring."""

    def __init__(self, backend: str, id: int, driver: Driver, condition_images: Callable[[], ConditionImages] = dict):
        """``condition_images`` gives those of ``hlojit.simt.conditions``, or none: then the host decides about loops."""
        found = driver.properties
        description = f"{found.kind}, {found.total_memory / 1e9:.1f} GB" + (f" ({found.note})" if found.note else "")
        description += f"; {_loops(found)}"
        super().__init__(backend, id, kind=found.kind, description=description, memory_spaces=(DEVICE_MEMORY,))
        self.driver: Final = driver
        self.condition_images: Final = condition_images
        self.dlpack_device = found.dlpack_device
        # Reentrant: a signal handler may use the device that is being opened.
        self._opening = threading.RLock()
        self._lanes: Lanes | None = None
        self._lost = ""
        self._is_closing = False

    @property
    def lost(self) -> str:
        """The fault that stopped the device for this process, or an empty string."""
        return self._lost

    # ------------------------------------------------------------------------------------------------- the contract

    def transfer_in(self, array: NDArray, type: TensorType, space: MemorySpace) -> tuple[DeviceMemory, Event]:
        """Upload beside the programs that run; what comes later on the program stream waits for it."""
        lanes = self._opened()
        with lanes.lock, self.driver.current:
            memory = lanes.site.pool.allocate(array.nbytes, f"arrays of {type}", lanes.site.uploads)
            try:
                return memory, self._upload(lanes, memory, array, type)
            except BaseException:
                lanes.site.follow(lanes.site.uploads)
                raise

    def _upload(self, lanes: Lanes, memory: DeviceMemory, array: NDArray, type: TensorType) -> Event:
        site = lanes.site
        if array.nbytes:
            upload = partial(self.driver.copy_in, memory.address, array, site.uploads)
            site.pool.supplied(f"a transfer of {type} to the device", upload)
        if lanes.uploaded is None and (native := site.native) is not None:
            lanes.uploaded = Uploads(self, lanes, native)
        if lanes.uploaded is not None:
            return lanes.uploaded.end()
        mark = self.driver.record(site.uploads)
        self.driver.wait_for(site.stream, mark)
        return self._arrival(lanes, mark)

    def transfer_out(self, handle: Handle, type: TensorType) -> NDArray:
        """Download; the contents are there, so nothing is waited for but the copy."""
        lanes = self._opened()
        array = np.empty(type.shape, type.element_type.storage)
        if array.nbytes:
            try:
                download = partial(self.driver.copy_out, array, handle.address, lanes.downloads)
                lanes.site.pool.supplied(f"a transfer of {type} to the host", download)
            except DeviceFault as fault:
                self.recover(lanes.downloads, fault)
                raise
            except BaseException:
                lanes.site.follow(lanes.downloads)
                raise
        return array

    def receive(
        self, handle: Handle, source: Device, type: TensorType, space: MemorySpace, ready: Event
    ) -> tuple[DeviceMemory, Event] | None:
        """Beside the programs of both, between what is on the streams already and what comes later."""
        if not isinstance(source, GpuDevice) or source.driver.__class__ is not self.driver.__class__:
            return None
        theirs, lanes = source._opened(), self._opened()
        if theirs.waiting or ready.error is not None:
            # A program that is not on the stream yet may be the one that fills it.
            ready.wait()
        filled = source.driver.record(theirs.site.stream)
        with lanes.lock, self.driver.current:
            uploads = lanes.site.uploads
            memory = lanes.site.pool.allocate(type.nbytes, f"arrays of {type}", uploads)
            try:
                self.driver.wait_for(uploads, filled)
                if type.nbytes:
                    self.driver.copy_from(source.driver, memory.address, handle.address, type.nbytes, uploads)
                mark = self.driver.record(uploads)
                self.driver.wait_for(lanes.site.stream, mark)
                source.driver.wait_for(theirs.site.stream, mark)
            except BaseException:
                lanes.site.follow(uploads)
                theirs.site.follow(uploads, self.driver)
                raise
        done = self._arrival(lanes, mark)
        done.then(partial(source._took_over, theirs))
        return memory, done

    def _took_over(self, lanes: Lanes, copied: Event) -> None:
        """A stream that waited for a copy which failed has met the fault as well."""
        if isinstance(copied.error, DeviceFault):
            self.recover(lanes.site.stream, copied.error)

    def reserve(self, type: TensorType, space: MemorySpace) -> DeviceMemory:
        """Memory without contents."""
        return self._opened().site.pool.allocate(type.nbytes, f"arrays of {type}")

    def execute(
        self, program: DeviceProgram, arguments: Sequence[Handle], after: Event
    ) -> tuple[Sequence[Handle], Event]:
        """Put the program on the stream, or have it put there."""
        return self._execute(program, arguments, after, None)

    def execute_among(
        self, program: DeviceProgram, arguments: Sequence[Handle], after: Event, participant: Participant
    ) -> tuple[Sequence[Handle], Event]:
        """The same: a program with collectives is put on the stream by the device's thread, which meets those of others."""
        return self._execute(program, arguments, after, participant)

    def _execute(
        self, program: DeviceProgram, arguments: Sequence[Handle], after: Event, participant: Participant | None
    ) -> tuple[Sequence[Handle], Event]:
        lanes, code = self._opened(), program.code
        assert isinstance(code, GpuProgram)
        if after.ready and after.error is not None:
            return [lanes.site.pool.allocate(0, "") for _ in program.outputs], after
        asked = threading.Event()
        done = Event(partial(self._stop, lanes, asked))
        try:
            with lanes.lock, self.driver.current:
                resident = code.on(lanes.site)
                results = _results(program, code, arguments, lanes.site)
                call = _Call(resident, resident.new_run(), tuple(arguments), results, done, asked, participant)
                is_on_stream = not resident.reads_back and not lanes.waiting and self._put(lanes, call, may_wait=False)
                if not is_on_stream:
                    lanes.waiting.add(asked)
                    lanes.issuing.submit(partial(self._issue, lanes, call))
        except BaseException:
            # It may be on the stream, or with the thread that puts it there: nobody waits for it.
            lanes.waiting.discard(asked)
            self._stop(lanes, asked)
            raise
        return results, done

    def start(self, program: DeviceProgram, buffers: Sequence[Buffer]) -> tuple[list[Buffer], Event]:
        """In the short way where there is one."""
        lanes = self._lanes
        if lanes is None or lanes.process != process.id or self._lost:
            return super().start(program, buffers)
        code = program.code
        assert isinstance(code, GpuProgram)
        found: Starter | None = code.starters.get(lanes)
        # Not in a handler of KeyError: what is raised meanwhile would keep this frame, and the results in it.
        if found is None and lanes not in code.starters:
            found = code.starters[lanes] = starter(self, lanes, program)
        started = None if found is None else found.start(buffers)
        if started is None:
            return super().start(program, buffers)
        return self.start_given(program, started) if isinstance(started, Given) else started

    # ------------------------------------------------------------------------------------------- with other libraries

    def lend(self, handle: Handle) -> int:
        """The address; our own memory is used again behind what others have put on their streams."""
        if type(handle) is DeviceMemory:
            handle.lend()
        return handle.address

    def foreign_queue(self) -> int:
        """The stream for programs."""
        return self.driver.number(self._opened().site.stream)

    def borrow(self, memory: ForeignMemory, type: TensorType) -> tuple[Handle, Event]:
        """As it is where kernels can read it; a copy where it begins elsewhere than they expect."""
        lanes, driver = self._opened(), self.driver
        stream = lanes.site.stream
        with lanes.lock:
            if memory.queue is not None:
                driver.wait_for(stream, driver.record(driver.foreign_stream(memory.queue)))
            if memory.address % ALIGNMENT == 0:
                return BorrowedMemory(memory.address, type.nbytes, memory.owner), READY
            copy = lanes.site.pool.allocate(type.nbytes, f"arrays of {type}")
            if type.nbytes:
                driver.copy(copy.address, memory.address, type.nbytes, stream)
            done = self._arrival(lanes, driver.record(stream))
        kept = [memory]
        done.then(lambda _: kept.clear())
        return copy, done

    # ------------------------------------------------------------------------------------------------------ its parts

    def _opened(self) -> Lanes:
        lanes = self._lanes
        if lanes is None or lanes.process != os.getpid():
            lanes = self._open()
        if self._lost:
            raise ExecutionError(f"{self} was stopped by a fault and needs a new process: {self._lost}")
        return lanes

    def _open(self) -> Lanes:
        if self._lanes is not None and self._lanes.process != os.getpid():
            # The lock may be held by a thread that does not exist in the child.
            self._opening = threading.RLock()
        with self._opening:
            if self._lanes is None or self._lanes.process != os.getpid():
                if self._lanes is None:
                    at_closing(self._close)
                self.driver.open()
                made = Lanes(str(self), self.driver, self.condition_images)
                if self._lanes is None or self._lanes.process != made.process:
                    self._lanes = made
            return self._lanes

    def _close(self) -> None:
        """The interpreter ends: what does not end by itself is stopped."""
        self._is_closing = True
        lanes = self._lanes
        if lanes is not None and lanes.process == os.getpid():
            for run in list(lanes.runs.values()):
                run.stop()

    def _stop(self, lanes: Lanes, asked: threading.Event) -> None:
        """Somebody does not wait for a run any more: its loops and functions that do not end are ended."""
        asked.set()
        run = lanes.runs.get(asked)
        if run is not None and lanes.process == os.getpid():
            run.stop()

    def _issue(self, lanes: Lanes, call: _Call) -> None:
        """On the device's thread: put a program on the stream."""
        try:
            self._put(lanes, call, may_wait=True)
        except BaseException as error:
            self._fail(call.done, error, (lanes.site.stream,))
            # What was put there before may have met a fault, or may have taken over another GPU's.
            reached = partial(self.driver.synchronize, self.driver.record(lanes.site.stream))
            lanes.completions.submit(partial(self._settle, Event(), reached, (lanes.site.stream,)))
        finally:
            with lanes.lock:
                lanes.waiting.discard(call.asked)

    def _put(self, lanes: Lanes, call: _Call, *, may_wait: bool) -> bool:
        """Put a program on the stream, and complete the event when the stream has done it.

        False: it may not wait, but would have to look at what was computed; nothing has been put there.
        """
        driver, stream, asked = self.driver, lanes.site.stream, call.asked
        since = driver.record(stream) if driver.properties.recovers else None
        # From here on it is told to stop: what does not end may be a kernel whose results the host waits for below.
        lanes.runs[asked] = call.run
        try:
            if asked.is_set():
                call.run.stop()
            is_on_stream = call.resident.put(
                call.run,
                call.arguments,
                call.results,
                lambda: self._is_closing or asked.is_set(),
                call.participant,
                may_wait=may_wait,
            )
            if is_on_stream:
                lanes.completions.submit(partial(self._await, lanes, (since, driver.record(stream)), call))
            else:
                del lanes.runs[asked]
        except BaseException:
            # A part of it may be on the stream, and nobody waits for that.
            with suppress(Exception):
                call.run.stop()
            lanes.runs.pop(asked, None)
            raise
        return is_on_stream

    def _await(self, lanes: Lanes, marks: tuple[Mark | None, Mark], call: _Call) -> None:
        """On the device's thread: wait for a program, which lies between two marks."""
        since, mark = marks

        def wait() -> None:
            self.driver.synchronize(mark, since)
            call.run.check(lanes.downloads)

        self._settle(call.done, wait, (lanes.site.stream,))
        lanes.runs.pop(call.asked, None)

    def _settle(self, done: Event, wait: Callable[[], None], streams: Sequence[Stream]) -> None:
        """Complete an event when something has been waited for; of a fault, recover the streams that met it."""
        try:
            wait()
        except BaseException as error:
            self._fail(done, error, streams)
        else:
            done.complete()

    def _fail(self, done: Event, error: BaseException, streams: Sequence[Stream]) -> None:
        # First: what is given a result must know that it failed before anything runs again.
        done.complete(without_frames(error))
        if isinstance(error, DeviceFault):
            for stream in streams:
                self.recover(stream, error)

    def _arrival(self, lanes: Lanes, mark: Mark) -> Event:
        """The event that a transfer has ended, which the program stream waits for, too."""
        done, streams = Event(), (lanes.site.uploads, lanes.site.stream)
        lanes.arrivals.submit(partial(self._settle, done, partial(self.driver.synchronize, mark), streams))
        return done

    def recover(self, stream: Stream, fault: DeviceFault) -> None:
        """Go on after a fault, or know that the device does not."""
        if not self.driver.recover(stream, fault):
            self._lost = self._lost or str(fault)


def _results(program: DeviceProgram, code: GpuProgram, arguments: Sequence[Handle], site: Site) -> list[Handle]:
    """Memory for the results: new, or that of an argument which the program was given."""
    givers = {output: number for number, output in code.compiled.donated if output >= 0}
    return [
        arguments[givers[number]]
        if number in givers
        else site.result(type.nbytes, f"results of {program.name} ({type})")
        for number, type in enumerate(program.outputs)
    ]


def _loops(properties: Properties) -> str:
    """Who decides what loops and branches do next, for ``Device.description``."""
    reason = reason_for_host(properties)
    return f"loops and branches: by the host ({reason})" if reason else "loops and branches: on the device"

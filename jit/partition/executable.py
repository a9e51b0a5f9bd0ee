"""Executables of programs for several back ends.

executable = hlojit.compile(text, backend=["nova", "cpu"])
y = executable(x)                      # like any other
print(executable.placement())          # which instruction runs where, and why
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn, final

import numpy as np
from hlojit.arrays import Array, NDArray, from_storage
from hlojit.device_call import checked_argument, has_device_array, refuse_keywords
from hlojit.executable import ExecutableSpec
from hlojit.extensions import Buffer, Device, Queue
from hlojit.extensions.devices.buffers import PromisedMemory
from hlojit.extensions.devices.device import MAXIMUM_IN_FLIGHT, is_one_of
from hlojit.extensions.devices.events import Event, without_frames
from hlojit.extensions.devices.host_device import HostDevice
from hlojit.extensions.devices.pending import Pending
from hlojit.foreign_arrays import borrowed
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.types import TensorType
from hlojit.partition.execution import Contents, Execution, copied
from hlojit.partition.explanation import Explanation
from hlojit.partition.plan import Plan, Segment
from hlojit.partition.table import Placement


@final
class PartitionedExecutable:
    """A program whose parts run on several devices, callable with arrays like an ``Executable``.

    Arguments may lie on the host and on any of the devices; each is moved where it is read.  Results of calls with arrays on a
    device, and those of ``execute``, stay where they were made.
    """

    dynamic_shapes: Final = "static"

    def __init__(self, plan: Plan, explanation: Explanation):
        self.plan: Final = plan
        self._explanation: Final = explanation
        self._constants: Final = {
            slot: Contents(dense.type, np.ascontiguousarray(dense.array).reshape(dense.type.shape))
            for slot, dense in plan.constants.items()
        }
        self._devices: Final = tuple(place.device for place in plan.places)
        self._readers: Final = _first_readers(plan)
        self._queue: Final = Queue(f"{plan.name} over {', '.join(map(str, self._devices))}")
        self._pending: Final = Pending(MAXIMUM_IN_FLIGHT)
        self.spec: Final = ExecutableSpec(plan.name, entry=0, inputs=plan.inputs, outputs=plan.outputs, record=plan)
        for segment in plan.segments:
            _name_place(segment)

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        """Run and wait: results on devices if an argument is on one, otherwise on the host."""
        refuse_keywords(self.plan.name, self.plan.inputs, keywords)
        given = self._checked(arguments)
        execution = Execution(self.plan, self._slots(given))
        try:
            results = execution.run()
            self._give(given)
            execution.wait()
            outside = self._on_devices(results) if has_device_array(arguments) else self._on_host(results)
        except BaseException:
            execution.stop()
            raise
        return outside[0] if len(outside) == 1 else tuple(outside)

    @property
    def call(self) -> Any:
        """The same callable."""
        return self.__call__

    def execute(self, *arguments: object, device: Device | str | None = None) -> Any:
        """Start the program and return at once: arrays on the devices that make them, whose contents are pending.

        Arguments on the host have been read when this returns.  What goes wrong while it runs is raised where a result is waited
        for or read.
        """
        if device is not None:
            raise ArgumentError(
                f"{self.plan.name} runs on {', '.join(map(str, self._devices))}, as its placement says; it is not moved to "
                f"{device} by execute"
            )
        given = self._checked(arguments)
        slots = self._slots(given)
        for number, each in enumerate(given):
            contents = slots[number]
            if not isinstance(each, Buffer) and contents is not None:
                # The caller may overwrite its array as soon as this returns.
                contents.buffers = {}
                contents.on(self._readers.get(number, self._devices[-1]), own=True)
                contents.host = None
        promised = [
            Buffer(place.device, type_, place.device.memory_spaces[0], PromisedMemory(place.device), Event())
            for place, type_ in zip(self.plan.result_places, self.plan.outputs)
        ]
        memories = [each.memory() for each in promised]
        events = [each.ready for each in promised]
        self._pending.wait_for_room()
        end = self._queue.submit(lambda: self._fulfil(given, slots, memories, events))
        self._pending.add(end)
        end.then(self._pending.remove)
        arrays = list(map(Array.from_buffer, promised))
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    def placement(self) -> Placement:
        """Which instruction runs on which device, why, what is moved for it, and how long segments took, as a table."""
        return self._explanation.placement()

    def as_text(self) -> str:
        """The programs of all segments as StableHLO text, each behind a line that says where it runs."""
        return "\n".join(f"// {each.place}, segment {each.number}\n{each.module}" for each in self.plan.segments)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Where parts of the program may run."""
        return self._devices

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The parts, in the order in which they were cut out."""
        return tuple(self.plan.segments)

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        """Types of the arguments."""
        return self.plan.inputs

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """Types of the results."""
        return self.plan.outputs

    def save(self, path: str | os.PathLike[str]) -> NoReturn:
        """Refused: a file holds a program of one back end."""
        self.compiled_program()

    def compiled_program(self) -> NoReturn:
        """Refused, as ``save`` is."""
        if len(self._devices) == 1:
            (device,) = self._devices
            raise HlojitError(
                f"{self.plan.name} is compiled for the device {device} and cannot be saved: a file holds a program for "
                f"all devices of a back end; compile it with backend={device.backend!r}"
            )
        raise HlojitError(
            f"{self.plan.name} is compiled for {', '.join(map(str, self._devices))} and cannot be saved: a file holds a "
            "program of one back end; save the text and compile it again (segments of back ends with a cache are found there)"
        )

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, types)) for types in (self.plan.inputs, self.plan.outputs))
        where = ", ".join(map(str, self._devices))
        return f"<PartitionedExecutable {self.plan.name} on {where}: ({inputs}) -> ({outputs})>"

    # --------------------------------------------------------------------------------------------------- arguments

    def _checked(self, arguments: Sequence[object]) -> list[Buffer | NDArray]:
        name, types = self.plan.name, self.plan.inputs
        if len(arguments) != len(types):
            expected = len(types)
            raise ArgumentError(
                f"{name} takes {expected} argument{'s' if expected != 1 else ''}, not {len(arguments)}: "
                f"({', '.join(map(str, types))})"
            )
        given = []
        for number, (argument, type_) in enumerate(zip(arguments, types)):
            here = borrowed(argument, self._devices, f"{name}, argument {number}")
            each = checked_argument(here, type_, name, number)
            if isinstance(each, Buffer) and not is_one_of(each.device, self._devices):
                known = ", ".join(map(str, self._devices))
                raise ArgumentError(
                    f"{name}: argument {number} is on {each.device}, the program is compiled for {known}; "
                    f"move it with hlojit.put(array, {str(self._devices[0])!r})"
                )
            given.append(each)
        counts = Counter(map(id, given))
        for number in self.plan.donated:
            if isinstance(given[number], Buffer) and counts[id(given[number])] > 1:
                raise ArgumentError(f"{name}, argument {number} is donated and given as another argument, too")
        return given

    def _slots(self, given: Sequence[Buffer | NDArray]) -> list[Contents | None]:
        slots: list[Contents | None] = [None] * self.plan.slots
        for number, (each, type_) in enumerate(zip(given, self.plan.inputs)):
            slots[number] = (
                Contents(type_, buffer=each) if isinstance(each, Buffer) else Contents(type_, _read_only(each))
            )
        for slot, constant in self._constants.items():
            slots[slot] = constant
        return slots

    def _give(self, given: Sequence[Buffer | NDArray]) -> None:
        """Take the arguments from the caller that are donated, and that no segment has taken."""
        for number in self.plan.donated:
            each = given[number]
            if isinstance(each, Buffer) and not each.is_deleted:
                each.give(self.plan.name)

    # ----------------------------------------------------------------------------------------------------- results

    def _on_host(self, results: Sequence[Contents]) -> list[Any]:
        made: list[Any] = []
        seen: set[int] = set()
        for each, type_ in zip(results, self.plan.outputs):
            made.append(from_storage(_taken(each) if each.is_result and id(each) not in seen else _copy(each), type_))
            seen.add(id(each))
        return made

    def _on_devices(self, results: Sequence[Contents]) -> list[Array]:
        return [Array.from_buffer(each) for each in self._buffers(results)]

    def _buffers(self, results: Sequence[Contents]) -> list[Buffer]:
        """The results where the plan says, each in a buffer of its own."""
        made, seen = [], set()
        for each, place in zip(results, self.plan.result_places):
            is_own = each.is_result and id(each) not in seen
            made.append(each.on(place.device) if is_own else copied(each, place.device))
            seen.add(id(each))
        return made

    def _fulfil(
        self,
        given: Sequence[Buffer | NDArray],
        slots: list[Contents | None],
        memories: Sequence[Any],
        events: Sequence[Event],
    ) -> None:
        """On the executable's own thread: run, and keep what was promised."""
        execution = Execution(self.plan, slots)
        try:
            results = execution.run()
            self._give(given)
            buffers = self._buffers(results)
        except BaseException as error:
            found = without_frames(error)
            for memory, event in zip(memories, events):
                memory.fail(found)
                event.settle(found)
            return
        for memory, event, buffer in zip(memories, events, buffers):
            memory.keep(buffer.memory())
            ended = Event.all([execution.last_effect, buffer.ready])
            ended.then(lambda done, event=event: event.settle(done.error))  # type: ignore[misc]


def _taken(contents: Contents) -> NDArray:
    """The elements of a result that nobody else wants; waits."""
    buffer = next(iter(contents.buffers.values()))
    if not isinstance(buffer.device, HostDevice):
        return buffer.to_host()
    buffer.ready.wait()
    found: NDArray = buffer.memory().handle.array
    return found


def _copy(contents: Contents) -> NDArray:
    return contents.on_host().copy()


def _read_only(array: NDArray) -> NDArray:
    view = array.view()
    view.flags.writeable = False
    return view


def _first_readers(plan: Plan) -> dict[int, Device]:
    """By slots, the device of the first segment that reads them."""
    found: dict[int, Device] = {}
    for segment in reversed(plan.segments):
        found.update(dict.fromkeys(segment.inputs, segment.place.device))
    return found


def _name_place(segment: Segment) -> None:
    """Have errors say where in the program the segment begins."""
    call = segment.executable.device_call
    first, count = segment.instructions[0], len(segment.instructions)
    others = f" and {count - 1} more" if count > 1 else ""
    call.program = replace(call.program, name=f"{call.program.name} ({first.op.name} at {first.location}{others})")

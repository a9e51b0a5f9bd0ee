"""One run of a plan: begins segments in their order, moves values where they are wanted, once each, and waits only where it must.

Devices run what they are given on queues of their own; what this thread does is begin it.  It waits where a value has to be
moved, where the host looks at a condition, and before something with an effect that must come behind another one's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
from hlojit.arrays import NDArray
from hlojit.extensions import Buffer, Device, Timing, profiling
from hlojit.extensions.devices.events import READY, Event
from hlojit.extensions.devices.host_device import HostDevice
from hlojit.ir.types import TensorType
from hlojit.partition.plan import BlockPlan, Branch, Loop, Plan, Segment


@final
class Contents:
    """A value: buffers on the devices where it is, or an array of the host's that nobody writes to meanwhile."""

    __slots__ = ("buffers", "host", "is_result", "type")

    def __init__(
        self, type_: TensorType, host: NDArray | None = None, buffer: Buffer | None = None, *, is_result: bool = False
    ):
        self.type = type_
        self.host = host
        self.buffers: dict[int, Buffer] = {} if buffer is None else {id(buffer.device): buffer}
        """By devices' identity, which holds as long as the buffers do: a vendor's devices may be equal to each other."""
        self.is_result = is_result
        """Whether a segment has made it for this run alone."""

    def on(self, device: Device, *, own: bool = False) -> Buffer:
        """On a device, moved there if it is not yet; ``own``: in memory that the device's program may write."""
        found = self.buffers.get(id(device))
        if found is None:
            found = self.buffers[id(device)] = self._moved(device, own=own)
        return found

    def on_host(self) -> NDArray:
        """Where the host can read it; waits."""
        if self.host is None:
            buffer = next(iter(self.buffers.values()))
            view = buffer.host_view()
            return buffer.to_host() if view is None else view
        return self.host

    def _moved(self, device: Device, *, own: bool) -> Buffer:
        if self.host is not None:
            if isinstance(device, HostDevice) and not own:
                return device.adopt(self.host, self.type)
            return device.put(self.host, self.type)
        source = next(iter(self.buffers.values()))
        return (
            device.adopt(source.to_host(), self.type) if isinstance(device, HostDevice) else device.put_buffer(source)
        )


@final
class Execution:
    """A run of a plan; ``slots`` are the values, by their numbers."""

    def __init__(self, plan: Plan, slots: list[Contents | None]):
        self._plan: Final = plan
        self.slots: Final = slots
        self.last_effect: Event = READY
        """The end of the last segment with effects; each begins behind the one before."""
        self._pending: list[Event] = []
        self._profile: Final = profiling()

    def run(self) -> list[Contents]:
        """Begin everything, and return the results, which may still be pending."""
        try:
            return self._block(self._plan.body)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ask that what was begun ends early."""
        for each in self._pending:
            each.stop()

    def wait(self) -> None:
        """Wait for all that was begun: what has effects, and what reads arrays of the caller's."""
        for each in self._pending:
            each.wait()

    def _block(self, plan: BlockPlan) -> list[Contents]:
        for step, drops in zip(plan.steps, plan.drops):
            if isinstance(step, Segment):
                self._segment(step)
            elif isinstance(step, Loop):
                self._loop(step)
            else:
                self._branch(step)
            for slot in drops:
                self.slots[slot] = None
        return [self._at(slot) for slot in plan.returned]

    def _at(self, slot: int) -> Contents:
        found = self.slots[slot]
        assert found is not None, f"slot {slot} is empty"
        return found

    def _segment(self, segment: Segment) -> None:
        device, call = segment.place.device, segment.executable.device_call
        program = call.program
        buffers = [
            self._at(slot).on(device, own=number in program.donated) for number, slot in enumerate(segment.inputs)
        ]
        if segment.has_effect:
            self.last_effect.wait()
        begin = time.perf_counter_ns()
        if segment.runs_here and isinstance(device, HostDevice) and not program.donated:
            results = call.run_here(device, buffers)
            self._measured(segment, float(time.perf_counter_ns() - begin))
        else:
            results, done = device.start(program, buffers)
            self._watch(segment, done, begin)
        for slot, buffer in zip(segment.outputs, results):
            self.slots[slot] = Contents(buffer.type, buffer=buffer, is_result=True)

    def _watch(self, segment: Segment, done: Event, begin: int) -> None:
        def ended(event: Event) -> None:
            if event.error is None:
                stated = event.nanoseconds
                self._measured(segment, float(time.perf_counter_ns() - begin) if stated is None else stated)

        if segment.has_effect:
            self.last_effect = done
        if not done.is_settled:
            self._pending = [each for each in self._pending if not each.is_settled]
            self._pending.append(done)
        done.then(ended)

    def _measured(self, segment: Segment, nanoseconds: float) -> None:
        segment.measured = nanoseconds
        if self._profile is not None:
            what, first = f"segment {segment.number} of {self._plan.name}", segment.instructions[0]
            self._profile.add(Timing(str(segment.place), what, str(first.location), nanoseconds))

    def _loop(self, loop: Loop) -> None:
        state: list[Contents] = [self._at(slot) for slot in loop.initial]
        while True:
            self._fill(loop.condition_arguments, state)
            (going,) = self._block(loop.condition)
            self._empty(loop.condition_arguments)
            if not bool(going.on_host()):
                break
            self._fill(loop.body_arguments, state)
            # From here on values of the state live as long as the body reads them.
            del state
            state = self._block(loop.body)
            self._empty(loop.body_arguments)
        self._fill(loop.outputs, state)

    def _branch(self, branch: Branch) -> None:
        index = self._at(branch.index).on_host()
        if index.dtype == np.bool_:
            number = 0 if bool(index) else 1
        else:
            number = int(index) if 0 <= int(index) < len(branch.regions) else len(branch.regions) - 1
        self._fill(branch.outputs, self._block(branch.regions[number]))

    def _fill(self, slots: Sequence[int], contents: Sequence[Contents]) -> None:
        for slot, each in zip(slots, contents):
            self.slots[slot] = each

    def _empty(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.slots[slot] = None


def copied(contents: Contents, device: Device) -> Buffer:
    """A buffer on a device that nobody else has."""
    array: Any = contents.on_host()
    return device.put(array, contents.type)

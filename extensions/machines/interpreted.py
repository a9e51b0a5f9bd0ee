"""A device in Python alone: a machine that keeps arrays and computes one instruction at a time, and a back end around it.

    class Abacus(Machine):
        def put(self, array, type, layout): return self.memory.store(layout.pack(array))
        def get(self, memory, type, layout): return layout.unpack(self.memory.load(memory), type.shape)
        def evaluate(self, instruction, operands, layouts): ...

    class AbacusBackend(InterpretedBackend):
        name = "abacus"
        def machines(self): return [Abacus(), Abacus()]
        def capability(self, instruction): ...

The back end makes a schedule of each program; its devices follow it on threads of their own, in the order of the calls: they
ask the machine for one instruction after the other, run loops and branches, give back what nothing reads any more, and tell
how long it took.  Layouts are changed where the machine wants others than it finds (``hlojit.extensions.backends.layouts``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, final

import numpy as np
from hlojit.extensions.backends.backend import Backend, CompileOptions
from hlojit.extensions.backends.layouts import ROW_MAJOR
from hlojit.extensions.devices.buffers import DEVICE_MEMORY, MemorySpace
from hlojit.extensions.devices.device import Device, DeviceProgram
from hlojit.extensions.devices.events import Event, Queue
from hlojit.extensions.machines.blas_threads import BLAS
from hlojit.extensions.machines.interpreted_run import Box, Run
from hlojit.extensions.machines.interpreted_schedule import schedule
from hlojit.extensions.machines.machine import Machine, MachineKernel, held_of
from hlojit.extensions.machines.machine_checks import checked_machines, clock
from hlojit.extensions.origins import backend_text
from hlojit.ir.graph import Module
from hlojit.ir.in_flight import InFlight, Role
from hlojit.ir.types import TensorType
from hlojit.ir.vendor_places import place_of

NDArray = np.ndarray[Any, Any]

_making: Final = InFlight()
"""The devices of back ends that are being made: a vendor's ``machines`` may open what opens once."""


@final
class InterpretedDevice(Device):
    """A machine as a device: its programs run on a thread of its own, in order."""

    hlojit_runtime: ClassVar[bool] = True

    def __init__(self, backend: str, id: int, machine: Machine, memory: MemorySpace):
        super().__init__(backend, id, kind=type(machine).__name__, memory_spaces=(memory,))
        self.machine: Final = machine
        self._queue: Final = Queue(f"{backend}:{id}")

    def transfer_in(self, array: NDArray, type: TensorType, space: MemorySpace) -> tuple[Box, Event]:
        """By the machine's ``put``."""
        held = held_of(self.machine, self.machine.put(array, type, ROW_MAJOR), type, ROW_MAJOR)
        return Box(held), held.ready

    def transfer_out(self, handle: Box, type: TensorType) -> NDArray:
        """By the machine's ``get``."""
        return handle.read().read()

    def reserve(self, type: TensorType, space: MemorySpace) -> Box:
        """By the machine's ``empty``."""
        return Box(held_of(self.machine, self.machine.empty(type), type, ROW_MAJOR, "empty"))

    def execute(self, program: DeviceProgram, arguments: Sequence[Box], after: Event) -> tuple[list[Box], Event]:
        """Follow the schedule on the device's thread."""
        run = Run(self.machine, program.code, str(self))
        results, done, took = [Box() for _ in program.outputs], Event(run.stop), list[float]()

        def follow() -> None:
            begin = clock(self.machine)
            with BLAS.taken():
                found = run.of(arguments)
            for box, held in zip(results, found):
                box.held = held
            took.append(clock(self.machine) - begin)

        def ended(event: Event) -> None:
            done.nanoseconds = took[0] if took else None
            done.complete(event.error)

        self._queue.submit(follow, after).then(ended)
        return results, done


class InterpretedBackend(Backend):
    """A back end whose devices are machines; subclasses say ``name``, ``machines`` and ``capability``."""

    hlojit_runtime: ClassVar[tuple[str, ...]] = ("_host_devices", "_machines")
    kernel_forms: ClassVar[tuple[type[Any], ...]] = (MachineKernel,)
    memory: ClassVar[MemorySpace] = DEVICE_MEMORY
    """The kind of memory that the machines have."""

    @abstractmethod
    def machines(self) -> Sequence[Machine]:
        """The machines, asked for once."""

    def devices(self) -> Sequence[InterpretedDevice]:
        """A device for each machine."""
        found: Sequence[InterpretedDevice] | None
        while (found := self.__dict__.get("_machines")) is None:
            # By identity, as `_machines` is kept: equal back ends have machines of their own.
            with _making.turn(id(self)) as role:
                if role is not Role.AFTER and "_machines" not in self.__dict__:
                    self.__dict__.setdefault("_machines", self._made())
        devices: Sequence[InterpretedDevice] = found
        return devices

    def _made(self) -> Sequence[InterpretedDevice]:
        machines = checked_machines(self.machines(), backend_text(self.name), Machine, place_of(self.machines))
        return tuple(
            InterpretedDevice(self.name, number, machine, self.memory) for number, machine in enumerate(machines)
        )

    def compile(self, module: Module, options: CompileOptions) -> DeviceProgram:
        """A schedule: which instructions are evaluated, in which layouts, and what is given back behind each."""
        return DeviceProgram.of(module, schedule(module, self))

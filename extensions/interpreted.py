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
how long it took.  Layouts are changed where the machine wants others than it finds (``hlojit.extensions.layouts``).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

import numpy as np
from hlojit.extensions.backend import Backend, CompileOptions
from hlojit.extensions.buffers import DEVICE_MEMORY, MemorySpace
from hlojit.extensions.devices import Device, DeviceProgram
from hlojit.extensions.events import READY, Event, Queue
from hlojit.extensions.interpreted_schedule import Schedule, Step, schedule
from hlojit.extensions.kernels import kernel_answer
from hlojit.extensions.layouts import ROW_MAJOR, Layout
from hlojit.ir.current_process import process
from hlojit.ir.errors import ExecutionError, HlojitError, PluginError, repr_of
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.interpreter import evaluate_instruction
from hlojit.ir.types import TensorType

NDArray = np.ndarray[Any, Any]


@final
class Held:
    """A tensor in a machine's memory: what ``put`` or ``evaluate`` returned, its type, and how it lies there.

    Its contents do not change; the machine's ``free`` is called when nobody refers to it any more.
    """

    __slots__ = ("_machine", "_process", "layout", "memory", "type")

    def __init__(self, machine: Machine, memory: Any, type: TensorType, layout: Layout):
        self._machine = machine
        self._process = process.id
        self.memory = memory
        self.type = type
        self.layout = layout

    def __del__(self) -> None:
        # What a parent process made is the parent's to free.
        if hasattr(self, "type") and self._process == process.id:
            self._machine.free(self.memory)


class Machine(ABC):
    """What a vendor writes: memory, and the evaluation of one instruction.  One thread uses a machine for programs; ``put`` and
    ``get`` may be called by others meanwhile.

    Memory is whatever the vendor likes: an array, an address, an object of a driver.
    """

    @abstractmethod
    def put(self, array: NDArray, type: TensorType, layout: Layout) -> Any:
        """Copy an array of the type's storage dtype into the machine's memory, to lie there in a layout."""

    @abstractmethod
    def get(self, memory: Any, type: TensorType, layout: Layout) -> NDArray:
        """The elements of a memory as a new array of the type's storage dtype, row-major."""

    @abstractmethod
    def evaluate(self, instruction: Instruction, operands: Sequence[Held], layouts: Sequence[Layout]) -> Sequence[Any]:
        """Compute one instruction, or one fusion; returns a new memory for each result, in these layouts.

        ``operands`` lie in the layouts that ``preferred_layouts`` asked for, or alike where the op is elementwise.
        """

    def empty(self, type: TensorType) -> Any:
        """A memory without contents; by default zeros are put."""
        return self.put(np.zeros(type.shape, type.element_type.storage), type, ROW_MAJOR)

    def free(self, memory: Any) -> None:  # noqa: B027  a machine whose memory Python frees needs nothing here
        """Give a memory back: nobody refers to it."""

    def convert(self, held: Held, layout: Layout) -> Any:
        """A memory with the same tensor in another layout; by default through the host."""
        return self.put(self.get(held.memory, held.type, held.layout), held.type, layout)

    def relabelled(self, held: Held, type: TensorType, layout: Layout) -> Any:
        """A memory with a transposed tensor that lies as the one it is the transpose of; by default a copy."""
        return self.put(
            layout.unpack(held.layout.pack(self.get(held.memory, held.type, held.layout)), type.shape), type, layout
        )

    def by_reference(
        self,
        instruction: Instruction,
        operands: Sequence[Held],
        layouts: Sequence[Layout],
        captured: Mapping[Value, Held] | None = None,
    ) -> list[Any]:
        """What ``evaluate`` returns, computed by the op's reference semantics on the host."""
        arrays = [self.get(each.memory, each.type, each.layout) for each in operands]
        outside = {value: self.get(each.memory, each.type, each.layout) for value, each in (captured or {}).items()}
        results = evaluate_instruction(instruction, arrays, captured=outside)
        types = [result.tensor_type for result in instruction.results]
        return [self.put(each, type_, layout) for each, type_, layout in zip(results, types, layouts)]

    def nanoseconds(self) -> float:
        """The machine's clock; by default the host's.  Differences of it are how long programs took (``Event.nanoseconds``)."""
        return float(time.perf_counter_ns())


@dataclass(frozen=True)
class MachineKernel:
    """A form in which a kernel (``hlojit_kernels``) answers on such a back end.

    ``function(machine, *operands)`` takes tensors that are ``Held``, row-major, and returns a new memory for each result.
    """

    function: Callable[..., Any]


@final
class Box:
    """A handle: empty until the program that makes it has run."""

    __slots__ = ("held",)

    def __init__(self, held: Held | None = None):
        self.held = held

    def read(self) -> Held:
        """What is in it."""
        if self.held is None:
            raise ExecutionError("the value has not been made")
        return self.held


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
        return Box(Held(self.machine, self.machine.put(array, type, ROW_MAJOR), type, ROW_MAJOR)), READY

    def transfer_out(self, handle: Box, type: TensorType) -> NDArray:
        """By the machine's ``get``."""
        held = handle.read()
        return self.machine.get(held.memory, held.type, held.layout)

    def reserve(self, type: TensorType, space: MemorySpace) -> Box:
        """By the machine's ``empty``."""
        return Box(Held(self.machine, self.machine.empty(type), type, ROW_MAJOR))

    def execute(self, program: DeviceProgram, arguments: Sequence[Box], after: Event) -> tuple[list[Box], Event]:
        """Follow the schedule on the device's thread."""
        results, done, took = [Box() for _ in program.outputs], Event(), list[float]()

        def run() -> None:
            begin = self.machine.nanoseconds()
            for box, held in zip(results, _Run(self.machine, program.code).of(arguments)):
                box.held = held
            took.append(self.machine.nanoseconds() - begin)

        def ended(event: Event) -> None:
            done.nanoseconds = took[0] if took else None
            done.complete(event.error)

        self._queue.submit(run, after).then(ended)
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
        found: Sequence[InterpretedDevice] | None = self.__dict__.get("_machines")
        if found is None:
            made = tuple(
                InterpretedDevice(self.name, number, machine, self.memory)
                for number, machine in enumerate(self.machines())
            )
            found = self.__dict__.setdefault("_machines", made)
        return found

    def compile(self, module: Module, options: CompileOptions) -> DeviceProgram:
        """A schedule: which instructions are evaluated, in which layouts, and what is given back behind each."""
        return DeviceProgram.of(module, schedule(module, self))


@final
class _Run:
    """One run of a schedule on a machine."""

    def __init__(self, machine: Machine, code: Schedule):
        self._machine = machine
        self._code = code
        self._values: list[Held | None] = [None] * code.slots
        self._converted: dict[int, dict[Layout, Held]] = {}
        """By slots, in other layouts than their own."""

    def of(self, arguments: Sequence[Box]) -> list[Held]:
        for slot, box, layout in zip(self._code.arguments, arguments, self._code.layouts):
            # In the layout that the program wants from now on: the next one that is given it finds it so.
            box.held = self._values[slot] = self._in(box.read(), layout)
        for slot, held in self._constants():
            self._values[slot] = held
        return self._block(self._code.body)

    def _block(self, block: tuple[Sequence[Step], Sequence[int]]) -> list[Held]:
        steps, returned = block
        for step in steps:
            for slot, held in zip(step.results, self._step(step)):
                self._values[slot] = held
                self._converted.pop(slot, None)
            for slot in step.drops:
                self._values[slot] = None
                self._converted.pop(slot, None)
        return [self._at(slot) for slot in returned]

    def _step(self, step: Step) -> Sequence[Held]:
        if step.regions:
            return self._loop(step) if step.instruction.op.host_role == "loop" else self._branch(step)
        operands = [self._wanted(slot, layout) for slot, layout in zip(step.operands, step.wanted)]
        types = [result.tensor_type for result in step.instruction.results]
        if step.is_alias:
            return operands
        if step.is_relabelled:
            made: Any = [self._called(step, self._machine.relabelled, operands[0], types[0], step.made[0])]
        elif step.captured:
            captured = {value: self._at(slot) for value, slot in step.captured}
            made = self._called(step, self._machine.by_reference, step.instruction, operands, step.made, captured)
        elif (kernel := kernel_answer(step.instruction)) is not None:
            made = self._called(step, kernel.answer.function, self._machine, *operands)
        else:
            made = self._called(step, self._machine.evaluate, step.instruction, operands, step.made)
        if not isinstance(made, (list, tuple)) or len(made) != len(types):
            raise PluginError(
                f"{step.instruction.name} at {step.instruction.location}: {type(self._machine).__name__} returned {made!r}, "
                f"not a list of {len(types)} memories"
            )
        # What a machine hands through is the operand, which is freed once.
        through = [next((held for held in operands if held.memory is each), None) for each in made]
        return [
            Held(self._machine, each, type_, layout) if held is None or held.layout != layout else held
            for each, held, type_, layout in zip(made, through, types, step.made)
        ]

    def _called(self, step: Step, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except HlojitError:
            raise
        except Exception as error:
            where = f"{step.instruction.name} at {step.instruction.location}"
            raise ExecutionError(f"{where}: {type(self._machine).__name__} raised {repr_of(error)}") from error

    def _loop(self, step: Step) -> list[Held]:
        state = [self._in(self._at(slot), ROW_MAJOR) for slot in step.operands]
        (conditions, condition), (arguments, body) = step.regions
        while True:
            self._fill(conditions, state)
            (going,) = self._block(condition)
            if not bool(self._machine.get(going.memory, going.type, going.layout)):
                return state
            self._fill(arguments, state)
            self._fill(conditions, ())
            del state
            state = [self._in(each, ROW_MAJOR) for each in self._block(body)]

    def _branch(self, step: Step) -> list[Held]:
        held = self._at(step.operands[0])
        index = self._machine.get(held.memory, held.type, held.layout)
        count = len(step.regions)
        if index.dtype == np.bool_:
            number = 0 if bool(index) else 1
        else:
            number = int(index) if 0 <= int(index) < count else count - 1
        _, block = step.regions[number]
        return [self._in(each, ROW_MAJOR) for each in self._block(block)]

    def _fill(self, slots: Sequence[int], values: Sequence[Held]) -> None:
        for number, slot in enumerate(slots):
            self._values[slot] = values[number] if values else None
            self._converted.pop(slot, None)

    def _at(self, slot: int) -> Held:
        found = self._values[slot]
        assert found is not None, f"slot {slot} is empty"
        return found

    def _in(self, held: Held, layout: Layout) -> Held:
        if held.layout == layout:
            return held
        return Held(self._machine, self._machine.convert(held, layout), held.type, layout)

    def _wanted(self, slot: int, layout: Layout) -> Held:
        """A value in a layout; converted once, as long as the value lives."""
        held = self._at(slot)
        if held.layout == layout:
            return held
        known = self._converted.setdefault(slot, {})
        if layout not in known:
            known[layout] = self._in(held, layout)
        return known[layout]

    def _constants(self) -> list[tuple[int, Held]]:
        """Put on the machine once."""
        found = self._code.kept.get(self._machine)
        if found is None:
            put = self._machine.put
            found = self._code.kept[self._machine] = [
                (slot, Held(self._machine, put(array, type_, layout), type_, layout))
                for slot, array, type_, layout in self._code.constants
            ]
        return found

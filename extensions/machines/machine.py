"""What a vendor writes of a device in Python alone: a machine, which has memory and evaluates one instruction at a time.

    class Abacus(Machine):
        def put(self, array, type, layout): return self.memory.store(layout.pack(array))
        def get(self, memory, type, layout): return layout.unpack(self.memory.load(memory), type.shape)
        def evaluate(self, instruction, operands, layouts): ...

Whoever has a command stream returns ``Started(memories, done)`` and does not wait.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from hlojit.extensions.backends.layouts import ROW_MAJOR, Layout
from hlojit.extensions.devices.events import READY, Event
from hlojit.extensions.devices.freeing import freed
from hlojit.extensions.machines.machine_checks import checked_array, memories_of
from hlojit.extensions.machines.started import Started
from hlojit.ir import unwritten
from hlojit.ir.current_process import process
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.interpreter import evaluate_instruction
from hlojit.ir.types import TensorType

NDArray = np.ndarray[Any, Any]


@final
class Held:
    """A tensor in a machine's memory: what ``put`` or ``evaluate`` returned, its type, and how it lies there.

    Its contents do not change; the machine's ``free`` is called when nobody refers to it any more.  ``ready`` is the event that
    they are written, of a machine that returns ``Started``: the machine has its commands run behind it, in whichever stream.
    """

    __slots__ = ("_machine", "_maker", "_process", "layout", "memory", "ready", "type")

    def __init__(
        self,
        machine: Machine,
        memory: Any,
        type: TensorType,
        layout: Layout,
        ready: Event = READY,
        maker: Instruction | None = None,
    ):
        self.ready = ready
        self._maker = maker
        self._machine = machine
        self._process = process.id
        self.memory = memory
        self.type = type
        self.layout = layout

    def __del__(self) -> None:
        # What a parent process made is the parent's to free.
        if hasattr(self, "type") and self._process == process.id:
            freed(self._machine, self.memory)

    def read(self) -> NDArray:
        """The elements on the host; waits until they are written."""
        self.ready.wait()
        array = self._machine.get(self.memory, self.type, self.layout)
        maker = self._maker
        origin = "" if maker is None else f", which was made for {maker.name} at {maker.location}"
        return checked_array(self._machine, array, self.type, origin)


class Machine(ABC):
    """What a vendor writes: memory, and the evaluation of one instruction.  One thread uses a machine for programs; ``put`` and
    ``get`` may be called by others meanwhile.

    Memory is whatever the vendor likes: an array, an address, an object of a driver.  ``put``, ``evaluate``, ``convert`` and
    ``relabelled`` may return before they have done it, with ``Started``; the others wait.
    """

    @abstractmethod
    def put(self, array: NDArray, type: TensorType, layout: Layout) -> Any:
        """Copy an array of the type's storage dtype into the machine's memory, to lie there in a layout."""

    @abstractmethod
    def get(self, memory: Any, type: TensorType, layout: Layout) -> NDArray:
        """The elements of a memory as a new array of the type's storage dtype, row-major."""

    @abstractmethod
    def evaluate(
        self, instruction: Instruction, operands: Sequence[Held], layouts: Sequence[Layout]
    ) -> Sequence[Any] | Started:
        """Compute one instruction, or one fusion; returns a new memory for each result, in these layouts.

        ``operands`` lie in the layouts that ``preferred_layouts`` asked for, or alike where the op is elementwise.
        """

    def empty(self, type: TensorType) -> Any:
        """A memory without contents; by default zeros are put."""
        return self.put(unwritten.zeros(type.shape, type.element_type.storage), type, ROW_MAJOR)

    def free(self, memory: Any) -> None:  # noqa: B027  a machine whose memory Python frees needs nothing here
        """Give a memory back: nobody refers to it."""

    def convert(self, held: Held, layout: Layout) -> Any:
        """A memory with the same tensor in another layout; by default through the host."""
        return self.put(held.read(), held.type, layout)

    def relabelled(self, held: Held, type: TensorType, layout: Layout) -> Any:
        """A memory with a transposed tensor that lies as the one it is the transpose of; by default a copy."""
        return self.put(layout.unpack(held.layout.pack(held.read()), type.shape), type, layout)

    def by_reference(
        self,
        instruction: Instruction,
        operands: Sequence[Held],
        layouts: Sequence[Layout],
        captured: Mapping[Value, Held] | None = None,
    ) -> Sequence[Any] | Started:
        """What ``evaluate`` returns, computed by the op's reference semantics on the host."""
        arrays = [each.read() for each in operands]
        outside = {value: each.read() for value, each in (captured or {}).items()}
        results = evaluate_instruction(instruction, arrays, captured=outside)
        types = [result.tensor_type for result in instruction.results]
        return _together([self.put(each, type_, layout) for each, type_, layout in zip(results, types, layouts)])

    def nanoseconds(self) -> float:
        """The machine's clock; by default the host's.  Differences of it are how long programs took (``Event.nanoseconds``)."""
        return float(time.perf_counter_ns())


def _together(made: Sequence[Any]) -> Sequence[Any] | Started:
    """What several calls of ``put`` returned, as one."""
    events = [each.done for each in made if isinstance(each, Started)]
    memories = [memory for each in made for memory in (each.memories if isinstance(each, Started) else (each,))]
    return Started(memories, Event.all(events)) if events else memories


@dataclass(frozen=True)
class MachineKernel:
    """A form in which a kernel (``hlojit_kernels``) answers on such a back end.

    ``function(machine, *operands)`` takes tensors that are ``Held``, row-major, and returns a new memory for each result.
    """

    function: Callable[..., Any]


def held_of(machine: Machine, made: Any, type: TensorType, layout: Layout, method: str = "put") -> Held:
    """A tensor of what a method of a machine returned for it: a memory, or ``Started`` with one."""
    (memory,) = memories_of(machine, made if isinstance(made, Started) else [made], [type], method)
    if not isinstance(made, Started):
        return Held(machine, memory, type, layout)
    return kept_until(made.done, Held(machine, memory, type, layout, made.done))


def kept_until(done: Event, held: Held, *others: Held) -> Held:
    """The first of tensors, none of which is given back before an event."""
    kept = [held, *others]
    done.then(lambda _: kept.clear())
    return held

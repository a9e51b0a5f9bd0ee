"""Devices for tests of placement: memory of their own, which no other device can read, and answers that a test chooses."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import hlojit
import numpy as np
from hlojit.extensions import (
    DECOMPOSE,
    READY,
    YES,
    Backend,
    Capability,
    CompileOptions,
    Device,
    DeviceProgram,
    Event,
    MemorySpace,
    Queue,
    can_decompose,
)
from hlojit.ir import Instruction, Module, TensorType, evaluate

NDArray = np.ndarray[Any, Any]
Answers = Callable[[Instruction], Capability]


@dataclass(eq=False)
class Cell:
    """Memory of one device: whoever reads that of another, or memory that was freed, is caught."""

    owner: Device
    array: NDArray | None = None
    freed: bool = False

    def read(self, device: Device) -> NDArray:
        """By a device."""
        assert self.owner is device, f"{device} reads the memory of {self.owner}"
        assert not self.freed, f"{device} reads memory that was freed"
        assert self.array is not None, f"{device} reads a value that is not there yet"
        return self.array


class OwnMemoryDevice(Device):
    """Runs programs by the reference interpreter on a thread of its own."""

    def __init__(self, backend: str, id: int = 0):
        super().__init__(backend, id, kind="test", memory_spaces=(MemorySpace("own"),))
        self.transfers_in = self.transfers_out = self.executions = 0
        self.before: Callable[[DeviceProgram], None] = lambda program: None
        self._queue = Queue(str(self))

    def transfer_in(self, array: NDArray, type: TensorType, space: MemorySpace) -> tuple[Cell, Event]:
        self.transfers_in += 1
        return Cell(self, array.copy()), READY

    def transfer_out(self, handle: Cell, type: TensorType) -> NDArray:
        self.transfers_out += 1
        return handle.read(self).copy()

    def free(self, handle: Cell) -> None:
        handle.freed = True
        handle.array = None

    def execute(self, program: DeviceProgram, arguments: Sequence[Cell], after: Event) -> tuple[list[Cell], Event]:
        cells = [Cell(self) for _ in program.outputs]

        def run() -> None:
            self.before(program)
            self.executions += 1
            results = evaluate(program.code, *[each.read(self) for each in arguments])
            for cell, result, type in zip(cells, results, program.outputs):
                cell.array = np.array(result).astype(type.element_type.storage)

        return cells, self._queue.submit(run, after)


class OwnMemoryBackend(Backend):
    """``answers`` decides what it takes; moving costs what ``transfer`` says."""

    def __init__(
        self, name: str, answers: Answers = lambda instruction: YES, *, devices: int = 1, transfer: float = 0.0
    ):
        self.name = name
        self.answers = answers
        self.transfer = transfer
        self._devices = [OwnMemoryDevice(name, number) for number in range(devices)]
        self.programs: list[str] = []

    def devices(self) -> Sequence[OwnMemoryDevice]:
        return self._devices

    def transfer_cost(self, nbytes: int) -> float:
        return self.transfer

    def capability(self, instruction: Instruction) -> Capability:
        return self.answers(instruction)

    def compile(self, module: Module, options: CompileOptions) -> Any:
        self.programs.append(str(module))
        return DeviceProgram.of(module, module)


def everything(cost: float) -> Answers:
    """Takes everything that needs no expansion, at one cost."""
    taken = Capability(YES.support, cost=cost)
    return lambda instruction: DECOMPOSE if can_decompose(instruction) else taken


def random_answers(seed: int, refused: float = 0.3) -> Answers:
    """Every op and result type is taken or not, at some cost, by chance; what has an expansion may be decomposed."""

    def answers(instruction: Instruction) -> Capability:
        if instruction.op.is_terminator:
            return YES
        source = random.Random(f"{seed} {instruction.name} {instruction.result_types}")
        if source.random() < refused:
            return DECOMPOSE if can_decompose(instruction) else Capability(YES.support.NO, f"seed {seed} says no")
        return Capability(YES.support, cost=source.choice([0.0, 10.0, 1e5, 1e6]))

    return answers


NAMES = ["nova", "last"]


def expected(text: str, *arguments: Any) -> Any:
    return hlojit.compile(text, backend="reference")(*arguments)

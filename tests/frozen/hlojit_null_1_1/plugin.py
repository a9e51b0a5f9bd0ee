"""A back end whose devices have a memory and a queue of their own, and compute by the reference interpreter.

A program is a list of steps, one an instruction, which read and write the device's memory.  The queue does one after the
other; the host goes on.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

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
    hookimpl,
    no,
)
from hlojit.ir import Instruction, Module, TensorType, Value, build_function, clone_instruction, evaluate

hlojit_api = (1, 1)

SRAM = MemorySpace("sram")
NDArray = np.ndarray[Any, Any]


class Step(NamedTuple):
    """One instruction as a module of its own, the values that it reads, and those that it makes."""

    module: Module
    reads: Sequence[Value]
    makes: Sequence[Value]


class Program(NamedTuple):
    """What the device runs: arguments and results by the values of the module that it was compiled from."""

    arguments: Sequence[Value]
    steps: Sequence[Step]
    results: Sequence[Value]


def step_of(instruction: Instruction) -> Step:
    """An instruction's step; what its regions read from outside is an argument, too."""
    every = list(instruction.walk())
    inside = {value for each in every for region in each.regions for value in region.arguments}
    inside |= {result for each in every for result in each.results}
    reads = list(dict.fromkeys(value for each in every for value in each.operands if value not in inside))
    module = Module("step")
    with build_function(module, "main", [value.type for value in reads]) as builder:
        copy = builder.block.append(clone_instruction(instruction, dict(zip(reads, builder.block.arguments))))
        builder.return_(*copy.results)
    return Step(module.freeze(), reads, instruction.results)


class NullDevice(Device):
    """Handles are addresses in a memory that only the device can read.

    ``latency`` is how long a step takes, in seconds; ``faults`` holds errors for the next steps; ``counters`` counts
    transfers and steps.
    """

    def __init__(self, backend: str, id: int):
        super().__init__(backend, id, kind="null-1", description="no hardware", memory_spaces=(SRAM,))
        self.memory: dict[int, bytes] = {}
        self.latency = 0.0
        self.faults: list[Exception] = []
        self.counters: Counter[str] = Counter()
        self._addresses = itertools.count(0x1000, 0x100)
        self._queue = Queue(str(self))

    def transfer_in(self, array: NDArray, type: TensorType, space: MemorySpace) -> tuple[int, Event]:
        """Copy to the device; done when it returns."""
        self.counters["in"] += 1
        address = next(self._addresses)
        self.memory[address] = array.tobytes()
        return address, READY

    def transfer_out(self, handle: int, type: TensorType) -> NDArray:
        """Copy to the host."""
        self.counters["out"] += 1
        return self._read(handle, type)

    def free(self, handle: int) -> None:
        """Give memory back; a program that failed did not fill its results."""
        self.memory.pop(handle, None)

    def execute(self, program: DeviceProgram, arguments: Sequence[int], after: Event) -> tuple[Sequence[int], Event]:
        """Leave the steps to the queue: each after the one before, none after one that failed."""
        code: Program = program.code
        results = [next(self._addresses) for _ in code.results]
        values = dict(zip(code.arguments, arguments))
        for step in code.steps:
            after = self._queue.submit(partial(self._run, step, values), after)
        done = self._queue.submit(partial(self._finish, code.results, values, results), after)
        done.then(lambda _: [self.free(values[made]) for step in code.steps for made in step.makes if made in values])
        return results, done

    def _run(self, step: Step, values: dict[Value, int]) -> None:
        self.counters["steps"] += 1
        time.sleep(self.latency)
        if self.faults:
            raise self.faults.pop(0)
        arrays = [self._read(values[value], value.tensor_type) for value in step.reads]
        for value, array in zip(step.makes, evaluate(step.module, *arrays)):
            values[value] = next(self._addresses)
            self.memory[values[value]] = array.astype(value.tensor_type.element_type.storage).tobytes()

    def _finish(self, returned: Sequence[Value], values: dict[Value, int], results: Sequence[int]) -> None:
        for value, address in zip(returned, results):
            self.memory[address] = self.memory[values[value]]

    def _read(self, address: int, type: TensorType) -> NDArray:
        return np.frombuffer(self.memory[address], type.element_type.storage).reshape(type.shape).copy()


class NullBackend(Backend):
    """Two devices that can do everything but sort."""

    name = "null"

    def __init__(self) -> None:
        self._devices = [NullDevice(self.name, number) for number in range(2)]

    def devices(self) -> Sequence[Device]:
        """The same ones every time."""
        return self._devices

    def capability(self, instruction: Instruction) -> Capability:
        """Whether the device does an instruction: its memory holds tensors, and it has no sorter."""
        for value in (*instruction.operands, *instruction.results):
            if not isinstance(value.type, TensorType):
                return no(f"the device has no memory for values of type {value.type}")
        if instruction.name == "stablehlo.custom_call":
            return DECOMPOSE  # what a call means, its plugin says: the device gets what that makes of it
        return no("the device has no sorter") if instruction.name == "stablehlo.sort" else YES

    def compile(self, module: Module, options: CompileOptions) -> DeviceProgram:
        """Take the program apart into steps."""
        *instructions, end = module.main.body
        steps = [step_of(instruction) for instruction in instructions]
        return DeviceProgram.of(module, Program(module.main.body.arguments, steps, end.operands))


@hookimpl
def hlojit_backends() -> Sequence[Backend]:
    """The null back end."""
    return [NullBackend()]

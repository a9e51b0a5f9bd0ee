"""A back end whose devices have their own memory and queue, and compute by the reference interpreter."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.extensions import (
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
from hlojit.ir import Instruction, Module, TensorType, evaluate

hlojit_api = (1, 1)

SRAM = MemorySpace("sram")


class NullDevice(Device):
    """Handles are addresses in a memory that only the device can read.

    ``latency`` is how long a program takes, in seconds; ``faults`` holds errors for the next programs; ``counters``
    counts transfers and executions.
    """

    def __init__(self, backend: str, id: int):
        super().__init__(backend, id, kind="null-1", description="no hardware", memory_spaces=(SRAM,))
        self.memory: dict[int, bytearray] = {}
        self.latency = 0.0
        self.faults: list[Exception] = []
        self.counters: Counter[str] = Counter()
        self._addresses = itertools.count(0x1000, 0x100)
        self._queue = Queue(str(self))

    def reserve(self, type: TensorType, space: MemorySpace) -> int:
        """Memory without contents."""
        address = next(self._addresses)
        self.memory[address] = bytearray(type.nbytes)
        return address

    def free(self, handle: int) -> None:
        """Give memory back."""
        del self.memory[handle]

    def transfer_in(self, array: np.ndarray[Any, Any], type: TensorType, space: MemorySpace) -> tuple[int, Event]:
        """Copy to the device; done when it returns."""
        self.counters["in"] += 1
        address = self.reserve(type, space)
        self.memory[address][:] = array.tobytes()
        return address, READY

    def transfer_out(self, handle: int, type: TensorType) -> np.ndarray[Any, Any]:
        """Copy to the host."""
        self.counters["out"] += 1
        return self._read(handle, type)

    def execute(self, program: DeviceProgram, arguments: Sequence[int], after: Event) -> tuple[Sequence[int], Event]:
        """Reserve the results and leave the work to the queue."""
        results = [self.reserve(type, SRAM) for type in program.outputs]
        return results, self._queue.submit(lambda: self._run(program, arguments, results), after)

    def _run(self, program: DeviceProgram, arguments: Sequence[int], results: Sequence[int]) -> None:
        self.counters["executions"] += 1
        time.sleep(self.latency)
        if self.faults:
            raise self.faults.pop(0)
        arrays = [self._read(address, type) for address, type in zip(arguments, program.inputs)]
        for address, type, array in zip(results, program.outputs, evaluate(program.code, *arrays)):
            self.memory[address][:] = array.astype(type.element_type.storage).tobytes()

    def _read(self, address: int, type: TensorType) -> np.ndarray[Any, Any]:
        return np.frombuffer(bytes(self.memory[address]), type.element_type.storage).reshape(type.shape).copy()


class NullBackend(Backend):
    """Two devices that can do everything but sort."""

    name = "null"

    def __init__(self) -> None:
        self._devices = [NullDevice(self.name, number) for number in range(2)]

    def devices(self) -> Sequence[Device]:
        """The same ones every time."""
        return self._devices

    def capability(self, instruction: Instruction) -> Capability:
        """Whether the device does an instruction."""
        return no("the device has no sorter") if instruction.name == "stablehlo.sort" else YES

    def compile(self, module: Module, options: CompileOptions) -> DeviceProgram:
        """The module itself is the code."""
        return DeviceProgram.of(module, module)


@hookimpl
def hlojit_backends() -> Sequence[Backend]:
    """The null back end."""
    return [NullBackend()]

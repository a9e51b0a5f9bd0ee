"""A device for tests: memory of its own, everything counted, programs that wait and fail when they are told to."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
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
)
from hlojit.ir import Instruction, Module, TensorType, evaluate

NDArray = np.ndarray[Any, Any]
LOCAL, REMOTE = MemorySpace("local"), MemorySpace("remote")


class TestDevice(Device):
    """Handles are numbers; ``memory`` maps them to arrays that nobody else has."""

    __test__ = False

    def __init__(self, backend: str, id: int):
        super().__init__(backend, id, kind="test", memory_spaces=(LOCAL, REMOTE))
        self.memory: dict[int, NDArray] = {}
        self.transfers_in = self.transfers_out = self.executions = 0
        self.gate = threading.Event()
        self.gate.set()
        self.fault: Callable[[], None] = lambda: None
        self._queue = Queue(str(self))
        self._handles = itertools.count(1)

    def transfer_in(self, array: NDArray, type: TensorType, space: MemorySpace) -> tuple[int, Event]:
        assert array.flags.c_contiguous and array.dtype == type.element_type.storage and array.shape == type.shape
        self.transfers_in += 1
        handle = next(self._handles)
        self.memory[handle] = array.copy()
        return handle, READY

    def transfer_out(self, handle: int, type: TensorType) -> NDArray:
        self.transfers_out += 1
        return self.memory[handle].copy()

    def free(self, handle: int) -> None:
        self.memory.pop(handle, None)

    def execute(self, program: DeviceProgram, arguments: Sequence[int], after: Event) -> tuple[list[int], Event]:
        handles = [next(self._handles) for _ in program.outputs]

        def run() -> None:
            assert self.gate.wait(30)
            self.fault()
            self.executions += 1
            results = evaluate(program.code, *[self.memory[argument] for argument in arguments])
            for handle, result, type in zip(handles, results, program.outputs):
                self.memory[handle] = np.asarray(result).astype(type.element_type.storage)

        return handles, self._queue.submit(run, after)


class TestBackend(Backend):
    """Two devices."""

    __test__ = False
    donated: tuple[int, ...] | None = None

    def __init__(self, name: str = "test"):
        self.name = name
        self._devices = [TestDevice(name, 0), TestDevice(name, 1)]

    def devices(self) -> Sequence[TestDevice]:
        return self._devices

    def capability(self, instruction: Instruction) -> Capability:
        return YES

    def compile(self, module: Module, options: CompileOptions) -> Any:
        return DeviceProgram.of(module, module, donated=self.donated)


class Plugin:
    """The plugin that brings back ends."""

    hlojit_api = (1, 1)

    def __init__(self, *backends: Backend):
        self.backends = backends

    @hookimpl
    def hlojit_backends(self) -> Sequence[Backend]:
        return self.backends

"""Kernels of threads on NumPy arrays, through the simulator: buffers between patterns that must stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hlojit
import numpy as np
from hlojit.compiler import lower
from hlojit.cuda.nvptx import H200
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.types import TensorType
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.text import Val
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Memory
from hlojit.simt.kernels import emit_kernel
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.module import SimulatedModule, assemble, simulated_target
from hlojit.simt.status import status_bytes

Array = np.ndarray[Any, Any]
TARGET = simulated_target(H200)
_ZONE = 256
_CANARY = 0xA5


class Zoned:
    """Memory that begins at a multiple of 256 bytes, between 256 bytes of a pattern on either side."""

    def __init__(self, nbytes: int, content: bytes = b""):
        self.nbytes = nbytes
        rounded = -(-nbytes // _ZONE) * _ZONE
        self._memory = np.full(rounded + 3 * _ZONE, _CANARY, np.uint8)
        self._begin = -self._memory.ctypes.data % _ZONE + _ZONE
        self.bytes[:] = 0
        self.bytes[: len(content)] = np.frombuffer(content, np.uint8)

    @property
    def bytes(self) -> Array:
        """What lies between the patterns."""
        return self._memory[self._begin : self._begin + self.nbytes]

    @property
    def address(self) -> int:
        """Where it begins."""
        return int(self._memory.ctypes.data) + self._begin

    def check(self) -> None:
        """Fail if one of the patterns was written over."""
        outside = (self._memory[: self._begin], self._memory[self._begin + self.nbytes :])
        assert all((part == _CANARY).all() for part in outside), "wrote outside of a buffer"


def load(code: KernelCode) -> SimulatedModule:
    """A kernel as loaded code."""
    return SimulatedModule([assemble(code)], [phase.symbol for phase in code.phases])


def run_code(code: KernelCode, operands: Sequence[Array], results: Sequence[TensorType]) -> list[Array]:
    """Run a kernel's phases; returns its results."""
    buffers = [Zoned(array.nbytes, array.tobytes()) for array in operands]
    buffers += [Zoned(result.nbytes) for result in results]
    if code.workspace_bytes:
        buffers.append(Zoned(code.workspace_bytes))
    if code.updates:
        ((operand, result),) = code.in_place
        buffers[len(operands) + result].bytes[:] = buffers[operand].bytes
    module = load(code)
    addresses = [buffer.address for buffer in buffers]
    for phase in code.phases:
        status = Zoned(status_bytes(phase.reports))
        given = [*addresses, status.address] if phase.has_status else addresses
        module.launch(phase.symbol, given, phase.tasks, phase.threads, phase.shared_bytes)
        status.check()
        failed = [message for message, word in zip(phase.reports, status.bytes.view(np.uint32)[1:]) if word]
        if failed:
            raise hlojit.ExecutionError(f"kernel {phase.symbol}: {failed[0]}")
    for buffer in buffers:
        buffer.check()
    for array, buffer in zip(operands, buffers):
        assert buffer.bytes.tobytes() == array.tobytes(), "an operand was written to"
    return [
        buffer.bytes.view(result.element_type.storage).reshape(result.shape)
        for result, buffer in zip(results, buffers[len(operands) :])
    ]


def run_text(text: str, *arguments: Array) -> list[Array]:
    """Run a program that is one instruction after fusion."""
    main = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions()).main
    (instruction,) = [each for each in main.body if not each.op.is_terminator]
    code = emit_kernel(instruction, TARGET, SimulatorDialect(), "kernel")
    operands = [arguments[main.body.arguments.index(value)] for value in instruction.operands]
    return run_code(code, operands, [result.tensor_type for result in instruction.results])


class Handmade:
    """A kernel of one block written through the builder: ``body(b, *addresses)``; buffers are (dtype, count)."""

    def __init__(
        self,
        body: Callable[..., None],
        buffers: Sequence[tuple[str, int]],
        *,
        threads: int = 64,
        results: int = 1,
        warp: int = 32,
    ):
        b = SimtBuilder(SimulatorDialect(warp))
        self.buffers = [(np.dtype(dtype), count) for dtype, count in buffers]
        memories = [
            Memory(
                f"buffer {number}", dtype.itemsize * count, dtype.itemsize, is_written=number >= len(buffers) - results
            )
            for number, (dtype, count) in enumerate(self.buffers)
        ]
        with b.kernel("kernel", memories, threads) as addresses:
            body(b, *addresses)
        self.threads, self.shared_bytes = threads, b.shared_bytes
        self.code = kernel_code(b, (Phase("kernel", 1, 1.0, threads, b.shared_bytes),))
        self.module = load(self.code)
        self.memory = [Zoned(dtype.itemsize * count) for dtype, count in self.buffers]

    def array(self, number: int) -> Array:
        """The content of a buffer."""
        return self.memory[number].bytes.view(self.buffers[number][0])

    def launch(self, blocks: int = 1, **options: Any) -> None:
        """Run it; the patterns around the buffers stay whatever happens."""
        try:
            addresses = [each.address for each in self.memory]
            self.module.launch("kernel", addresses, blocks, self.threads, self.shared_bytes, **options)
        finally:
            for each in self.memory:
                each.check()


def at(b: SimtBuilder, base: Val, kind: str, index: Val) -> Val:
    """Address of an element; the index may be of 32 bits."""
    return b.element_pointer(base, kind, b.zext(index, "i64") if index.kind == "i32" else index)

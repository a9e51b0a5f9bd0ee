"""Run the code of one kernel on NumPy arrays, with guard zones around every buffer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hlojit.cpu.codegen import compile_to_object, host_target, load_objects
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.definition import OpDefinition, Operand
from hlojit.ir.types import TensorType
from hlojit.lowering.kernel import KernelCode

Array = np.ndarray[Any, Any]
_GUARD = 256
_CANARY = 0xA5


def make_instruction(
    name: str, operands: Sequence[TensorType], result: TensorType, attributes: dict[str, Any]
) -> Instruction:
    """An instruction on block arguments of these types."""
    record = OpDefinition(name, operands=(Operand("lhs"), Operand("rhs")))
    return Instruction(record, Block(operands).arguments, [result], attributes)


class Guarded:
    """A buffer between two zones of a known pattern, that must be intact afterwards."""

    def __init__(self, content: bytes | int):
        self.size = len(content) if isinstance(content, bytes) else content
        self.memory = np.full(self.size + 2 * _GUARD + 64, _CANARY, np.uint8)
        misaligned = self.memory.ctypes.data % 64
        self.begin = _GUARD + (64 - misaligned if misaligned else 0)
        if isinstance(content, bytes):
            self.memory[self.begin : self.begin + self.size] = np.frombuffer(content, np.uint8)

    @property
    def address(self) -> int:
        """Where the content begins."""
        return int(self.memory.ctypes.data) + self.begin

    @property
    def content(self) -> bytes:
        """The bytes between the guards."""
        return self.memory[self.begin : self.begin + self.size].tobytes()

    def check(self) -> None:
        """Fail if a guard was written to."""
        assert (self.memory[: self.begin] == _CANARY).all(), "wrote in front of a buffer"
        assert (self.memory[self.begin + self.size :] == _CANARY).all(), "wrote behind a buffer"


def run_code(code: KernelCode, inputs: Sequence[Array], result: TensorType, *, single_tasks: bool = False) -> Array:
    """Compile and run; ``single_tasks`` launches every task alone and in reverse order."""
    loaded = load_objects(
        [compile_to_object(code.ir, host_target(), pipeline=code.pipeline)], [p.symbol for p in code.phases]
    )
    buffers = [Guarded(array.tobytes()) for array in inputs]
    buffers += [Guarded(result.nbytes), Guarded(code.workspace_bytes)]
    table = (ctypes.c_void_p * len(buffers))(*(buffer.address for buffer in buffers))
    before = [buffer.content for buffer in buffers[: len(inputs)]]
    for phase in code.phases:
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
            loaded.address(phase.symbol)
        )
        ranges = [(t, t + 1) for t in reversed(range(phase.tasks))] if single_tasks else [(0, phase.tasks)]
        for begin, end in ranges:
            kernel(None, ctypes.addressof(table), begin, end)
    for buffer in buffers:
        buffer.check()
    assert [buffer.content for buffer in buffers[: len(inputs)]] == before, "an operand was written to"
    return np.frombuffer(buffers[len(inputs)].content, result.element_type.storage).reshape(result.shape)


@pytest.fixture
def run_kernel() -> Callable[..., Array]:
    """``run_kernel(code, inputs, result_type)``."""
    return run_code


@pytest.fixture
def instruction() -> Callable[..., Instruction]:
    """``instruction(name, operand_types, result_type, attributes)``."""
    return make_instruction

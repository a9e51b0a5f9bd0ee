"""Run the code of one kernel on NumPy arrays, with guard zones around every buffer."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hlojit.cpu.processor import host_target
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.definition import OpDefinition, Operand
from hlojit.ir.types import TensorType
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.machine_code.loading import LoadedCode, compile_to_object, load_objects

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
    """A buffer that ends where a page begins that may be neither read nor written; before it lies a known pattern."""

    def __init__(self, content: bytes | int):
        self.size = len(content) if isinstance(content, bytes) else content
        pages = -(-(self.size + _GUARD) // mmap.PAGESIZE)
        self.length = pages * mmap.PAGESIZE
        self.memory = mmap.mmap(-1, self.length + mmap.PAGESIZE)
        self.memory[: self.length] = bytes([_CANARY]) * self.length
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(self._base + self.length), mmap.PAGESIZE, 0):
            raise OSError("mprotect failed")
        if isinstance(content, bytes):
            self.memory[self.length - self.size : self.length] = content

    @property
    def address(self) -> int:
        """Where the content begins."""
        return self._base + self.length - self.size

    @property
    def content(self) -> bytes:
        """The bytes of the buffer."""
        return self.memory[self.length - self.size : self.length]

    def check(self) -> None:
        """Fail if the pattern was overwritten."""
        before = self.memory[: self.length - self.size]
        assert before == bytes([_CANARY]) * len(before), "wrote in front of a buffer"


@lru_cache(maxsize=4)
def _compiled(code: KernelCode, target: Target) -> LoadedCode:
    linked = [text for _, text in code.linked]
    image = compile_to_object(code.ir, target, pipeline=code.pipeline, linked=linked)
    return load_objects([image], [phase.symbol for phase in code.phases])


def run_code(
    code: KernelCode,
    inputs: Sequence[Array],
    result: TensorType,
    *,
    single_tasks: bool = False,
    target: Target | None = None,
) -> Array:
    """Compile and run; ``single_tasks`` launches every task alone and in reverse order."""
    loaded = _compiled(code, target or host_target())
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

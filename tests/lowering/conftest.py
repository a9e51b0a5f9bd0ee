"""Build a fusion, compile it, and run it on buffers that end (or begin) at a page that must not be touched."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hlojit.cpu.processor import host_target
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.definition import op
from hlojit.ir.types import TensorType, tensor
from hlojit.llvm.fusion_emitter import emit_fusion
from hlojit.llvm.reduce_window import emit_reduce_window
from hlojit.lowering.kernel import KernelCode
from hlojit.machine_code.loading import compile_to_object, load_objects

from .. import elsewhere

Array = np.ndarray[Any, Any]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class GuardedMemory:
    """Memory of its own pages between two pages without access; the content touches one of them."""

    def __init__(self, size: int, *, at_end: bool):
        page = mmap.PAGESIZE
        inner = max(1, -(-size // page)) * page
        self._map = mmap.mmap(-1, inner + 2 * page)
        self._anchor = ctypes.c_char.from_buffer(self._map)
        start = ctypes.addressof(self._anchor)
        for guard in (start, start + page + inner):
            assert _libc.mprotect(guard, page, 0) == 0
        self.address = start + page + (inner - size if at_end else 0)
        self.size = size

    def write(self, content: bytes) -> None:
        """Fill the memory."""
        ctypes.memmove(self.address, content, self.size)

    def read(self) -> bytes:
        """The content."""
        return ctypes.string_at(self.address, self.size)


def make_fusion(build: Callable[..., Any], *types: TensorType, kind: str = "loop") -> Instruction:
    """A ``hlojit.fusion`` whose body is ``build(builder, *arguments)``."""
    block = Block(types)
    builder = Builder(block)
    roots = build(builder, *block.arguments)
    roots = tuple(roots) if isinstance(roots, (tuple, list)) else (roots,)
    builder.return_(*roots)
    outer = Block(types)
    return Instruction(op("hlojit.fusion"), outer.arguments, [root.type for root in roots], {"kind": kind}, [block])


polls: list[int | None] = []
"""One for each poll of a kernel that ran."""


@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
def go_on(context: int | None) -> int:
    """The runtime's poll: the kernel is not to stop."""
    polls.append(context)
    return 0


def run_code(
    code: KernelCode, instruction: Instruction, arrays: Sequence[Array], *, at_end: bool, reverse: bool
) -> list[Array]:
    """Compile and launch; with ``reverse`` every task alone, the last one first."""
    image = compile_to_object(code.ir, host_target(), pipeline=code.pipeline)
    # Kernels whose tasks take long ask whether they are to stop.
    imports = {"hlojit_poll": ctypes.cast(go_on, ctypes.c_void_p).value or 0}
    loaded = load_objects([image], [phase.symbol for phase in code.phases], imports)
    memories = []
    for array, type in zip(arrays, instruction.operand_types, strict=True):
        assert isinstance(type, TensorType) and array.shape == type.shape and array.dtype == type.element_type.storage
        memories.append(GuardedMemory(array.nbytes, at_end=at_end))
        memories[-1].write(np.ascontiguousarray(array).tobytes())
    results = [type for type in instruction.result_types if isinstance(type, TensorType)]
    outputs = [GuardedMemory(type.nbytes, at_end=at_end) for type in results]
    for output in outputs:
        output.write(b"\xa5" * output.size)
    workspace = GuardedMemory(code.workspace_bytes, at_end=at_end)
    everything = [*memories, *outputs, workspace]
    buffers = (ctypes.c_void_p * len(everything))(*(memory.address for memory in everything))
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    for phase in code.phases:
        function = signature(loaded.address(phase.symbol))
        if reverse:
            for task in reversed(range(phase.tasks)):
                function(None, buffers, task, task + 1)
        else:
            function(None, buffers, 0, phase.tasks)
    for array, memory in zip(arrays, memories, strict=True):
        assert memory.read() == np.ascontiguousarray(array).tobytes(), "an operand was changed"
    return [
        np.frombuffer(output.read(), type.element_type.storage).reshape(type.shape)
        for output, type in zip(outputs, results, strict=True)
    ]


def run_instruction(instruction: Instruction, *arrays: Any) -> list[Array]:
    """Run in both buffer placements and task orders, which must agree bit by bit."""
    emit = emit_reduce_window if instruction.op.name == "stablehlo.reduce_window" else emit_fusion
    code = emit(instruction, host_target(), "kernel")
    values = [np.asarray(array) for array in arrays]
    first = run_code(code, instruction, values, at_end=True, reverse=False)
    second = run_code(code, instruction, values, at_end=False, reverse=True)
    assert [result.tobytes() for result in first] == [result.tobytes() for result in second]
    return first


class Lab:
    """What the tests need, as one fixture."""

    polls = polls

    make_fusion = staticmethod(make_fusion)

    def __init__(self, run_instruction: Callable[..., list[Array]]):
        self.run_instruction = run_instruction

    def run(self, build: Callable[..., Any], *arrays: Any, elements: Sequence[str] = (), kind: str = "loop") -> Any:
        """Build a fusion over operands of the arrays' types, run it; one array or a list."""
        from hlojit.ir.formats import element_type_of

        values = [np.asarray(array) for array in arrays]
        names = elements or [element_type_of(value.dtype).name for value in values]
        types = [tensor(value.shape, name) for value, name in zip(values, names, strict=True)]
        results = self.run_instruction(make_fusion(build, *types, kind=kind), *values)
        return results[0] if len(results) == 1 else results


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Lab:
    """The laboratory."""
    return Lab(elsewhere.run_instruction if request.config.getoption("--backend") else run_instruction)


@pytest.fixture
def random() -> np.random.Generator:
    """A fixed source of numbers."""
    return np.random.default_rng(7)

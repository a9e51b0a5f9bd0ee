"""One library kernel on NumPy arrays, from StableHLO text, with guarded memory around every buffer."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import hlojit
import numpy as np
from hlojit.cpu.kernels import kernel_emitter
from hlojit.cpu.processor import host_target
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Kernel
from hlojit.llvm.math_library import with_own_math
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.machine_code.loading import compile_to_object, load_objects

from .conftest import Guarded

Array = np.ndarray[Any, Any]

_POLL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(lambda _: 0)
_SYMBOLS = {"hlojit_poll": ctypes.cast(_POLL, ctypes.c_void_p).value or 0}
"""What kernels call of the runtime: nothing is ever cancelled here."""
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def without(*features: str, bits: int) -> Target:
    """The processor at hand without some features."""
    host = host_target()
    kept = [each for each in host.features.split(",") if not each[1:].startswith(features)]
    return replace(host, features=",".join([*kept, *(f"-{each}" for each in features)]), vector_bits=bits)


def spell(shape: Sequence[int], element: str) -> str:
    """A tensor type as text."""
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + element + ">"


def kernel_instruction(text: str) -> Instruction:
    """The only instruction of a program that has a library kernel; its operands are the arguments, in their order."""
    module = hlojit.parse(text)
    found = [each for each in module.main.body if isinstance(each.op.lowering, Kernel)]
    assert len(found) == 1 and tuple(found[0].operands) == tuple(module.main.body.arguments), (
        "the program is not of this form"
    )
    return found[0]


@lru_cache(maxsize=64)
def _image(code: KernelCode, target: Target) -> bytes:
    """What several kernels have in common is compiled once."""
    linked = [with_own_math(text) for _, text in code.linked]
    return compile_to_object(code.ir, target, pipeline=code.pipeline, linked=linked)


def run_guarded(text: str, *arguments: Array, target: Target | None = None) -> list[Array]:
    """Run the kernel of ``text``'s one instruction, every task alone, the last one first; nothing else is written.

    ``target`` may have fewer features than the processor.
    """
    return run_instruction(kernel_instruction(text), *arguments, target=target)


def run_instruction(instruction: Instruction, *arguments: Array, target: Target | None = None) -> list[Array]:
    """Run the kernel of an instruction or a fusion in the same way."""
    target = target or host_target()
    lowering = instruction.op.lowering
    name = lowering.name if isinstance(lowering, Kernel) else "fusion"
    if instruction.attributes.get("kind") == "anchor":
        name = "anchored"
    code = kernel_emitter(name)(instruction, target, "kernel")
    loaded = load_objects(
        [_image(each, target) for each in code.all_codes], [phase.symbol for phase in code.phases], _SYMBOLS
    )
    operands = [Guarded(argument.tobytes()) for argument in arguments]
    before = [operand.content for operand in operands]
    types = [result.tensor_type for result in instruction.results]
    results = [Guarded(b"\xcd" * type.nbytes) for type in types]
    if code.updates:
        for operand, result in code.in_place:
            results[result] = Guarded(before[operand])
    buffers = [*operands, *results, Guarded(code.workspace_bytes)]
    table = (ctypes.c_void_p * len(buffers))(*(buffer.address for buffer in buffers))
    for phase in code.phases:
        function = _KERNEL(loaded.address(phase.symbol))
        for task in reversed(range(phase.tasks)):
            function(None, ctypes.addressof(table), task, task + 1)
    for buffer in buffers:
        buffer.check()
    assert [operand.content for operand in operands] == before, "an operand was written to"
    return [
        np.frombuffer(result.content, type.element_type.storage).reshape(type.shape)
        for type, result in zip(types, results)
    ]


def run_both(text: str, *arguments: Array) -> list[Array]:
    """The guarded kernel's results, after comparing them with those of the compiled program."""
    results = run_guarded(text, *arguments)
    compiled = hlojit.compile(text)(*arguments)
    for ours, theirs in zip(results, compiled if isinstance(compiled, tuple) else (compiled,)):
        assert ours.tobytes() == theirs.tobytes(), "the kernel alone and in a program differ"
    return results

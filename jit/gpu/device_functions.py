"""Kernels that plugins have written themselves, as steps of a program: their geometry, checked, and substitutes for them.

A platform says how such a function becomes an image (``Platform.device_function``).  The simulator runs no machine code of a
GPU's: it calls the *substitute*, a function of NumPy arrays, which has no image.  Such an image is the number under which this
process knows the function, and is neither kept nor saved.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from hlojit.extensions.calls.array_calls import on_arrays
from hlojit.extensions.calls.kernel_calls import substituted
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import DeviceFunction, HostFunction
from hlojit.ir.types import TensorType
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target
from hlojit.simt.simulator.facts import BufferFacts, KernelFacts

IMAGE: Final = "image"
"""The pipeline of a ``KernelCode`` whose text nobody translates: it is an image, or what the machine's own tools take."""
_HEAD: Final = "hlojit substitute "


def geometry(instruction: Instruction, function: DeviceFunction, target: Target) -> tuple[int, int, int]:
    """Blocks, threads and shared bytes of a call, which the machine has."""
    assert target.grid is not None
    operands, results = types_of(instruction)
    blocks, threads, shared = function.geometry(operands, results)
    for what, asked, most in (
        ("threads of a block", threads, target.grid.threads_per_block),
        ("shared bytes", shared, target.grid.shared_bytes),
    ):
        if asked > most:
            reason = f"it is launched with {asked:,} {what}, there are {most:,}"
            raise UnsupportedError(function.user, "", reason, instruction.location)
    return blocks, threads, shared


def host_function(instruction: Instruction) -> DeviceFunction | None:
    """A function of arrays that runs on the host, as one that the simulator calls in place of a kernel, or None."""
    if not isinstance(instruction.op.lowering, HostFunction):
        return None
    try:
        run = on_arrays(instruction)
    except HlojitError as error:
        raise UnsupportedError(instruction.op.name, "", str(error), instruction.location) from None
    target, _ = instruction.op.lowering.function
    return DeviceFunction("", f"custom call target {target!r}", run, lambda operands, results: (1, 1, 0), run)


def types_of(instruction: Instruction) -> tuple[list[TensorType], list[TensorType]]:
    """Types of operands and of results."""
    return [each.tensor_type for each in instruction.operands], [each.tensor_type for each in instruction.results]


def function_code(
    instruction: Instruction, function: DeviceFunction, target: Target, symbol: str, text: str, unkeyable: str = ""
) -> KernelCode:
    """The kernel of a call, from what its image is made of."""
    blocks, threads, shared = geometry(instruction, function, target)
    assert target.grid is not None
    moved = sum(kind.nbytes for each in types_of(instruction) for kind in each)
    cost = moved / target.grid.memory_bandwidth / max(1, blocks)
    phase = Phase(symbol, blocks, cost, threads, shared)
    return KernelCode(text, (phase,), pipeline=IMAGE, unkeyable=unkeyable)


# --------------------------------------------------------------------------------------------------------- substitutes


@dataclass(frozen=True)
class _Substitute:
    function: DeviceFunction
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]


_numbers = itertools.count()
_known: Final[dict[str, _Substitute]] = {}


def substitute_code(instruction: Instruction, function: DeviceFunction, target: Target, symbol: str) -> KernelCode:
    """The kernel of a call in the simulator; raises ``UnsupportedError`` if the plugin gives no substitute."""
    if function.substitute is None:
        reason = (
            "it is machine code for a GPU, and the simulator needs a substitute= for it, a function of NumPy arrays"
        )
        raise UnsupportedError(function.user, "", reason, instruction.location)
    operands, results = types_of(instruction)
    text = f"{_HEAD}{next(_numbers)}"
    _known[text] = _Substitute(function, tuple(operands), tuple(results))
    unkeyable = f"the substitute of {function.user}, a Python function that the simulator runs,"
    return function_code(instruction, function, target, symbol, text, unkeyable)


@final
class SubstituteModule:
    """What the simulator loads instead of a GPU's machine code."""

    def __init__(self, substitute: _Substitute):
        self._substitute = substitute

    def facts(self, symbol: str) -> KernelFacts:
        """The lengths of the buffers."""
        found = self._substitute
        buffers = [_buffer(f"operand {n}", kind, False) for n, kind in enumerate(found.operands)]
        buffers += [_buffer(f"result {n}", kind, True) for n, kind in enumerate(found.results)]
        return KernelFacts(0, 0, tuple(buffers), ())

    def launch(
        self, symbol: str, addresses: Sequence[int], blocks: int, threads: int, shared_bytes: int = 0, *, what: str = ""
    ) -> None:
        """Call the function."""
        found, function = self._substitute, self._substitute.function
        assert function.substitute is not None
        arrays = [_array(address, kind) for address, kind in zip(addresses, (*found.operands, *found.results))]
        operands, results = arrays[: len(found.operands)], arrays[len(found.operands) :]
        for each in operands:
            each.flags.writeable = False
        for result, array in zip(results, substituted(function.user, function.substitute, operands, found.results)):
            result[...] = array


def substitute_module(image: bytes | memoryview) -> SubstituteModule | None:
    """The substitute that an image stands for, if it is no machine code."""
    head = bytes(image[:64])
    return SubstituteModule(_known[head.decode()]) if head.startswith(_HEAD.encode()) else None


def _buffer(name: str, kind: TensorType, is_written: bool) -> BufferFacts:
    return BufferFacts(f"{name} ({kind})", kind.nbytes, kind.element_type.storage.itemsize, is_written)


def _array(address: int, kind: TensorType) -> np.ndarray[Any, Any]:
    storage = kind.element_type.storage
    if not kind.size:
        return np.empty(kind.shape, storage)
    memory = (ctypes.c_uint8 * (kind.size * storage.itemsize)).from_address(address)
    return np.ctypeslib.as_array(memory).view(storage).reshape(kind.shape)

"""Program records: of texts, with the CPU's kernels, and as executables."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import hlojit
import numpy as np
from hlojit.compiler import lower
from hlojit.cpu.backend import assemble
from hlojit.cpu.compile_workers import Batch
from hlojit.cpu.processor import host_target
from hlojit.executable import Executable, ExecutableSpec
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.types import tensor
from hlojit.llvm.host import emit_host
from hlojit.lowering.program import (
    Launch,
    Program,
)
from hlojit.lowering.program_check import check
from hlojit.machine_code.loading import compile_to_object, load_objects
from hlojit.runtime import native_symbols

Array = np.ndarray[Any, Any]
VECTOR = tensor((6,), "i32")


def program_of(text: str) -> Program:
    backend: Any = registry().load().backend("cpu")
    program: Program = backend.program(lower(hlojit.parse(text), backend, CompileOptions()).freeze())
    check(program)
    return program


def objects_of(program: Program) -> dict[str, bytes | memoryview]:
    """Object code of the kernels, by their first symbol."""
    backend: Any = registry().load().backend("cpu")
    codes = {launch.kernel.phases[0].symbol: launch.kernel for launch in program.launches()}
    return dict(backend.cache.objects(codes.values(), partial(assemble, Batch(backend.cache.target, None))))


def native_launch(program: Program) -> Callable[[Launch, list[Array]], None]:
    """Launches with the CPU's kernels."""
    symbols = [phase.symbol for launch in program.launches() for phase in launch.kernel.phases]
    imports = native_symbols()
    loaded = load_objects(objects_of(program).values(), dict.fromkeys(symbols), imports)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    context = (ctypes.c_int64 * 32)()

    def launch(step: Launch, memories: list[Array]) -> None:
        addresses = (ctypes.c_void_p * len(memories))(*(memory.ctypes.data for memory in memories))
        for phase in step.kernel.phases:
            signature(loaded.address(phase.symbol))(context, addresses, 0, phase.tasks)

    return launch


def no_launch(step: Launch, memories: list[Array]) -> None:
    raise AssertionError(step)


def native(program: Program, *callees: tuple[str, Program]) -> Executable:
    """The program as an executable, linked with others' host functions."""
    objects: dict[str, bytes | memoryview] = {}
    for symbol, each in (("main", program), *callees):
        objects[symbol] = compile_to_object(emit_host(each, symbol), host_target())
        objects |= objects_of(each)
    loaded = load_objects(objects.values(), ["main"], native_symbols())
    return Executable(
        ExecutableSpec(
            program.name,
            loaded.address("main"),
            tuple(tensor([int(size) for size in each.storage.shape], each.storage.element) for each in program.inputs),  # type: ignore[arg-type]
            tuple(tensor([int(size) for size in each.storage.shape], each.storage.element) for each in program.outputs),  # type: ignore[arg-type]
            arena_bytes=program.arena_bytes,
            constants=tuple(constant.ctypes.data for constant in program.constants),
            keepalive=(loaded, *program.constants),
        )
    )

"""Kernels that plugins have built for a group, from the forms in which they answer (``hlojit.extensions.kernels.forms``)."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from hlojit.cpu.kernels.array_function import FunctionSite, emit_array_function, emit_task_function
from hlojit.extensions.functions.array_functions import ArrayFunction
from hlojit.extensions.kernels.forms import LlvmKernel, TaskFunction
from hlojit.extensions.kernels.kernel import BuiltKernel, kernel_answer
from hlojit.ir.environment import Bounded
from hlojit.ir.errors import HlojitError, PluginError
from hlojit.ir.graph import Instruction
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target

PIPELINE: Final = "vectorize"
_RUNTIME: Final = frozenset({"hlojit_poll"})
"""What kernels may call of the runtime."""
_tried: Final[Bounded[str, bool]] = Bounded(1024)
"""Texts, by their hash, that LLVM makes code of."""


def emit_plugin_kernel(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """The kernel that a plugin has built for the group in an instruction's body."""
    built = kernel_answer(instruction)
    assert built is not None
    answer: Any = built.answer
    if isinstance(answer, LlvmKernel):
        return _of_llvm(answer, built, instruction, target, symbol)
    site = FunctionSite(
        tuple(value.tensor_type for value in instruction.operands),
        tuple(value.tensor_type for value in instruction.results),
        built.user,
        str(instruction.location),
    )
    if isinstance(answer, ArrayFunction):
        return emit_array_function(answer, site, symbol)
    if isinstance(answer, TaskFunction):
        return emit_task_function(answer, site, symbol)
    raise PluginError(f"{built.user}: there is no code for {answer!r}\n  at {instruction.location}")


def _of_llvm(
    answer: LlvmKernel, built: BuiltKernel, instruction: Instruction, target: Target, symbol: str
) -> KernelCode:
    from hlojit.machine_code.foreign_ir import BadIr, own_module

    names = [symbol, *(f"{symbol}_{number}" for number in range(1, len(answer.phases)))]
    symbols = {phase.symbol: name for phase, name in zip(answer.phases, names)}
    try:
        ir = own_module(answer.ir, symbols, _RUNTIME)
    except BadIr as error:
        raise PluginError(f"{built.user}: {error}\n  at {instruction.location}") from error
    _try_apart(ir, answer.ir, built, instruction, target)
    phases = tuple(Phase(symbols[each.symbol], each.tasks, float(each.cost)) for each in answer.phases)
    address = f"the IR of {built.user}, which has addresses of this process in it," if "inttoptr" in ir else ""
    return KernelCode(ir, phases, answer.workspace_bytes, PIPELINE, in_place=answer.in_place, unkeyable=address)


def _try_apart(ir: str, given: str, built: BuiltKernel, instruction: Instruction, target: Target) -> None:
    """Compile foreign text in a process of its own, once: LLVM ends a process that asks for what the processor cannot do."""
    from hlojit.machine_code.worker_process import compile_apart

    key = hashlib.sha256(f"{target.identity}\0{given}".encode()).hexdigest()
    if key in _tried:
        return
    try:
        compile_apart(ir, target, pipeline=PIPELINE, linked=(), what="its IR")
    except HlojitError as error:
        raise PluginError(f"{built.user}: {error}\n  at {instruction.location}") from error
    _tried.keep(key, True)

"""What the CPU back end generated, for people and tests to read."""

from __future__ import annotations

from hlojit.cpu.processor import host_target
from hlojit.llvm.math_library import with_own_math
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.machine_code.object_code import compile_to_assembly


def assembly_of(code: KernelCode, target: Target | None = None) -> str:
    """Assembly of a kernel for ``target`` (default: this machine)."""
    linked = [with_own_math(text) for _, text in code.linked]
    return compile_to_assembly(code.ir, target or host_target(), pipeline=code.pipeline, linked=linked)

"""What the CPU back end generated, for people and tests to read."""

from __future__ import annotations

from hlojit.cpu.processor import host_target
from hlojit.ir.errors import HlojitError
from hlojit.llvm.codegen import compile_to_assembly
from hlojit.llvm.math_library import with_own_math
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target


def assembly_of(code: KernelCode, target: Target | None = None) -> str:
    """Assembly of a kernel for ``target`` (default: this machine).

    Raises ``HlojitError`` for a kernel that was loaded instead of compiled: only its machine code is kept.
    """
    if not code.ir:
        raise HlojitError(
            f"the kernel {code.symbol} was loaded, and its text is not kept; compile it with HLOJIT_CACHE=off to look at it"
        )
    linked = [with_own_math(text) for _, text in code.linked]
    return compile_to_assembly(code.ir, target or host_target(), pipeline=code.pipeline, linked=linked)

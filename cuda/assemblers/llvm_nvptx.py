"""LLVM's own NVPTX target as an assembler, through llvmlite: nothing of NVIDIA's is needed."""

from __future__ import annotations

from typing import final

from hlojit.cuda.assemblers.assembler import Assembler
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target


@final
class LlvmAssembler(Assembler):
    """Takes the newest forms: bf16 and fp8 conversions, tensor cores, asynchronous copies."""

    name = "llvm"

    def _assembled(self, code: KernelCode, target: Target) -> str:
        from hlojit.machine_code.object_code import compile_to_object
        from hlojit.machine_code.worker_process import compile_apart

        texts = [text for _, text in code.linked]
        if not texts:
            return compile_to_object(code.ir, target, pipeline="threads").decode()
        foreign = ", ".join(symbol for symbol, _ in code.linked)
        what = f"kernel {code.symbol}, which calls {foreign},"
        return compile_apart(code.ir, target, pipeline="threads", linked=texts, what=what).decode()

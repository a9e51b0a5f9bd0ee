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

    def ptx(self, code: KernelCode, target: Target) -> str:
        from hlojit.machine_code.object_code import compile_to_assembly

        return compile_to_assembly(code.ir, target, pipeline="threads", linked=[text for _, text in code.linked])

"""Who makes PTX of kernels: ``HLOJIT_CUDA_ASSEMBLER``, or the first that is installed.

ptx = chosen_assembler().ptx(code, SM_90)
"""

from __future__ import annotations

from typing import Final

from hlojit.cuda.assemblers.assembler import Assembler
from hlojit.ir.errors import HlojitError
from hlojit.ir.switches import CUDA_ASSEMBLER

NAMES: Final = ("numba", "llvm")
"""In the order in which they are asked."""


def assembler(name: str) -> Assembler:
    """The assembler of a name, available or not."""
    if name == "numba":
        from hlojit.cuda.assemblers.numba_cuda import NumbaAssembler

        return NumbaAssembler()
    if name == "llvm":
        from hlojit.cuda.assemblers.llvm_nvptx import LlvmAssembler

        return LlvmAssembler()
    raise HlojitError(f"{CUDA_ASSEMBLER.name}={name!r} names no assembler; there are {' and '.join(NAMES)}")


def chosen_assembler() -> Assembler:
    """The one that ``HLOJIT_CUDA_ASSEMBLER`` names, otherwise the first that is available."""
    if name := CUDA_ASSEMBLER.text():
        chosen = assembler(name)
        if reason := chosen.unavailable():
            raise HlojitError(f"{CUDA_ASSEMBLER.name}={name} cannot be used: {reason}")
        return chosen
    return next(each for each in map(assembler, NAMES) if not each.unavailable())

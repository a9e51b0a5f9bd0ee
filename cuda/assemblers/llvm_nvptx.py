"""LLVM's own NVPTX target as an assembler, through llvmlite: nothing of NVIDIA's is needed."""

from __future__ import annotations

import re
from typing import Final, final

from hlojit.cuda.assemblers.assembler import Assembler
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target

_EIGHT_BITS: Final = re.compile(r"mma\.sync\.[\w.]*\.e[45]m[23]\.")
_VERSION: Final = re.compile(r"^\.version (\d+)\.(\d+)$", re.MULTILINE)


@final
class LlvmAssembler(Assembler):
    """Takes the newest forms: bf16 and fp8 conversions, tensor cores, asynchronous copies."""

    name = "llvm"

    def _assembled(self, code: KernelCode, target: Target) -> str:
        from hlojit.machine_code.object_code import compile_to_object
        from hlojit.machine_code.worker_process import compile_apart

        texts = [text for _, text in code.linked]
        if not texts:
            return _versioned(compile_to_object(code.ir, target, pipeline="threads").decode())
        foreign = ", ".join(symbol for symbol, _ in code.linked)
        what = f"kernel {code.symbol}, which calls {foreign},"
        return _versioned(compile_apart(code.ir, target, pipeline="threads", linked=texts, what=what).decode())


def _versioned(ptx: str) -> str:
    """LLVM names the version of PTX in which a GPU first appears; products of 8-bit floats came later, with 8.4."""
    if not _EIGHT_BITS.search(ptx):
        return ptx
    found = _VERSION.search(ptx)
    assert found is not None
    newer = max((int(found[1]), int(found[2])), (8, 4))
    return f"{ptx[: found.start()]}.version {newer[0]}.{newer[1]}{ptx[found.end() :]}"

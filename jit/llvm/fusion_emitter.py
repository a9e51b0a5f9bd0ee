"""``emit_fusion``: the code of one fused kernel.

    code = emit_fusion(instruction, host_target(), "fusion_3")
    # void fusion_3(ptr context, ptr buffers, i64 begin, i64 end)

The instruction is a ``hlojit.fusion`` or any single pointwise, indexed or reduction instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction
from hlojit.llvm.elementwise import emit_loop_kernel
from hlojit.llvm.loops import empty_kernel
from hlojit.llvm.reductions import emit_reduction_kernel
from hlojit.llvm.rows import emit_row_kernel
from hlojit.lowering.body import Body
from hlojit.lowering.fusion_kind import FusionKind
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.storage import Storage
from hlojit.lowering.target import Target

_EMITTERS = {
    FusionKind.ROW: emit_row_kernel,
    FusionKind.REDUCTION: emit_reduction_kernel,
    FusionKind.ELEMENTWISE: emit_loop_kernel,
}


def emit_fusion(instruction: Instruction, target: Target, symbol: str, storages: Sequence[Storage] = ()) -> KernelCode:
    """Lower a fusion, or an instruction as a fusion of one, to a kernel function called ``symbol``.

    ``storages`` says how operands, then results, lie in memory (default: all plain).  Operands may have any strides and
    may be packed; results of elementwise kernels may have any strides.
    """
    body = Body.of(instruction, storages)
    kind = FusionKind.of(body)
    if kind is FusionKind.EMPTY:
        return empty_kernel(symbol)
    if kind not in _EMITTERS:
        raise UnsupportedError(instruction.op.name, "", f"no CPU kernel for {kind.value} yet", instruction.location)
    return _EMITTERS[kind](body, target, symbol)

"""``emit_fusion``: the code of one fused kernel.

    code = emit_fusion(instruction, host_target(), "fusion_3")
    # void fusion_3(ptr context, ptr buffers, i64 begin, i64 end)

The instruction is a ``hlojit.fusion`` or any single pointwise, indexed or reduction instruction.
"""

from __future__ import annotations

from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Reduction
from hlojit.lowering.elements import Body
from hlojit.lowering.elementwise import emit_loop_kernel
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.loops import empty_kernel
from hlojit.lowering.reductions import emit_reduction_kernel
from hlojit.lowering.rows import emit_row_kernel, is_row_body
from hlojit.lowering.target import Target


def emit_fusion(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Lower a fusion, or an instruction as a fusion of one, to a kernel function called ``symbol``."""
    body = Body.of(instruction)
    if all(root.tensor_type.size == 0 for root in body.roots):
        return empty_kernel(symbol)
    if is_row_body(body):
        return emit_row_kernel(body, target, symbol)
    if any(is_reduction(root) for root in body.roots):
        return emit_reduction_kernel(body, target, symbol)
    return emit_loop_kernel(body, target, symbol)


def is_reduction(value: Value) -> bool:
    """Whether a value is a result of a reduction."""
    return value.producer is not None and isinstance(value.producer.op.lowering, Reduction)

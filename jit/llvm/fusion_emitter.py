"""``emit_fusion``: the code of one fused kernel.

    code = emit_fusion(instruction, host_target(), "fusion_3")
    # void fusion_3(ptr context, ptr buffers, i64 begin, i64 end)

The instruction is a ``hlojit.fusion`` or any single pointwise, indexed or reduction instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Reduction
from hlojit.llvm.elementwise import emit_loop_kernel
from hlojit.llvm.loops import empty_kernel
from hlojit.llvm.reductions import emit_reduction_kernel
from hlojit.llvm.rows import emit_row_kernel
from hlojit.lowering.elements import Body
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.row_plan import is_row_body
from hlojit.lowering.storage import Storage
from hlojit.lowering.target import Target

OPERATION = "a fusion"


def emit_fusion(instruction: Instruction, target: Target, symbol: str, storages: Sequence[Storage] = ()) -> KernelCode:
    """Lower a fusion, or an instruction as a fusion of one, to a kernel function called ``symbol``.

    ``storages`` says how operands, then results, lie in memory (default: all plain).  Operands may have any strides and
    may be packed; results of elementwise kernels may have any strides.
    """
    body = Body.of(instruction, storages)
    _check_storages(body)
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


def _check_storages(body: Body) -> None:
    if not body.storages:
        return
    rows = is_row_body(body) or any(is_reduction(root) for root in body.roots)
    for number in range(len(body.roots)):
        storage = body.storages[len(body.operand_types) + number]
        if storage.packing > 1 or (rows and not body.is_plain_root(number)):
            raise UnsupportedError(OPERATION, "", f"a kernel of this kind cannot write its result as {storage}")
    for storage in body.storages:
        if storage.offset % storage.itemsize:
            raise UnsupportedError(OPERATION, "", f"{storage}: the offset is no whole number of elements")

"""dynamic_update_slice on a machine with threads: each thread writes an element of the update at its clamped place."""

from __future__ import annotations

from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Instruction
from hlojit.llvm.region import clamp, delinearize, wide_index
from hlojit.lowering.body import Body
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.grid_plan import THREADS
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame


def emit_dynamic_update_slice(instruction: Instruction, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """Operands: operand, update, one start index a dimension; the result shares the operand's memory."""
    operand, update = (value.tensor_type for value in instruction.operands[:2])
    frame = GridFrame(target, Body.of(instruction), dialect)
    b = frame.builder
    blocks = -(-update.size // THREADS)
    kind = memory_kind(operand.element_type)
    with frame.kernel(symbol, THREADS):
        bases = frame.access.bases
        starts = []
        for dimension in range(operand.rank):
            element = instruction.operands[2 + dimension].tensor_type.element_type
            assert isinstance(element, IntegerType)
            value = b.load(memory_kind(element), bases[2 + dimension])
            highest = operand.shape[dimension] - update.shape[dimension]
            starts.append(clamp(b, wide_index(b, element, value), 0, highest))
        number = b.global_thread()

        def write() -> None:
            place = b.constant("i64", 0)
            parts = delinearize(b, number, update.shape)
            for start, part, stride in zip(starts, parts, operand.strides, strict=True):
                place = b.add(place, b.mul(b.add(start, part), b.constant("i64", stride)))
            value = b.load(kind, b.element_pointer(bases[1], kind, number))
            b.store(value, b.element_pointer(bases[2 + operand.rank], kind, place))

        b.when(b.icmp("slt", number, b.constant("i64", update.size)), write)
    assert target.grid is not None
    cost = 2 * update.nbytes / target.grid.memory_bandwidth / max(1, blocks)
    return frame.code((frame.phase(symbol, blocks, cost),), in_place=((0, 0),), updates=True)

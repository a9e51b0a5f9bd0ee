"""How much arithmetic an instruction is: one operation for each op and element, two for a multiply-add.

What an exponential costs beside an addition is not counted: the figure is for a machine's roofline, not for a schedule.
"""

from __future__ import annotations

from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.definition import Kernel, Pointwise, Reduction, Trait
from hlojit.ir.types import TensorType


def operations(instruction: Instruction) -> int:
    """Arithmetic operations of an instruction, or of everything in a fusion."""
    if Trait.FUSION in instruction.op.traits:
        return sum(operations(each) for each in instruction.regions[0])
    lowering = instruction.op.lowering
    if isinstance(lowering, Pointwise):
        return _size(instruction)
    if isinstance(lowering, Reduction):
        return _region(instruction) * instruction.operands[0].tensor_type.size
    if not isinstance(lowering, Kernel):
        return 0
    if lowering.operations is not None:
        return lowering.operations(instruction)
    runs = lowering.runs(instruction) if lowering.runs is not None else _elements(instruction)
    return _region(instruction) * runs


def _elements(instruction: Instruction) -> int:
    return max(_size(instruction), instruction.operands[-1].tensor_type.size)


def _region(instruction: Instruction) -> int:
    return max(1, sum(map(_in_block, instruction.regions)))


def _in_block(block: Block) -> int:
    return sum(isinstance(each.op.lowering, Pointwise) for each in block)


def _size(instruction: Instruction) -> int:
    kind = instruction.results[0].type if instruction.results else None
    return kind.size if isinstance(kind, TensorType) else 0

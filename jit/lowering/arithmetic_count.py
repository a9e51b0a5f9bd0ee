"""How much arithmetic an instruction is: one operation for each op and element, two for a multiply-add.

What an exponential costs beside an addition is not counted: the figure is for a machine's roofline, not for a schedule.
"""

from __future__ import annotations

import math

from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.definition import Kernel, Pointwise, Reduction, Trait
from hlojit.ir.ops.views import ConvolutionView, DotView
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
    if lowering.name == "dot_general":
        lhs = instruction.operands[0].tensor_type
        return (
            2
            * _size(instruction)
            * math.prod(lhs.shape[each] for each in DotView.of(instruction).numbers.lhs_contracting)
        )
    if lowering.name == "convolution":
        rhs, numbers = instruction.operands[1].tensor_type, ConvolutionView.of(instruction).numbers
        return 2 * _size(instruction) * (rhs.size // max(1, rhs.shape[numbers.kernel_output_feature]))
    return _region(instruction) * _comparisons(instruction, lowering.name)


def _comparisons(instruction: Instruction, name: str) -> int:
    """How often the region of a library routine runs, about."""
    first = instruction.operands[0].tensor_type
    if name == "sort":
        return first.size * max(1, max(first.shape, default=1) - 1).bit_length()
    return max(_size(instruction), instruction.operands[-1].tensor_type.size)


def _region(instruction: Instruction) -> int:
    return max(1, sum(map(_in_block, instruction.regions)))


def _in_block(block: Block) -> int:
    return sum(isinstance(each.op.lowering, Pointwise) for each in block)


def _size(instruction: Instruction) -> int:
    kind = instruction.results[0].type if instruction.results else None
    return kind.size if isinstance(kind, TensorType) else 0

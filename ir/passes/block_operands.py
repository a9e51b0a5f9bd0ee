"""Let products take operands in blocks, where a program decodes them only for a product.

    %1 = convert %w : (tensor<64x128xmxfp8>) -> tensor<64x128xf32>       =>   dot_general %x, %w, contracting_dims = [1] x [1]
    %2 = transpose %1, dims = [1, 0]
    %3 = dot_general %x, %2, contracting_dims = [1] x [0]

A product decodes its operands itself, and may do so while it reads them (``hlojit.ir.passes.block_dot_strength_reduction``).
Numeric effect: *exact*, but for the order of sums, which is the product's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.ops.block_arithmetic import block_format
from hlojit.ir.ops.convert import CONVERT
from hlojit.ir.ops.movement import TRANSPOSE
from hlojit.ir.ops.products import DOT_GENERAL
from hlojit.ir.passes.pass_manager import Pass

_SIDES = (("lhs_batching", "lhs_contracting"), ("rhs_batching", "rhs_contracting"))


@dataclass(frozen=True)
class BlockOperands(Pass):
    """Products of what is decoded only for them."""

    name: ClassVar[str] = "block-operands"
    phase: ClassVar[str] = "import"
    after: ClassVar[tuple[str, ...]] = ("tuple-legalizer",)
    before: ClassVar[tuple[str, ...]] = ("block-signature",)

    def run(self, module: Module) -> bool:
        """Replace operands; return whether there were any."""
        changed = False
        for instruction in tuple(module.walk()):
            if instruction.op == DOT_GENERAL:
                for side in range(2):
                    changed |= _take(instruction, side)
        return changed


def _take(product: Instruction, side: int) -> bool:
    """Let an operand be the tensor in blocks that it is decoded from, if it is one."""
    value = product.operands[side]
    order = list(range(value.tensor_type.rank))
    passed: list[Instruction] = []
    while (producer := value.producer) is not None and producer.op == TRANSPOSE:
        permutation = producer.attributes["permutation"]
        order = [permutation[dimension] for dimension in order]
        passed.append(producer)
        value = producer.operands[0]
    if producer is None or producer.op != CONVERT or value.tensor_type.element_type.name != "f32":
        return False
    source = producer.operands[0]
    numbers = product.attributes["dot_dimension_numbers"]
    if block_format(source.type) is None or not _keeps_order(numbers, side, order):
        return False
    moved = {name: tuple(order[dimension] for dimension in getattr(numbers, name)) for name in _SIDES[side]}
    product.attributes["dot_dimension_numbers"] = replace(numbers, **moved)
    product.set_operand(side, source)
    _erase_unused([*passed, producer])
    return True


def _keeps_order(numbers: DotDimensionNumbers, side: int, order: list[int]) -> bool:
    """Whether dimensions that the result has come in the same order."""
    summed = {*getattr(numbers, _SIDES[side][0]), *getattr(numbers, _SIDES[side][1])}
    kept = [order[dimension] for dimension in range(len(order)) if dimension not in summed]
    return kept == sorted(kept)


def _erase_unused(instructions: list[Instruction]) -> None:
    for instruction in instructions:
        result: Value = instruction.results[0]
        if not result.users:
            instruction.erase()

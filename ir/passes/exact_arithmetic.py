"""Round the exact result of arithmetic in formats of more than 25 bits of precision, once.

    %2 = add %0, %1 : acme40     =>     %2 = convert(hlojit.odd_add(convert(%0), convert(%1)) : f64) : acme40

f64, in which such formats are computed, rounds a sum, product, quotient or square root before the format does, and does not
have the bits to make that harmless.  Sums that reductions and products take in f64 are rounded once, at their end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlojit.ir.blocks import Block, Instruction
from hlojit.ir.builder import Builder
from hlojit.ir.format_fields import needs_odd
from hlojit.ir.formats import BUILT_IN, ElementType, FloatFormat, element_types
from hlojit.ir.graph import Module
from hlojit.ir.ops.rounded import TO_ODD, is_summed
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.types import TensorType


@dataclass(frozen=True)
class ExactArithmetic(Pass):
    """Put arithmetic that is rounded to odd in the place of what f64 does not hold."""

    name: ClassVar[str] = "exact-arithmetic"
    phase: ClassVar[str] = "legalize"
    open_sizes: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("type-legalizer",)
    before: ClassVar[tuple[str, ...]] = ("instruction-fusion",)

    def run(self, module: Module) -> bool:
        """Replace; return whether there was anything to replace."""
        if not any(row.name not in BUILT_IN and _needs_it(row) for row in element_types()):
            return False
        changed = [_in_block(function.body) for function in module.functions.values() if not function.is_declaration]
        return any(changed)


def _in_block(block: Block) -> bool:
    changed = False
    for instruction in tuple(block):
        if instruction.op in TO_ODD and _is_concerned(instruction):
            _replace(instruction)
            changed = True
        if not is_summed(instruction):
            for region in instruction.regions:
                changed |= _in_block(region)
    return changed


def _is_concerned(instruction: Instruction) -> bool:
    type = instruction.result.type
    return isinstance(type, TensorType) and _needs_it(type.element_type)


def _needs_it(element: ElementType) -> bool:
    return isinstance(element, FloatFormat) and needs_odd(element)


def _replace(instruction: Instruction) -> None:
    b = Builder.in_front_of(instruction)
    type = instruction.result.tensor_type
    operands = [b.convert(operand, "f64") for operand in instruction.operands]
    wide = b.create(TO_ODD[instruction.op].name, operands, result_types=[type.with_element_type("f64")]).result
    instruction.replace_with([b.convert(wide, type.element_type)])

"""Round the exact result of arithmetic once, and take sums in the format's accumulator.

    %2 = add %0, %1 : acme40                     =>     %2 = hlojit.odd_add(%0, %1) : acme40
    %2 = reduce(%0, %1) add : acme8 (f64)        =>     %2 = convert(reduce(convert %0, convert %1) add : f64) : acme8

The float in which a format is computed rounds a sum, product, quotient or square root before the format does, and may not
have the bits to make that harmless (``rounds_twice``).  Reductions are summed in the compute type by every back end; where
the format's ``accumulator`` is wider, that is said in the graph.  They are rounded once, at their end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlojit.ir.blocks import Block, Instruction
from hlojit.ir.builder import Builder
from hlojit.ir.formats import FloatFormat
from hlojit.ir.graph import Module
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.rounded import TO_ODD, is_summed
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.passes.widening import Widening
from hlojit.ir.scalar.codec_tables import rounds_twice
from hlojit.ir.types import TensorType, Type


@dataclass(frozen=True)
class ExactArithmetic(Pass):
    """Put arithmetic that is rounded to odd, and sums in f64, in the place of what the compute type does not hold."""

    name: ClassVar[str] = "exact-arithmetic"
    phase: ClassVar[str] = "legalize"
    open_sizes: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("type-legalizer",)
    before: ClassVar[tuple[str, ...]] = ("instruction-fusion",)

    def run(self, module: Module) -> bool:
        """Replace; return whether there was anything to replace."""
        done = _Formats()
        changed = [done.block(function.body) for function in module.functions.values() if not function.is_declaration]
        return any(changed)


class _Formats:
    """What is known of the formats of one module."""

    def __init__(self) -> None:
        self._rounds_twice: dict[FloatFormat, bool] = {}

    def block(self, block: Block) -> bool:
        """What a function, a branch or a loop's region holds."""
        changed = False
        for instruction in tuple(block):
            if instruction.op in TO_ODD and self._is_rounded_twice(instruction.result.type):
                _replace(instruction)
                changed = True
            if is_summed(instruction):
                changed |= _accumulate(instruction)
            else:
                for region in instruction.regions:
                    changed |= self.block(region)
        return changed

    def _is_rounded_twice(self, type: Type) -> bool:
        row = _float_of(type)
        if row is None:
            return False
        if row not in self._rounds_twice:
            self._rounds_twice[row] = rounds_twice(row)
        return self._rounds_twice[row]


def _float_of(type: Type) -> FloatFormat | None:
    element = type.element_type if isinstance(type, TensorType) else None
    return element if isinstance(element, FloatFormat) and not element.is_native else None


def _replace(instruction: Instruction) -> None:
    b = Builder.in_front_of(instruction)
    made = b.create(TO_ODD[instruction.op].name, instruction.operands, result_types=[instruction.result.type])
    instruction.replace_with([made.result])


def _accumulate(instruction: Instruction) -> bool:
    """Sum in the accumulator; what only chooses numbers, or has an order of its own, stays as it is."""
    row = _float_of(instruction.result_types[0]) if len(instruction.results) == 1 else None
    if row is None or row.accumulator == row.compute or row.accumulator != "f64":
        return False
    combiner = combiner_of(instruction.regions[0])
    if combiner is None or combiner.is_idempotent:
        return False
    b = Builder.in_front_of(instruction)
    wide = Widening(lambda type: _float_of(type) == row, row.accumulator).computed(b, instruction).result
    instruction.replace_with([b.convert(wide, row)])
    return True

"""One op computed in a wider float, regions included; what it makes is left in that float.

in_wide(b, %1 = reduce(%x, %z) add : acme8, is_acme8, "f64")    =>    reduce(convert %x, convert %z) add : f64
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from hlojit.ir.blocks import Block, Instruction
from hlojit.ir.builder import Builder
from hlojit.ir.passes.graph_facts import is_constant
from hlojit.ir.types import TensorType, Type


@final
@dataclass(frozen=True)
class Widening:
    """The float that takes the place of some element types."""

    is_concerned: Callable[[Type], bool]
    wide: str

    def of_type(self, type: Type) -> Type:
        """The type with the wide float, where it is concerned."""
        return type.with_element_type(self.wide) if isinstance(type, TensorType) and self.is_concerned(type) else type

    def computed(self, b: Builder, instruction: Instruction) -> Instruction:
        """The op on wide numbers, made anew by ``b``; its regions move there."""
        operands = [
            b.convert(operand, self.wide) if self.is_concerned(operand.type) else operand
            for operand in instruction.operands
        ]
        regions, instruction.regions = list(instruction.regions), []
        for region in regions:
            self._inside(region)
        return b.insert(
            Instruction(
                instruction.op,
                operands,
                list(map(self.of_type, instruction.result_types)),
                instruction.attributes,
                regions,
                instruction.discardable,
                instruction.location,
            )
        )

    def _inside(self, block: Block) -> None:
        """Widen a region: what it computes is rounded once, outside."""
        for argument in block.arguments:
            argument.type = self.of_type(argument.type)
        for instruction in tuple(block):
            for region in instruction.regions:
                self._inside(region)
            if is_constant(instruction) and self.is_concerned(instruction.result.type):
                self._convert_behind(instruction)
                continue
            for result in instruction.results:
                result.type = self.of_type(result.type)

    def _convert_behind(self, constant: Instruction) -> None:
        users, following = list(constant.result.users), constant.next
        assert following is not None
        wide = Builder.in_front_of(following).convert(constant.result, self.wide)
        for user in users:
            user.operands = [wide if operand is constant.result else operand for operand in user.operands]

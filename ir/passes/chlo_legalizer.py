"""Write every op of CHLO in StableHLO's own.

    %0 = chlo.broadcast_add %x, %y             =>   %0 = stablehlo.broadcast_in_dim %y, dims = [1]
                                                    %1 = stablehlo.add %x, %0
    %2 = chlo.erf %1                           =>   some forty additions, products and selections

For programs that go elsewhere: hlojit's own back ends have code for CHLO's functions and expand the rest by themselves.
Ops whose shapes are not known stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hlojit.ir.formats import ComplexType
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.ops.complex_functions import COMPLEX_FUNCTION
from hlojit.ir.ops.definition import Pointwise, Trait
from hlojit.ir.ops.parts import Separately
from hlojit.ir.ops.scalar_instructions import expand_pointwise
from hlojit.ir.passes.dead_code_elimination import DeadCodeElimination
from hlojit.ir.passes.op_expander import ExpansionRule, OpExpander, expansion_of
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.types import TensorType


@dataclass(frozen=True)
class ChloLegalizer(Pass):
    """Replace CHLO by StableHLO."""

    name: ClassVar[str] = "chlo-legalizer"
    phase: ClassVar[str] = "legalize"

    def run(self, module: Module) -> bool:
        """Replace; return whether there was anything to replace."""
        changed = OpExpander(rule_of=_rule_of).run(module)
        return (DeadCodeElimination().run(module) if changed else False) or changed


def _rule_of(instruction: Instruction) -> ExpansionRule | None:
    record = instruction.op
    if record == COMPLEX_FUNCTION:
        return expand_pointwise
    if record.dialect != "chlo":
        return None
    if Trait.CONSTANT in record.traits:
        return _constant
    if _of_complex(instruction) and ComplexType in record.parts:
        return _by_parts
    return expand_pointwise if isinstance(record.lowering, Pointwise) else expansion_of(instruction)


def _of_complex(instruction: Instruction) -> bool:
    types = [type for type in instruction.operand_types if isinstance(type, TensorType)]
    return any(isinstance(type.element_type, ComplexType) for type in types)


def _constant(builder: Any, instruction: Instruction) -> list[Value]:
    return [builder.constant(*_elements(instruction))]


def _elements(instruction: Instruction) -> tuple[Any, Any]:
    dense = instruction.attributes["value"]
    return dense.array, dense.type


def _by_parts(builder: Any, instruction: Instruction) -> list[Value] | None:
    """By the rule that the record has for the parts of complex numbers."""
    rule: Any = instruction.op.parts[ComplexType]
    if isinstance(rule, Separately) or not instruction.result.tensor_type.is_static:
        return None
    parts = [(builder.real(operand), builder.imag(operand)) for operand in instruction.operands]
    found = rule(builder, instruction, parts)
    return None if found is None else [builder.complex(*found[0])]

"""The numbers that are computed as their parts where a back end does not compute with them: complex ones.

In memory a complex number is its real part and its imaginary part behind it; only ``real``, ``imag`` and ``complex`` know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from hlojit.ir.formats import ComplexType, ElementType, element_type
from hlojit.ir.ops.definition import Indexed, OpDefinition, Pointwise, Trait
from hlojit.ir.ops.parts import Parts, Representation, RuleOfParts, each_part, rule_of_record
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


@final
class ComplexParts:
    """A complex number as its real and its imaginary part."""

    element_class: type[ElementType] = ComplexType

    def types(self, element: ElementType) -> tuple[ElementType, ...]:
        """The component, twice."""
        assert isinstance(element, ComplexType)
        return (element_type(element.component),) * 2

    def take_apart(self, builder: Any, value: Value) -> Parts:
        """Its ``real`` and ``imag``."""
        return builder.real(value), builder.imag(value)

    def put_together(self, builder: Any, parts: Parts, type: TensorType) -> Value:
        """A ``complex``, whose type may say more of its shape than the parts'."""
        made: Value = builder.complex(*parts, type=type)
        return made

    def constants(self, array: Any) -> tuple[Any, ...]:
        """Views of the elements' halves."""
        return array.real, array.imag

    def is_edge(self, instruction: Instruction) -> bool:
        """Whether it is ``real``, ``imag`` or ``complex``."""
        return Trait.PARTS in instruction.op.traits

    def rule(self, record: OpDefinition) -> RuleOfParts | None:
        """The record's; what moves elements moves each part."""
        found = rule_of_record(record, self.element_class)
        if found is None and isinstance(record.lowering, (Indexed, Pointwise)) and record.lowering.moves:
            return each_part
        return found


COMPLEX_PARTS: Final[Representation] = ComplexParts()

REPRESENTATIONS: Final[tuple[Representation, ...]] = (COMPLEX_PARTS,)
"""In the order in which they are asked."""

"""The numbers that are computed as their parts where a back end does not compute with them: complex ones and quantized ones.

In memory a complex number is its real part and its imaginary part behind it; only ``real``, ``imag`` and ``complex`` know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from hlojit.ir.formats import ComplexType, ElementType, QuantizedType, element_type
from hlojit.ir.ops.definition import Indexed, OpDefinition, Pointwise, Trait
from hlojit.ir.ops.parts import Parts, Representation, RuleOfParts, each_part, rule_of_record
from hlojit.ir.ops.quantization import STORAGE_CAST
from hlojit.ir.ops.quantized_arithmetic import dequantize_op_quantize, on_stored, stored_type
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


@final
class QuantizedParts:
    """A quantized number as its stored integer."""

    element_class: type[ElementType] = QuantizedType

    def types(self, element: ElementType) -> tuple[ElementType, ...]:
        """The storage type."""
        assert isinstance(element, QuantizedType)
        return (element.storage_element,)

    def take_apart(self, builder: Any, value: Value) -> Parts:
        """The same memory."""
        return (_cast(builder, value, stored_type(value.type)),)

    def put_together(self, builder: Any, parts: Parts, type: TensorType) -> Value:
        """The same memory."""
        return _cast(builder, parts[0], type)

    def constants(self, array: Any) -> tuple[Any, ...]:
        """The elements as they are stored."""
        return (array,)

    def is_edge(self, instruction: Instruction) -> bool:
        """Whether it is a storage cast."""
        return Trait.PARTS in instruction.op.traits

    def rule(self, record: OpDefinition) -> RuleOfParts | None:
        """The record's; what computes with numbers dequantizes, what else is no call works on the stored integers."""
        found = record.parts.get(QuantizedType)
        if found is not None:
            return found
        if Trait.DEQUANTIZES in record.traits:
            return dequantize_op_quantize
        found = rule_of_record(record, QuantizedType)
        called = record.callees or record.effect is not None or Trait.EFFECT in record.traits
        if found is None and record.registered and not record.regions and not called:
            return on_stored
        return found


def _cast(builder: Any, value: Value, type: TensorType) -> Value:
    made: Value = builder.create(STORAGE_CAST.name, [value], result_types=[type]).result
    return made


COMPLEX_PARTS: Final[Representation] = ComplexParts()
QUANTIZED_PARTS: Final[Representation] = QuantizedParts()

REPRESENTATIONS: Final[tuple[Representation, ...]] = (COMPLEX_PARTS, QUANTIZED_PARTS)
"""In the order in which they are asked."""

"""The numbers that are computed as their parts where a back end does not compute with them.

Those are complex numbers, quantized ones, numbers in blocks, and those of formats that no native float can carry.

In memory a complex number is its real part and its imaginary part behind it; only ``real``, ``imag`` and ``complex`` know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from hlojit.ir.block_arrays import encode_blocks
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import ComplexType, ElementType, QuantizedType, element_type
from hlojit.ir.ops.block_arithmetic import decode_op_encode, format_of, part_types
from hlojit.ir.ops.block_parts import JOIN_BLOCKS, SPLIT_BLOCKS
from hlojit.ir.ops.definition import Indexed, OpDefinition, Pointwise, Structural, Trait
from hlojit.ir.ops.integer_parts import IntegerFloatParts
from hlojit.ir.ops.parts import Parts, Representation, RuleOfParts, each_part, rule_of_record, with_element_type
from hlojit.ir.ops.quantization import STORAGE_CAST
from hlojit.ir.ops.quantized_arithmetic import dequantize_op_quantize, on_stored, stored_type
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


@final
class ComplexParts:
    """A complex number as its real and its imaginary part."""

    element_class: type[ElementType] = ComplexType
    asks_backends = True

    def represents(self, element: ElementType) -> bool:
        """All of the class."""
        return isinstance(element, ComplexType)

    def types(self, type: TensorType) -> Sequence[TensorType]:
        """The component's, twice."""
        assert isinstance(type.element_type, ComplexType)
        return (with_element_type(type, element_type(type.element_type.component)),) * 2

    def take_apart(self, builder: Any, value: Value) -> Parts:
        """Its ``real`` and ``imag``."""
        return builder.real(value), builder.imag(value)

    def put_together(self, builder: Any, parts: Parts, type: TensorType) -> Value:
        """A ``complex``, whose type may say more of its shape than the parts'."""
        made: Value = builder.complex(*parts, type=type)
        return made

    def constants(self, array: Any, type: TensorType) -> tuple[Any, ...]:
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
    asks_backends = True

    def represents(self, element: ElementType) -> bool:
        """All of the class."""
        return isinstance(element, QuantizedType)

    def types(self, type: TensorType) -> Sequence[TensorType]:
        """The storage type's."""
        assert isinstance(type.element_type, QuantizedType)
        return (with_element_type(type, type.element_type.storage_element),)

    def take_apart(self, builder: Any, value: Value) -> Parts:
        """The same memory."""
        return (_cast(builder, value, stored_type(value.type)),)

    def put_together(self, builder: Any, parts: Parts, type: TensorType) -> Value:
        """The same memory."""
        return _cast(builder, parts[0], type)

    def constants(self, array: Any, type: TensorType) -> tuple[Any, ...]:
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


@final
class BlockParts:
    """A number in blocks as its element and the scale of its block: tensors of different shapes."""

    element_class: type[ElementType] = BlockFormat
    asks_backends = True

    def represents(self, element: ElementType) -> bool:
        """All of the class."""
        return isinstance(element, BlockFormat)

    def types(self, type: TensorType) -> Sequence[TensorType]:
        """Those of the elements, of the scales and of a tensor's scale."""
        return part_types(type)

    def take_apart(self, builder: Any, value: Value) -> Parts:
        """Its ``split_blocks``."""
        parts: Parts = builder.create(SPLIT_BLOCKS.name, [value]).results
        return parts

    def put_together(self, builder: Any, parts: Parts, type: TensorType) -> Value:
        """A ``join_blocks``."""
        made: Value = builder.create(JOIN_BLOCKS.name, parts, result_types=[type]).result
        return made

    def constants(self, array: Any, type: TensorType) -> tuple[Any, ...]:
        """The numbers, encoded."""
        return encode_blocks(array, format_of(type))

    def is_edge(self, instruction: Instruction) -> bool:
        """Whether it stands at the edge to what computes with blocks itself.

        A split of what is known by its parts, and a join of which only these are wanted, are replaced.
        """
        if instruction.op == SPLIT_BLOCKS:
            producer = instruction.operands[0].producer
            return producer is not None and producer.op != JOIN_BLOCKS and Trait.CONSTANT not in producer.op.traits
        return instruction.op == JOIN_BLOCKS and any(user.op != SPLIT_BLOCKS for user in instruction.results[0].users)

    def rule(self, record: OpDefinition) -> RuleOfParts | None:
        """The record's; what is pointwise computes with the numbers, and control flow carries the parts."""
        found = record.parts.get(BlockFormat)
        if found is not None:
            return found
        if isinstance(record.lowering, Pointwise):
            return decode_op_encode
        return record.parts.get(ElementType) if isinstance(record.lowering, Structural) else None


def _cast(builder: Any, value: Value, type: TensorType) -> Value:
    made: Value = builder.create(STORAGE_CAST.name, [value], result_types=[type]).result
    return made


COMPLEX_PARTS: Final[Representation] = ComplexParts()
QUANTIZED_PARTS: Final[Representation] = QuantizedParts()
BLOCK_PARTS: Final[Representation] = BlockParts()
INTEGER_FLOAT_PARTS: Final[Representation] = IntegerFloatParts()

REPRESENTATIONS: Final[tuple[Representation, ...]] = (
    COMPLEX_PARTS,
    QUANTIZED_PARTS,
    BLOCK_PARTS,
    INTEGER_FLOAT_PARTS,
)
"""In the order in which they are asked."""

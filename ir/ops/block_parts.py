"""Tensors in blocks and their parts: where a program begins and ends, and where a back end computes with blocks itself.

    %x = "hlojit.join_blocks"(%elements, %scales) : (tensor<4x64xf8E4M3FN>, tensor<4x2xf8E8M0FNU>) -> tensor<4x64xmxfp8>
    %elements, %scales = "hlojit.split_blocks"(%x) : (tensor<4x64xmxfp8>) -> (tensor<4x64xf8E4M3FN>, tensor<4x2xf8E8M0FNU>)

To the reference a tensor in blocks is a ``BlockArray``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from hlojit.ir.block_arrays import Array, encode_blocks, gathered, multiplied, spread
from hlojit.ir.block_formats import BlockFormat, remedy, scaling_user
from hlojit.ir.formats import ComplexType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.attribute_kinds import GENERIC
from hlojit.ir.ops.block_arithmetic import BLOCK_SCALE, block_format, format_of, number_type, part_types
from hlojit.ir.ops.block_movement import BlockMove
from hlojit.ir.ops.definition import (
    AttributeSpec,
    Constraint,
    InferenceRequest,
    OpDefinition,
    Operand,
    Pointwise,
    PointwiseCall,
    Structural,
    Trait,
    define,
)
from hlojit.ir.ops.rules import operand_tensor
from hlojit.ir.scalar.arrays import decode_array
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from hlojit.ir.types import TensorType, Type, tensor


@final
class BlockArray:
    """A tensor in blocks: its parts as arrays in compute form."""

    __slots__ = ("format", "parts")

    def __init__(self, parts: Sequence[Array], format: BlockFormat):
        self.parts = tuple(parts)
        self.format = format

    @classmethod
    def of(cls, numbers: Array, format: BlockFormat) -> BlockArray:
        """The nearest numbers of a format."""
        stored = encode_blocks(numbers, format)
        return cls([decode_array(part, row) for part, row in zip(stored, format.part_formats)], format)

    @property
    def numbers(self) -> Array:
        """What it holds, in f32."""
        return multiplied(self.parts, self.format)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        found: tuple[int, ...] = self.parts[0].shape
        return found


# records


def _infer_split(request: InferenceRequest) -> Sequence[Type]:
    return part_types(operand_tensor(request, 0))


def _is_in_blocks(instruction: Instruction) -> str | None:
    type = instruction.operand_types[0]
    return None if block_format(type) is not None else f"operand must be in blocks, found {type}"


def _joins(instruction: Instruction) -> str | None:
    type = instruction.result_types[0]
    if block_format(type) is None or not isinstance(type, TensorType):
        return f"result must be in blocks, found {type}"
    expected = tuple(part_types(type))
    found = instruction.operand_types
    return None if found == expected else f"operands have the types {found}, the parts of {type} are {expected}"


SPLIT_BLOCKS = define(
    OpDefinition(
        "hlojit.split_blocks",
        operands=(Operand("operand"),),
        infer=_infer_split,
        constraints=(Constraint("C1", _is_in_blocks),),
        reference=lambda call, value: value.parts,
        traits=frozenset({Trait.PARTS}),
        parts={BlockFormat: lambda builder, instruction, operands: [(part,) for part in operands[0]]},
        summary="the elements, the scales and the tensor scale of a tensor in blocks",
    )
)

JOIN_BLOCKS = define(
    OpDefinition(
        "hlojit.join_blocks",
        operands=(Operand("parts", variadic=True),),
        constraints=(Constraint("C1", _joins),),
        reference=lambda call, *parts: BlockArray(parts, format_of(call.instruction.results[0].tensor_type)),
        traits=frozenset({Trait.PARTS}),
        parts={BlockFormat: lambda builder, instruction, operands: [tuple(parts[0] for parts in operands)]},
        summary="a tensor in blocks of its elements, its scales and its tensor scale",
    )
)


def _block_scale(builder: Any, call: PointwiseCall, largest: Any) -> Any:
    format = format_of(call.attributes["format"].type)
    return builder.call(format.scaling, ("f32",), "f32", (largest,), scaling_user(format))


define(
    OpDefinition(
        BLOCK_SCALE,
        operands=(Operand("largest"),),
        attributes=(AttributeSpec("format", GENERIC),),
        infer=lambda request: request.operand_types,
        reference=lambda call, largest: _block_scale(NumpyBuilder(), call, NumpyBuilder().value("f32", largest)).array,
        lowering=Pointwise(_block_scale),
        summary="the scale that a block format's own function chooses for the largest magnitude of a block",
    )
)


# what an instruction does to blocks


def has_blocks(instruction: Instruction) -> bool:
    """Whether an operand or a result is in blocks."""
    return any(block_format(value.type) is not None for value in (*instruction.operands, *instruction.results))


@final
class AsNumbers:
    """An instruction as rules of its record see it whose operands and results in blocks are replaced by others.

    ``type_of`` gives the type that stands for a type.
    """

    def __init__(self, instruction: Instruction, type_of: Callable[[Type], Type] = number_type):
        self._instruction = instruction
        self.operands = tuple(Value(type_of(each.type), each.owner, each.index) for each in instruction.operands)
        self.results = tuple(Value(type_of(each.type), each.owner, each.index) for each in instruction.results)
        self.operand_types = tuple(each.type for each in self.operands)
        self.result_types = tuple(each.type for each in self.results)

    @property
    def result(self) -> Value:
        """The only result."""
        (result,) = self.results
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instruction, name)


def carries_blocks(instruction: Instruction) -> bool:
    """Whether the instruction knows its operands as values only: control flow, calls, the ends of blocks, constants."""
    return isinstance(instruction.op.lowering, Structural) or Trait.PARTS in instruction.op.traits


def computes_with_blocks(instruction: Instruction) -> bool:
    """Whether it computes with the numbers that operands in blocks stand for."""
    rule = instruction.op.parts.get(BlockFormat)
    if isinstance(rule, BlockMove) or Trait.PARTS in instruction.op.traits:
        return False
    return rule is not None or (
        isinstance(instruction.op.lowering, Pointwise) and Trait.BITCAST not in instruction.op.traits
    )


def type_complaint(type: Type) -> str | None:
    """What is wrong with a tensor type in blocks."""
    format = block_format(type)
    if format is None or not isinstance(type, TensorType):
        return None
    if not -type.rank <= format.axis < type.rank:
        return (
            f"{type} has no dimension {format.axis}, along which the blocks of {format} lie{remedy(format, type.rank)}"
        )
    return None if type.is_static else f"{type}: the sizes of tensors in blocks must be known"


def op_complaint(instruction: Instruction) -> str | None:
    """Why the op takes and gives no blocks, whatever its attributes."""
    if carries_blocks(instruction) or computes_with_blocks(instruction):
        return None
    if isinstance(instruction.op.parts.get(BlockFormat), BlockMove):
        return None
    return "numbers in blocks are not what it takes or gives; convert to f32 first, and back behind it"


def block_complaint(instruction: Instruction) -> str | None:
    """Why an instruction with operands or results in blocks has no meaning, though it would have one on f32."""
    if carries_blocks(instruction):
        return None
    rule = instruction.op.parts.get(BlockFormat)
    types = (*instruction.operand_types, *instruction.result_types)
    formats = [format for type in types if (format := block_format(type)) is not None]
    for type in types:
        if isinstance(type, TensorType) and isinstance(type.element_type, ComplexType):
            return f"{type} beside numbers in blocks; convert to f32 in between"
    if isinstance(rule, BlockMove):
        moved = rule.moved(instruction)
        return f"{moved}; convert to f32 first" if isinstance(moved, str) else None
    if instruction.regions and any(map(block_format, instruction.result_types)):
        return f"its results are single numbers of f32, and not {formats[0]}; convert them behind it"
    if rule is None:
        floats = {type.element_type for type in types if isinstance(type, TensorType) and _is_f32(type)}
        if len(floats) > 1:
            return f"operands and results differ: {' and '.join(sorted(map(str, floats)))}; convert some of them"
    return None


def _is_f32(type: Type) -> bool:
    stand_in = number_type(type)
    return isinstance(stand_in, TensorType) and stand_in.element_type.name == "f32"


# the reference


def evaluate_blocks(
    instruction: Instruction, operands: Sequence[Any], run: Callable[[Any, Sequence[Any]], Sequence[Any]]
) -> list[Any]:
    """Results of an instruction with operands or results in blocks; ``run`` evaluates it for other types and values."""
    if isinstance(instruction.op.parts.get(BlockFormat), BlockMove):
        return _moved(instruction, operands, run)
    if Trait.CONSTANT in instruction.op.traits:
        (numbers,) = run(AsNumbers(instruction), operands)
        return [BlockArray.of(numbers, format_of(instruction.results[0].tensor_type))]
    if carries_blocks(instruction):
        return list(run(instruction, operands))
    if instruction.op.parts.get(BlockFormat) is not None and instruction.operand_types == instruction.result_types:
        return list(operands)  # a conversion to the same type
    numbers = [value.numbers if isinstance(value, BlockArray) else value for value in operands]
    results = run(AsNumbers(instruction), numbers)
    formats = map(block_format, instruction.result_types)
    return [value if row is None else BlockArray.of(np.asarray(value), row) for value, row in zip(results, formats)]


def _moved(
    instruction: Instruction, operands: Sequence[Any], run: Callable[[Any, Sequence[Any]], Sequence[Any]]
) -> list[Any]:
    """What moves elements does the same to elements and to every element's scale."""
    format = format_of(instruction.results[0].tensor_type)

    def moved(number: int, values: Callable[[BlockArray], Array]) -> Array:
        def type_of(type: Type) -> Type:
            if not isinstance(type, TensorType) or block_format(type) is None:
                return type
            return tensor(type.shape, format.part_formats[number])

        arrays = [values(value) if isinstance(value, BlockArray) else value for value in operands]
        (found,) = run(AsNumbers(instruction, type_of), arrays)
        return np.asarray(found)

    elements = moved(0, lambda value: value.parts[0])
    scales = gathered(moved(1, lambda value: spread(value.parts[1], value.shape, value.format)), format)
    assert scales is not None, "verified: blocks stay together"
    first: BlockArray = operands[0]
    return [BlockArray((elements, scales, *first.parts[2:]), format)]

"""What moves numbers in blocks: an op is done to the elements and to the scales, where whole blocks stay together.

    slice %x [0:4, 32:96] : tensor<4x128xmxfp8>     =>    slice %elements [0:4, 32:96]    slice %scales [0:4, 1:3]

Moving never changes a number.  Where an op would put numbers of different blocks into one, it is refused with the reason: a
program that wants new blocks converts to f32, moves, and converts back.

A record names its rule in ``parts``: ``rule(instruction, format, axis)`` returns the dimension of the result along which the
blocks lie, and the attributes of the op on the scales; or why blocks do not stay together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.ops.block_arithmetic import block_format, part_types
from hlojit.ir.ops.parts import Parts
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

Moved = tuple[int, Mapping[str, Any]]
MoveRule = Callable[[Any, BlockFormat, int], Moved | str]


@dataclass(frozen=True, slots=True)
class BlockMove:
    """The rule in a record of an op that moves elements."""

    rule: MoveRule

    def moved(self, instruction: Any) -> Moved | str:
        """Where the blocks of the result lie, and attributes for scales; or why the op is refused."""
        moving = [type for type in instruction.operand_types if block_format(type) is not None]
        results = [type for type in instruction.result_types if block_format(type) is not None]
        if not moving or len(results) != len(instruction.result_types):
            return "it moves numbers in blocks, and operands and result must be of one block format"
        format, target = moving[0].element_type, results[0].element_type
        if any(type.element_type != format for type in moving) or not format.same_numbers(target):
            return f"operands and result must be of one block format, found {format} and {target}"
        if len(moving) > 1 and format.tensor_scale is not None:
            return "its operands have a tensor scale each"
        found = self.rule(instruction, format, format.dimension(moving[0].rank))
        if not isinstance(found, str) and found[0] != target.dimension(results[0].rank):
            way = f"blocks lie along dimension {found[0]} of the result, of type {target} along "
            return f"{way}{target.dimension(results[0].rank)}"
        return found

    def __call__(self, builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
        found = self.moved(instruction)
        if isinstance(found, str):
            return None
        types, made = part_types(instruction.results[0].tensor_type), []
        for number, type in enumerate(types[:2]):
            chosen = [
                operand if block_format(operand.type) is None else parts[number]
                for parts, operand in zip(operands, instruction.operands)
            ]
            attributes = found[1] if number else instruction.attributes
            made.append(builder.create(instruction.op.name, chosen, attributes=attributes, result_types=[type]).result)
        return [(*made, *operands[0][2:])]


def _shape(instruction: Any, position: int = 0) -> tuple[int, ...]:
    found: tuple[int, ...] = instruction.operand_types[position].shape
    return found


def _along(axis: int) -> str:
    return f"along dimension {axis}, in which the blocks lie,"


def _replaced(values: Sequence[int], axis: int, value: int) -> tuple[int, ...]:
    return tuple(value if position == axis else each for position, each in enumerate(values))


def _transpose(instruction: Any, format: BlockFormat, axis: int) -> Moved | str:
    return list(instruction.attributes["permutation"]).index(axis), instruction.attributes


def _broadcast(instruction: Any, format: BlockFormat, axis: int) -> Moved | str:
    target = instruction.attributes["broadcast_dimensions"][axis]
    result: TensorType = instruction.result_types[0]
    if result.shape[target] != _shape(instruction)[axis]:
        return f"it repeats numbers {_along(axis)} and blocks would be new ones"
    return target, instruction.attributes


def _reshape(instruction: Any, format: BlockFormat, axis: int) -> Moved | str:
    shape, result = _shape(instruction), instruction.result_types[0].shape
    target = instruction.result_types[0].element_type.dimension(len(result))
    if math.prod(result[target + 1 :]) == math.prod(shape[axis + 1 :]):
        whole = shape[axis] % format.block == 0 and result[target] % format.block == 0
        if whole or shape[axis] == result[target]:
            return target, instruction.attributes
    return f"dimension {target} of the result {result} does not hold the blocks of {format.block} of dimension {axis} of {shape}"


def _reverse(instruction: Any, format: BlockFormat, axis: int) -> Moved | str:
    extent = _shape(instruction)[axis]
    if axis in instruction.attributes["dimensions"] and extent % format.block:
        return (
            f"{_along(axis)} {extent} elements are no multiple of {format.block}, and the short block would come first"
        )
    return axis, instruction.attributes


def _slice(instruction: Any, format: BlockFormat, axis: int) -> Moved | str:
    attributes, block, extent = instruction.attributes, format.block, _shape(instruction)[axis]
    names = ("start_indices", "limit_indices", "strides")
    start, limit, stride = (attributes[name][axis] for name in names)
    if start % block or stride != 1 or (limit % block and limit != extent):
        return f"{_along(axis)} {start}:{limit}:{stride} are no whole blocks of {block}"
    changed = {"start_indices": start // block, "limit_indices": -(-limit // block), "strides": 1}
    return axis, {**attributes, **{name: _replaced(attributes[name], axis, changed[name]) for name in names}}


def _concatenate(instruction: Any, format: BlockFormat, axis: int) -> Moved | str:
    if instruction.attributes["dimension"] == axis:
        for position in range(len(instruction.operand_types) - 1):
            if (extent := _shape(instruction, position)[axis]) % format.block:
                return f"{_along(axis)} input {position} has {extent} elements, no multiple of {format.block}"
    return axis, instruction.attributes


def _dynamic_slice(instruction: Any, format: BlockFormat, axis: int) -> Moved | str:
    sizes, extent = instruction.attributes["slice_sizes"], _shape(instruction)[axis]
    if sizes[axis] != extent:
        return f"{_along(axis)} it takes {sizes[axis]} of {extent} elements, from a place that only the run tells"
    blocks = format.part_shapes(_shape(instruction))[1][axis]
    return axis, {**instruction.attributes, "slice_sizes": _replaced(sizes, axis, blocks)}


def _update(instruction: Any, format: BlockFormat, axis: int) -> Moved | str:
    update, extent = _shape(instruction, 1)[axis], _shape(instruction)[axis]
    if update != extent:
        return f"{_along(axis)} it writes {update} of {extent} elements, to a place that only the run tells"
    return axis, instruction.attributes


def _gather(instruction: Any, format: BlockFormat, axis: int) -> Moved | str:
    numbers, sizes = instruction.attributes["dimension_numbers"], instruction.attributes["slice_sizes"]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    extent = _shape(instruction)[axis]
    if axis in dropped or sizes[axis] != extent:
        return f"{_along(axis)} it takes single elements or {sizes[axis]} of {extent}"
    kept = [dimension for dimension in range(len(sizes)) if dimension not in dropped]
    blocks = format.part_shapes(_shape(instruction))[1][axis]
    attributes = {**instruction.attributes, "slice_sizes": _replaced(sizes, axis, blocks)}
    return numbers.offset_dims[kept.index(axis)], attributes


BLOCK_TRANSPOSE: Final = BlockMove(_transpose)
BLOCK_BROADCAST: Final = BlockMove(_broadcast)
BLOCK_RESHAPE: Final = BlockMove(_reshape)
BLOCK_REVERSE: Final = BlockMove(_reverse)
BLOCK_SLICE: Final = BlockMove(_slice)
BLOCK_CONCATENATE: Final = BlockMove(_concatenate)
BLOCK_DYNAMIC_SLICE: Final = BlockMove(_dynamic_slice)
BLOCK_UPDATE: Final = BlockMove(_update)
BLOCK_GATHER: Final = BlockMove(_gather)

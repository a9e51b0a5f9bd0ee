"""What ops of ``shape``, ``tensor`` and ``arith`` are in StableHLO: rules of the pass ``shape-legalizer``.

A rule is given a builder and the instruction, whose operands are tensors already, and returns what stands for the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from hlojit.ir.attributes import Dense
from hlojit.ir.builder import Builder
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import INDEX, ElementType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops import BUILT_IN, shape_computations
from hlojit.ir.ops.definition import Expand
from hlojit.ir.passes.graph_facts import int_constant_of
from hlojit.ir.types import ScalarType, TensorType, Type, tensor

SIZE: Final = tensor((), "i64")
"""What an ``index`` becomes."""

Rule = Callable[[Builder, Instruction], Value]


def converted(type: Type) -> Type:
    """The type that stands for a single number, for a tensor of ``index`` or for a size; others stay."""
    if isinstance(type, ScalarType):
        return tensor((), _plain(type.element_type))
    if isinstance(type, TensorType) and type.element_type is INDEX:
        return tensor(type.shape, _plain(INDEX), type.encoding)
    return SIZE if type is shape_computations.SIZE else type


def _plain(element: ElementType) -> ElementType:
    return SIZE.element_type if element is INDEX else element


def _result(instruction: Instruction) -> TensorType:
    found = converted(instruction.result_types[0])
    if not isinstance(found, TensorType):
        raise refused(instruction, f"its result has type {found}")
    return found


def refused(instruction: Instruction, reason: str) -> UnsupportedError:
    """The error for what has no StableHLO."""
    return UnsupportedError(instruction.op.name, "", reason, instruction.location)


def _by_record(b: Builder, instruction: Instruction) -> Value:
    """What the op's record expands it into, on tensors."""
    lowering = instruction.op.lowering
    # The result's type is looked at, too.
    for result in instruction.results:
        result.type = converted(result.type)
    values = lowering.rule(b, instruction) if isinstance(lowering, Expand) else None
    if values is None:
        raise refused(instruction, f"it has no form in StableHLO for {', '.join(map(str, instruction.operand_types))}")
    return values[0]


def _cast(b: Builder, instruction: Instruction) -> Value:
    """A static shape that says more or less."""
    (source,) = instruction.operands
    if not isinstance(source.type, TensorType):
        raise refused(instruction, f"{source.type} has no rank")
    return b.create("convert", [source], result_types=[_result(instruction)]).result


def _constant(b: Builder, instruction: Instruction) -> Value:
    value, type = instruction.attributes["value"], _result(instruction)
    numbers = value.array if isinstance(value, Dense) else np.asarray(value.value)
    return b.constant(numbers.astype(type.element_type.storage), type)


def _sizes(b: Builder, value: Value) -> list[Value]:
    return [_size(b, value, dimension) for dimension in range(value.tensor_type.rank)]


def _size(b: Builder, value: Value, dimension: int) -> Value:
    found = b.create("get_dimension_size", [value], attributes={"dimension": dimension}).result
    return b.convert(found, "i64")


def _list(b: Builder, scalars: Sequence[Value], type: TensorType) -> Value:
    """Scalars as a tensor."""
    if not scalars:
        return b.constant(np.zeros(type.shape, type.element_type.storage), type)
    parts = [b.reshape(scalar, (1,)) for scalar in scalars]
    line = parts[0] if len(parts) == 1 else b.create("concatenate", parts, attributes={"dimension": 0}).result
    return line if line.tensor_type.shape == type.shape else b.reshape(line, type.shape)


def _shape_of(b: Builder, instruction: Instruction) -> Value:
    (value,) = instruction.operands
    return _list(b, _sizes(b, value), tensor((value.tensor_type.rank,), "i64"))


def _elements(b: Builder, value: Value) -> list[Value]:
    """The elements of a list of known length."""
    found = []
    for number in range(value.tensor_type.shape[0]):
        bounds = {"start_indices": (number,), "limit_indices": (number + 1,), "strides": (1,)}
        found.append(b.reshape(b.create("slice", [value], attributes=bounds).result, ()))
    return found


def _num_elements(b: Builder, instruction: Instruction) -> Value:
    total = b.constant(1, SIZE)
    for each in _elements(b, instruction.operands[0]):
        total = b.create("multiply", [total, each]).result
    return total


def _broadcast(b: Builder, instruction: Instruction) -> Value:
    """Sizes of 1 give way, from the last dimension on."""
    rows = [_elements(b, operand) for operand in instruction.operands]
    one = b.constant(1, SIZE)
    found = []
    for place in range(max(map(len, rows), default=0)):
        size = one
        for row in rows:
            if place < len(row):
                own = row[len(row) - 1 - place]
                size = b.create("select", [b.compare(size, one, "EQ"), own, size]).result
        found.append(size)
    return _list(b, found[::-1], tensor((len(found),), "i64"))


def _const_shape(b: Builder, instruction: Instruction) -> Value:
    shape = instruction.attributes["shape"].array
    return b.constant(np.array(shape, np.int64), tensor((len(shape),), "i64"))


def _dim(b: Builder, instruction: Instruction) -> Value:
    source, index = instruction.operands
    number = int_constant_of(index)
    if number is not None and 0 <= number < source.tensor_type.rank:
        return _size(b, source, number)
    if number is not None:
        raise refused(instruction, f"dimension {number} is not one of {source.type}")
    sizes = _list(b, _sizes(b, source), tensor((source.tensor_type.rank,), "i64"))
    return b.reshape(b.create("dynamic_slice", [sizes, index], attributes={"slice_sizes": (1,)}).result, ())


def _from_elements(b: Builder, instruction: Instruction) -> Value:
    return _list(b, instruction.operands, _result(instruction))


def _extract(b: Builder, instruction: Instruction) -> Value:
    source, *indices = instruction.operands
    places = [int_constant_of(index) for index in indices]
    known = [place for place in places if place is not None]
    if len(known) == len(places):
        bounds = {
            "start_indices": tuple(known),
            "limit_indices": tuple(place + 1 for place in known),
            "strides": (1,) * len(known),
        }
        return b.reshape(b.create("slice", [source], attributes=bounds).result, ())
    part = b.create("dynamic_slice", [source, *indices], attributes={"slice_sizes": (1,) * len(indices)}).result
    return b.reshape(part, ())


RULES: Final[Mapping[str, Rule]] = {
    **{name: _by_record for name in BUILT_IN if name.startswith("arith.")},
    "arith.constant": _constant,
    "shape.shape_of": _shape_of,
    "shape.num_elements": _num_elements,
    "shape.broadcast": _broadcast,
    "shape.const_shape": _const_shape,
    "tensor.dim": _dim,
    "tensor.from_elements": _from_elements,
    "tensor.extract": _extract,
    "tensor.cast": _cast,
}


def is_shape_op(instruction: Instruction) -> bool:
    """Whether the instruction is one of those."""
    return instruction.op.name in RULES


def legalized(instruction: Instruction) -> Value:
    """What stands for the only result of an instruction, built in front of it."""
    return RULES[instruction.op.name](Builder.in_front_of(instruction), instruction)

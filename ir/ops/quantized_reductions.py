"""Reductions of quantized numbers.

Operands of another quantized type than the body's (a promoted one) are requantized first.  Sums are exact: a body that only
adds two numbers of one type adds integers, of which the last is clamped, so that no order of combination shows::

    reduce(%x, %init) { add }      %s = reduce(subtract(convert(%x), zero), subtract(convert(%init), zero)) { add } : i32
                                   convert(clamp(min, add(%s, zero), max)) : i8
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import IntegerType, QuantizedType, element_type
from hlojit.ir.ops.definition import Array, ReferenceCall, Trait
from hlojit.ir.ops.parts import Parts, Separately
from hlojit.ir.ops.quantized_arithmetic import clamped, dequantized, differences, quantized_numbers
from hlojit.ir.ops.quantized_arrays import requantize
from hlojit.ir.ops.quantized_rules import quantized_element
from hlojit.ir.types import TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


def summed_element(instruction: Instruction) -> QuantizedType | None:
    """The element type of the numbers that the instruction's body adds, if that is all that it does."""
    body = instruction.regions[0]
    step = body.first
    if len(instruction.operands) != 2 or step is None or len(body) != 2 or body.returned != step.results:
        return None
    element = quantized_element(step.results[0].type)
    same = all(type is step.results[0].type for type in step.operand_types)
    if element is None or not same or Trait.ADDS not in step.op.traits or set(step.operands) != set(body.arguments):
        return None
    return element


# on arrays


class _Sums:
    """A call whose body adds integers."""

    def __init__(self, call: ReferenceCall):
        self._call = call
        self.instruction = call.instruction
        self.process = call.process

    @property
    def attributes(self) -> Mapping[str, Any]:
        return self._call.attributes

    def exchange(self, members: tuple[int, ...], value: Any) -> Mapping[int, Any]:
        return self._call.exchange(members, value)

    def run(self, region: int, *arguments: Any) -> tuple[Any, ...]:
        return (arguments[0] + arguments[1],)

    def call(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        return self._call.call(function, *arguments)


def reduces_quantized(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The reference semantics of an op with a body, for quantized operands as well."""

    def evaluate(call: ReferenceCall, *operands: Array) -> Any:
        at = call.instruction
        if not any(map(quantized_element, at.operand_types)):
            return reference(call, *operands)
        arrays = list(operands)
        for position, type in enumerate(at.operand_types):
            target = _promoted(at, position)
            if target is not None and isinstance(type, TensorType):
                arrays[position] = requantize(operands[position], type, tensor(type.shape, target))
        element = summed_element(at)
        if element is None:
            return reference(call, *arrays)
        zero = element.zero_points[0]
        wide = [array.astype(np.int64) - zero for array in arrays]
        results = reference(_Sums(call), *wide)
        (sums,) = results if isinstance(results, tuple) else (results,)
        return np.asarray(np.clip(sums + zero, element.minimum, element.maximum).astype(element.storage))

    return evaluate


def _promoted(instruction: Instruction, position: int) -> QuantizedType | None:
    """The element type to which an operand is promoted; None if it has it, or is not quantized."""
    source = quantized_element(instruction.operand_types[position])
    arguments = instruction.regions[0].arguments
    if source is None:
        return None
    # Behind the inputs come inits or updates; indices stand between.
    between = len(instruction.operands) - len(arguments)
    target = quantized_element(arguments[position if position < len(arguments) // 2 else position - between].type)
    return None if target is None or target == source else target


# as operations


def reduced_parts(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Any:
    """An op whose region combines elements."""
    if not all(isinstance(type, TensorType) and type.is_static for type in instruction.operand_types):
        return None
    parts = [
        _requantized(builder, part[0], operand.tensor_type, _promoted(instruction, position))
        for position, (part, operand) in enumerate(zip(operands, instruction.operands))
    ]
    element = summed_element(instruction)
    if element is None:
        return Separately(operands=tuple(parts))
    return [(_exact_sums(builder, instruction, parts, element),)]


def _requantized(builder: Any, part: Value, type: TensorType, target: QuantizedType | None) -> Value:
    if target is None:
        return part
    return quantized_numbers(builder, dequantized(builder, part, type), tensor(type.shape, target))


def _exact_sums(builder: Any, instruction: Instruction, parts: Sequence[Value], element: QuantizedType) -> Value:
    """The op with a body that adds integers, on differences from the zero point."""
    step = instruction.regions[0].first
    assert step is not None
    source, result = instruction.operands[0].tensor_type, instruction.results[0].tensor_type
    terms = math.prod(instruction.attributes.get("window_dimensions") or (source.size // max(result.size, 1),))
    narrow = (terms + 2) << (element.storage_element.bits + 1) < 1 << 31
    row = element_type("i32" if narrow else "i64")
    assert isinstance(row, IntegerType)
    wide = [
        differences(builder, part, tensor(operand.tensor_type.shape, element), row)
        for part, operand in zip(parts, instruction.operands)
    ]
    shape = result.shape
    made = builder.create(
        instruction.op.name,
        wide,
        attributes=instruction.attributes,
        regions=[builder.combiner(step.op.name, row)],
        result_types=[tensor(shape, row)],
    )
    zero = builder.constant(element.zero_points[0], tensor(shape, row))
    whole = builder.add(made.result, zero) if element.zero_points[0] else made.result
    limits = max(element.minimum, row.minimum), min(element.maximum, row.maximum)
    stored: Value = builder.convert(clamped(builder, whole, element, limits), element.storage_element)
    return stored

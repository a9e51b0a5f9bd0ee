"""Products of complex numbers that are sums of few terms: elementwise arithmetic on parts, and the plain formula's rounding.

dot_general of 4x3 and 3x6       =>      lhs[:, 0] * rhs[0, :] + lhs[:, 1] * rhs[1, :] + lhs[:, 2] * rhs[2, :]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product as every
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.formats import ComplexType, element_type
from hlojit.ir.ops.complex_arithmetic import product
from hlojit.ir.ops.parts import Parts
from hlojit.ir.ops.views import DotView

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

MOST_TERMS: Final = 4
"""Sums of more terms are a kernel's: that of few reads both operands about as often as an elementwise op does."""


def has_many_terms(instruction: Instruction) -> bool:
    """Whether each element of a product is a sum of more terms than are written out."""
    lhs = instruction.operands[0].tensor_type
    if not lhs.is_static:
        return True
    return math.prod(lhs.shape[each] for each in DotView.of(instruction).numbers.lhs_contracting) > MOST_TERMS


def product_of_few_terms(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """The terms in order, each rounded as a product of complex numbers is."""
    numbers, types = DotView.of(instruction).numbers, [operand.tensor_type for operand in instruction.operands]
    if has_many_terms(instruction) or not types[1].is_static:
        return None
    shape, element = instruction.result.tensor_type.shape, instruction.result.tensor_type.element_type
    assert isinstance(element, ComplexType)
    component = element_type(element.component)
    sides = [[_converted(builder, part, component) for part in parts] for parts in operands]
    contracting = numbers.lhs_contracting, numbers.rhs_contracting
    batching = numbers.lhs_batching, numbers.rhs_batching
    free = [
        [d for d in range(type.rank) if d not in (*batch, *contracted)]
        for type, batch, contracted in zip(types, batching, contracting)
    ]
    count = len(batching[0])
    places = [
        [*range(count), *range(count, count + len(free[0]))],
        [*range(count), *range(count + len(free[0]), len(shape))],
    ]
    total: Parts | None = None
    for step in every(*(range(types[0].shape[d]) for d in contracting[0])):
        factors = [
            _factor(builder, part, dict(zip(contracted, step)), [*batch, *others], shape, place)
            for parts, contracted, batch, others, place in zip(sides, contracting, batching, free, places)
            for part in parts
        ]
        term = product(builder, *factors)
        total = term if total is None else tuple(builder.add(*pair) for pair in zip(total, term))
    if total is None:
        return [tuple(builder.constant(0.0, factor_type) for factor_type in _result_types(instruction))]
    return [total]


def _result_types(instruction: Instruction) -> list[Any]:
    type = instruction.result.tensor_type
    assert isinstance(type.element_type, ComplexType)
    return [type.with_element_type(type.element_type.component)] * 2


def _converted(builder: Any, part: Value, element: Any) -> Value:
    made: Value = part if part.tensor_type.element_type is element else builder.convert(part, element)
    return made


def _factor(
    builder: Any, part: Value, at: dict[int, int], kept: Sequence[int], shape: Sequence[int], place: Sequence[int]
) -> Value:
    """The elements of an operand at one step of the contracted dimensions, in the shape of the result."""
    type = part.tensor_type
    sliced = builder.create(
        "stablehlo.slice",
        [part],
        attributes={
            "start_indices": tuple(at.get(d, 0) for d in range(type.rank)),
            "limit_indices": tuple(at[d] + 1 if d in at else type.shape[d] for d in range(type.rank)),
            "strides": (1,) * type.rank,
        },
    ).result
    order = [*kept, *(d for d in range(type.rank) if d not in kept)]
    turned = builder.transpose(sliced, tuple(order))
    smaller = builder.reshape(turned, [type.shape[d] for d in kept])
    made: Value = builder.broadcast_in_dim(smaller, shape, tuple(place))
    return made

"""Arithmetic on complex numbers by arithmetic on their parts: rules for ``OpDefinition.parts``.

    product(builder, a, b, c, d)    # the parts of (a + bi) (c + di)

The product is the plain formula, as NumPy's and XLA's.  What takes more than a few instructions is a rule on scalars
(``hlojit.ir.ops.complex_functions``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.formats import ComplexType, element_type
from hlojit.ir.ops.parts import Parts, PartsRule

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


def of_parts(function: Callable[..., Parts]) -> PartsRule:
    """The rule of a function of a builder and the parts of all operands, which returns those of the only result."""

    def rule(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
        return [function(builder, *(part for parts in operands for part in parts))]

    return rule


def product(builder: Any, a: Value, b: Value, c: Value, d: Value) -> Parts:
    """(a + bi)(c + di)."""
    real = builder.subtract(builder.multiply(a, c), builder.multiply(b, d))
    return real, builder.add(builder.multiply(a, d), builder.multiply(b, c))


# comparison: by real parts, by imaginary parts where these are equal


def compared(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """EQ and NE of both parts; other directions in lexicographic order."""
    (a, b), (c, d) = operands
    direction = instruction.attributes["comparison_direction"]
    real, imaginary = builder.compare(a, c, direction), builder.compare(b, d, direction)
    if direction == "EQ":
        return [(builder.and_(real, imaginary),)]
    if direction == "NE":
        return [(builder.or_(real, imaginary),)]
    return [(builder.select(builder.compare(a, c, "EQ"), imaginary, real),)]


def extremum(direction: str) -> PartsRule:
    """The first of two numbers if it stands in a relation to the second; the one that is NaN, if one is."""

    def rule(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
        (a, b), (c, d) = operands
        before = builder.select(
            builder.compare(a, c, "EQ"), builder.compare(b, d, direction), builder.compare(a, c, direction)
        )
        is_nan = [
            builder.or_(builder.compare(real, real, "NE"), builder.compare(imaginary, imaginary, "NE"))
            for real, imaginary in operands
        ]
        first = builder.or_(is_nan[0], builder.and_(before, builder.not_(is_nan[1])))
        return [(builder.select(first, a, c), builder.select(first, b, d))]

    return rule


def clamped(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """minimum(maximum(operand, min), max)."""
    shape = instruction.result.tensor_type.shape
    low, x, high = (
        parts if parts[0].tensor_type.rank else tuple(builder.broadcast_in_dim(part, shape) for part in parts)
        for parts in operands
    )
    (raised,) = extremum("GT")(builder, instruction, [x, low]) or ()
    return extremum("LT")(builder, instruction, [raised, high]) or ()


# between real and complex numbers


def counted(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """An iota: its real part, and 0."""
    type = instruction.result.tensor_type
    assert isinstance(type.element_type, ComplexType)
    part = type.with_element_type(type.element_type.component)
    dimension = instruction.attributes["iota_dimension"]
    return [(builder.iota(part, dimension), builder.constant(0.0, part))]


def bits_of_parts(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """Between widths: the halves of a wide number's real part are a narrow number, and those of its imaginary part another."""
    ((real, imaginary),) = operands
    (operand,), result = instruction.operands, instruction.result.tensor_type
    source, target = operand.tensor_type.element_type, result.element_type
    if source == target:
        return [(real, imaginary)]
    if not result.is_static or not operand.tensor_type.is_static:
        return None
    assert isinstance(target, ComplexType)
    if source.bits > target.bits:
        halves = [
            builder.bitcast_convert(part, result.with_element_type(target.component)) for part in (real, imaginary)
        ]
        both = [_along_last(builder, half, number) for number in range(2) for half in halves]
        return [(_joined(builder, both[:2]), _joined(builder, both[2:]))]
    firsts, seconds = ([_along_last(builder, part, number) for part in (real, imaginary)] for number in range(2))
    wide = result.with_element_type(target.component)
    return [tuple(builder.bitcast_convert(_joined(builder, pair), wide) for pair in (firsts, seconds))]


def _along_last(builder: Any, value: Value, number: int) -> Value:
    """The elements with this number in the last dimension, which stays."""
    shape = value.tensor_type.shape
    starts = (*(0 for _ in shape[:-1]), number)
    made: Value = builder.slice(value, starts, (*shape[:-1], number + 1), (1,) * len(shape))
    return made


def _joined(builder: Any, values: Sequence[Value]) -> Value:
    last = values[0].tensor_type.rank - 1
    made: Value = builder.create("stablehlo.concatenate", values, attributes={"dimension": last}).result
    return made


def converted(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """Both parts to another width; of a complex number its real part; of any other number, that and 0."""
    ((*parts,),) = operands
    element = instruction.result.tensor_type.element_type
    if not isinstance(element, ComplexType):
        return [(builder.convert(parts[0], element),)]
    component = element_type(element.component)
    found = [builder.convert(part, component) for part in parts]
    zero = [] if len(found) == 2 else [builder.constant(0.0, found[0].tensor_type)]
    return [(*found, *zero)]

"""Arithmetic on complex numbers by arithmetic on their parts: rules for ``OpDefinition.parts``.

    product(builder, a, b, c, d)    # the parts of (a + bi) (c + di)

The product is the plain formula, as NumPy's and XLA's.  What takes more than a few instructions is a rule on scalars
(``hlojit.ir.ops.pairs``).
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

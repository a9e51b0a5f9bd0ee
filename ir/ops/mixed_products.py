"""Products whose result is of another kind of numbers than the operands: kernels multiply numbers of one kind.

    dot_general(%x, %y) : f32 -> complex<f32>     =>   dot_general(convert %x, convert %y) : complex<f32>
    dot_general(%x, %y) : f32 -> i32              =>   dot_general(convert %x, convert %y) : i32
    dot_general(%x, %y) : complex<f32> -> f32     =>   convert(dot_general(%x, %y) : complex<f32>)
    dot_general(%x, %y) : f32 -> i1               =>   convert(dot_general(%x, %y) : f32)

Operands become numbers of the result where that loses no more than rounding does.  Where it would lose a part of complex
numbers, or whether a sum is zero, the result is converted.  Floats, and integers to floats, kernels do themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.formats import (
    BooleanType,
    ComplexType,
    ElementType,
    FloatFormat,
    IntegerType,
    QuantizedType,
    element_type,
)

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


def multiplied_as(operands: Sequence[ElementType], result: ElementType) -> ElementType:
    """The element type in which a product is computed that has such operands and such a result.

    It is the result's except where the result is converted behind the product.
    """
    given = operands[0]
    if isinstance(given, ComplexType) and not isinstance(result, ComplexType):
        return given
    if isinstance(result, BooleanType) and not isinstance(given, BooleanType):
        if not isinstance(given, FloatFormat):
            return given
        return element_type("f64" if any(each.name == "f64" for each in operands) else "f32")
    return result


def _elements(instruction: Instruction) -> tuple[list[ElementType], ElementType]:
    operands = [operand.tensor_type.element_type for operand in instruction.operands[:2]]
    return operands, instruction.results[0].tensor_type.element_type


def _converted_operands(operands: Sequence[ElementType], element: ElementType) -> bool:
    """Whether operands have to be numbers of the type in which they are multiplied."""
    if isinstance(element, ComplexType):
        return any(each != element for each in operands)
    return isinstance(element, IntegerType) and any(isinstance(each, FloatFormat) for each in operands)


def declined_mixture(instruction: Instruction) -> str:
    """Why no kernel takes a product of such operands to such a result, or an empty string."""
    operands, result = _elements(instruction)
    if any(isinstance(each, QuantizedType) for each in (*operands, result)):
        return ""
    element = multiplied_as(operands, result)
    if element == result and not _converted_operands(operands, element):
        return ""
    return f"its result is of {result} and its operands of {operands[0]}"


def product_of_one_kind(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """A product whose operands and result kernels take, with what is left converted; None where they take it as it is."""
    if not declined_mixture(instruction):
        return None
    operands, result = _elements(instruction)
    element, sides = multiplied_as(operands, result), list(instruction.operands)
    if _converted_operands(operands, element):
        sides[:2] = [
            side if given == element else builder.convert(side, element) for side, given in zip(sides[:2], operands)
        ]
    type = instruction.results[0].tensor_type.with_element_type(element)
    made: Value = builder.create(
        instruction.op.name, sides, attributes=instruction.attributes, result_types=[type]
    ).result
    return [made if element == result else builder.convert(made, result)]

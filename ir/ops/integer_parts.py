"""Formats that are computed in integers: which op on integers stands in the place of which op on numbers.

Rules as ``hlojit.ir.ops.parts`` has them; a value's only part are its codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from hlojit.ir.formats import (
    BooleanType,
    ComplexType,
    ElementType,
    FloatFormat,
    IntegerType,
    element_type,
)
from hlojit.ir.ops import integer_floats as soft
from hlojit.ir.ops.comparison import CLAMP, COMPARE
from hlojit.ir.ops.constants import IOTA
from hlojit.ir.ops.convert import BITCAST_CONVERT, CONVERT
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import Indexed, OpDefinition, Pointwise
from hlojit.ir.ops.elementwise import (
    ABS,
    ADD,
    CEIL,
    DIVIDE,
    FLOOR,
    IS_FINITE,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    NEGATE,
    ROUND_NEAREST_AFZ,
    ROUND_NEAREST_EVEN,
    SIGN,
    SUBTRACT,
)
from hlojit.ir.ops.parts import Parts, RuleOfParts, each_part, with_element_type
from hlojit.ir.ops.products import DOT_GENERAL
from hlojit.ir.ops.quantization import STORAGE_CAST
from hlojit.ir.ops.transcendental import SQRT
from hlojit.ir.ops.views import CompareView
from hlojit.ir.scalar.integer_floats import TO_ODD
from hlojit.ir.types import TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

Draw = tuple["Value", "Value", int, int]
"""Place, iteration, number and seed of a stochastic rounding."""


def is_in_integers(type: Type) -> bool:
    """Whether elements of a tensor are of a format that is computed in integers."""
    return isinstance(type, TensorType) and _is_soft(type.element_type)


def _is_soft(element: ElementType) -> bool:
    return isinstance(element, FloatFormat) and element.in_integers


def concerns(instruction: Instruction) -> bool:
    """Whether an operand or a result is of such a format."""
    return any(map(is_in_integers, instruction.operand_types)) or any(map(is_in_integers, instruction.result_types))


def left_over(instruction: Instruction) -> str:
    """Why an instruction that still computes with such numbers cannot be compiled, or an empty string."""
    record = instruction.op
    moves = isinstance(record.lowering, (Indexed, Pointwise)) and record.lowering.moves
    if not concerns(instruction) or record == STORAGE_CAST or record.host_role or moves or is_custom_call(instruction):
        return ""
    types = (*instruction.operand_types, *instruction.result_types)
    name = next(type.element_type.name for type in types if is_in_integers(type) and isinstance(type, TensorType))
    return (
        f"{name} is computed in integers, because no native float can carry it, and this op is not; convert its operands to f64 "
        "where its precision is enough"
    )


def codes_type(type: TensorType) -> TensorType:
    """The type of the integers that hold the codes of a format's numbers."""
    element = type.element_type
    assert isinstance(element, FloatFormat)
    return with_element_type(type, element_type(f"ui{element.storage_bits.itemsize * 8}"))


def _form(type: Type) -> tuple[int, ...]:
    assert isinstance(type, TensorType) and isinstance(type.element_type, FloatFormat)
    return soft.form_of(type.element_type)


def _made(
    builder: Any,
    record: OpDefinition,
    operands: Sequence[Value],
    type: TensorType,
    draw: Draw | None,
    **attributes: Any,
) -> Value:
    if draw is not None:
        operands = [*operands, *draw[:2]]
        attributes |= {"number": draw[2], "seed": draw[3]}
    made: Value = builder.create(record.name, operands, attributes=attributes, result_types=[type]).result
    return made


def pointwise(
    builder: Any, instruction: Instruction, operands: Sequence[Parts], draw: Draw | None = None
) -> Sequence[Parts]:
    """Arithmetic and choices: the op on codes."""
    record = _ON_CODES[instruction.op]
    type = instruction.results[0].tensor_type
    codes = [parts[0] for parts in operands]
    return [(_made(builder, record, codes, codes_type(type), draw, form=_form(type)),)]


def _compared(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    view = CompareView.of(instruction)
    attributes = {
        "direction": view.direction,
        "total": view.is_total_order,
        "form": _form(instruction.operand_types[0]),
    }
    codes = [parts[0] for parts in operands]
    return [(_made(builder, soft.COMPARE, codes, instruction.results[0].tensor_type, None, **attributes),)]


def _finite(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    form, type = _form(instruction.operand_types[0]), instruction.results[0].tensor_type
    return [(_made(builder, soft.IS_FINITE, operands[0], type, None, form=form),)]


def _clamped(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    (low,), (x,), (high,) = operands
    form, type = _form(instruction.results[0].type), x.tensor_type
    low, high = (
        bound if bound.tensor_type.shape == type.shape else builder.broadcast_in_dim(bound, type, ())
        for bound in (low, high)
    )
    raised = _made(builder, soft.CHOOSING["maximum"], [x, low], type, None, form=form)
    return [(_made(builder, soft.CHOOSING["minimum"], [raised, high], type, None, form=form),)]


def converted(
    builder: Any, instruction: Instruction, operands: Sequence[Parts], draw: Draw | None = None
) -> Sequence[Parts] | None:
    """From and to integers, booleans and every format; formats that functions give by way of f64, rounded to odd."""
    (part,) = operands[0]
    source, whole = instruction.operands[0].tensor_type.element_type, instruction.results[0].tensor_type
    if isinstance(source, ComplexType):
        part, source = builder.real(part), element_type(source.component)
    if not isinstance(whole.element_type, ComplexType):
        found = _converted(builder, part, source, whole, draw)
        return None if found is None else [(found,)]
    found = _converted(builder, part, source, whole.with_element_type(whole.element_type.component), draw)
    return None if found is None else [(builder.convert(found, whole.element_type),)]


def _converted(builder: Any, part: Value, source: ElementType, result: TensorType, draw: Draw | None) -> Value | None:
    target = result.element_type
    if isinstance(source, (IntegerType, BooleanType)):
        return _made(builder, soft.OF_INTEGER, [part], codes_type(result), draw, form=_form(result))
    if isinstance(source, FloatFormat) and isinstance(target, (IntegerType, BooleanType)):
        return _made(builder, soft.TO_INTEGER, [part], result, None, form=soft.form_of(source))
    if not isinstance(source, FloatFormat) or not isinstance(target, FloatFormat):
        return None
    # All numbers of formats that are not computed in integers are numbers of f64.
    if not _is_soft(source):
        part, source = _same_bits(builder, builder.convert(part, "f64"), "ui64"), _f64()
    if _is_soft(target):
        type, final, rounding = codes_type(result), target, None
    else:
        type, final = result.with_element_type("ui64"), _f64()
        rounding = None if target.mantissa_bits == final.mantissa_bits and target.decode is None else TO_ODD
    forms = {"form": soft.form_of(final, rounding), "source": soft.form_of(source)}
    found = _made(builder, soft.CONVERT, [part], type, draw, **forms)
    if _is_soft(target):
        return found
    number = _same_bits(builder, found, "f64")
    return number if target == final else builder.convert(number, target)


def _f64() -> FloatFormat:
    found = element_type("f64")
    assert isinstance(found, FloatFormat)
    return found


def _same_bits(builder: Any, value: Value, element: str) -> Value:
    made: Value = builder.bitcast_convert(value, value.tensor_type.with_element_type(element))
    return made


def _cast(builder: Any, value: Value, type: TensorType) -> Value:
    made: Value = builder.create(STORAGE_CAST.name, [value], result_types=[type]).result
    return made


def _counted(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    type = instruction.results[0].tensor_type
    counts = builder.create(
        instruction.op.name, [], attributes=instruction.attributes, result_types=[type.with_element_type("i64")]
    ).result
    return [(_made(builder, soft.OF_INTEGER, [counts], codes_type(type), None, form=_form(type)),)]


def _recast(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """Bits as another type, where codes fill their integers; codes of as many bits as any other format's."""
    (part,) = operands[0]
    given, result = instruction.operands[0].tensor_type.element_type, instruction.results[0].tensor_type
    if given.bits == result.element_type.bits and _is_soft(given) and _is_soft(result.element_type):
        return [(part,)]
    if any(_is_soft(each) and each.bits != each.itemsize * 8 for each in (given, result.element_type)):
        return None
    wanted = codes_type(result) if _is_soft(result.element_type) else result
    return [(part if part.type is wanted else builder.bitcast_convert(part, wanted),)]


def _dot_general(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """Products of all pairs, and their sums: each is rounded, in the order of a reduction."""
    type = instruction.results[0].tensor_type
    types = (*instruction.operand_types, type)
    if len({each.element_type for each in types if isinstance(each, TensorType)}) != 1 or not type.is_static:
        return None
    numbers = instruction.attributes["dot_dimension_numbers"]
    (lhs,), (rhs,) = operands
    contracted = [lhs.tensor_type.shape[d] for d in numbers.lhs_contracting]
    whole = tensor((*type.shape, *contracted), lhs.tensor_type.element_type)
    batch, rank = len(numbers.lhs_batching), type.rank
    sides = []
    place = batch
    for side, batching, contracting in (
        (lhs, numbers.lhs_batching, numbers.lhs_contracting),
        (rhs, numbers.rhs_batching, numbers.rhs_contracting),
    ):
        dimensions = {d: at for at, d in enumerate(batching)} | {d: rank + at for at, d in enumerate(contracting)}
        for d in range(side.tensor_type.rank):
            if d not in dimensions:
                dimensions[d] = place
                place += 1
        order = sorted(dimensions, key=lambda d: dimensions[d])
        moved = builder.transpose(side, permutation=tuple(order))
        sides.append(builder.broadcast_in_dim(moved, whole, tuple(dimensions[d] for d in order)))
    form = _form(type)
    products = _made(builder, soft.ARITHMETIC["multiply"], sides, whole, None, form=form)
    return [(_summed(builder, products, tuple(range(rank, rank + len(contracted))), form),)]


def _summed(builder: Any, values: Value, dimensions: tuple[int, ...], form: tuple[int, ...]) -> Value:
    scalar = tensor((), values.tensor_type.element_type)
    zero = builder.constant(np.zeros((), scalar.element_type.storage), scalar)
    body = builder.region(
        (scalar, scalar), lambda inner, x, y: _made(inner, soft.ARITHMETIC["add"], [x, y], scalar, None, form=form)
    )
    made: Value = builder.reduce([values], [zero], body, dimensions=dimensions)
    return made


_ROUNDED: Final[Mapping[OpDefinition, OpDefinition]] = MappingProxyType(
    {
        ADD: soft.ARITHMETIC["add"],
        SUBTRACT: soft.ARITHMETIC["subtract"],
        MULTIPLY: soft.ARITHMETIC["multiply"],
        DIVIDE: soft.ARITHMETIC["divide"],
        SQRT: soft.ARITHMETIC["sqrt"],
        NEGATE: soft.ARITHMETIC["negate"],
        ABS: soft.ARITHMETIC["abs"],
        FLOOR: soft.ARITHMETIC["floor"],
        CEIL: soft.ARITHMETIC["ceil"],
        ROUND_NEAREST_EVEN: soft.ARITHMETIC["round_nearest_even"],
        ROUND_NEAREST_AFZ: soft.ARITHMETIC["round_nearest_afz"],
    }
)
_ON_CODES: Final[Mapping[OpDefinition, OpDefinition]] = MappingProxyType(
    {
        **_ROUNDED,
        MAXIMUM: soft.CHOOSING["maximum"],
        MINIMUM: soft.CHOOSING["minimum"],
        SIGN: soft.CHOOSING["sign"],
    }
)
_RULES: Final[Mapping[OpDefinition, RuleOfParts]] = MappingProxyType(
    {
        **dict.fromkeys(_ON_CODES, pointwise),
        COMPARE: _compared,
        IS_FINITE: _finite,
        CLAMP: _clamped,
        CONVERT: converted,
        IOTA: _counted,
        BITCAST_CONVERT: _recast,
        DOT_GENERAL: _dot_general,
        STORAGE_CAST: lambda builder, instruction, operands: [(operands[0][0],)],
    }
)
ROUNDING: Final = frozenset({*_ROUNDED, CONVERT})
"""Ops with results that a stochastic rounding rounds by random bits."""


def drawn(builder: Any, instruction: Instruction, draw: Draw) -> Value:
    """The result of one of these, rounded by random bits, from operands as the program has them."""
    operands = [
        (_cast(builder, value, codes_type(value.tensor_type)) if is_in_integers(value.type) else value,)
        for value in instruction.operands
    ]
    parts = (converted if instruction.op == CONVERT else pointwise)(builder, instruction, operands, draw)
    assert parts is not None  # complex numbers are converted by way of their parts
    return _cast(builder, parts[0][0], instruction.results[0].tensor_type)


@final
class IntegerFloatParts:
    """A number of a format that is computed in integers, as its code."""

    element_class: type[ElementType] = FloatFormat
    asks_backends = False

    def represents(self, element: ElementType) -> bool:
        """Formats that no native float can carry."""
        return _is_soft(element)

    def types(self, type: TensorType) -> Sequence[TensorType]:
        """The storage's."""
        return (codes_type(type),)

    def take_apart(self, builder: Any, value: Value) -> Parts:
        """The same memory."""
        return (_cast(builder, value, codes_type(value.tensor_type)),)

    def put_together(self, builder: Any, parts: Parts, type: TensorType) -> Value:
        """The same memory."""
        return _cast(builder, parts[0], type)

    def constants(self, array: Any, type: TensorType) -> tuple[Any, ...]:
        """The elements as they are stored."""
        return (array,)

    def is_edge(self, instruction: Instruction) -> bool:
        """Whether it is a storage cast."""
        return instruction.op == STORAGE_CAST

    def rule(self, record: OpDefinition) -> RuleOfParts | None:
        """By name, or what is the same for all types; what moves elements moves their codes."""
        found = _RULES.get(record) or record.parts.get(ElementType)
        if found is None and isinstance(record.lowering, (Indexed, Pointwise)) and record.lowering.moves:
            return each_part
        return found

"""Ops on formats that no native float can carry: their codes are computed with as integers.

    %2 = add %0, %1 : acme60    =>    %2 = hlojit.soft_add %0, %1 {form = ...} : ui64

A program sees numbers of such a format; back ends see the unsigned integers that hold the codes, and these pointwise ops, whose
rules are in ``hlojit.ir.scalar.integer_floats``.  ``hlojit.ir.ops.integer_parts`` puts them in the place of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from hlojit.ir.formats import BooleanType, FloatFormat, IntegerType
from hlojit.ir.ops.attribute_kinds import BOOL, I64, I64_ARRAY, STRING
from hlojit.ir.ops.definition import AttributeSpec, Cost, OpDefinition, Operand, Pointwise, PointwiseCall, define
from hlojit.ir.scalar import integer_floats as rules
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.formats import storage_kind
from hlojit.ir.scalar.integer_floats import Form, Number
from hlojit.ir.scalar.numpy_builder import NumpyBuilder, NumpyScalar
from hlojit.ir.scalar.random_rounding import random_bits

Array = np.ndarray[Any, Any]
_BUILDER: Final = NumpyBuilder()
Rule = Callable[[ScalarBuilder, PointwiseCall, "list[Scalar]"], Scalar]
"""From operands, integers of 64 bits, to one."""


def _record(
    mnemonic: str, count: int, rule: Rule, summary: str, *further: AttributeSpec, draws: bool = False
) -> OpDefinition:
    """A record whose operands are integers, without signs unless their type has one, and so is the result.

    ``draws``: of two operands more, place and iteration, and of the attributes number and seed come random bits.
    """
    names = tuple(Operand(name) for name in ("lhs", "rhs")[:count])
    drawn = tuple(Operand(name, optional=True) for name in ("place", "iteration")) if draws else ()
    attributes = tuple(AttributeSpec(name, I64, optional=True) for name in ("number", "seed")) if draws else ()

    def lowered(b: ScalarBuilder, call: PointwiseCall, *scalars: Scalar) -> Scalar:
        wide = [_widened(b, each, type) for each, type in zip(scalars, call.operand_types)]
        found, kind = rule(b, call, wide), storage_kind(call.result_type)
        return found if found.kind == kind else b.trunc(found, kind)

    def evaluated(call: Any, *arrays: Array) -> Array:
        instruction = call.instruction
        types = tuple(type.element_type for type in instruction.operand_types)
        at = PointwiseCall(types, instruction.result.tensor_type.element_type, instruction.attributes)
        scalars = [_BUILDER.value(storage_kind(type), array) for type, array in zip(types, arrays)]
        found = lowered(cast(ScalarBuilder, _BUILDER), at, *cast("list[Scalar]", scalars))
        made = np.broadcast_to(cast(NumpyScalar, found).array, np.broadcast_shapes(*(each.shape for each in arrays)))
        return np.array(made).view(at.result_type.storage)

    return define(
        OpDefinition(
            f"hlojit.soft_{mnemonic}",
            operands=names + drawn,
            attributes=(AttributeSpec("form", I64_ARRAY), *further, *attributes),
            reference=evaluated,
            lowering=Pointwise(lowered, exact=True),
            cost=Cost.EXPENSIVE,
            summary=summary,
        )
    )


def _widened(b: ScalarBuilder, scalar: Scalar, type: Any) -> Scalar:
    if scalar.kind == "i64":
        return scalar
    signed = isinstance(type, IntegerType) and type.signed
    return b.sext(scalar, "i64") if signed else b.zext(scalar, "i64")


def _form(call: PointwiseCall, name: str = "form") -> Form:
    return Form(*call.attributes[name])


def _random(b: ScalarBuilder, call: PointwiseCall, drawn: list[Scalar]) -> Scalar | None:
    if not drawn:
        return None
    place, iteration = drawn
    return random_bits(b, place, iteration, call.attributes["number"], call.attributes["seed"])


def _arithmetic(mnemonic: str, count: int, function: Callable[..., Number]) -> OpDefinition:
    def rule(b: ScalarBuilder, call: PointwiseCall, scalars: list[Scalar]) -> Scalar:
        form = _form(call)
        found = function(*(rules.decoded(b, each, form) for each in scalars[:count]))
        return rules.encoded(b, found, form, _random(b, call, scalars[count:]))

    return _record(mnemonic, count, rule, f"{mnemonic} of codes, rounded once", draws=True)


ARITHMETIC: Final = {
    "add": _arithmetic("add", 2, rules.add),
    "subtract": _arithmetic("subtract", 2, rules.subtract),
    "multiply": _arithmetic("multiply", 2, rules.multiply),
    "divide": _arithmetic("divide", 2, rules.divide),
    "sqrt": _arithmetic("sqrt", 1, rules.sqrt),
    "negate": _arithmetic("negate", 1, rules.negated),
    "abs": _arithmetic("abs", 1, rules.magnitude),
    "floor": _arithmetic("floor", 1, lambda x: rules.to_integral(x, "floor")),
    "ceil": _arithmetic("ceil", 1, lambda x: rules.to_integral(x, "ceil")),
    "round_nearest_even": _arithmetic("round_nearest_even", 1, lambda x: rules.to_integral(x, "even")),
    "round_nearest_afz": _arithmetic("round_nearest_afz", 1, lambda x: rules.to_integral(x, "away")),
}
"""By the mnemonics of the ops in whose place they stand."""


def _extremum(mnemonic: str, *, largest: bool) -> OpDefinition:
    return _record(
        mnemonic,
        2,
        lambda b, call, scalars: rules.extremum(b, scalars[0], scalars[1], _form(call), largest=largest),
        f"{mnemonic} of codes, NaN if either is",
    )


CHOOSING: Final = {
    "maximum": _extremum("maximum", largest=True),
    "minimum": _extremum("minimum", largest=False),
    "sign": _record(
        "sign", 1, lambda b, call, scalars: rules.sign(b, scalars[0], _form(call)), "sign of a code's number"
    ),
}
"""What rounds nothing."""


def _compare(b: ScalarBuilder, call: PointwiseCall, scalars: list[Scalar]) -> Scalar:
    x, y = scalars
    return rules.compared(b, call.attributes["direction"], x, y, _form(call), total=call.attributes["total"])


COMPARE: Final = _record(
    "compare",
    2,
    _compare,
    "whether two codes' numbers stand in a relation",
    AttributeSpec("direction", STRING),
    AttributeSpec("total", BOOL),
)


def _is_finite(b: ScalarBuilder, call: PointwiseCall, scalars: list[Scalar]) -> Scalar:
    number = rules.decoded(b, scalars[0], _form(call))
    return (~(number.is_infinite | number.is_nan)).value


IS_FINITE: Final = _record("is_finite", 1, _is_finite, "whether a code's number is neither infinite nor NaN")


def _convert(b: ScalarBuilder, call: PointwiseCall, scalars: list[Scalar]) -> Scalar:
    number = rules.decoded(b, scalars[0], _form(call, "source"))
    return rules.encoded(b, number, _form(call), _random(b, call, scalars[1:]))


CONVERT: Final = _record(
    "convert", 1, _convert, "codes of one format as those of another", AttributeSpec("source", I64_ARRAY), draws=True
)


def _of_integer(b: ScalarBuilder, call: PointwiseCall, scalars: list[Scalar]) -> Scalar:
    element = call.operand_types[0]
    signed = isinstance(element, IntegerType) and element.signed
    number = rules.of_integer(b, scalars[0], signed=signed)
    return rules.encoded(b, number, _form(call), _random(b, call, scalars[1:]))


OF_INTEGER: Final = _record("of_integer", 1, _of_integer, "integers and booleans as codes", draws=True)


def _to_integer(b: ScalarBuilder, call: PointwiseCall, scalars: list[Scalar]) -> Scalar:
    number, target = rules.decoded(b, scalars[0], _form(call)), call.result_type
    if isinstance(target, BooleanType):
        return (~number.is_zero).value
    return rules.as_saturated(number, target.minimum, target.maximum)


TO_INTEGER: Final = _record(
    "to_integer", 1, _to_integer, "codes' numbers as integers, toward zero, or whether they are not 0"
)


def form_of(element: FloatFormat, rounding: int | None = None) -> tuple[int, ...]:
    """The attribute that says what codes of a format mean."""
    return tuple(Form.of(element, rounding))

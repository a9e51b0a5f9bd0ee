"""``hlojit.pair``: functions of complex numbers that one rule computes from their parts.

    %0 = "hlojit.pair"(%a, %b, %c, %d) <{function = "divide"}> : (4 x tensor<8xf32>) -> tensor<8xcomplex<f32>>

It is a pointwise op whose result is a complex number, of which ``real`` and ``imag`` take the parts: inside of a fusion that is
two scalars, and both are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import element_type
from hlojit.ir.ops.attribute_kinds import STRING
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Cost,
    OpDefinition,
    Operand,
    Pointwise,
    PointwiseCall,
    Trait,
    define,
)
from hlojit.ir.ops.parts import Parts, PartsRule
from hlojit.ir.ops.pointwise import SINGLE, takes, with_element
from hlojit.ir.ops.rules import OpCall, checked, inferred
from hlojit.ir.scalar.builder import Pair, Scalar, ScalarBuilder

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction


def _rule(name: str) -> Any:
    from hlojit.ir.scalar.complex_arithmetic import RULES

    return RULES.get(name)


def _emit(b: ScalarBuilder, call: PointwiseCall, *scalars: Scalar) -> Scalar:
    return Pair(*_rule(call.attributes["function"])(b, *scalars))


def _evaluate(call: Any, *parts: Array) -> Array:
    """The rule on arrays: what is folded has the bits of what is computed."""
    from hlojit.ir.scalar.numpy_builder import NumpyBuilder

    b = NumpyBuilder()
    kind = f"f{parts[0].dtype.itemsize * 8}"
    result = np.empty(parts[0].shape, call.instruction.result.tensor_type.element_type.storage)
    with np.errstate(all="ignore"):
        found = _rule(call.attributes["function"])(b, *(b.value(kind, part) for part in parts))
    result.real, result.imag = (part.array for part in found)
    return result


def _known(call: OpCall) -> str | None:
    name = call.attributes["function"]
    return None if _rule(name) is not None else f"there is no function {name!r} of complex numbers"


def _same(call: OpCall) -> str | None:
    types = call.operand_types
    if len(types) in (2, 4) and all(type == types[0] for type in types):
        return None
    return f"operands must be the parts of one or two numbers of one type, found {', '.join(map(str, types))}"


_RULES = (takes("I1", 0, "parts", (SINGLE,)), Constraint("C1", _same))

PAIR = define(
    OpDefinition(
        "hlojit.pair",
        operands=(Operand("parts", variadic=True),),
        attributes=(AttributeSpec("function", STRING),),
        infer=checked(_RULES, with_element(lambda element: element_type(f"complex<{element.name}>"))),
        constraints=(*_RULES, inferred("C2"), Constraint("C3", _known)),
        reference=_evaluate,
        traits=frozenset({Trait.PARTS}),
        lowering=Pointwise(_emit, exact=True),
        cost=Cost.EXPENSIVE,
        summary="A function of complex numbers, from their parts.",
    )
)


def function_of_pairs(name: str, *, is_real: bool = False) -> PartsRule:
    """The rule of an op that is such a function of its operands; the result of a real one is its real part."""

    def rule(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
        parts = [part for number in operands for part in number]
        made = builder.create("hlojit.pair", parts, attributes={"function": name}).result
        return [(builder.real(made),) if is_real else (builder.real(made), builder.imag(made))]

    return rule

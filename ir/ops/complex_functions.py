"""``hlojit.complex_function``: functions of complex numbers that one rule on scalars computes from their parts.

    %0 = "hlojit.complex_function"(%a, %b, %c, %d) <{function = "divide"}> : (4 x tensor<8xf32>) -> tensor<8xcomplex<f32>>

It is a pointwise op whose result is a complex number, of which ``real`` and ``imag`` take the parts: inside of a fusion that is
two scalars, and both are computed once.  The rules are those of ``hlojit.ir.scalar.complex_functions``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    from hlojit.ir.graph import Instruction, Value


def _emit(b: ScalarBuilder, call: PointwiseCall, *scalars: Scalar) -> Scalar:
    from hlojit.ir.scalar.complex_functions import FUNCTIONS

    return Pair(*FUNCTIONS[call.attributes["function"]](b, *scalars))


def _evaluate(call: Any, *parts: Array) -> Array:
    """The rule itself on arrays: what is folded has the bits of what is computed."""
    from hlojit.ir.scalar.complex_functions import FUNCTIONS
    from hlojit.ir.scalar.numpy_builder import NumpyBuilder, NumpyScalar

    b = NumpyBuilder()
    kind = f"f{parts[0].dtype.itemsize * 8}"
    result = np.empty(parts[0].shape, call.instruction.result.tensor_type.element_type.storage)
    with np.errstate(all="ignore"):
        found = FUNCTIONS[call.attributes["function"]](b, *(b.value(kind, part) for part in parts))
    for part, values in zip(found, (result.real, result.imag), strict=True):
        assert isinstance(part, NumpyScalar)
        values[...] = part.array
    return result


def _known(call: OpCall) -> str | None:
    from hlojit.ir.scalar.complex_functions import FUNCTIONS

    name = call.attributes["function"]
    return None if name in FUNCTIONS else f"function {name!r} is none of {', '.join(FUNCTIONS)}"


def _same(call: OpCall) -> str | None:
    types = call.operand_types
    if len(types) in (2, 4) and all(type == types[0] for type in types):
        return None
    return f"operands must be the parts of one or two numbers of one type, found {', '.join(map(str, types))}"


_RULES = (takes("I1", 0, "parts", (SINGLE,)), Constraint("C1", _same))

COMPLEX_FUNCTION = define(
    OpDefinition(
        "hlojit.complex_function",
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


def complex_function(name: str) -> Callable[..., tuple[Value, Value]]:
    """``rule(builder, *parts)``, which builds a function of one or two numbers and gives both parts of its result."""

    def rule(builder: Any, *parts: Value) -> tuple[Value, Value]:
        made = builder.create(COMPLEX_FUNCTION.name, parts, attributes={"function": name}).result
        return builder.real(made), builder.imag(made)

    return rule


def function_of_parts(name: str, *, is_real: bool = False) -> PartsRule:
    """The rule of an op that is such a function of its operands; the result of a real one is its real part."""
    build = complex_function(name)

    def rule(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
        found = build(builder, *(part for number in operands for part in number))
        return [found[:1] if is_real else found]

    return rule


def logarithm(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """log|z|, and the argument: as the function's other part it would cost more."""
    ((real, imaginary),) = operands
    return [(complex_function("log")(builder, real, imaginary)[0], builder.atan2(imaginary, real))]

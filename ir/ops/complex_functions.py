"""Functions of complex numbers as rules for ``OpDefinition.parts``.

    exp(builder, real, imag)    # both parts of e**(real + i imag)

Each part of a result is one instruction of ``hlojit.complex_function``, a pointwise op on real numbers that fuses like any
other; its code is ``hlojit.ir.scalar.complex_functions``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.ops.attribute_kinds import I64, STRING
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Cost,
    OpDefinition,
    Operand,
    Pointwise,
    PointwiseCall,
    define,
)
from hlojit.ir.ops.pointwise import SINGLE, like_operands, takes
from hlojit.ir.ops.rules import OpCall, checked, inferred
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder

if TYPE_CHECKING:
    from hlojit.ir.graph import Value

PARTS = ("real", "imag")


def _emit(b: ScalarBuilder, call: PointwiseCall, *scalars: Scalar) -> Scalar:
    from hlojit.ir.scalar.complex_functions import FUNCTIONS

    return FUNCTIONS[call.attributes["function"]](b, *scalars)[call.attributes["part"]]


def _evaluate(call: Any, *parts: Array) -> Array:
    """The rule itself on arrays: what is folded has the bits of what is computed."""
    from hlojit.ir.scalar.complex_functions import FUNCTIONS
    from hlojit.ir.scalar.numpy_builder import NumpyBuilder

    b = NumpyBuilder()
    kind = f"f{parts[0].dtype.itemsize * 8}"
    with np.errstate(all="ignore"):
        found: Any = FUNCTIONS[call.attributes["function"]](b, *(b.value(kind, part) for part in parts))
    return np.broadcast_to(found[call.attributes["part"]].array, parts[0].shape)


def _known(call: OpCall) -> str | None:
    from hlojit.ir.scalar.complex_functions import FUNCTIONS

    function, part = call.attributes["function"], call.attributes["part"]
    if function not in FUNCTIONS:
        return f"function {function!r} is none of {', '.join(FUNCTIONS)}"
    return None if part in (0, 1) else f"part {part} is neither 0, the real, nor 1, the imaginary one"


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
        attributes=(AttributeSpec("function", STRING), AttributeSpec("part", I64)),
        infer=checked(_RULES, like_operands),
        constraints=(*_RULES, inferred("C2"), Constraint("C3", _known)),
        reference=_evaluate,
        lowering=Pointwise(_emit, exact=True),
        cost=Cost.EXPENSIVE,
        summary="A part of a function of complex numbers, from their parts.",
    )
)


def complex_function(name: str) -> Callable[..., tuple[Value, Value]]:
    """The rule of a function of ``hlojit.ir.scalar.complex_functions``: ``rule(builder, *parts)`` gives both parts."""

    def rule(builder: Any, *parts: Value) -> tuple[Value, Value]:
        real, imag = (
            builder.create(COMPLEX_FUNCTION.name, parts, attributes={"function": name, "part": number}).result
            for number in range(2)
        )
        return real, imag

    return rule


def logarithm(builder: Any, real: Value, imag: Value) -> tuple[Value, Value]:
    """log|z| and the argument."""
    return complex_function("log")(builder, real, imag)[0], builder.atan2(imag, real)


def modulus(builder: Any, real: Value, imag: Value) -> tuple[Value]:
    """|z|."""
    return (complex_function("modulus_of")(builder, real, imag)[0],)

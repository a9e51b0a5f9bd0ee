"""Ops that passes make where a format's results must be rounded from more than f64 holds of them, or by random bits.

%2 = add %0, %1 : acme40          =>  %2 = hlojit.odd_add(%0, %1) : acme40
%2 = add %0, %1 : acme8s          =>  %2 = hlojit.round_stochastic(add(convert %0, convert %1) : f64, place, iteration)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from hlojit.ir.formats import FloatFormat, Rounding
from hlojit.ir.ops.attribute_kinds import I64
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import (
    AttributeSpec,
    Expand,
    Kernel,
    OpDefinition,
    Operand,
    Pointwise,
    PointwiseCall,
    Reduction,
    Trait,
    define,
)
from hlojit.ir.ops.elementwise import ADD, DIVIDE, MULTIPLY, SUBTRACT
from hlojit.ir.ops.reductions import SORT
from hlojit.ir.ops.scatter import DYNAMIC_UPDATE_SLICE
from hlojit.ir.ops.transcendental import SQRT
from hlojit.ir.ops.windows import REDUCE_WINDOW
from hlojit.ir.scalar import formats, odd_arithmetic
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.numpy_builder import NumpyBuilder, NumpyScalar
from hlojit.ir.scalar.random_rounding import random_bits

Array = np.ndarray[Any, Any]
_RULES: Final = cast(ScalarBuilder, NumpyBuilder())


def _evaluated(rule: Callable[..., Any], *operands: tuple[str, Array]) -> Array:
    scalars = [NumpyBuilder().value(kind, array) for kind, array in operands]
    return cast(NumpyScalar, rule(_RULES, *scalars)).array


def _odd(mnemonic: str, rule: Callable[..., Scalar], count: int) -> OpDefinition:
    def in_double(b: ScalarBuilder, call: PointwiseCall, *scalars: Scalar) -> Scalar:
        return rule(b, *(formats.float_resized(b, each, "f64") for each in scalars))

    return define(
        OpDefinition(
            f"hlojit.odd_{mnemonic}",
            operands=tuple(Operand(name) for name in ("lhs", "rhs")[:count]),
            reference=lambda call, *arrays: _evaluated(rule, *(("f64", each.astype(np.float64)) for each in arrays)),
            lowering=Pointwise(in_double),
            summary=f"{mnemonic} in f64, rounded to odd, and from there to the format",
        )
    )


TO_ODD: Final[dict[OpDefinition, OpDefinition]] = {
    ADD: _odd("add", odd_arithmetic.add, 2),
    SUBTRACT: _odd("subtract", odd_arithmetic.subtract, 2),
    MULTIPLY: _odd("multiply", odd_arithmetic.multiply, 2),
    DIVIDE: _odd("divide", odd_arithmetic.divide, 2),
    SQRT: _odd("sqrt", odd_arithmetic.sqrt, 1),
}
"""What is done in the place of ops whose exact results the compute type does not hold."""


def _round(b: ScalarBuilder, call: PointwiseCall, value: Scalar, place: Scalar, iteration: Scalar) -> Scalar:
    random = random_bits(b, place, iteration, call.attributes["number"], call.attributes["seed"])
    return formats.decode(b, formats.encode(b, value, call.result_type, random), call.result_type)


def _round_arrays(call: Any, value: Array, place: Array, iteration: Array) -> Array:
    row, attributes = call.instruction.result.tensor_type.element_type, call.instruction.attributes
    rule = PointwiseCall((), row, attributes)
    operands = (("f64", value), ("i64", place), ("i64", np.broadcast_to(iteration, place.shape)))
    return _evaluated(lambda b, *scalars: _round(b, rule, *scalars), *operands)


ROUND_STOCHASTIC = define(
    OpDefinition(
        "hlojit.round_stochastic",
        operands=(Operand("operand"), Operand("place"), Operand("iteration")),
        attributes=(AttributeSpec("number", I64), AttributeSpec("seed", I64)),
        reference=_round_arrays,
        lowering=Pointwise(_round, exact=True),
        summary="numbers of f64 in a format that is rounded stochastically, by bits from seed, op, iteration and element",
    )
)

_MOVING: Final = frozenset((SORT, DYNAMIC_UPDATE_SLICE))


def rounds(instruction: Any) -> bool:
    """Whether an op makes new numbers, which are rounded; not what only chooses or moves some, calls and control flow."""
    lowering = instruction.op.lowering
    if isinstance(lowering, Pointwise):
        # What is exact has rounded by itself, if it has made another type's number.
        return not lowering.moves and (not lowering.exact or _changes_type(instruction))
    if isinstance(lowering, Kernel):
        return not (instruction.op in _MOVING or is_custom_call(instruction) or Trait.FUSION in instruction.op.traits)
    return isinstance(lowering, Reduction) or (isinstance(lowering, Expand) and not instruction.op.callees)


def is_summed(instruction: Any) -> bool:
    """Whether an op combines many elements in f64, whatever its region says of roundings in between."""
    return isinstance(instruction.op.lowering, Reduction) or instruction.op is REDUCE_WINDOW


def _changes_type(instruction: Any) -> bool:
    if len(instruction.operands) != 1 or instruction.op is ROUND_STOCHASTIC:
        return False
    return bool(instruction.operands[0].tensor_type.element_type != instruction.result.tensor_type.element_type)


def is_stochastic(element: object) -> bool:
    """Whether an element type is a format that is rounded stochastically."""
    return isinstance(element, FloatFormat) and element.rounding is Rounding.STOCHASTIC

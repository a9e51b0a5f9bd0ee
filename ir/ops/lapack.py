"""LAPACK routines over matrices that lie in memory by columns, as LAPACK has them.

    %0:2 = "hlojit.lapack"(%a) <{routine = "spotrf", options = {uplo = "L"}}>
             : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<i32>)

What routines take and give is in ``lapack_calls.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.attribute_kinds import GENERIC, STRING
from hlojit.ir.ops.batching.kinds import Lane
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Kernel,
    OpDefinition,
    Operand,
    ReferenceCall,
    define,
)
from hlojit.ir.ops.derivatives import lapack as derivatives
from hlojit.ir.ops.lapack_calls import LapackCall, SignatureError
from hlojit.ir.ops.lapack_reference import lapack_results


def _reference(call: ReferenceCall, *arrays: Array) -> tuple[Array, ...]:
    types = [result.tensor_type for result in call.instruction.results]
    return lapack_results(LapackCall.of(call.instruction), types, arrays)


def _check(instruction: Instruction) -> str | None:
    try:
        LapackCall.of(instruction)
    except SignatureError as error:
        return str(error)
    return None


def _batched(work: Any, instruction: Instruction, lanes: Sequence[Lane]) -> Sequence[Value]:
    """A batch is one more dimension in front of matrices."""
    found: Sequence[Value] = work.again(instruction, [work.spread(lane) for lane in lanes])
    return found


LAPACK = define(
    OpDefinition(
        "hlojit.lapack",
        operands=(Operand("operands", variadic=True),),
        attributes=(AttributeSpec("routine", STRING), AttributeSpec("options", GENERIC)),
        constraints=(Constraint("C1", _check),),
        reference=_reference,
        derivative=derivatives.LAPACK,
        batching=_batched,
        lowering=Kernel("lapack", without="LAPACK's routines run on the host", takes_pairs=True),
        summary="a LAPACK routine, over matrices that lie in memory by columns",
    )
)

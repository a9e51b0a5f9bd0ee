"""``hlojit.derivative_of``: a part of a function whose derivative is not that of its instructions.

It stands in graphs only while functions are transformed: ``hlojit.custom_jvp``, ``hlojit.custom_vjp`` and ``hlojit.checkpoint``
put their functions into one, and what is left when the outermost transformation is done is replaced by its region.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.ops.attribute_kinds import GENERIC
from hlojit.ir.ops.definition import AttributeSpec, Expand, OpDefinition, Operand, define
from hlojit.ir.ops.derivatives.kinds import Chosen, Derivative
from hlojit.ir.types import Type

if TYPE_CHECKING:
    from hlojit.ir.blocks import Instruction, Value


def _returned(request: Any) -> Sequence[Type]:
    return [value.type for value in request.regions[0].returned]


def _rule(instruction: Instruction) -> Derivative | str:
    rule = instruction.attributes["rule"]
    found: Derivative | str = rule.derivative
    return found


def _batched(work: Any, instruction: Instruction, lanes: Any) -> Sequence[Value]:
    found: Sequence[Value] = instruction.attributes["rule"].batched(work, instruction, lanes)
    return found


DERIVATIVE_OF = define(
    OpDefinition(
        "hlojit.derivative_of",
        operands=(Operand("operands", variadic=True),),
        attributes=(AttributeSpec("rule", GENERIC),),
        regions=("body",),
        infer=_returned,
        reference=lambda call, *values: call.run(0, *values),
        lowering=Expand(lambda builder, i: builder.inline(i.regions[0], i.operands)),
        derivative=Chosen(_rule),
        batching=_batched,
        summary="A region with a derivative of its own, while functions are transformed.",
    )
)

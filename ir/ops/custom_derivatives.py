"""``hlojit.derivative_of``: a part of a function whose derivative is not that of its instructions.

It stands in graphs only while functions are transformed: ``hlojit.custom_jvp``, ``hlojit.custom_vjp`` and ``hlojit.checkpoint``
put their functions into one, as do NumPy's functions whose derivative is not that of the routines they call (``np.linalg.qr``);
what is left when the outermost transformation is done is replaced by its region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from hlojit.ir.ops.attribute_kinds import GENERIC
from hlojit.ir.ops.batching.kinds import Lane
from hlojit.ir.ops.definition import AttributeSpec, Expand, OpDefinition, Operand, define
from hlojit.ir.ops.derivatives.kinds import Chosen, Derivative
from hlojit.ir.types import Type

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block, Instruction, Value


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


class Rule:
    """What the attribute ``rule`` holds: the derivative of the part, and itself for a batch."""

    __slots__ = ()

    @property
    def derivative(self) -> Derivative:
        """See ``OpDefinition.derivative``."""
        raise NotImplementedError

    def for_batch(self, size: int) -> Rule:
        """The rule of the part for a batch."""
        raise NotImplementedError

    def batched(self, work: Any, instruction: Instruction, lanes: Sequence[Lane]) -> Sequence[Value]:
        """The instruction for a batch."""
        operands = [work.spread(lane) for lane in lanes]

        def body(inner: Any, *arguments: Value) -> list[Value]:
            made = work.region(inner, instruction.regions[0], [Lane(value, True) for value in arguments])
            return [work.spread(lane, inner) for lane in made]

        region = work.builder.region([value.type for value in operands], body)
        return with_rule(work.builder, operands, region, self.for_batch(work.size))


@final
@dataclass(frozen=True, slots=True)
class StackRule(Rule):
    """A derivative that holds for operands with dimensions in front as well."""

    derivative: Derivative

    def for_batch(self, size: int) -> Rule:
        """The same."""
        return self


def with_rule(b: Any, operands: Sequence[Value], region: Block, rule: Rule) -> Sequence[Value]:
    """The values of a part with a rule."""
    made: Sequence[Value] = b.create(DERIVATIVE_OF.name, operands, attributes={"rule": rule}, regions=[region]).results
    return made

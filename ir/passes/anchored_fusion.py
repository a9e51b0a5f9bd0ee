"""An op with a kernel of its own joins the group that goes over its result element by element.

    %0 = stablehlo.dot_general %x, %w          =>   %2 = hlojit.fusion(%x, %w, %b) {kind = "anchor"} {
    %1 = stablehlo.broadcast_in_dim %b                ^bb0(%x, %w, %b):
    %2 = stablehlo.add %0, %1                           the same three instructions
                                                    }

The op is the group's *anchor*, what follows it is computed piece by piece, while the pieces are near the processor: the
result itself is never written to memory unless somebody else reads it.  Only loops are joined, for which reading the anchor's
result is the larger part of the work; what a row kernel reads stays in memory, since it wants whole rows.  Of several anchors
that a loop reads, the one that takes longest joins it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from hlojit.ir.formats import ComplexType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Indexed, Kernel, Trait
from hlojit.ir.passes.fusion_cost import Role
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.passes.fusion_plan import FusionPlan, Group

FEWEST_OPERATIONS: Final = 16
"""Of an anchor, for each element of its result: with fewer, going over the result in pieces costs as much as it spares."""
MOST_ALIASES: Final = 4
MOST_READERS: Final = 32
"""Of an anchor's result, that are looked at."""


def take_in_anchors(plan: FusionPlan) -> None:
    """Have every loop take in one anchor whose result it reads at its own index, if there is one."""
    for group in sorted(plan.groups, key=lambda group: group.place):
        if group.rows or group.space[1] is not None or not all(_walks_along(plan, each) for each in group.members):
            continue
        if _streams(group) > plan.limits.anchored_streams + 1:  # one of which is the anchor's result
            continue
        found = []
        for value in group.inputs:
            anchor, aliases = _behind_aliases(plan, value)
            if anchor is not None and _reads_at_own_index(plan, group, value) and not plan.forbids(anchor, group):
                found.append((_operations(anchor), anchor, aliases))
        for _, anchor, aliases in sorted(found, key=lambda each: each[0], reverse=True):
            if plan.take_in(group, anchor, aliases):
                break


def _streams(group: Group) -> int:
    """Arrays of the group's shape that it reads, and that it writes but for one."""
    size = math.prod(group.space[0])
    return sum(value.tensor_type.size == size for value in group.inputs) + len(group.roots) - 1


def _walks_along(plan: FusionPlan, member: Instruction) -> bool:
    """Whether what an element of a member is computed from lies at its index, or is the same for many of them."""
    lowering = member.op.lowering
    return plan.role_of(member) is Role.POINTWISE or (
        isinstance(lowering, Indexed) and (lowering.broadcasts is not None or not member.operands)
    )


def _behind_aliases(plan: FusionPlan, value: Value) -> tuple[Instruction | None, list[Instruction]]:
    """The anchor that computes a value, and the reshapes between them, which nobody else reads."""
    aliases: list[Instruction] = []
    owner = value.producer
    while owner is not None and Trait.BITCAST in owner.op.traits and len(aliases) < MOST_ALIASES:
        aliases.append(owner)
        owner = owner.operands[0].producer
    if owner is None or plan.groups_of.get(owner) or not is_anchor(plan, owner):
        return None, []
    chain = [owner, *aliases]
    if any(each.block is not plan.block or len(each.result.users) > MOST_READERS for each in chain):
        return None, []
    # A reshape stands where its first reader wants it: that may be before the group.
    readers = [plan.groups_of.get(user, []) for alias in aliases for user in alias.result.users if user not in aliases]
    return (owner, aliases) if all(len(each) == 1 and each == readers[0] for each in readers) else (None, [])


def is_anchor(plan: FusionPlan, instruction: Instruction) -> bool:
    """Whether an op has a kernel that may be part of a fusion."""
    lowering = instruction.op.lowering
    if not isinstance(lowering, Kernel) or lowering.name not in plan.limits.anchors or len(instruction.results) != 1:
        return False
    for value in (*instruction.operands, *instruction.results):
        kind = value.type
        if not isinstance(kind, TensorType) or not kind.is_static or not kind.size:
            return False
        if isinstance(kind.element_type, ComplexType):
            return False
        # Constants of one value are copied into fusions, and a kernel wants its operands in memory.
        if value.producer is not None and plan.role_of(value.producer) is Role.SPLAT:
            return False
    return _operations(instruction) >= FEWEST_OPERATIONS * instruction.result.tensor_type.size


def _operations(anchor: Instruction) -> int:
    lowering = anchor.op.lowering
    assert isinstance(lowering, Kernel)
    return lowering.operations(anchor) if lowering.operations is not None else 0


def _reads_at_own_index(plan: FusionPlan, group: Group, value: Value) -> bool:
    """Whether all that reads a value in the group is pointwise, over the group's elements, and evaluated once for each."""
    shape = group.space[0]
    here = frozenset({plan.root_context(shape)})
    return value.tensor_type.shape == shape and all(
        plan.role_of(user) is Role.POINTWISE and user.result.tensor_type.shape == shape and group.members[user] == here
        for user in value.users
        if user in group.members
    )

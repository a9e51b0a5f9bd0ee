"""Make one kernel of several instructions.

    %0 = stablehlo.add %x, %y                  =>   %1 = hlojit.fusion(%x, %y) {kind = "loop"} {
    %1 = stablehlo.exponential %0                     ^bb0(%a, %b):
                                                        %2 = stablehlo.add %a, %b
                                                        %3 = stablehlo.exponential %2
                                                        stablehlo.return %3
                                                    }

Producers go into their consumers, reductions are roots into whose input producers go, and one fusion may have several
roots over the same iteration space.  ``fusion_plan`` decides, this file rebuilds the block.  Constants of one element
value are copied into the fusions; a ``reshape`` at the border of a fusion stays outside, where it is an alias of
memory. With ``rows`` reductions and what reads them row by row go together as well (kind ``row``, see
``row_fusion``), where the limits have a ``longest_summed_row`` also reductions of the columns of all rows
(``column_fusion``), where they name ``anchors``, ops with kernels of their own join what follows them (``anchored_fusion``),
and where they have a ``longest_selection``, sorts and what cuts their first elements off
(``selection_fusion``).  Regions of ``while``, ``if`` and ``case`` are fused like function bodies; combiners are left as they
are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from hlojit.ir.graph import Block, Instruction, Module, Value, clone_instruction
from hlojit.ir.location import UNKNOWN, FusedLocation, Location
from hlojit.ir.ops.definition import op
from hlojit.ir.passes.fusion_cost import Role
from hlojit.ir.passes.fusion_limits import FusionLimits, FusionPolicy
from hlojit.ir.passes.fusion_plan import FusionPlan, Group, is_reshape
from hlojit.ir.passes.graph_facts import is_constant, program_blocks
from hlojit.ir.passes.pass_manager import GIVEN, Pass
from hlojit.ir.passes.selection_fusion import fuse_selections

_MOST_LOCATIONS = 8


@dataclass(frozen=True)
class InstructionFusion(Pass):
    """Group fusible instructions into ``hlojit.fusion``; ``limits`` of a back end stand in for the options."""

    name: ClassVar[str] = "instruction-fusion"
    phase: ClassVar[str] = "fusion"
    needs_fusions: ClassVar[bool] = True
    max_instructions: int = 64
    max_operands: int = 24
    rows: bool = False
    limits: FusionLimits | None = field(default=None, metadata=GIVEN)
    policy: FusionPolicy | None = field(default=None, metadata=GIVEN)

    def run(self, module: Module) -> bool:
        """Fuse every block that the host program runs; return whether a fusion was made."""
        limits = self.limits or FusionLimits(self.max_instructions, self.max_operands, rows=self.rows)
        changed = False
        for function in module.functions.values():
            for block in list(program_blocks(function)):
                if limits.longest_selection:
                    changed |= fuse_selections(block, limits)
                _sink_reshapes(block)
                changed |= _carry_out(block, FusionPlan(block, limits, self.policy).make())
        return changed


def _sink_reshapes(block: Block) -> None:
    """Move reshapes down to their first user, so that they do not pin their operand's kernel to an early place."""
    position: dict[Instruction, int] = {}
    for number, instruction in enumerate(reversed(list(block))):
        position[instruction] = -number
        if not is_reshape(instruction):
            continue
        users = instruction.results[0].users
        if not users or len(users) > 32 or any(user.block is not block for user in users):
            continue
        first = min(users, key=position.__getitem__)
        if instruction.next is not first:
            instruction.unlink()
            block.insert_before(first, instruction)
            position[instruction] = position[first]


def _carry_out(block: Block, plan: FusionPlan) -> bool:
    """Replace the members of every group by a fusion instruction."""
    instructions = list(block)
    order = {instruction: number for number, instruction in enumerate(instructions)}
    finished: list[tuple[Group, Instruction]] = []
    for group in sorted(plan.groups, key=lambda group: group.place):
        members = sorted(group.members, key=order.__getitem__)
        group.roots.sort(key=order.__getitem__)
        anchor = instructions[group.place]
        finished.append((group, _build(plan, anchor, group, members)))
    for group, fusion in finished:
        results = [result for root in group.roots for result in root.results]
        for old, new in zip(results, fusion.results):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
    for instruction in reversed(instructions):
        replaced = instruction in plan.groups_of or is_reshape(instruction) or is_constant(instruction)
        if replaced and not any(result.users for result in instruction.results):
            instruction.erase()
    return bool(finished)


def _build(plan: FusionPlan, anchor: Instruction, group: Group, members: list[Instruction]) -> Instruction:
    """Make the fusion instruction of one group in front of ``anchor``; its operands are still the unfused values."""
    block = plan.block
    inside = set(members)
    inputs: dict[Value, Value] = {}
    body = Block()
    mapping: dict[Value, Value] = {}
    for member in members:
        for operand in member.operands:
            if operand in mapping:
                continue
            owner = operand.owner
            if owner in inside:
                continue
            if isinstance(owner, Instruction) and plan.role_of(owner) is Role.SPLAT:
                body.append(clone_instruction(owner, mapping))
            else:
                source = _alias_at(plan, anchor, operand)
                if source not in inputs:
                    inputs[source] = body.add_argument(source.type)
                mapping[operand] = inputs[source]
        body.append(clone_instruction(member, mapping))
    roots = [result for root in group.roots for result in root.results]
    body.append(Instruction(op("stablehlo.return"), [mapping[root] for root in roots], []))
    fusion = Instruction(
        op("hlojit.fusion"),
        list(inputs),
        [root.type for root in roots],
        {"kind": group.kind},
        [body],
        location=_join_locations(members),
    )
    return block.insert_before(anchor, fusion)


def _alias_at(plan: FusionPlan, anchor: Instruction, value: Value) -> Value:
    """``value``, or where it is a reshape of this block, a copy of that reshape in front of ``anchor``.

    The operand of a reshape may be computed by a kernel that runs later than the reshape stands, but not later than
    ``anchor``.  A reshape that a kernel writes is in memory, and its operand perhaps nowhere.
    """
    block = plan.block
    chain: list[Instruction] = []
    while (reshape := value.producer) is not None and is_reshape(reshape) and reshape.block is block:
        if plan.is_root(reshape):
            break
        chain.append(reshape)
        value = reshape.operands[0]
    for reshape in reversed(chain):
        mapping = {reshape.operands[0]: value}
        block.insert_before(anchor, clone_instruction(reshape, mapping))
        value = mapping[reshape.results[0]]
    return value


def _join_locations(members: list[Instruction]) -> Location:
    distinct = list(dict.fromkeys(member.location for member in members if member.location is not UNKNOWN))
    if len(distinct) <= 1:
        return distinct[0] if distinct else UNKNOWN
    return FusedLocation(tuple(distinct[:_MOST_LOCATIONS]))

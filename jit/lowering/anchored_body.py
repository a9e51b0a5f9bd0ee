"""What an anchored fusion computes: its anchor, what follows it element by element, and what computes its operands.

    group = AnchoredBody.of(fusion)
    group.anchor, group.operands      # the op with a kernel of its own, and which operands of the fusion it reads, or bodies
    group.body, group.sums            # what follows as a body, in which ``sums`` stands for the anchor's result

Emitters of anchors compute the result box by box and give ``sums`` at an index (``Elements.define_stored``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from hlojit.ir.graph import Block, Instruction, Value, clone_instruction
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.internal import anchor_of
from hlojit.ir.types import TensorType
from hlojit.lowering.body import Body
from hlojit.lowering.element_access import Access
from hlojit.lowering.element_forms import lane_kind, memory_kind
from hlojit.lowering.elements import Elements
from hlojit.lowering.index import Index
from hlojit.lowering.loop_plan import in_place_at
from hlojit.lowering.probe import Facts, Probe, ProbeScalar


@dataclass(frozen=True)
class AnchoredBody:
    """The two parts of an anchored fusion."""

    anchor: Instruction
    operands: tuple[int | Body, ...]
    """The anchor's: numbers of the fusion's, or what computes one of them (a *prologue*)."""
    body: Body
    sums: Value
    """The anchor's result in the body, in the shape of the roots."""

    @staticmethod
    def of(fusion: Instruction) -> AnchoredBody:
        """The parts of a fusion of the kind ``anchor``."""
        region, anchor = fusion.regions[0], anchor_of(fusion)
        types = tuple(operand.tensor_type for operand in fusion.operands)
        numbers = {argument: number for number, argument in enumerate(region.arguments)}
        operands = tuple(
            numbers[each] if each in numbers else _computing([each], region, Block(), {}, types)
            for each in anchor.operands
        )
        block = Block()
        sums = block.add_argument(anchor.result.tensor_type.with_shape(_shape_behind(anchor, region)))
        body = _computing(region.returned, region, block, {anchor.result: sums}, types)
        return AnchoredBody(anchor, operands, body, sums)

    @property
    def is_alone(self) -> bool:
        """Whether nothing follows the anchor."""
        return self.body.roots == (self.sums,)

    @property
    def read_before(self) -> frozenset[int]:
        """The fusion's operands that the anchor, or what computes its operands, reads."""
        read: set[int] = set()
        for each in self.operands:
            if isinstance(each, int):
                read.add(each)
                continue
            values = {operand for member in _behind(each.roots, frozenset()) for operand in member.operands}
            read.update(number for value, number in each.parameters.items() if value in values)
        return frozenset(read)

    @property
    def buffers(self) -> int:
        """How many buffers the fusion has; its workspace, if any, stands behind them."""
        return len(self.body.operand_types) + len(self.body.roots)

    def facts(self, index: tuple[Index, ...]) -> Facts:
        """A dry run of all roots at an index."""
        probe = Probe()
        elements = Elements(cast(Access, probe), self.body)
        elements.define_stored(self.sums, index, probe.record(memory_kind(self.sums.tensor_type.element_type), 1))
        facts = probe.finish(cast(list[ProbeScalar], [elements.value(root, index) for root in self.body.roots]))
        behind = self._behind_sums()
        facts.requested = [key for key in elements.requested if key[0] not in behind]
        for value in (self.sums, *self.body.roots):
            facts.kinds.add(lane_kind(value.tensor_type.element_type))
        return facts

    def as_loop(self) -> Body:
        """The body as one of its own, which reads the anchor's result as its last operand."""
        body = self.body
        types = (*body.operand_types, self.sums.tensor_type)
        parameters = {**body.parameters, self.sums: len(body.operand_types)}
        return Body(parameters, body.roots, types, members=body.members)

    def _behind_sums(self) -> set[Value]:
        """What is not known before the sums are."""
        found = {self.sums}
        for member in cast(Block, self.sums.owner):
            if not found.isdisjoint(member.operands):
                found.update(member.results)
        return found

    def stored_at(self, index: tuple[Index, ...]) -> list[Index]:
        """Where elements at an index lie in the roots' buffers."""
        first = len(self.body.operand_types)
        return [self.body.linear(first + number, index) for number in range(len(self.body.roots))]

    def in_place(self, index: tuple[Index, ...], facts: Facts) -> tuple[tuple[int, int], ...]:
        """Operands that only what follows the anchor reads, each element where it is written: they may share memory."""
        pairs = in_place_at(self.body, facts, index, {})
        return tuple(pair for pair in pairs if pair[0] not in self.read_before)


def _shape_behind(anchor: Instruction, region: Block) -> tuple[int, ...]:
    """The shape in which what follows the anchor goes over its result."""
    shapes = [value.tensor_type.shape for value in region.returned if value is not anchor.result]
    return shapes[0] if shapes else anchor.result.tensor_type.shape


def _behind(roots: Iterable[Value], known: Container[Value]) -> set[Instruction]:
    """What values are computed from, as far as it is not known."""
    found: set[Instruction] = set()
    pending = list(roots)
    while pending:
        value = pending.pop()
        if value not in known and value.producer is not None and value.producer not in found:
            found.add(value.producer)
            pending.extend(value.producer.operands)
    return found


def _computing(
    roots: Sequence[Value], region: Block, block: Block, known: Mapping[Value, Value], types: tuple[TensorType, ...]
) -> Body:
    """A copy, in ``block``, of what computes values of the region from its arguments and what is known."""
    mapping = {**known, **{each: block.add_argument(each.type) for each in region.arguments}}
    parameters = {mapping[argument]: number for number, argument in enumerate(region.arguments)}
    wanted, sums = _behind(roots, known), set(known.values())
    members: dict[Instruction, Instruction] = {}
    for member in region:
        if member not in wanted:
            continue
        if Trait.BITCAST in member.op.traits and mapping[member.operands[0]] in sums:
            mapping[member.result] = mapping[member.operands[0]]
        else:
            members[member] = block.append(clone_instruction(member, mapping))
    copied = tuple(members.get(member, member) for member in region)
    return Body(parameters, tuple(mapping[value] for value in roots), types, members=copied)

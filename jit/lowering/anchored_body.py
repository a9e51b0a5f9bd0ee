"""What an anchored fusion computes: its anchor, and what follows it element by element.

    group = AnchoredBody.of(fusion)
    group.anchor, group.operands      # the op with a kernel of its own, and which operands of the fusion it reads
    group.body, group.sums            # the rest as a body, in which ``sums`` stands for the anchor's result

Emitters of anchors compute the result box by box and give ``sums`` at an index (``Elements.define_stored``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from hlojit.ir.graph import Block, Instruction, Value, clone_instruction
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.internal import anchor_of
from hlojit.lowering.body import Body
from hlojit.lowering.element_access import Access
from hlojit.lowering.element_forms import lane_kind, memory_kind
from hlojit.lowering.elements import Elements
from hlojit.lowering.index import Index
from hlojit.lowering.loop_plan import in_place_pairs
from hlojit.lowering.probe import Facts, Probe, ProbeScalar


@dataclass(frozen=True)
class AnchoredBody:
    """The two parts of an anchored fusion."""

    anchor: Instruction
    operands: tuple[int, ...]
    """The anchor's, as numbers of the fusion's."""
    body: Body
    sums: Value
    """The anchor's result in the body, in the shape of the roots."""

    @staticmethod
    def of(fusion: Instruction) -> AnchoredBody:
        """The parts of a fusion of the kind ``anchor``."""
        region, anchor, block = fusion.regions[0], anchor_of(fusion), Block()
        numbers = {argument: number for number, argument in enumerate(region.arguments)}
        mapping: dict[Value, Value] = {each: block.add_argument(each.type) for each in region.arguments}
        parameters = {mapping[argument]: number for argument, number in numbers.items()}
        result = anchor.result.tensor_type
        sums = block.add_argument(result.with_shape(_shape_behind(anchor, region)))
        mapping[anchor.result] = sums
        for member in region:
            if member is anchor or Trait.TERMINATOR in member.op.traits:
                continue
            if Trait.BITCAST in member.op.traits and mapping.get(member.operands[0]) is sums:
                mapping[member.result] = sums
            else:
                block.append(clone_instruction(member, mapping))
        roots = tuple(mapping[value] for value in region.returned)
        types = tuple(operand.tensor_type for operand in fusion.operands)
        return AnchoredBody(
            anchor, tuple(numbers[each] for each in anchor.operands), Body(parameters, roots, types), sums
        )

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
        return Body({**body.parameters, self.sums: len(body.operand_types)}, body.roots, types)

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
        pairs = in_place_pairs(self.body, facts, self.stored_at(index)[0], {})
        return tuple(pair for pair in pairs if pair[0] not in self.operands)


def _shape_behind(anchor: Instruction, region: Block) -> tuple[int, ...]:
    """The shape in which what follows the anchor goes over its result."""
    shapes = [value.tensor_type.shape for value in region.returned if value is not anchor.result]
    return shapes[0] if shapes else anchor.result.tensor_type.shape

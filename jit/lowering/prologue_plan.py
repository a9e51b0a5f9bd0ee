"""How a product reads an operand that is computed where it is read: along one operand of the prologue, the *stream*.

    %d = multiply(convert(%w), broadcast(%s))        # tensor<4096x4096xf32>; %w: tensor<4096x4096xi8> is the stream

Elements of the stream lie where those of the product's operand would, in their own width: what walks over the operand walks
over the stream, and pointers into it say which element is wanted.  ``index`` is that of ``lanes`` neighbours in terms of
the number of the line (``outer``), of the vector in it (``step``) and of the ``lane``: lines are what lies without a gap
along the dimension of neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from hlojit.ir.graph import Value
from hlojit.lowering.body import Body
from hlojit.lowering.element_access import Access
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.elements import Elements
from hlojit.lowering.index import Index, delinearized, linear_index, variable
from hlojit.lowering.loop_plan import INSTRUCTIONS_PER_CYCLE
from hlojit.lowering.probe import Facts, Probe, ProbeScalar
from hlojit.lowering.target import KIND_BITS, Target

OUTER: Final = "outer"
STEP: Final = "step"
LANE: Final = "lane"


@dataclass(frozen=True)
class ProloguePlan:
    """A prologue that goes along ``stream``, one of the fusion's operands, in lines of ``line`` elements."""

    body: Body
    line: int
    stream: int
    kind: str
    """Of the stream's memory."""
    facts: Facts

    @staticmethod
    def of(body: Body, line: int, lanes: int) -> ProloguePlan | None:
        """The plan, or None where no operand goes along, or what else is read are no neighbours for neighbours."""
        index = vector_index(body.roots[0], line, lanes)
        if index is None:
            return None
        facts = _facts(body, index)
        if facts is None:
            return None
        own = linear_index(index, body.roots[0].tensor_type.strides)
        streams = [
            number
            for number, type in enumerate(body.operand_types)
            if type.size == body.roots[0].tensor_type.size
            and KIND_BITS[memory_kind(type.element_type)] == 8 * type.element_type.itemsize
            and (reads := [load.linear for load in facts.loads if load.buffer == number])
            and all(read == own for read in reads)
        ]
        if not streams:
            return None
        stream = min(streams, key=lambda number: body.operand_types[number].nbytes)
        return ProloguePlan(body, line, stream, memory_kind(body.operand_types[stream].element_type), facts)

    @property
    def root(self) -> Value:
        """The product's operand."""
        return self.body.roots[0]

    @property
    def size(self) -> int:
        """Bytes of an element of the stream."""
        return KIND_BITS[self.kind] // 8

    @property
    def buffers(self) -> list[int]:
        """The fusion's operands that are read."""
        return sorted({load.buffer for load in self.facts.loads})

    @property
    def finds_places(self) -> bool:
        """Whether something is read whose place follows from that of the stream's element."""
        return any(load.linear.variables and load.buffer != self.stream for load in self.facts.loads) or bool(
            self.facts.indices
        )

    def index(self, lanes: int) -> tuple[Index, ...]:
        """The index of so many neighbours."""
        found = vector_index(self.root, self.line, lanes)
        assert found is not None
        return found

    def fits(self, lanes: int) -> bool:
        """Whether so many neighbours can be computed at once."""
        return self.line % lanes == 0 and _facts(self.body, self.index(lanes)) is not None

    def nanoseconds(self, target: Target) -> float:
        """Estimated time of one element on one core, without memory."""
        native = max(1, target.vector_bits // self.facts.widest_bits)
        return self.facts.cost / INSTRUCTIONS_PER_CYCLE / native / target.machine.gigahertz


def vector_index(root: Value, line: int, lanes: int) -> tuple[Index, ...] | None:
    """The index of ``lanes`` neighbours of a line, which begin at a multiple of them; None if lines are no whole dimensions."""
    shape = root.tensor_type.shape
    inner, split = 1, len(shape)
    while inner < line and split:
        split -= 1
        inner *= shape[split]
    if inner != line or line == 1:
        return None
    outer = variable(OUTER, 0, root.tensor_type.size // line - 1)
    position = variable(STEP, 0, -(-line // lanes) - 1) * lanes + variable(LANE, 0, lanes - 1)
    return (*delinearized(outer, shape[:split]), *delinearized(position, shape[split:]))


def _facts(body: Body, index: tuple[Index, ...]) -> Facts | None:
    """A dry run at an index, or None where what is read are no neighbours, or one for all of them."""
    probe = Probe()
    elements = Elements(cast(Access, probe), body)
    facts = probe.finish([cast(ProbeScalar, elements.value(body.roots[0], index))])
    if facts.has_call or facts.has_loop:
        return None
    sound = all(load.linear.coefficient(LANE) in (0, 1) and not load.guarded for load in facts.loads)
    return facts if sound else None

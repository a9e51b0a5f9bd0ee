"""A back end for every instruction of a program: what computing and moving costs together is least.

    %0 = stablehlo.dot_general %x, %w        nova     takes it, and is the cheapest
    %1 = stablehlo.sort %0                   cpu      the only one that takes it
    %2 = stablehlo.add %1, %1                cpu      moving %1 would cost more than it gains

Constants have no place: each back end that reads one gets it.  Arguments may be anywhere; one that two back ends read is moved
once.  A loop or branch stays whole where that costs least; where no back end takes all of it, or where splitting it costs less,
its regions are assigned like the program itself, and the host runs the construct.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Block, Function, Instruction, Value
from hlojit.ir.passes.graph_facts import is_constant, is_control_flow, is_terminator
from hlojit.ir.types import TensorType
from hlojit.partition.candidates import TRIPS, Candidates, nbytes_of, transfer_nanoseconds
from hlojit.partition.cuts import Labelling, Moving
from hlojit.partition.extraction import reads_of
from hlojit.partition.joint import JointBackend

HANDOVER: Final = 5_000.0
"""Nanoseconds that it takes to end one program and begin another on a device that waits for it."""
DEEPEST_SPLIT: Final = 32
"""Levels of loops and branches that the host runs."""


@final
@dataclass(slots=True)
class Assignment:
    """Numbers of back ends for the instructions of blocks that the host runs one after the other.

    ``members`` has none for constants, and none for constructs that are split, whose parts are in ``inner``.
    """

    members: dict[Instruction, int] = field(default_factory=dict)
    homes: dict[Value, int] = field(default_factory=dict)
    """Where values are made, or first moved to: results, arguments of the blocks."""
    inner: dict[Instruction, list[Assignment]] = field(default_factory=dict)
    """By split construct, of a loop one for both regions, of a branch one for each."""
    nanoseconds: float = 0.0


@final
class Assigner:
    """Assigns one program."""

    def __init__(self, backend: JointBackend, candidates: Candidates):
        self._backend = backend
        self._candidates = candidates
        self._count = len(backend.members)
        self._moving: dict[int, Moving] = {}
        self._reads: dict[Instruction, tuple[Value, ...]] = {}

    def of_function(self, function: Function) -> Assignment:
        """Of the body of the entry function."""
        return self._assign([function.body], [], 0)

    def reads(self, instruction: Instruction) -> tuple[Value, ...]:
        """As ``reads_of``, remembered."""
        found = self._reads.get(instruction)
        if found is None:
            found = self._reads[instruction] = reads_of(instruction)
        return found

    def moving(self, value: Value) -> Moving:
        """What it costs to move a value from one back end's device to another's."""
        if not isinstance(value.type, TensorType):
            return _never
        nbytes = nbytes_of(value.type)
        found = self._moving.get(nbytes)
        if found is None:
            each = [transfer_nanoseconds(member, nbytes) for member in self._backend.members]
            table = [[HANDOVER + one + other for other in each] for one in each]
            found = self._moving[nbytes] = lambda source, target: table[source][target]
        return found

    # ------------------------------------------------------------------------------------------------ one problem

    def _assign(self, blocks: Sequence[Block], state: Sequence[tuple[Value, ...]], depth: int) -> Assignment:
        """``state``: arguments (of both blocks of a loop) and the value that comes back into them."""
        made = Assignment()
        problem = _Problem(self._count)
        for *carried, _ in state:
            problem.at_one_place(carried)
        placed: dict[Instruction, int] = {}
        for block in blocks:
            for instruction in block:
                if is_constant(instruction) or is_terminator(instruction):
                    continue
                split = self._split(instruction, depth) if is_control_flow(instruction) else None
                if split is not None:
                    made.inner[instruction] = split
                    problem.around(instruction, split)
                else:
                    placed[instruction] = problem.at(self._answer(instruction), instruction, self.reads(instruction))
        for *arguments, returned in state:
            problem.users.setdefault(returned, []).append(problem.nodes[arguments[0]])
        labels, cost = problem.solved(self.moving)
        made.members = {instruction: labels[node] for instruction, node in placed.items()}
        made.homes = {value: labels[node] for value, node in problem.nodes.items()}
        made.nanoseconds = cost + sum(
            _times(each) * sum(part.nanoseconds for part in parts) for each, parts in made.inner.items()
        )
        return made

    def _answer(self, instruction: Instruction) -> Sequence[float]:
        if is_control_flow(instruction):
            return self._candidates.whole(instruction).costs
        return self._candidates.of(instruction).costs

    # ------------------------------------------------------------------------------------------------- constructs

    def _split(self, construct: Instruction, depth: int) -> list[Assignment] | None:
        """The parts of a construct that the host is to run; None where one back end should have all of it."""
        whole = self._candidates.whole(construct)
        lowest = min(whole.costs)
        if lowest < math.inf and not self._is_worth_a_look(construct, whole.costs):
            return None
        if construct.op.host_role not in ("loop", "branch"):
            return None if lowest < math.inf else self._refuse(construct, "it cannot be split")
        if depth >= DEEPEST_SPLIT:
            return None if lowest < math.inf else self._refuse(construct, f"it lies {DEEPEST_SPLIT} constructs deep")
        regions = construct.regions
        if construct.op.host_role == "loop":
            state = list(zip(regions[0].arguments, regions[1].arguments, regions[1].returned))
            parts = [self._assign(regions, state, depth + 1)]
        else:
            parts = [self._assign([region], [], depth + 1) for region in regions]
        cost = _times(construct) * (HANDOVER + sum(part.nanoseconds for part in parts))
        return parts if cost < lowest else None

    def _is_worth_a_look(self, construct: Instruction, costs: Sequence[float]) -> bool:
        """Whether a back end that cannot have all of the construct has a part that is cheaper there."""
        able = [number for number, cost in enumerate(costs) if cost < math.inf]
        unable = [number for number, cost in enumerate(costs) if cost == math.inf]
        if not unable:
            return False
        for region in construct.regions:
            for each in region:
                if is_constant(each) or is_terminator(each):
                    continue
                own = self._answer(each)
                if is_control_flow(each) or min(own[number] for number in unable) < min(own[number] for number in able):
                    return True
        return False

    def _refuse(self, construct: Instruction, why: str) -> list[Assignment]:
        reasons = self._candidates.whole(construct).reasons
        said = "; ".join(f"{each.name}: {reason}" for each, reason in zip(self._backend.members, reasons))
        raise UnsupportedError(construct.op.name, self._backend.name, f"{said}; {why}", construct.location)


@final
class _Problem:
    """Blocks as a labelling problem: nodes are places, of instructions and of values."""

    def __init__(self, count: int):
        self._labelling = Labelling(count)
        self._anywhere = (0.0,) * count
        self._fixed = [
            self._labelling.node([0.0 if each == label else math.inf for each in range(count)])
            for label in range(count)
        ]
        self.nodes: dict[Value, int] = {}
        """Where values are made."""
        self.users: dict[Value, list[int]] = {}
        """Where they are wanted."""

    def at_one_place(self, values: Iterable[Value]) -> None:
        """Values that are one memory, which may lie anywhere."""
        self.nodes.update(dict.fromkeys(values, self._labelling.node(self._anywhere)))

    def at(self, costs: Sequence[float], instruction: Instruction, reads: Iterable[Value]) -> int:
        """The node of an instruction, which has its costs, reads values there and makes its results there."""
        node = self._labelling.node(costs)
        for value in reads:
            self.users.setdefault(value, []).append(node)
        self.nodes.update(dict.fromkeys(instruction.results, node))
        return node

    def around(self, construct: Instruction, parts: Sequence[Assignment]) -> None:
        """A split construct as those outside see it: operands are wanted, and results made, in certain places."""
        is_loop = construct.op.host_role == "loop"
        for part in parts:
            for value, label in part.homes.items():
                if not _is_of(value, construct):
                    self.users.setdefault(value, []).append(self._fixed[label])
        for number, result in enumerate(construct.results):
            if is_loop:
                label = parts[0].homes.get(construct.regions[1].arguments[number], 0)
                self.users.setdefault(construct.operands[number], []).append(self._fixed[label])
            else:
                label = parts[0].homes.get(construct.regions[0].returned[number], 0)
            self.nodes[result] = self._fixed[label]

    def solved(self, moving: Callable[[Value], Moving]) -> tuple[Sequence[int], float]:
        """The labels of all nodes, and what they cost."""
        sources: dict[int, list[tuple[Value, list[int]]]] = {}
        for value, readers in self.users.items():
            if is_constant(value.producer):
                continue
            if value not in self.nodes:
                self.at_one_place([value])
            sources.setdefault(self.nodes[value], []).append((value, readers))
        for node, values in sources.items():
            for value, readers in values:
                self._labelling.value(node, readers, moving(value))
        labels = self._labelling.solve()
        return labels, self._labelling.cost(labels)


def _never(source: int, target: int) -> float:
    return math.inf


def _times(construct: Instruction) -> float:
    return TRIPS if construct.op.host_role == "loop" else 1.0 / max(1, len(construct.regions))


def _is_of(value: Value, construct: Instruction) -> bool:
    """Whether a value is made, or an argument, within a construct."""
    block: object = value.owner if isinstance(value.owner, Block) else value.owner.block
    while isinstance(block, Block):
        parent = block.parent
        if parent is construct:
            return True
        block = parent.block if isinstance(parent, Instruction) else None
    return False

"""Why an instruction is where it is: what the table of a placement is made from, when somebody asks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import final

from hlojit.ir.graph import Block, Instruction, Module
from hlojit.ir.passes.graph_facts import is_constant, is_control_flow, is_terminator
from hlojit.partition.assignment import Assigner, Assignment
from hlojit.partition.candidates import Answer, Candidates, nbytes_of
from hlojit.partition.joint import JointBackend
from hlojit.partition.plan import Plan, Segment
from hlojit.partition.table import Placement, Row


@final
class Explanation:
    """Of one plan."""

    def __init__(
        self,
        module: Module,
        backend: JointBackend,
        candidates: Candidates,
        assigner: Assigner,
        assignment: Assignment,
        plan: Plan,
    ):
        self._module = module
        self._names = [each.name for each in backend.members]
        self._candidates = candidates
        self._assigner = assigner
        self._assignment = assignment
        self._plan = plan

    def placement(self) -> Placement:
        """The table, with what segments have taken until now."""
        segments = {each: segment for segment in self._plan.segments for each in segment.instructions}
        rows: list[Row] = []
        for instruction in _instructions(self._module.main.body, self._assignment):
            segment = segments.get(instruction)
            if segment is not None:
                rows.append(self._row(instruction, segment, segments))
            elif is_constant(instruction):
                rows.append(self._constant(instruction, segments))
            else:
                rows.append(self._split(instruction))
        return Placement(self._plan.name, tuple(rows), tuple(self._plan.segments))

    def _row(self, instruction: Instruction, segment: Segment, segments: dict[Instruction, Segment]) -> Row:
        answer, member = self._answer(instruction), segment.place.member
        moved = sum(
            nbytes_of(value.type)
            for value in self._assigner.reads(instruction)
            if value.producer in segments and segments[value.producer].place is not segment.place
        )
        why = self._why(answer, member)
        return Row(
            _text(instruction),
            str(instruction.location),
            str(segment.place),
            segment.number,
            why,
            moved,
            answer.costs[member],
        )

    def _why(self, answer: Answer, member: int) -> str:
        others = [number for number in range(len(self._names)) if number != member]
        refusals = [
            f"{self._names[number]}: {answer.reasons[number] or 'no'}"
            for number in others
            if answer.costs[number] == math.inf
        ]
        able = [number for number in others if answer.costs[number] < math.inf]
        if not able:
            return f"only {self._names[member]} takes it ({'; '.join(refusals)})" if others else "the only back end"
        cheaper = min(able, key=lambda number: answer.costs[number])
        if answer.costs[cheaper] < answer.costs[member]:
            gained = _time(answer.costs[member] - answer.costs[cheaper])
            return (
                f"stays with its neighbours: moving would cost more than the {gained} that {self._names[cheaper]} gains"
            )
        said = f"cheapest: {_time(answer.costs[member])}, {self._names[cheaper]} {_time(answer.costs[cheaper])}"
        return f"{said} ({'; '.join(refusals)})" if refusals else said

    def _constant(self, instruction: Instruction, segments: dict[Instruction, Segment]) -> Row:
        places = dict.fromkeys(
            str(segments[user].place) for result in instruction.results for user in result.users if user in segments
        )
        where = ", ".join(places) or "host"
        return Row(
            _text(instruction), str(instruction.location), where, None, "a constant: put where it is read", 0, 0.0
        )

    def _split(self, instruction: Instruction) -> Row:
        answer = self._answer(instruction)
        said = [f"{name}: {reason}" for name, reason in zip(self._names, answer.reasons) if reason]
        why = f"split, the host runs it ({'; '.join(said)})" if said else "split, the host runs it: that costs less"
        return Row(_text(instruction), str(instruction.location), "host", None, why, 0, 0.0)

    def _answer(self, instruction: Instruction) -> Answer:
        return (self._candidates.whole if is_control_flow(instruction) else self._candidates.of)(instruction)


def _instructions(block: Block, assignment: Assignment) -> Iterator[Instruction]:
    """In the program's order, with those of the regions of what is split."""
    for instruction in block:
        if is_terminator(instruction):
            continue
        yield instruction
        parts: Sequence[Assignment] = assignment.inner.get(instruction, ())
        if parts:
            shared = list(parts) * len(instruction.regions) if len(parts) == 1 else parts
            for region, part in zip(instruction.regions, shared):
                yield from _instructions(region, part)


def _text(instruction: Instruction) -> str:
    return f"{instruction.op.name} -> {', '.join(map(str, instruction.result_types))}"


def _time(nanoseconds: float) -> str:
    return f"{nanoseconds:.0f} ns" if nanoseconds < 1e4 else f"{nanoseconds / 1e3:.0f} us"

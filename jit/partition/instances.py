"""Which of a back end's devices an instruction runs on, where the list names several (``nova:0``, ``nova:1``).

The instructions that matter most for the end of the program come first (by the longest way to its end), and each goes where it
ends earliest, what has to be moved there counted in (HEFT: Topcuoglu, Hariri and Wu, 2002).  So parts that do not depend on
each other spread, and what follows a value stays with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hlojit.ir.graph import Block, Instruction, Value
from hlojit.partition.assignment import HANDOVER, Assigner
from hlojit.partition.joint import JointBackend, Place


def first_places(backend: JointBackend, members: Mapping[Instruction, int]) -> dict[Instruction, Place]:
    """Every instruction on the first device of its back end."""
    firsts = _places_of(backend)
    return {instruction: firsts[member][0] for instruction, member in members.items()}


def spread(
    block: Block,
    backend: JointBackend,
    members: Mapping[Instruction, int],
    assigner: Assigner,
    cost_of: Callable[[Instruction], float],
) -> dict[Instruction, Place]:
    """Every instruction on one of the devices of its back end."""
    places = _places_of(backend)
    if all(len(each) == 1 for each in places.values()):
        return first_places(backend, members)
    instructions = [each for each in block if each in members]
    costs = {each: cost_of(each) for each in instructions}
    chosen: dict[Instruction, Place] = {}
    free: dict[Place, float] = {}
    there: dict[Value, dict[Place, float]] = {}
    """When a value is where."""
    for instruction in _most_urgent_first(instructions, costs, assigner):
        reads = assigner.reads(instruction)
        best, end, ready_at = _earliest(instruction, places[members[instruction]], reads, free, there, assigner)
        chosen[instruction] = best
        for value in reads:
            there.setdefault(value, {}).setdefault(best, ready_at)
        free[best] = end + costs[instruction]
        there.update((result, {best: free[best]}) for result in instruction.results)
    return chosen


def _earliest(
    instruction: Instruction,
    places: Sequence[Place],
    reads: Sequence[Value],
    free: Mapping[Place, float],
    there: Mapping[Value, Mapping[Place, float]],
    assigner: Assigner,
) -> tuple[Place, float, float]:
    """The place where the instruction begins first, when, and when what it reads is there."""
    best: tuple[Place, float, float] | None = None
    for place in places:
        ready = 0.0
        for value in reads:
            known = there.get(value)
            if known and place not in known:
                source, since = min(known.items(), key=lambda pair: pair[1])
                ready = max(ready, since + assigner.moving(value)(source.member, place.member))
            elif known:
                ready = max(ready, known[place])
        # A device that has nothing to do is woken for something that is worth it.
        begin = max(ready, free.get(place, 0.0 if place is places[0] else HANDOVER))
        if best is None or begin < best[1]:
            best = place, begin, ready
    assert best is not None, "a back end of the list has a place"
    return best


def _most_urgent_first(
    instructions: Sequence[Instruction], costs: Mapping[Instruction, float], assigner: Assigner
) -> list[Instruction]:
    ranks: dict[Instruction, float] = {}
    waiting: dict[Value, float] = {}
    for instruction in reversed(instructions):
        rank = 1.0 + costs[instruction] + max((waiting.get(each, 0.0) for each in instruction.results), default=0.0)
        ranks[instruction] = rank
        for value in assigner.reads(instruction):
            waiting[value] = max(waiting.get(value, 0.0), rank)
    return sorted(instructions, key=lambda each: -ranks[each])


def _places_of(backend: JointBackend) -> dict[int, list[Place]]:
    found: dict[int, list[Place]] = {}
    for place in backend.places:
        found.setdefault(place.member, []).append(place)
    return found

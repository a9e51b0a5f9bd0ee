"""Which instructions of a block become one segment, and in which order segments begin.

Every instruction has a *depth*: how often, on a way that leads to it, the place changes at most.  Instructions of one place and
depth are one group; no group can wait for itself, since depths only grow along the way.  What of a group does not hang together
is taken apart again where it is worth a program of its own, so that it waits for less and others wait for less.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from hlojit.ir.graph import Instruction, Value
from hlojit.ir.passes.graph_facts import Effects

WORTH_ALONE: Final = 50_000.0
"""Nanoseconds of work from which on something independent becomes a segment of its own."""
_WORTH_EARLY: Final = 5_000.0
"""From which on an instruction runs as early as it can, not where its result is wanted."""

_Step = TypeVar("_Step")


def groups(
    instructions: Sequence[Instruction],
    places: Mapping[Instruction, Hashable],
    reads: Callable[[Instruction], Iterable[Value]],
    cost_of: Callable[[Instruction], float],
    effects: Effects,
) -> list[list[Instruction]]:
    """The instructions in groups, each in the program's order; ``places`` names where each is.

    Those whose place nobody else has (what the host runs) are groups of one.
    """
    depths, before = _depths(instructions, places, reads, effects)
    _sink(instructions, places, depths, reads, cost_of, effects)
    found: dict[tuple[Hashable, int], list[Instruction]] = {}
    for instruction in instructions:
        found.setdefault((places[instruction], depths[instruction]), []).append(instruction)
    return [part for group in found.values() for part in _parts(group, reads, cost_of, before)]


def _depths(
    instructions: Sequence[Instruction],
    places: Mapping[Instruction, Hashable],
    reads: Callable[[Instruction], Iterable[Value]],
    effects: Effects,
) -> tuple[dict[Instruction, int], dict[Instruction, Instruction]]:
    """Depths, and for what has an effect what had one before it."""
    depths: dict[Instruction, int] = {}
    before: dict[Instruction, Instruction] = {}
    latest: Instruction | None = None
    for instruction in instructions:
        place, depth = places[instruction], 0
        producers = [value.producer for value in reads(instruction)]
        if effects.has_effect(instruction):
            if latest is not None:
                before[instruction] = latest
                producers.append(latest)
            latest = instruction
        for producer in producers:
            if producer is not None and producer in depths:
                depth = max(depth, depths[producer] + (places[producer] != place))
        depths[instruction] = depth
    return depths, before


def _sink(
    instructions: Sequence[Instruction],
    places: Mapping[Instruction, Hashable],
    depths: dict[Instruction, int],
    reads: Callable[[Instruction], Iterable[Value]],
    cost_of: Callable[[Instruction], float],
    effects: Effects,
) -> None:
    """Have cheap instructions run where their result is wanted, if that is on their own place and keeps no more alive."""
    wanted: dict[Value, list[Instruction]] = {}
    for instruction in reversed(instructions):
        users = [user for result in instruction.results for user in wanted.get(result, ())]
        is_wanted_elsewhere = any(places[user] != places[instruction] for user in users)
        if users and not is_wanted_elsewhere and not effects.has_effect(instruction):
            returned = any(user not in depths for result in instruction.results for user in result.users)
            fresh = any(value.producer in depths for value in reads(instruction))
            if not returned and not fresh and cost_of(instruction) < _WORTH_EARLY:
                depths[instruction] = min(depths[user] for user in users)
        for value in reads(instruction):
            wanted.setdefault(value, []).append(instruction)


def _parts(
    group: Sequence[Instruction],
    reads: Callable[[Instruction], Iterable[Value]],
    cost_of: Callable[[Instruction], float],
    before: Mapping[Instruction, Instruction],
) -> list[list[Instruction]]:
    """A group in parts that do not hang together; the small ones are one."""
    leader: dict[Instruction, Instruction] = {each: each for each in group}

    def find(instruction: Instruction) -> Instruction:
        while leader[instruction] is not instruction:
            leader[instruction] = instruction = leader[leader[instruction]]
        return instruction

    for instruction in group:
        for producer in (*(value.producer for value in reads(instruction)), before.get(instruction)):
            if producer is not None and producer in leader:
                leader[find(producer)] = find(instruction)
    parts: dict[Instruction, list[Instruction]] = {}
    for instruction in group:
        parts.setdefault(find(instruction), []).append(instruction)
    large, small = [], set()
    for part in parts.values():
        if sum(map(cost_of, part)) >= WORTH_ALONE:
            large.append(part)
        else:
            small.update(part)
    if small:
        large.append([each for each in group if each in small])
    return large


def ordered(
    steps: Sequence[_Step],
    after: Mapping[int, Iterable[int]],
    place_of: Callable[[_Step], Hashable],
    cost_of: Callable[[_Step], float],
) -> list[int]:
    """Numbers of steps in an order in which each comes behind those that it is ``after``, the earliest to begin first.

    When they begin is reckoned: each place does one after the other.
    """
    waiting = [0] * len(steps)
    followers: list[list[int]] = [[] for _ in steps]
    for number, others in after.items():
        for other in set(others):
            waiting[number] += 1
            followers[other].append(number)
    ready = [0.0] * len(steps)
    free: dict[Hashable, float] = {}
    queue = [(0.0, number) for number, count in enumerate(waiting) if not count]
    heapq.heapify(queue)
    order: list[int] = []
    while queue:
        begin, number = heapq.heappop(queue)
        place = place_of(steps[number])
        end = max(begin, free.get(place, 0.0)) + cost_of(steps[number])
        free[place] = end
        order.append(number)
        for follower in followers[number]:
            ready[follower] = max(ready[follower], end)
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(queue, (ready[follower], follower))
    assert len(order) == len(steps), "steps wait for each other in a circle"
    return order

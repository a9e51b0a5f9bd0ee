"""The order of passes in a phase: what they declare, then hlojit's own, then plugins'; names where all of these leave a choice.

A plugin's pass that declares nothing stands behind hlojit's own, so that nothing of the phase undoes what it has made: which of
two names comes first in the alphabet says nothing about that.  One that has to stand before some of hlojit's own (``before``, or
since another that is before them comes ``after`` it) stands directly before the first of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Placed(Protocol):
    """A pass as far as its place is concerned."""

    @property
    def name(self) -> str:
        """What others call it."""
        raise NotImplementedError

    @property
    def before(self) -> tuple[str, ...]:
        """Names of passes that follow."""
        raise NotImplementedError

    @property
    def after(self) -> tuple[str, ...]:
        """Names of passes that come first."""
        raise NotImplementedError


class Circle(Exception):
    """Constraints that nothing fulfils; ``positions`` are the passes that are left."""

    def __init__(self, positions: Sequence[int]):
        super().__init__(f"passes {positions}")
        self.positions = positions


def order_of_phase(members: Sequence[Placed], is_foreign: Callable[[str], bool]) -> list[int]:
    """Positions of the passes of one phase, in the order in which they run; ``is_foreign`` tells plugins' from hlojit's own."""
    followers = _followers(members)
    by_name = _sorted(followers, [each.name for each in members])
    own = [position for position in by_name if not is_foreign(members[position].name)]
    if len(own) == len(members):
        return by_name
    # hlojit's own in the order that they would have, whatever plugins' names are; theirs as late as they may be.
    numbers = {position: number for number, position in enumerate(_own_order(members, followers, own))}
    keys: list[Any] = []
    for position, each in enumerate(members):
        if position in numbers:
            keys.append((numbers[position], 1, each.name))
        else:
            first = min(
                (numbers[other] for other in _reached(position, followers) if other in numbers), default=len(own)
            )
            keys.append((first, 0, each.name))
    return _sorted(followers, keys)


def _followers(members: Sequence[Placed]) -> list[set[int]]:
    """By position of a pass those of the passes that have to come behind it."""
    positions: dict[str, list[int]] = {}
    for position, each in enumerate(members):
        positions.setdefault(each.name, []).append(position)
    followers: list[set[int]] = [set() for _ in members]
    for position, each in enumerate(members):
        for name in each.before:
            followers[position].update(positions.get(name, ()))
        for name in each.after:
            for other in positions.get(name, ()):
                followers[other].add(position)
    return followers


def _own_order(members: Sequence[Placed], followers: Sequence[set[int]], own: Sequence[int]) -> list[int]:
    """hlojit's own passes by their constraints, those that plugins' passes make between them too, and names."""
    number_of = {position: number for number, position in enumerate(own)}
    among = [{number_of[other] for other in _reached(position, followers) if other in number_of} for position in own]
    return [own[number] for number in _sorted(among, [members[position].name for position in own])]


def _reached(position: int, followers: Sequence[set[int]]) -> set[int]:
    found: set[int] = set()
    waiting = [*followers[position]]
    while waiting:
        other = waiting.pop()
        if other not in found:
            found.add(other)
            waiting += followers[other]
    return found


def _sorted(followers: Sequence[set[int]], keys: Sequence[Any]) -> list[int]:
    """Topological order; of those that are ready the one of the least key, then the first.  Raises ``Circle``."""
    waiting = [0] * len(followers)
    for targets in followers:
        for target in targets:
            waiting[target] += 1
    ready = [(keys[position], position) for position, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    ordered: list[int] = []
    while ready:
        _, position = heapq.heappop(ready)
        ordered.append(position)
        for target in followers[position]:
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, (keys[target], target))
    if len(ordered) != len(followers):
        raise Circle([position for position, count in enumerate(waiting) if count])
    return ordered

"""Labels for nodes at the least cost: what each node costs under a label, and what it costs to move values between labels.

    problem = Labelling(2)
    a, b = problem.node((1.0, 5.0)), problem.node((9.0, 2.0))
    problem.value(a, [b], lambda source, target: 3.0)
    problem.solve()                                     # [0, 1]: 1 + 3 + 2

A value is moved once for each label that reads it.  With two labels the result is a minimum cut, an optimum (up to the
rounding of costs to integers, a billionth of their sum).  With more it is found by *expansion*: one label after the other is
offered to all nodes at once, which is again a minimum cut, until no offer lowers the cost (Boykov, Veksler and Zabih, "Fast
approximate energy minimization via graph cuts", 2001).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np

Moving = Callable[[int, int], float]
"""What it costs to move a value from one label to another; infinite: not at all."""

_ROUNDS: Final = 4
"""Of offers of all labels."""
_FORCED: Final = 1 << 30
_LARGEST_SUM: Final = 1 << 28


@final
class Labelling:
    """A problem, and its solution; see the module's docstring."""

    def __init__(self, labels: int):
        self._labels = labels
        self._costs: list[Sequence[float]] = []
        self._values: list[tuple[int, list[int], Moving]] = []

    def node(self, costs: Sequence[float]) -> int:
        """A node with its costs under each label, infinite where it cannot have one; returns its number."""
        self._costs.append(costs)
        return len(self._costs) - 1

    def value(self, source: int, users: Sequence[int], moving: Moving) -> None:
        """A value that one node makes and others read."""
        others = [each for each in dict.fromkeys(users) if each != source]
        if others:
            self._values.append((source, others, moving))

    def solve(self) -> list[int]:
        """A label for each node."""
        last = self._labels - 1
        best = [
            last if costs[last] < math.inf else min(range(last + 1), key=costs.__getitem__) for costs in self._costs
        ]
        if last == 0 or not best:
            return best
        lowest = self.cost(best)
        for _ in range(1 if last == 1 else _ROUNDS):
            before = lowest
            for label in reversed(range(self._labels)):
                offered = self._offer(best, label)
                cost = self.cost(offered)
                # Of equal ones the later, of a label that is preferred.
                if cost <= lowest:
                    best, lowest = offered, cost
            if not lowest < before:
                break
        return best

    def cost(self, labels: Sequence[int]) -> float:
        """Of a solution."""
        total = sum(costs[label] for costs, label in zip(self._costs, labels))
        for source, users, moving in self._values:
            here = labels[source]
            total += sum(moving(here, there) for there in {labels[each] for each in users} if there != here)
        return total

    def _offer(self, labels: Sequence[int], offered: int) -> list[int]:
        """Every node keeps its label or takes the offered one, whatever costs least together."""
        if all(label == offered or costs[offered] == math.inf for label, costs in zip(labels, self._costs)):
            return list(labels)
        network = _Network(len(labels))
        for node, (label, costs) in enumerate(zip(labels, self._costs)):
            if label == offered:
                network.force_taking(node)
            else:
                network.choice(node, keeping=costs[label], taking=costs[offered])
        for source, users, moving in self._values:
            _add_value(network, labels, offered, source, users, moving)
        taking = network.taking()
        return [offered if taking[node] else label for node, label in enumerate(labels)]


def _add_value(
    network: _Network, labels: Sequence[int], offered: int, source: int, users: Sequence[int], moving: Moving
) -> None:
    here = labels[source]
    groups: dict[int, list[int]] = {}
    for user in users:
        groups.setdefault(labels[user], []).append(user)
    if here != offered:
        # Moved to the offered label, if somebody takes it and the source does not.
        weight = moving(here, offered)
        if offered in groups:
            network.to_taking(source, weight)
        else:
            network.edge(source, network.any_taking(users), weight)
    for label, members in groups.items():
        if label == offered:
            continue
        kept, taken = (0.0 if here == label else moving(here, label)), moving(offered, label)
        somebody = network.any_keeping(members)
        if here == offered:
            network.to_taking(somebody, taken)
            continue
        if kept:
            network.to_taking(somebody, min(kept, taken))
        network.edge(somebody, source, max(0.0, taken - kept) if kept < math.inf else 0.0)


@final
class _Network:
    """A minimum cut between those that keep what they have (the side of the source) and those that take what is offered."""

    def __init__(self, nodes: int):
        self._nodes = nodes
        self._source, self._sink = nodes, nodes + 1
        self._count = nodes + 2
        self._edges: dict[tuple[int, int], float] = {}

    def edge(self, keeping: int, taking: int, weight: float) -> None:
        """What it costs if the one keeps and the other takes."""
        if weight and keeping != taking:
            key = (keeping, taking)
            self._edges[key] = self._edges.get(key, 0.0) + weight

    def choice(self, node: int, keeping: float, taking: float) -> None:
        """What either costs."""
        least = min(keeping, taking)
        self.edge(self._source, node, taking - least)
        self.edge(node, self._sink, keeping - least)

    def force_taking(self, node: int) -> None:
        """It has what is offered."""
        self.edge(node, self._sink, math.inf)

    def to_taking(self, node: int, weight: float) -> None:
        """What it costs if it keeps."""
        self.edge(node, self._sink, weight)

    def any_taking(self, members: Sequence[int]) -> int:
        """A node that takes if one of them does."""
        return self._any(members, taking=True)

    def any_keeping(self, members: Sequence[int]) -> int:
        """A node that keeps if one of them does."""
        return self._any(members, taking=False)

    def _any(self, members: Sequence[int], *, taking: bool) -> int:
        if len(members) == 1:
            return members[0]
        made = self._count
        self._count += 1
        for each in members:
            self.edge(*((made, each) if taking else (each, made)), math.inf)
        return made

    def taking(self) -> Sequence[bool]:
        """Which nodes take; where both cost the same, they do."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        if not self._edges:
            return [True] * self._nodes
        pairs = np.array(list(self._edges), np.int32)
        weights = np.array(list(self._edges.values()))
        finite = np.isfinite(weights)
        unit = max(float(weights[finite].sum()) / _LARGEST_SUM, 1e-3)
        scaled = np.where(finite, np.ceil(np.where(finite, weights, 0.0) / unit), _FORCED).astype(np.int32)
        shape = (self._count, self._count)
        capacities = csr_array((scaled, (pairs[:, 0], pairs[:, 1])), shape=shape)
        flow = maximum_flow(capacities, self._source, self._sink).flow
        left = capacities - flow
        left.data[left.data < 0] = 0
        left.eliminate_zeros()
        reached = breadth_first_order(left, self._source, return_predecessors=False)
        keeps = np.zeros(self._count, bool)
        keeps[reached] = True
        taking: Sequence[bool] = (~keeps[: self._nodes]).tolist()
        return taking

"""The specification's collective ops over lists of NumPy arrays, one for each process: written down anew, for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Process = tuple[int, int]


@dataclass(frozen=True)
class Grid:
    """Processes (replica, partition), in the order of the lists."""

    replicas: int
    partitions: int

    @property
    def processes(self) -> list[Process]:
        return [(r, p) for r in range(self.replicas) for p in range(self.partitions)]

    def cross_replica(self, groups: Sequence[Sequence[int]]) -> list[list[Process]]:
        return [[(r, p) for r in group if r >= 0] for group in groups for p in range(self.partitions)]

    def cross_partition(self, groups: Sequence[Sequence[int]]) -> list[list[Process]]:
        return [[(r, p) for p in group if p >= 0] for group in groups for r in range(self.replicas)]

    def cross_replica_and_partition(self, groups: Sequence[Sequence[int]]) -> list[list[Process]]:
        return [[(r, p) for p in range(self.partitions) for r in group if r >= 0] for group in groups]

    def flattened_ids(self, groups: Sequence[Sequence[int]]) -> list[list[Process]]:
        return [[divmod(each, self.partitions) for each in group if each >= 0] for group in groups]


def within(
    grid: Grid, groups: list[list[Process]], values: Sequence[Array], give: Callable[[list[Array], int], Array]
) -> list[Array | None]:
    """``give(operands of the group, position)`` for every process in a group; None for the others."""
    at = dict(zip(grid.processes, values))
    found: dict[Process, Array] = {}
    for group in groups:
        for position, process in enumerate(group):
            found[process] = give([at[each] for each in group], position)
    return [found.get(process) for process in grid.processes]


def all_gather(grid: Grid, groups: Any, values: Any, dimension: int) -> list[Any]:
    return within(grid, groups, values, lambda operands, _: np.concatenate(operands, dimension))


def all_reduce(grid: Grid, groups: Any, values: Any, combine: Callable[[Array, Array], Array]) -> list[Any]:
    return within(grid, groups, values, lambda operands, _: reduce(combine, operands))


def reduce_scatter(grid: Grid, groups: Any, values: Any, dimension: int, combine: Any) -> list[Any]:
    return within(
        grid,
        groups,
        values,
        lambda operands, position: np.split(reduce(combine, operands), len(operands), dimension)[position],
    )


def all_to_all(grid: Grid, groups: Any, values: Any, split: int, concat: int, count: int) -> list[Any]:
    return within(
        grid,
        groups,
        values,
        lambda operands, position: np.concatenate(
            [np.split(operand, count, split)[position] for operand in operands], concat
        ),
    )


def collective_broadcast(grid: Grid, groups: Any, values: Any, root: int = 0) -> list[Any]:
    found = within(grid, groups, values, lambda operands, _: operands[root])
    return [np.zeros_like(value) if each is None else each for each, value in zip(found, values)]


def collective_reduce(grid: Grid, groups: Any, values: Any, combine: Any, root: int = 0) -> list[Any]:
    found = within(
        grid,
        groups,
        values,
        lambda operands, position: (
            reduce(combine, operands) if position == root else np.zeros_like(reduce(combine, operands))
        ),
    )
    return [np.zeros_like(value) if each is None else each for each, value in zip(found, values)]


def collective_permute(grid: Grid, pairs: Any, values: Any) -> list[Any]:
    at = dict(zip(grid.processes, values))
    givers = {target: source for source, target in pairs}
    return [
        at[givers[process]] if process in givers else np.zeros_like(value)
        for process, value in zip(grid.processes, values)
    ]

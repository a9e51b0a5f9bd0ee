"""The grid of processes that run one program together, and the groups into which collective ops split it.

    grid = ProcessGrid(replicas=2, partitions=2)
    grid.cross_replica([[0, 1]])          # ((0, 2), (1, 3)): process r * partitions + p is replica r, partition p

A module says its grid by the attributes ``mhlo.num_replicas`` and ``mhlo.num_partitions``, which ``hlojit.compile`` writes.
Groups are those of the specification ("Collective ops"); -1 fills up groups of different sizes and names nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hlojit.ir.attributes import IntegerAttr
from hlojit.ir.blocks import Instruction
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module

NUM_REPLICAS: Final = "mhlo.num_replicas"
NUM_PARTITIONS: Final = "mhlo.num_partitions"
MOST_PROCESSES: Final = 1 << 16

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""Of process numbers, or of the ids that a program writes."""


@dataclass(frozen=True, slots=True)
class ProcessGrid:
    """``replicas`` times ``partitions`` processes; all run the same program, each with arguments of its own."""

    replicas: int = 1
    partitions: int = 1

    @property
    def processes(self) -> int:
        """How many there are."""
        return self.replicas * self.partitions

    def __str__(self) -> str:
        return f"num_replicas={self.replicas}, num_partitions={self.partitions}"

    def number(self, replica: int, partition: int) -> int:
        """The process of a replica and a partition."""
        return replica * self.partitions + partition

    def cross_replica(self, groups: Sequence[Sequence[int]]) -> Groups:
        """Groups of replicas, once for each partition."""
        chosen = _members(groups, self.replicas)
        return tuple(
            tuple(self.number(replica, partition) for replica in group)
            for group in chosen
            for partition in range(self.partitions)
        )

    def cross_partition(self, groups: Sequence[Sequence[int]]) -> Groups:
        """Groups of partitions, once for each replica."""
        chosen = _members(groups, self.partitions)
        return tuple(
            tuple(self.number(replica, partition) for partition in group)
            for group in chosen
            for replica in range(self.replicas)
        )

    def cross_replica_and_partition(self, groups: Sequence[Sequence[int]]) -> Groups:
        """Groups of replicas with all their partitions, partition by partition."""
        chosen = _members(groups, self.replicas)
        return tuple(
            tuple(self.number(replica, partition) for partition in range(self.partitions) for replica in group)
            for group in chosen
        )

    def flattened_ids(self, groups: Sequence[Sequence[int]]) -> Groups:
        """Groups of processes by their numbers."""
        return _members(groups, self.processes)


def _members(groups: Sequence[Sequence[int]], count: int) -> Groups:
    """Without what fills groups up; no groups at all are one group of everybody, as HLO has it."""
    return tuple(tuple(each for each in group if each != -1) for group in groups) or (tuple(range(count)),)


def grid_of_module(module: Module) -> ProcessGrid | None:
    """The grid that a module states, or None; ``HlojitError`` for one that is none."""
    counts = [module.attributes.get(name) for name in (NUM_REPLICAS, NUM_PARTITIONS)]
    if counts == [None, None]:
        return None
    return checked_grid(
        *(each.value if isinstance(each, IntegerAttr) else 1 if each is None else each for each in counts)
    )


def checked_grid(replicas: object, partitions: object) -> ProcessGrid:
    """The grid of so many replicas and partitions; ``HlojitError`` where they are no such numbers."""
    for name, count in (("num_replicas", replicas), ("num_partitions", partitions)):
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_PROCESSES:
            raise HlojitError(f"{name}={count!r} is not a number of processes, from 1 to {MOST_PROCESSES}")
    assert isinstance(replicas, int) and isinstance(partitions, int)
    if replicas * partitions > MOST_PROCESSES:
        raise HlojitError(f"num_replicas={replicas} times num_partitions={partitions} is more than {MOST_PROCESSES}")
    return ProcessGrid(replicas, partitions)


def state_grid(module: Module, grid: ProcessGrid) -> None:
    """Write a grid into a module, in place."""
    module.attributes[NUM_REPLICAS] = IntegerAttr(grid.replicas, "i32")
    module.attributes[NUM_PARTITIONS] = IntegerAttr(grid.partitions, "i32")


def grid_of(instruction: Instruction) -> ProcessGrid | None:
    """The grid that an instruction's module states, or None."""
    function = instruction.function
    module = function.module if function is not None else None
    return grid_of_module(module) if module is not None else None

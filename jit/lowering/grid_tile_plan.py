"""What is decided about kernels of threads that read across the grain: tiles that pass through a block's shared memory.

``tile_plan.find_tiles`` says which loads are contiguous along another variable ``u`` than the result's innermost one ``v``.
A block takes a square of both: it reads those loads along ``u``, leaves them in shared memory, and computes along ``v``.
Rows in shared memory are an odd number of words apart, so that neither side waits for banks for long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlojit.lowering.body import Body
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_plan import THREADS
from hlojit.lowering.index import Index, delinearized, variable
from hlojit.lowering.loop_plan import in_place_at
from hlojit.lowering.probe import Facts, Load
from hlojit.lowering.space import Space
from hlojit.lowering.target import KIND_BITS
from hlojit.lowering.tile_plan import TransposedLoads

LONG_SIDE, SHORT_SIDE = 64, 32
"""Rows and columns of a tile: 16-byte pieces of f32 make 256 bytes of a row, and small tensors still give many tiles."""
LOCAL_U, LOCAL_V = "u.local", "v.local"


@dataclass(frozen=True)
class GridTilePlan:
    """Everything in terms of ``row`` (the tile's number) and the places ``u.local`` and ``v.local`` inside of the tile."""

    body: Body
    facts: Facts
    loads: tuple[Load, ...]
    side: int
    rows: int
    columns: int
    blocks: int
    threads: int
    load_lanes: tuple[int, ...]
    """Elements along ``u`` that a thread reads at once, of each load."""
    lanes: int
    """Elements along ``v`` that a thread computes at once."""
    index: tuple[Index, ...]
    sources: tuple[Index, ...]
    """Where the loads read."""
    u: Index
    v: Index
    mapping: dict[str, Index]

    @property
    def pitch(self) -> int:
        """Elements from one ``u`` to the next in shared memory."""
        return self.side + 1

    @property
    def local(self) -> Index:
        """An element's place in a tile in shared memory."""
        return local_u(self.side) * self.pitch + local_v(self.side)

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Operands and results that may share memory: none that is read by another thread than writes it."""
        staged = {load.buffer for load in self.loads}
        found = in_place_at(self.body, self.facts, self.index, self.mapping)
        return tuple((operand, result) for operand, result in found if operand not in staged)

    @property
    def is_whole(self) -> bool:
        """Whether no tile reaches beyond the extents."""
        return self.rows % self.side == 0 and self.columns % self.side == 0


def local_u(side: int) -> Index:
    """The row inside of a tile."""
    return variable(LOCAL_U, 0, side - 1)


def local_v(side: int) -> Index:
    """The column inside of a tile."""
    return variable(LOCAL_V, 0, side - 1)


def plan_grid_tiles(
    body: Body, machine: GridMachine, space: Space, facts: Facts, found: TransposedLoads
) -> GridTilePlan | None:
    """Tiles for the loads that ``find_tiles`` found; None where not even one fits into shared memory."""
    u, v = space.names[found.position], space.names[-1]
    rows, columns = space.extents[found.position], space.extents[-1]
    others = [n for n in range(len(space.names) - 1) if n != found.position]
    outer = math.prod(space.extents[n] for n in others)
    side = LONG_SIDE
    if outer * -(-rows // side) * -(-columns // side) < machine.multiprocessors:
        side = SHORT_SIDE
    loads = found.loads
    while loads and shared_bytes(loads, side) > machine.shared_bytes:
        loads = loads[:-1]
    if not loads:
        return None
    extents = [*(space.extents[n] for n in others), -(-rows // side), -(-columns // side)]
    total = math.prod(extents)
    parts = delinearized(variable("row", 0, total - 1), extents)
    whole_u, whole_v = parts[-2] * side + local_u(side), parts[-1] * side + local_v(side)
    mapping = {space.names[n]: part for n, part in zip(others, parts)} | {u: whole_u, v: whole_v}

    def lanes(bits: int, extent: int) -> int:
        count = 8 * machine.access_bytes // max(8, bits)
        while count > 1 and (extent % count or side * side // count < THREADS):
            count //= 2
        return count

    stored = [KIND_BITS[memory_kind(root.tensor_type.element_type)] for root in body.roots]
    return GridTilePlan(
        body,
        facts,
        loads,
        side,
        rows,
        columns,
        total,
        THREADS,
        tuple(lanes(KIND_BITS[load.kind], rows) for load in loads),
        min(lanes(bits, columns) for bits in stored),
        tuple(position.substitute(mapping) for position in space.root_index),
        tuple(load.linear.substitute(mapping) for load in loads),
        whole_u,
        whole_v,
        mapping,
    )


def shared_bytes(loads: tuple[Load, ...], side: int) -> int:
    """Of one tile of every load."""
    return sum(-(-side * (side + 1) * max(8, KIND_BITS[load.kind]) // 128) * 16 for load in loads)

"""What is decided about an element-by-element kernel on a machine with threads: blocks, threads, elements of a thread.

The space of the roots is cut along its innermost variable into *pieces* of ``lanes`` elements, which one thread loads and
stores with one access of up to 16 bytes.  Neighbouring threads take neighbouring pieces; a thread takes ``unroll`` pieces,
a block's threads apart, so that enough loads are under way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlojit.lowering.body import Body
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.index import Index, delinearized, variable
from hlojit.lowering.loop_plan import in_place_at, probe_elements
from hlojit.lowering.probe import Facts
from hlojit.lowering.space import Space
from hlojit.lowering.target import KIND_BITS

THREADS = 256
"""Of a block: enough warps to hide latencies, few enough that several blocks share a multiprocessor."""
BYTES_UNDER_WAY = 64
"""What one thread should have asked for before it waits: with 2,048 threads 128 kB a multiprocessor."""


@dataclass(frozen=True)
class GridPlan:
    """The grid of a kernel whose roots are computed element by element, in terms of ``row`` and the variable ``name``."""

    body: Body
    facts: Facts
    rows: int
    extent: int
    lanes: int
    unroll: int
    threads: int
    name: str
    index: tuple[Index, ...]
    mapping: dict[str, Index]

    @property
    def pieces(self) -> int:
        """Whole pieces of a row."""
        return self.extent // self.lanes

    @property
    def whole(self) -> int:
        """Whole pieces of all rows."""
        return self.rows * (self.extent // self.lanes)

    @property
    def tail(self) -> int:
        """Elements that are left behind the whole pieces of the only row."""
        return self.extent % self.lanes

    @property
    def units(self) -> int:
        """Whole pieces, then the elements that are left."""
        return self.whole + self.tail

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.units // (self.threads * self.unroll))

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Operands and results that may share memory: every piece is read before it is written."""
        return in_place_at(self.body, self.facts, self.index, self.mapping)


def _as_one_row(body: Body, machine: GridMachine, space: Space, facts: Facts) -> tuple[Space, Facts]:
    """Rows that are no whole pieces, taken together: what all of them share is then read across their ends.

    Where everything is read along rows, that is: elsewhere a row's own pieces are better, however short they are.
    """
    if len(space.names) != 2 or space.extents[-1] % machine.access_bytes == 0 or facts.has_loop or facts.has_call:
        return space, facts
    is_plain = all(
        not load.guarded and load.linear.is_affine and load.linear.coefficient(space.names[-1]) in (0, 1)
        for load in facts.loads
    )
    rows, extent = space.extents
    if not is_plain or facts.indices or facts.conditions or extent < 2 * machine.access_bytes:
        return space, facts
    mapping = dict(zip(space.names, delinearized(variable("flat", 0, rows * extent - 1), space.extents)))
    index = tuple(position.substitute(mapping) for position in space.root_index)
    return Space(("flat",), (rows * extent,), index, (0,)), probe_elements(body, [(root, index) for root in body.roots])


def plan_grid(body: Body, machine: GridMachine, space: Space, facts: Facts) -> GridPlan:
    """The grid over a space that ``plan_space`` made."""
    name = space.names[-1] if space.names else "point"
    rows, extent = math.prod(space.extents[:-1]), space.extents[-1] if space.extents else 1
    if rows > 1 and piece_lanes(body, machine, facts, name, extent, rows) < piece_lanes(
        body, machine, facts, name, rows * extent, 1
    ):
        space, facts = _as_one_row(body, machine, space, facts)
    extent = space.extents[-1] if space.extents else 1
    rows = math.prod(space.extents[:-1])
    name = space.names[-1] if space.names else "point"
    lanes = piece_lanes(body, machine, facts, name, extent, rows)
    row_index = delinearized(variable("row", 0, rows - 1), space.extents[:-1])
    mapping = dict(zip(space.names[:-1], row_index))
    index = tuple(position.substitute(mapping) for position in space.root_index)
    loaded = sum(kind_bytes(load.kind) for load in facts.loads if load.linear.variables)
    unroll = 1
    pieces = rows * -(-extent // lanes)
    # Small grids rather fill the machine than threads.
    while (
        unroll < 4
        and not facts.has_loop
        and 2 * unroll * loaded * lanes <= BYTES_UNDER_WAY
        and facts.live * lanes * unroll * 2 <= machine.registers_per_thread // 2
        and pieces >= 2 * unroll * THREADS * machine.multiprocessors
    ):
        unroll *= 2
    threads = THREADS
    while threads > machine.warp and threads // 2 >= pieces:
        threads //= 2
    return GridPlan(body, facts, rows, extent, lanes, unroll, threads, name, index, mapping)


def piece_lanes(body: Body, machine: GridMachine, facts: Facts, name: str, extent: int, rows: int) -> int:
    """Elements of a piece: what the widest access holds of the smallest element that moves along the variable."""
    kinds = [load.kind for load in facts.loads if load.linear.coefficient(name) in (1, -1)]
    kinds += [memory_kind(root.tensor_type.element_type) for root in body.roots]
    lanes = machine.access_bytes // max(min(kind_bytes(kind) for kind in kinds), 1)
    # Wide elements beside narrow ones: no more than two accesses each.
    lanes = min(lanes, 2 * machine.access_bytes // max(kind_bytes(kind) for kind in kinds))
    if facts.has_call or facts.has_loop:
        return 1
    while lanes > 1 and (
        facts.live * lanes > machine.registers_per_thread // 2
        or (extent % lanes and rows > 1)
        or rows * extent < lanes * machine.warp * machine.multiprocessors
    ):
        lanes //= 2
    return lanes


def kind_bytes(kind: str) -> int:
    """Bytes of an element of a kind in memory."""
    return max(8, KIND_BITS[kind]) // 8

"""What is decided about kernels that read across the grain: which loads are transposed, tile by tile.

Where the result's innermost variable ``v`` strides through an operand whose neighbours lie along another variable
``u``, the iteration space is cut into tiles of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlojit.lowering.body import Body
from hlojit.lowering.index import Index, RunTime, delinearized, variable
from hlojit.lowering.loop_plan import Units, choose_lanes, divide, element_nanoseconds, fitted_lanes
from hlojit.lowering.probe import Facts, Load
from hlojit.lowering.space import Space
from hlojit.lowering.target import KIND_BITS, Target

SMALLEST_EXTENT = 8
"""Shorter rows are read by gathers."""
MOST_STAGED = 4
LONGEST_SIDE = 128
STRETCH_LINES = 8
LARGEST_BITS = 64
"""Of the kinds that are transposed in registers."""
TRANSPOSE_CYCLES = 0.24
"""Of an element of a block that is transposed in registers."""


@dataclass(frozen=True)
class TransposedLoads:
    """Position of the variable along which the transposed loads are contiguous, and those loads."""

    position: int
    loads: tuple[Load, ...]


def power_of_two_in(number: int) -> int:
    """The largest power of two that is not above ``number``."""
    return 1 << number.bit_length() - 1


def find_tiles(space: Space, facts: Facts) -> TransposedLoads | None:
    """The tiles that a kernel needs, if one of its loads strides along the innermost variable."""
    if len(space.names) < 2 or space.extents[-1] < SMALLEST_EXTENT or facts.has_loop or facts.has_call:
        return None
    inner = space.names[-1]
    found: dict[int, list[Load]] = {}
    for load in facts.loads:
        step = load.linear.coefficient(inner)
        if load.guarded or not load.linear.is_affine or step in (None, 0, 1, -1):
            continue
        if KIND_BITS[load.kind] > LARGEST_BITS:
            continue
        if any(isinstance(atom, RunTime) for atom in load.linear.atoms()):
            continue  # tiles are read before the rules run that find such a place
        for position, name in enumerate(space.names[:-1]):
            if load.linear.coefficient(name) == 1 and space.extents[position] >= SMALLEST_EXTENT:
                group = found.setdefault(position, [])
                if load not in group:
                    group.append(load)
    if not found:
        return None
    position = max(found, key=lambda one: len(found[one]))
    return TransposedLoads(position, tuple(found[position][:MOST_STAGED]))


@dataclass(frozen=True)
class TilePlan:
    """The nest of a tiled kernel: everything in terms of ``row`` (the tile's number), ``u`` and ``v``."""

    body: Body
    facts: Facts
    loads: tuple[Load, ...]
    tile: tuple[int, int]
    u: str
    v: str
    rows: int
    columns: int
    lanes: int
    is_copy: bool
    """Whether blocks go straight into the result: it only moves, and its rows do not collide in caches."""
    mapping: dict[str, Index]
    index: tuple[Index, ...]
    tile_rows: Index
    """The first ``u`` of the tile ``row``."""
    tile_columns: Index
    units: Units

    @property
    def stored_at(self) -> Index:
        """Where an element of the first root lies in its buffer."""
        return self.body.linear(len(self.body.operand_types), self.index)


def plan_tiles(body: Body, target: Target, space: Space, facts: Facts, found: TransposedLoads) -> TilePlan:
    """Cut the space into tiles for the loads that ``find_tiles`` found."""
    widest = max(KIND_BITS[load.kind] for load in found.loads)
    # Long stretches of the operand's rows for the prefetchers, and a tile that stays in the first-level cache.
    first = target.machine.first
    across = max(8 * (first.size // LONGEST_SIDE), target.vector_bits) // widest
    tile = min(LONGEST_SIDE, 8 * STRETCH_LINES * first.line // widest), min(LONGEST_SIDE, power_of_two_in(across))
    u, v = space.names[found.position], space.names[-1]
    rows, columns = space.extents[found.position], space.extents[-1]
    lanes = fitted_lanes(min(choose_lanes(facts, target), tile[1]), columns, target)
    is_copy = _transposes_into_result(body, target, space, facts, u, min(tile[0], rows))

    others = [n for n in range(len(space.names) - 1) if n != found.position]
    extents = [*(space.extents[n] for n in others), -(-rows // tile[0]), -(-columns // tile[1])]
    total = math.prod(extents)
    parts = delinearized(variable("row", 0, total - 1), extents)
    mapping = {space.names[n]: part for n, part in zip(others, parts)}
    facts.requested = [(value, tuple(position.substitute(mapping) for position in at)) for value, at in facts.requested]
    stored = sum(root.tensor_type.element_type.itemsize for root in body.roots)
    cost = (element_nanoseconds(facts, target, stored) + target.machine.nanoseconds(TRANSPOSE_CYCLES)) * min(
        tile[0], rows
    )
    units = divide(max(2, total), 1, 1, cost * min(tile[1], columns), target.machine)
    return TilePlan(
        body,
        facts,
        found.loads,
        tile,
        u,
        v,
        rows,
        columns,
        lanes,
        is_copy,
        mapping,
        tuple(position.substitute(mapping) for position in space.root_index),
        parts[-2] * tile[0],
        parts[-1] * tile[1],
        Units(total, 1, 1, 1, min(units.per_task, total), units.nanoseconds),
    )


def _transposes_into_result(body: Body, target: Target, space: Space, facts: Facts, u: str, tile_rows: int) -> bool:
    if len(body.roots) > 1 or not facts.is_copy or len(facts.loads) > 1:
        return False
    type = body.roots[0].tensor_type
    step = body.linear(len(body.operand_types), space.root_index).coefficient(u) or 0
    # A vector of each row of the tile is written, and then the next one of each: the lines stay where they do not collide.
    return target.machine.first.holds(tile_rows, abs(step) * type.element_type.itemsize, target.machine.first.line)

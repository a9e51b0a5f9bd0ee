"""What is decided about a reduction before code is written: loop variables, chunks, pieces of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.definition import Reduction
from hlojit.ir.ops.views import DimensionsView
from hlojit.ir.scalar import formats
from hlojit.lowering.body import Body
from hlojit.lowering.index import Index, linear_index
from hlojit.lowering.loop_plan import Units, divide, probe_elements
from hlojit.lowering.machine import Machine
from hlojit.lowering.probe import Facts
from hlojit.lowering.space import Space, collapse, split
from hlojit.lowering.target import KIND_BITS

LONGEST_CHAIN = 4096
CHUNK_ELEMENTS = 1 << 16
MOST_CHUNKS = 256
STRETCH = 4096
"""Columns that count as one result when it is decided about chunks; by no machine, since chunks are an order."""
ROWS_AT_ONCE = 8
"""Rows that are taken in between loading and storing the accumulators of columns."""
ENOUGH_UNITS = 16
"""Reductions that give so many independent results are not cut into chunks."""


@dataclass
class Plan:
    """Everything decided before code is written."""

    instructions: list[Instruction]
    stored: list[int]
    """Roots that have the shape of the inputs and are stored on the way."""
    space: Space
    facts: Facts
    output_index: tuple[Index, ...]
    output_strides: tuple[int, ...]
    kept: list[int] = field(default_factory=list)
    reduced: list[int] = field(default_factory=list)
    chunks: int = 1
    chunk: int = 0
    """Extent of the outermost reduced variable that one chunk covers."""

    @property
    def by_rows(self) -> bool:
        """Whether the innermost variable is reduced."""
        return bool(self.reduced) and self.reduced[-1] == len(self.space.names) - 1

    @property
    def kept_extents(self) -> tuple[int, ...]:
        """Extents of the kept variables."""
        return tuple(self.space.extents[position] for position in self.kept)

    @property
    def results(self) -> int:
        """Number of results of each reduction."""
        return math.prod(self.kept_extents)


def reductions_of(body: Body) -> list[Instruction]:
    """The reductions among a body's roots, which must be of one shape and the same dimensions."""
    producers = dict.fromkeys(root.producer for root in body.roots)
    found = [one for one in producers if one is not None and isinstance(one.op.lowering, Reduction)]
    shape, dimensions = reduced_space(found[0])
    for other in found[1:]:
        if reduced_space(other) != (shape, dimensions):
            raise UnsupportedError(other.op.name, "", "reductions of different shapes in one kernel", other.location)
    return found


def reduced_space(instruction: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of a reduction's inputs, and which dimensions it reduces."""
    return instruction.operands[0].tensor_type.shape, tuple(DimensionsView.of(instruction).dimensions)


def empty_plan(instructions: list[Instruction]) -> Plan:
    shape = instructions[0].results[0].tensor_type.shape
    space = collapse(Space.of_shape(shape), ())
    return Plan(instructions, [], space, Facts(), space.root_index, instructions[0].results[0].tensor_type.strides)


def make_plan(body: Body, instructions: list[Instruction]) -> Plan:
    """The space of a body's reductions, which have elements."""
    shape, dimensions = reduced_space(instructions[0])
    stored = [number for number, root in enumerate(body.roots) if root.producer not in instructions]
    values: list[Value] = [value for one in instructions for value in one.operands[: len(one.operands) // 2]]
    values += [body.roots[number] for number in stored]
    groups = [int(dimension in dimensions) for dimension in range(len(shape))]
    output_strides = instructions[0].results[0].tensor_type.strides
    kept = [dimension for dimension in range(len(shape)) if not groups[dimension]]

    def stores(space: Space) -> list[Index]:
        found = [linear_index(space.root_index, body.roots[number].tensor_type.strides) for number in stored]
        return [*found, linear_index([space.root_index[dimension] for dimension in kept], output_strides)]

    space = Space.of_shape(shape, groups)
    facts = probe_elements(body, [(value, space.root_index) for value in values])
    divided, indices = split(space, [*facts.all_indices(), *stores(space)])
    final_space = collapse(divided, indices)
    if final_space.names != space.names:
        facts = probe_elements(body, [(value, final_space.root_index) for value in values])
    return Plan(
        instructions,
        stored,
        final_space,
        facts,
        tuple(final_space.root_index[dimension] for dimension in kept),
        output_strides,
        [position for position, group in enumerate(final_space.groups) if not group],
        [position for position, group in enumerate(final_space.groups) if group],
    )


def choose_chunks(plan: Plan) -> None:
    """For a processor: cut the outermost reduced variable where there are few results of many elements."""
    if not plan.reduced or not all(is_free(one) for one in plan.instructions):
        return
    total = math.prod(plan.space.extents)
    extent = plan.space.extents[plan.reduced[0]]
    size = CHUNK_ELEMENTS if plan.by_rows else 4 * CHUNK_ELEMENTS
    independent = plan.results if plan.by_rows else -(-plan.results // STRETCH)
    if independent >= ENOUGH_UNITS or total < 4 * size:
        return
    wanted = min(MOST_CHUNKS, extent, -(-total // size))
    chunk = -(-extent // wanted)
    if plan.by_rows and len(plan.reduced) == 1:
        chunk = -(-chunk // 1024) * 1024
    plan.chunk, plan.chunks = chunk, -(-extent // chunk)


def is_free(instruction: Instruction) -> bool:
    """Whether the elements of a reduction may be combined in any order."""
    return combiner_of(instruction.regions[0]) is not None


def column_units(rows: int, extent: int, lanes: int, cost: float, machine: Machine) -> Units:
    """Long stretches of columns: reading a few columns of every row would waste most of each page."""
    units = divide(rows, extent, lanes, cost, machine)
    if units.pieces > 1:
        # Equal pieces of whole lanes, none shorter than an eighth of a stretch.
        piece = max(units.piece, min(extent, STRETCH // 8))
        piece = -(-piece // lanes) * lanes
        units = Units(rows, extent, -(-extent // piece), piece, 1, piece * cost)
    return units


def stretch_width(extent: int, lanes: int, kinds: Sequence[str], machine: Machine) -> int:
    """Columns whose accumulators fit half of the first-level cache, in whole blocks of lanes."""
    item = sum(max(8, KIND_BITS[kind]) // 8 for kind in kinds)
    width = max(lanes, machine.first.size // 2 // item // lanes * lanes)
    return min(width, -(-extent // lanes) * lanes)


def accumulator_kinds(instruction: Instruction) -> list[str]:
    return [formats.compute_kind(result.tensor_type.element_type) for result in instruction.results]

"""What is decided about a loop nest before code is written: tasks, pieces of rows, lanes.

A kernel walks over *units*: rows of the iteration space, or pieces of one row where rows are few and long.  A task is a
number of units that take about ``Machine.task_nanoseconds``.  Within a unit the innermost variable goes through the body in
blocks of lanes; what is left at the end takes a masked block, or narrower ones where the processor has no masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Indexed
from hlojit.lowering.body import Body
from hlojit.lowering.element_access import Access
from hlojit.lowering.element_forms import lane_kind
from hlojit.lowering.elements import Elements
from hlojit.lowering.index import Index, delinearized, variable
from hlojit.lowering.machine import Machine
from hlojit.lowering.probe import Facts, Probe, ProbeScalar
from hlojit.lowering.space import Space, collapse, split
from hlojit.lowering.target import KIND_BITS, Target

INSTRUCTIONS_PER_CYCLE = 2.0
ROW_CYCLES = 8.0
"""To begin a row of a nest."""
CALL_CYCLES = 40.0
"""To begin what has loops of its own: a reduced row, a tile, a call."""


def probe_elements(body: Body, values: Sequence[tuple[Value, tuple[Index, ...]]]) -> Facts:
    """Dry-run some elements."""
    probe = Probe()
    elements = Elements(cast(Access, probe), body)
    found = [elements.value(value, index) for value, index in values]
    facts = probe.finish(cast(list[ProbeScalar], found))
    facts.requested = elements.requested
    facts.is_copy = all(
        elements.unchanged(scalar, value.tensor_type.element_type) is not None
        for scalar, (value, _) in zip(found, values)
    )
    for value, _ in values:
        facts.kinds.add(lane_kind(value.tensor_type.element_type))
    return facts


def element_nanoseconds(facts: Facts, target: Target, stored_bytes: int) -> float:
    """Rough time of one element on one core."""
    native = max(1, target.vector_bits // facts.widest_bits)
    compute = facts.cost / INSTRUCTIONS_PER_CYCLE / target.machine.gigahertz / native
    loaded = sum(max(8, KIND_BITS[load.kind]) // 8 for load in facts.loads if load.linear.variables)
    return max(compute, (loaded + stored_bytes) / target.machine.memory_bandwidth, 0.01)


MOST_TOGETHER: Final = 8
"""Elements that are put together one by one rather than as vectors of lanes."""


def choose_lanes(facts: Facts, target: Target, *, widest_unroll: int | None = None) -> int:
    """Lanes of the main loop: several native vectors where the body's values leave registers for them."""
    if facts.has_call:
        return 1
    native = max(1, target.vector_bits // facts.widest_bits)
    unroll = widest_unroll or target.unroll
    # A heavy body has enough instructions in flight by itself, and its constants want registers too.
    while unroll > 1 and (facts.live + 2) * unroll > target.vector_registers:
        unroll //= 2
    if facts.cost > 60:
        unroll = min(unroll, 2)
    return native * unroll


def fitted_lanes(lanes: int, extent: int, target: Target) -> int:
    """No more lanes than a row can fill."""
    while lanes > 1 and (lanes // 2 >= extent if target.has_masks else lanes > extent):
        lanes //= 2
    return lanes


@dataclass(frozen=True)
class Units:
    """How a kernel's elements are divided: ``rows`` rows of ``extent``, each in ``pieces`` of ``piece`` elements."""

    rows: int
    extent: int
    pieces: int
    piece: int
    per_task: int
    """Units (pieces of rows) a task does."""
    nanoseconds: float
    """Of one unit."""

    @property
    def count(self) -> int:
        """Number of units."""
        return self.rows * self.pieces

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return -(-self.count // self.per_task)

    @property
    def cost(self) -> float:
        """Nanoseconds of a task."""
        return self.nanoseconds * min(self.per_task, self.count)


def divide(rows: int, extent: int, lanes: int, element_cost: float, machine: Machine) -> Units:
    """Choose pieces and tasks."""
    wanted = max(1, int(machine.task_nanoseconds / element_cost))
    if rows == 1 or extent >= 2 * wanted:
        piece = min(extent, -(-wanted // lanes) * lanes)
        pieces = -(-extent // piece)
        return Units(rows, extent, pieces, piece, 1, piece * element_cost)
    row_cost = extent * element_cost + machine.nanoseconds(ROW_CYCLES)
    return Units(rows, extent, 1, extent, max(1, min(rows, int(machine.task_nanoseconds / row_cost))), row_cost)


def tail_blocks(start: int, tail: int, target: Target) -> Iterator[tuple[int, int, int]]:
    """(start, lanes, lanes that take part) of the blocks for what is left at the end."""
    if target.has_masks:
        count = 1 << (tail - 1).bit_length()
        yield start, count, tail
        return
    while tail:
        count = 1 << (tail.bit_length() - 1)
        yield start, count, count
        start += count
        tail -= count


def in_place_pairs(body: Body, facts: Facts, linear: Index, mapping: dict[str, Index]) -> tuple[tuple[int, int], ...]:
    """Operands that are read only at the element being written, and results of the same size: they may share memory."""
    pairs = []
    for number, type in enumerate(body.operand_types):
        reads = [load.linear.substitute(mapping) for load in facts.loads if load.buffer == number]
        guarded = any(load.guarded for load in facts.loads if load.buffer == number)
        if not reads or guarded or any(read != linear for read in reads):
            continue
        for result, root in enumerate(body.roots):
            other = len(body.operand_types) + result
            same = not body.storages or replace(body.storages[number], donated=False) == body.storages[other]
            if root.tensor_type.nbytes == type.nbytes and root.tensor_type.size == type.size and same:
                pairs.append((number, result))
    return tuple(pairs)


def in_place_at(
    body: Body, facts: Facts, index: tuple[Index, ...], mapping: dict[str, Index]
) -> tuple[tuple[int, int], ...]:
    """The same where the roots' elements at ``index`` are written."""
    return in_place_pairs(body, facts, body.linear(len(body.operand_types), index), mapping)


def plan_space(body: Body, space: Space, values: Sequence[Value]) -> tuple[Space, Facts]:
    """Split and collapse the variables of the roots' common space; returns the facts in its terms."""
    facts = probe_elements(body, [(value, space.root_index) for value in values])
    first = len(body.operand_types)
    stores = [body.linear(first + number, space.root_index) for number in range(len(values))]
    divided, indices = split(space, [*facts.all_indices(), *stores])
    final = collapse(divided, indices)
    if final.names != space.names:
        facts = probe_elements(body, [(value, final.root_index) for value in values])
    return final, facts


@dataclass(frozen=True)
class LoopPlan:
    """The nest of a kernel whose roots are computed element by element: rows, and lanes over the variable ``name``."""

    body: Body
    facts: Facts
    units: Units
    name: str
    extent: int
    lanes: int
    index: tuple[Index, ...]
    """Of the roots, in terms of ``row`` and the innermost variable."""
    mapping: dict[str, Index]
    """The outer variables in terms of ``row``."""

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Operands and results that may share memory."""
        return in_place_at(self.body, self.facts, self.index, self.mapping)


def _is_put_together(body: Body, size: int) -> bool:
    """Whether a few elements come from several places: what a vector would read there has just been written, one by one."""
    members = body.members or tuple(root.producer for root in body.roots if root.producer is not None)
    return size <= MOST_TOGETHER and any(map(_joins, members))


def _joins(instruction: Instruction) -> bool:
    """Whether its elements come from operands one after another, as a concatenation's do."""
    definition = instruction.op
    lowering = definition.lowering
    moves = isinstance(lowering, Indexed) and lowering.moves and not lowering.looks_up
    return moves and any(operand.variadic for operand in definition.operands)


def plan_loop(body: Body, target: Target, space: Space, facts: Facts) -> LoopPlan:
    """The nest over a space that ``plan_space`` made."""
    extent = space.extents[-1] if space.extents else 1
    rows = math.prod(space.extents[:-1])
    stored = sum(root.tensor_type.element_type.itemsize for root in body.roots)
    lanes = 1 if _is_put_together(body, rows * extent) else fitted_lanes(choose_lanes(facts, target), extent, target)
    units = divide(rows, extent, lanes, element_nanoseconds(facts, target, stored), target.machine)
    row_index = delinearized(variable("row", 0, rows - 1), space.extents[:-1])
    mapping = dict(zip(space.names[:-1], row_index))
    name = space.names[-1] if space.names else "point"
    index = tuple(position.substitute(mapping) for position in space.root_index)
    if len(space.names) > 1:
        facts.requested = [
            (value, tuple(position.substitute(mapping) for position in at)) for value, at in facts.requested
        ]
    return LoopPlan(body, facts, units, name, extent, lanes, index, mapping)

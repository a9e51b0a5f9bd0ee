"""What is decided about reductions on a machine with threads: who takes which elements, and how they come together.

*Rows*: the innermost variable is reduced.  A team of threads takes a row in pieces of up to 16 bytes, neighbouring
threads neighbouring pieces; the team is a part of a warp, a warp or several.  *Columns*: the innermost variable is kept.
Threads lie along it, a piece each, and the reduced elements are divided among the threads of a block above each other.

Reductions with few results are cut into chunks, a block each, whose partial results a second phase combines.  Teams,
pieces and chunks are the order of combination: they follow from shape and types, never from the number of processors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hlojit.lowering.body import Body
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.index import Index, delinearized, linear_index, variable
from hlojit.lowering.probe import Facts
from hlojit.lowering.reduction_plan import Plan, accumulator_kinds, is_free
from hlojit.lowering.row_plan import COLUMN, RowPlan
from hlojit.lowering.target import KIND_BITS

ENOUGH_THREADS = 1 << 17
"""With so many a machine is full: more threads for each row would only have to be brought together again."""
ENOUGH_BLOCKS = 1024
BLOCK = 128
"""Threads of a block that takes several rows."""
WIDE_BLOCK = 256
"""Threads of a block for long rows that nothing keeps, and of one for columns."""
BYTES_A_THREAD = 128
"""What a thread takes of a row before more threads take part."""
MOST_ROUNDS = 32
SHORTEST_CHUNK = 8
"""Rounds of a chunk: what a block should do at least, since its result is written and read again."""
SHORTEST_SCAN = 64
"""Elements that one thread scans at least before a scan is cut into chunks, which reads everything twice."""
MOST_SCAN_CHUNKS = 64
"""A thread goes through what all chunks before its own gave."""
RAGGED_PIECES = 2
"""Pieces of each thread of a warp: shorter rows are mostly ends."""
BYTES_UNDER_WAY = 64
MOST_UNDER_WAY = 16
"""Pieces, however small they are."""
AT_ONCE = 1024
"""Threads that a multiprocessor should hold of a kernel that waits for memory: loops are not unrolled beyond that."""
IN_LOOPS_AT_ONCE = 768
"""Of a kernel whose pieces are not written out, which keeps addresses and what is under way besides: with 1,024, sums of
everything were spilt."""
OTHER_WORDS = 40
"""Registers of a thread for addresses and arithmetic, beside the kept values of a row."""
DATA_WORDS = 24
"""32-bit registers that the kept values of a row take where a row's threads can be as many: with those for everything
else 64, with which half of a multiprocessor's threads are there at once."""
RAGGED_DATA_WORDS = 8
"""Of rows that are no whole pieces, in kernels that have more to do."""
RAGGED_OTHER_WORDS = 72
"""Registers beside them: for what reaches over the row's ends, what is turned, and pieces that lie in two aligned ones."""
MOST_DATA_WORDS = 64
"""What they take of rows that are too long for that."""
EXCHANGE_BYTES = 8192
"""Shared memory for what warps tell each other."""


@dataclass(frozen=True)
class RowGrid:
    """Teams of ``team`` threads, ``teams`` of them in a block, each with a row of ``outer`` stretches of ``extent``."""

    rows: int
    outer: int
    extent: int
    lanes: int
    """Elements of a piece."""
    team: int
    teams: int
    unroll: int
    """Pieces that a thread has under way: a power of two."""
    chunks: int = 1
    chunk: int = 0
    """Pieces of a chunk."""
    resident: bool = False
    """Whether all pieces of a thread are written out, so that what one loop computed a later one finds in registers."""
    reference: Index | None = None
    """Rows that are no whole pieces: pieces lie where this index, in terms of row and column, is a multiple of the lanes.

    Lane ``c`` of the first piece is not the row's column ``c``, then: what was added is turned by as much before lanes and
    threads come together, so that the order does not depend on where in memory a row begins.
    """
    together: int = 1
    """Threads for which a multiprocessor should have registers, where pieces are written out."""

    @property
    def pieces(self) -> int:
        """Whole pieces of a row, or one more where its end counts as one."""
        return self.outer * (-(-self.extent // self.lanes) if self.reference is not None else self.extent // self.lanes)

    @property
    def span(self) -> int:
        """Pieces that a team goes through."""
        return self.chunk if self.chunks > 1 else self.pieces

    @property
    def rounds(self) -> int:
        """Pieces of a thread, the last of which not every thread has."""
        return -(-(self.span + (self.reference is not None)) // self.team)

    @property
    def tail(self) -> int:
        """Elements that are left behind the whole pieces of the only row."""
        return 0 if self.reference is not None else self.extent % self.lanes

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.team * self.teams

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.rows // self.teams) * self.chunks

    @property
    def at_once(self) -> int:
        """Blocks that a multiprocessor should have registers for."""
        return max(1, (self.together if self.resident else IN_LOOPS_AT_ONCE) // self.threads)


@dataclass(frozen=True)
class ColumnGrid:
    """Blocks of ``across`` pieces of ``lanes`` columns, and ``down`` threads that divide the reduced elements."""

    rows: int
    extent: int
    reduced: int
    lanes: int
    across: int
    down: int
    unroll: int
    chunks: int = 1
    chunk: int = 0
    """Reduced elements of a chunk."""

    @property
    def pieces(self) -> int:
        """Pieces of a row of columns."""
        return self.extent // self.lanes

    @property
    def stretches(self) -> int:
        """Blocks next to each other along a row of columns."""
        return -(-self.pieces // self.across)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.across * self.down

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.rows * self.stretches * self.chunks

    @property
    def at_once(self) -> int:
        """Blocks that a multiprocessor should have registers for."""
        return max(1, AT_ONCE // self.threads)


@dataclass(frozen=True)
class BoundReduction:
    """A reduction's index in terms of a grid's variables, and where its results lie."""

    index: tuple[Index, ...]
    output: Index
    facts: Facts


def coalesced(body: Body, plan: Plan) -> Plan:
    """The plan with that variable innermost along which most of what is moved lies next to each other.

    Columns of a transposed operand are rows in memory: neighbouring threads take what one access of a warp can hold.
    """
    space = plan.space
    places = [(load.linear, load.kind) for load in plan.facts.loads]
    for number in plan.stored:
        kind = body.roots[number].tensor_type
        places.append((linear_index(space.root_index, kind.strides), memory_kind(kind.element_type)))
    weights = [sum(_bytes(kind) for at, kind in places if at.coefficient(name) in (1, -1)) for name in space.names]
    if not weights or max(weights) == weights[-1]:
        return plan
    best = weights.index(max(weights))
    if best in plan.reduced and not all(map(is_free, plan.instructions)):
        return plan
    order = [position for position in range(len(weights)) if position != best] + [best]
    return replace(
        plan,
        space=replace(
            space,
            names=tuple(space.names[position] for position in order),
            extents=tuple(space.extents[position] for position in order),
            groups=tuple(space.groups[position] for position in order),
        ),
        kept=[new for new, old in enumerate(order) if old in plan.kept],
        reduced=[new for new, old in enumerate(order) if old in plan.reduced],
    )


def bind_rows(plan: Plan) -> BoundReduction:
    """The kept variables by ``row``, the reduced ones by ``outer`` and the column."""
    extents = plan.space.extents
    outer = [extents[position] for position in plan.reduced[:-1]]
    mapping = _bound(plan, plan.kept, "row") | _bound(plan, plan.reduced[:-1], "outer")
    assert outer or len(plan.reduced) == 1
    inner = plan.reduced[-1]
    mapping[plan.space.names[inner]] = variable(COLUMN, 0, extents[inner] - 1)
    return _substituted(plan, mapping)


def bind_columns(plan: Plan) -> BoundReduction:
    """The outer kept variables by ``row``, the innermost one by the column, the reduced ones by ``step``."""
    mapping = _bound(plan, plan.kept[:-1], "row") | _bound(plan, plan.reduced, "step")
    for inner in plan.kept[-1:]:
        mapping[plan.space.names[inner]] = variable(COLUMN, 0, plan.space.extents[inner] - 1)
    return _substituted(plan, mapping)


def _bound(plan: Plan, positions: Sequence[int], name: str) -> dict[str, Index]:
    extents = [plan.space.extents[position] for position in positions]
    parts = delinearized(variable(name, 0, math.prod(extents) - 1), extents)
    return {plan.space.names[position]: part for position, part in zip(positions, parts)}


def _substituted(plan: Plan, mapping: dict[str, Index]) -> BoundReduction:
    index = tuple(position.substitute(mapping) for position in plan.space.root_index)
    output = [position.substitute(mapping) for position in plan.output_index]
    requested = [(value, tuple(place.substitute(mapping) for place in at)) for value, at in plan.facts.requested]
    loads = [replace(load, linear=load.linear.substitute(mapping)) for load in plan.facts.loads]
    facts = replace(plan.facts, requested=requested, loads=loads)
    return BoundReduction(index, linear_index(output, plan.output_strides), facts)


def reduction_rows(body: Body, plan: Plan, machine: GridMachine) -> RowGrid:
    """The grid of reductions of the innermost variable."""
    extents = plan.space.extents
    inner = plan.reduced[-1]
    outer = math.prod(extents[position] for position in plan.reduced[:-1])
    if not all(map(is_free, plan.instructions)):
        return RowGrid(plan.results, outer, extents[inner], 1, 1, WIDE_BLOCK, 1)
    kinds = _moving([plan.facts], plan.space.names[inner]) + _stored(body, plan.stored)
    kinds = kinds or [kind for one in plan.instructions for kind in accumulator_kinds(one)]
    bound = bind_rows(plan)
    grid = RowGrid(plan.results, outer, extents[inner], 1, 1, 1, 1)
    grid = _with_pieces(grid, machine, [plan.facts], kinds, _places(body, [bound.facts], bound.index, plan.stored))
    return _teams(machine, [plan.facts], kinds, grid)


def _places(
    body: Body, facts: Sequence[Facts], index: Sequence[Index], stored: Sequence[int]
) -> list[tuple[Index, str]]:
    """Where elements are read and written, and their kinds."""
    places = [(load.linear, load.kind) for one in facts for load in one.loads]
    types = [body.roots[number].tensor_type for number in stored]
    return places + [(linear_index(index, each.strides), memory_kind(each.element_type)) for each in types]


def _with_pieces(
    grid: RowGrid,
    machine: GridMachine,
    facts: Sequence[Facts],
    kinds: Sequence[str],
    places: Sequence[tuple[Index, str]],
) -> RowGrid:
    """Pieces of rows: long rows that are no whole ones are cut where addresses are aligned."""
    lanes = fitting_lanes(machine, facts, kinds, grid.extent, grid.rows * grid.outer)
    widest = fitting_lanes(machine, facts, kinds, grid.extent, 1)
    if lanes == widest or grid.outer > 1 or grid.extent < RAGGED_PIECES * machine.warp * widest:
        return replace(grid, lanes=lanes)
    weights: dict[Index, int] = {}
    for at, kind in places:
        if at.coefficient(COLUMN) == 1 and "row" in at.variables:
            weights[at] = weights.get(at, 0) + _bytes(kind)
    if not weights:
        return replace(grid, lanes=lanes)
    return replace(grid, lanes=widest, reference=max(weights, key=weights.__getitem__))


def grid_row_plan(body: Body, machine: GridMachine) -> RowPlan:
    """The loops of a row kernel; what they keep fits the shared memory of a block."""
    plan = RowPlan(body, machine.shared_bytes - EXCHANGE_BYTES, keeps_operands=True)
    # Threads with a row each share nothing.
    return plan if _is_free(plan) else RowPlan(body, 0, keeps_operands=True)


def _is_free(plan: RowPlan) -> bool:
    return all(is_free(one) for loop in plan.loops for one in loop.reductions)


def row_kernel_rows(plan: RowPlan, machine: GridMachine) -> RowGrid:
    """The grid of a row kernel: a thread's pieces stay in its registers where they fit."""
    if not _is_free(plan):
        return RowGrid(plan.rows, 1, plan.extent, 1, 1, WIDE_BLOCK, 1)
    facts = [loop.facts for loop in plan.loops]
    kinds = row_kinds(plan)
    grid, words = RowGrid(plan.rows, 1, plan.extent, 1, 1, 1, 1), max(1, plan.words)
    grid = _with_pieces(grid, machine, facts, kinds, _places(plan.body, facts, plan.index, plan.stored))
    while grid.lanes > 1 and grid.lanes * words > MOST_DATA_WORDS // 2:
        grid = replace(grid, lanes=grid.lanes // 2)
    for most in (RAGGED_DATA_WORDS, DATA_WORDS) if grid.reference is not None else (DATA_WORDS,):
        found = _teams(machine, facts, kinds, grid, words, most)
        if found.resident:
            return found
    return _teams(machine, facts, kinds, grid, words, MOST_DATA_WORDS)


def row_kinds(plan: RowPlan) -> list[str]:
    """Kinds of what a row kernel reads and writes along a row."""
    kinds = _moving([loop.facts for loop in plan.loops], COLUMN) + _stored(plan.body, plan.stored)
    return kinds or [kind for loop in plan.loops for one in loop.reductions for kind in accumulator_kinds(one)]


def _moving(facts: Iterable[Facts], name: str) -> list[str]:
    """Kinds of what is loaded next to each other along a variable."""
    return [load.kind for one in facts for load in one.loads if load.linear.coefficient(name) in (1, -1)]


def _stored(body: Body, numbers: Sequence[int]) -> list[str]:
    return [memory_kind(body.roots[number].tensor_type.element_type) for number in numbers]


def fitting_lanes(machine: GridMachine, facts: Sequence[Facts], kinds: Sequence[str], extent: int, rows: int) -> int:
    """Elements of a piece: what the widest access holds of the smallest element, wide ones in two accesses."""
    if any(one.has_call or one.has_loop for one in facts):
        return 1
    lanes = machine.access_bytes // min(map(_bytes, kinds))
    lanes = min(lanes, 2 * machine.access_bytes // max(map(_bytes, kinds)))
    live = max(one.live for one in facts)
    while lanes > 1 and (
        lanes > extent or (extent % lanes and rows > 1) or live * lanes > machine.registers_per_thread // 2
    ):
        lanes //= 2
    return lanes


def _teams(
    machine: GridMachine,
    facts: Sequence[Facts],
    kinds: Sequence[str],
    grid: RowGrid,
    words: int = 0,
    most_words: int = 0,
) -> RowGrid:
    """Team, block and chunks of rows; ``words`` registers an element keeps between loops, ``most_words`` a thread."""
    pieces, warp = grid.pieces, machine.warp
    rounds = max(1, min(MOST_ROUNDS, BYTES_A_THREAD // (grid.lanes * min(map(_bytes, kinds)))))
    if words:
        rounds = max(1, min(rounds, most_words // (words * grid.lanes)))
    most = _most_threads(machine) if words else min(_most_threads(machine), WIDE_BLOCK)
    # Every thread takes at most one of the elements behind the pieces.
    team = _power(max(pieces, grid.tail)) if pieces <= warp else max(warp, _power(-(-pieces // rounds)))
    while grid.rows * team < ENOUGH_THREADS and team < min(most, pieces) and team >= warp:
        team *= 2
    team = min(team, most)
    teams = max(1, BLOCK // team)
    while teams > 1 and teams // 2 >= grid.rows and team * teams > warp:
        teams //= 2
    chunk = 0 if words else _chunk(grid.rows, pieces, team)
    unroll = _under_way(machine, facts, kinds, grid.lanes, (chunk or pieces) // team)
    needed = -(-((chunk or pieces) + (grid.reference is not None)) // team)
    others = OTHER_WORDS if grid.reference is None else RAGGED_OTHER_WORDS
    if words:
        # A block of many threads leaves each of them few registers.
        room = min(most_words, machine.registers // team - others)
        rounds = room // (words * grid.lanes)
    resident = needed <= min(rounds, MOST_ROUNDS) and not any(one.has_call for one in facts)
    if words and not resident:
        # What a row keeps lies in the shared memory of its own block.
        team, teams = max(team, warp), 1
        if grid.reference is not None:
            # Such a block has all of a multiprocessor's registers, and needs some for the ends of the row.
            unroll = max(1, unroll // 2)
    together = min(AT_ONCE, machine.registers // (words * grid.lanes * needed + others)) if words else 1
    chunks = -(-pieces // chunk) if chunk else 1
    grid = replace(grid, team=team, teams=teams, unroll=unroll, chunks=chunks, chunk=chunk)
    return replace(grid, resident=resident, together=together)


def _under_way(machine: GridMachine, facts: Sequence[Facts], kinds: Sequence[str], lanes: int, rounds: int) -> int:
    """Pieces of a thread that are loaded before it waits for the first: a power of two."""
    unroll = max(1, BYTES_UNDER_WAY // (lanes * min(map(_bytes, kinds))))
    live = max(one.live for one in facts)
    while unroll > 1 and (
        unroll * lanes * live > machine.registers_per_thread // 2 or unroll > min(MOST_UNDER_WAY, rounds)
    ):
        unroll //= 2
    return unroll


def _chunk(rows: int, pieces: int, team: int) -> int:
    """Pieces of a chunk, whole rounds of a team; 0 where rows are not cut."""
    wanted = min(ENOUGH_BLOCKS // rows, pieces // (SHORTEST_CHUNK * team))
    return -(-pieces // wanted // team) * team if wanted > 1 else 0


def reduction_columns(body: Body, plan: Plan, machine: GridMachine) -> ColumnGrid:
    """The grid of reductions that keep the innermost variable, or reduce nothing."""
    extents = plan.space.extents
    extent = plan.kept_extents[-1] if plan.kept else 1
    rows = plan.results // extent
    reduced = math.prod(extents[position] for position in plan.reduced)
    name = plan.space.names[plan.kept[-1]] if plan.kept else COLUMN
    kinds = _moving([plan.facts], name) + _stored(body, plan.stored)
    kinds = kinds or [kind for one in plan.instructions for kind in accumulator_kinds(one)]
    # Rows of columns lie behind each other in memory: pieces are aligned only if every row is whole pieces.
    lanes = fitting_lanes(machine, [plan.facts], kinds, extent, 2 if extent > 1 else 1)
    across = min(machine.warp, _power(extent // lanes))
    in_order = not all(map(is_free, plan.instructions))
    down = 1 if in_order else min(max(1, WIDE_BLOCK // across), _power(reduced))
    across = max(across, min(machine.warp, machine.warp // down))
    grid = ColumnGrid(rows, extent, reduced, lanes, across, down, 1)
    wanted = 1 if in_order else min(ENOUGH_BLOCKS // grid.blocks, reduced // (SHORTEST_CHUNK * down))
    chunk = -(-reduced // wanted // down) * down if wanted > 1 else 0
    unroll = _under_way(machine, [plan.facts], kinds, lanes, (chunk or reduced) // down)
    return replace(grid, unroll=unroll, chunks=-(-reduced // chunk) if chunk else 1, chunk=chunk)


def scan_rows(kinds: Sequence[str], lines: int, extent: int, machine: GridMachine) -> RowGrid:
    """The grid of a scan along the innermost dimension, of elements of some kinds: every piece is whole."""
    lanes = max(1, machine.access_bytes // max(map(_bytes, kinds)))
    while extent % lanes:
        lanes //= 2
    return replace(_teams(machine, [Facts()], kinds, RowGrid(lines, 1, extent, lanes, 1, 1, 1)), resident=False)


def scan_columns(kinds: Sequence[str], rows: int, extent: int, scanned: int, machine: GridMachine) -> ColumnGrid:
    """The grid of a scan along an outer dimension: a thread takes a piece of neighbouring lines from end to end."""
    lanes = max(1, machine.access_bytes // max(map(_bytes, kinds)))
    # Chunks make up for the threads that wide pieces save, as far as there can be enough of them.
    chunks = max(1, min(MOST_SCAN_CHUNKS, scanned // SHORTEST_SCAN))
    while extent % lanes or (lanes > 1 and rows * extent * chunks < lanes * ENOUGH_THREADS // 4):
        lanes //= 2
    across = min(BLOCK, max(machine.warp, _power(extent // lanes)))
    unroll = min(MOST_UNDER_WAY, _power(scanned), max(1, BYTES_UNDER_WAY // (lanes * min(map(_bytes, kinds)))))
    grid = ColumnGrid(rows, extent, scanned, lanes, across, 1, unroll)
    wanted = min(ENOUGH_THREADS // (4 * rows * grid.pieces), scanned // SHORTEST_SCAN)
    if wanted < 2:
        return grid
    chunk = -(-scanned // min(wanted, MOST_SCAN_CHUNKS))
    return replace(grid, chunks=-(-scanned // chunk), chunk=chunk)


def second_phase(results: int, chunks: int, machine: GridMachine) -> RowGrid:
    """The grid that combines the partial results of chunks, one row of them for each result."""
    team = min(WIDE_BLOCK, _most_threads(machine), _power(chunks))
    return RowGrid(results, 1, chunks, 1, team, max(1, max(machine.warp, BLOCK) // team), 1, resident=True)


def _most_threads(machine: GridMachine) -> int:
    """Threads of a team: one warp brings together what all warps of it have."""
    return min(machine.threads_per_block, machine.warp**2)


def _power(count: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(0, count - 1).bit_length()


def _bytes(kind: str) -> int:
    return max(8, KIND_BITS[kind]) // 8

"""How a product by panels is blocked, by a model of caches: packing, blocks of k, copies of rows that collide.

A panel is ``width`` columns of the right operand; tiles of rows go over it one after the other.  Where it is read in place its
rows are a stride apart, and a stride near a multiple of a large power of two puts them into few sets of a cache: a panel of
1,024 rows that are 4,096 bytes apart stays neither in a first-level cache nor in a second-level one.  What that costs depends
on how far away the next level is and on how many cycles the multiply-adds take meanwhile.

Sums go on from one block of k to the next in their order, so a blocking changes no bit of the result; ``is_cuttable`` says
(by the shape alone) which products may be blocked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlojit.lowering.dot_problem import DotProblem, ceil_divide, round_up
from hlojit.lowering.dot_tiles import TALLEST_TILE
from hlojit.lowering.machine import Machine

PREFETCH_ROWS = 4
"""Rows of a panel in place that are asked for ahead of their use."""
PREFETCH_QUADS = 8
"""The same where an element is put together from several rows, into the second level."""
ROWS_UNDER_WAY = 6
"""Rows of a panel in place that arrive at once: those and what a processor begins out of order."""
PACKED_ROWS = 5
"""Rows of a panel that a processor has under way at once while it packs."""
STACK_BYTES = 96 << 10
"""Most memory of a packed panel: it lies on the stack of a thread."""
LONGEST_UNCUT = 256
"""Sums of operands that must be packed are cut above this length."""
WALK_CYCLES = 4.0
"""What a row costs whose page's address has to be looked up in memory, others being under way."""
RESUME_CYCLES = 64.0
"""What it costs a tile to begin another block, besides loading and storing its sums."""
EXPOSED = 1.0
"""Cycles that a step waits for each line of its row where rows in place drive each other out of the first level: vectors of
arguments cross lines (an array of NumPy's begins 16 bytes behind one), so a line is wanted twice, and is gone the second time."""
BLOCKS = (64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Blocking:
    """A plan: ``block_k`` steps of k at a time, packed or in place."""

    packs: bool
    block_k: int
    ahead: bool = False
    """Whether the next block is prefetched while tiles go over the one before."""
    copies_rows: bool = False
    """Whether the left operand is copied, its rows padded so that those of a tile lie in different sets."""


def packs_anyway(problem: DotProblem, *, is_native: bool) -> bool:
    """Whether the right operand cannot be read in place: no neighbouring columns, or to be decoded for many tiles."""
    return (problem.rhs.column != 1 and problem.n > 1) or (not is_native and problem.m > TALLEST_TILE)


def is_cuttable(problem: DotProblem, *, is_native: bool) -> bool:
    """Whether sums may go on from one block of k to the next.

    Tiles with few sums interleave theirs only in products that are never cut: so this decides the order of combination and
    follows from shape, types and layout alone, for any machine.
    """
    if packs_anyway(problem, is_native=is_native):
        return problem.k > LONGEST_UNCUT
    return problem.m > TALLEST_TILE and problem.n >= 128 and problem.k > 128


@dataclass(frozen=True, slots=True)
class Panels:
    """What a blocking is chosen for: a tile of ``rows`` x ``vectors`` sums over a panel of ``width`` columns."""

    problem: DotProblem
    machine: Machine
    rows: int
    vectors: int
    width: int
    size: int
    """Bytes of an element of the right operand in memory."""
    unit: int
    """Bytes of an element of the compute kind."""
    is_native: bool
    result_is_native: bool
    is_computed: bool = False
    """Whether the right operand is computed where it is read: once, as it is packed, for many rows."""

    @property
    def stride(self) -> int:
        """Bytes between the rows of the right operand."""
        return self.problem.rhs.row * self.size

    @property
    def home(self) -> int:
        """The level of the memory that holds the whole right operand."""
        nbytes = self.problem.k * self.problem.n * self.size
        for level, cache in enumerate(self.machine.caches):
            if nbytes <= cache.share:
                return level
        return len(self.machine.caches)

    def row_tiles(self, block_k: int) -> int:
        """Tiles of rows of one task: their part of the left operand stays in the second-level cache."""
        tiles = ceil_divide(self.problem.m, self.rows)
        most = max(16, self.machine.second.size * 5 // 8 // (self.rows * block_k * self.unit))
        return ceil_divide(tiles, ceil_divide(tiles, most))

    def choose(self) -> Blocking:
        """The plan with the least estimated time; of equal ones the first, which is the simplest."""
        return min(self.plans(), key=self.cycles)

    def plans(self) -> Iterator[Blocking]:
        """What is weighed against each other, the simplest first."""
        k, problem = self.problem.k, self.problem
        forced = packs_anyway(problem, is_native=self.is_native and not self.is_computed)
        cuts = is_cuttable(problem, is_native=self.is_native)
        if not forced:
            yield Blocking(False, k)
        elif not cuts:
            yield Blocking(True, k)
        if not cuts or not (forced or self.result_is_native):
            return
        # Columns apart are gathered from a line each: what would be asked for ahead is not a few lines but as many as elements.
        choices = (False, True) if problem.rhs.column == 1 else (False,)
        for length in BLOCKS:
            block = min(k, round_up(ceil_divide(k, ceil_divide(k, length)), 16))
            if not forced and block < k:
                yield Blocking(False, block)
            if block * self.width * self.unit <= STACK_BYTES:
                yield from (Blocking(True, block, ahead, copies) for ahead in choices for copies in (False, True))

    def cycles(self, plan: Blocking) -> float:
        """Estimated cycles of one tile for one step of k, everything shared out over the tiles of a task."""
        machine, length, tiles = self.machine, plan.block_k, self.row_tiles(plan.block_k)
        in_memory, packed = self.width * self.size, self.width * self.unit
        compute = self.rows * self.vectors / machine.multiply_adds
        if plan.packs:
            # The first tile finds the block packed, as the others do.
            source = min(1, self.home) if plan.ahead else self.home
            packing = self._reading(source, PACKED_ROWS) + packed / machine.bandwidth(1)
            reading = packed / machine.bandwidth(machine.level_for(length, packed, packed))
            others = max(compute, reading) + 0.1 * min(compute, reading) + self._collisions(plan, compute)
            total = packing + tiles * others
            if plan.ahead:
                total += in_memory / machine.first.line
                total = max(total, in_memory / machine.bandwidth(self.home))
        else:
            level = machine.level_for(length, self.stride, in_memory)
            others = self._in_place(compute, level)
            first = self._in_place(compute, max(level, self.home))
            total = first + (tiles - 1) * others
            if length * min(self.stride, machine.page_bytes) > machine.page_bytes * machine.pages:
                total += tiles * WALK_CYCLES
        if length < self.problem.k:
            total += tiles * (2 * self.rows * self.vectors + RESUME_CYCLES) / length
        if plan.copies_rows:
            panels = ceil_divide(self.problem.n, self.width)
            total += tiles * 2 * self.rows * self.unit / machine.bandwidth(1) / panels
        return total / tiles

    def _in_place(self, compute: float, level: int) -> float:
        """Cycles of one step of a tile that reads its row of the panel in place from a level."""
        reading = self._reading(level, ROWS_UNDER_WAY)
        first = self.machine.first
        waits = level and self._under_way >= first.ways
        return max(compute + (EXPOSED * self.width * self.size / first.line if waits else 0.0), reading)

    def _reading(self, level: int, under_way: int) -> float:
        """Cycles in which one row of a panel in place arrives from a level, ``under_way`` rows being asked for at once."""
        nbytes = self.width * self.size
        latency = self.machine.latency(level) / under_way if level else 0.0
        return max(nbytes / self.machine.bandwidth(level) * (2 if self._collides else 1), latency)

    @property
    def _under_way(self) -> int:
        """Ways of the first level's fullest set that rows in place and those asked for ahead take."""
        return self.machine.first.ways_needed(2 * PREFETCH_ROWS, self.stride, self.width * self.size)

    @property
    def _collides(self) -> bool:
        """Whether rows that are under way drive each other out of the first level; half of the bandwidth is lost then."""
        return self._under_way > self.machine.first.ways // 2

    def _collisions(self, plan: Blocking, compute: float) -> float:
        """What it costs that the rows of a tile and the panel want more ways of the first level than it has.

        A miss is hidden where a step takes longer than the second level.
        """
        machine, lhs = self.machine, self.problem.lhs
        latency = machine.latency(1)
        if plan.copies_rows or lhs.column != 1 or compute >= latency:
            return 0.0
        nbytes = plan.block_k * self.width * self.unit
        taken = machine.first.ways_needed(1, nbytes, nbytes)
        taken += machine.first.ways_needed(self.rows, lhs.row * self.unit, machine.first.line)
        return max(0, taken - machine.first.ways) * self.unit / machine.first.line * latency / 2

"""How a product is divided among blocks and threads: tiles in shared memory, columns of a vector product, parts of sums.

What decides the order of a sum - parts, and for vector products the threads that share one - follows from shapes, types and
the width of a warp; tiles do not: every sum of a tile runs over its terms in their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, final

from hlojit.lowering.candidates import MOST_CANDIDATES, Candidate
from hlojit.lowering.dot_problem import ceil_divide, round_up
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_product import GridProduct, Pairs, ProductOperand

NOMINAL_SIDE: Final = 64
"""Of the tile by which it is counted whether a product has enough blocks."""
NOMINAL_TEAMS: Final = 8
"""Columns of a block, by which it is counted whether a product of few rows has enough blocks, where teams share columns."""
ENOUGH_BLOCKS: Final = 256
SHORTEST_PART: Final = 512
"""Terms of a part: less is not worth a second launch."""
MOST_VECTOR_ROWS: Final = 4
"""Products with more rows read tiles."""
THREADS: Final = 256
PIECES_UNDER_WAY: Final = 4
"""Pieces of a thread that are asked for before it waits, in vector products."""
LANES_A_CYCLE: Final = 128
"""Multiply-adds of 32 bits that a multiprocessor does in a cycle, and bytes that its shared memory delivers."""
LATENCY_CYCLES: Final = 10.0
"""What a term costs a block at least, whatever its tile."""


@final
@dataclass(frozen=True, slots=True)
class Parts:
    """Sums cut into ``count`` parts of ``length`` terms, the last of which may be shorter."""

    count: int
    length: int

    def __str__(self) -> str:
        return f", {self.count} parts" if self.count > 1 else ""

    def workspace_bytes(self, product: GridProduct, unit: int) -> int:
        """Of the parts' sums, of ``unit`` bytes each."""
        return self.count * product.results * unit if self.count > 1 else 0


def other_parts(product: GridProduct, parts: Parts) -> list[Parts]:
    """Other ways to cut sums, which give other bits: not at all, and into more."""
    counts = [1, 2 * parts.count, 4 * parts.count] if parts.count > 1 else [2, 4]
    lengths = [round_up(ceil_divide(product.k, count), NOMINAL_SIDE) for count in counts]
    made = [
        Parts(ceil_divide(product.k, length), length) if count > 1 else Parts(1, product.k)
        for count, length in zip(counts, lengths)
        if count == 1 or length >= SHORTEST_PART // 2
    ]
    return [each for each in dict.fromkeys(made) if each.count != parts.count]


def cut_terms(product: GridProduct, rows: int = NOMINAL_SIDE, columns: int = NOMINAL_SIDE) -> Parts:
    """Parts of the sums of a product with few results; a block is taken to have rows x columns of them, on all machines."""
    tiles = product.batch * ceil_divide(product.m, rows) * ceil_divide(product.n, columns)
    count = max(1, min(ENOUGH_BLOCKS // tiles, product.k // SHORTEST_PART))
    length = round_up(ceil_divide(product.k, count), NOMINAL_SIDE) if count > 1 else product.k
    return Parts(ceil_divide(product.k, length), length)


class Passage(Enum):
    """How pieces of an operand come into shared memory."""

    REGISTERS = "registers"
    """A thread reads the next step's while it adds this one's."""
    COPIED = "copied"
    """As they are, by asynchronous copies, several steps ahead."""
    CONVERTED = "converted"
    """Copied several steps ahead, then converted by the thread that copied them."""


@final
@dataclass(frozen=True, slots=True)
class Fill:
    """How a tile of an operand gets into shared memory: pieces of ``lanes`` neighbours, along the terms or across them."""

    lanes: int
    along_terms: bool
    passage: Passage = Passage.REGISTERS

    def slots(self, stages: int) -> int:
        """Steps that lie in shared memory as they are multiplied."""
        return stages if self.passage is Passage.COPIED else 2

    def raw_slots(self, stages: int) -> int:
        """Steps that lie there as they are in memory, to be converted."""
        return stages - 1 if self.passage is Passage.CONVERTED else 0


@final
@dataclass(frozen=True, slots=True)
class Tile:
    """``rows`` x ``columns`` sums of a block, ``thread_rows`` x ``thread_columns`` of a thread, ``terms`` at a time."""

    rows: int
    columns: int
    terms: int
    thread_rows: int
    thread_columns: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.rows * self.columns // (self.thread_rows * self.thread_columns)


@final
@dataclass(frozen=True, slots=True)
class TiledPlan:
    """A product by tiles; ``unit`` are the bytes of an element in shared memory and in registers."""

    product: GridProduct
    unit: int
    tile: Tile
    parts: Parts
    lhs: Fill
    rhs: Fill

    @property
    def candidate(self) -> Candidate:
        """Its name, and the order of its sums, which no tile changes."""
        tile = self.tile
        shape = f"{tile.rows}x{tile.columns}x{tile.terms} by {tile.thread_rows}x{tile.thread_columns}"
        return Candidate(f"threads {shape}{self.parts}", f"threads{self.parts}")

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """What the number of a block is made of: part, batch, tile of rows, tile of columns."""
        product, tile = self.product, self.tile
        return (
            self.parts.count,
            product.batch,
            ceil_divide(product.m, tile.rows),
            ceil_divide(product.n, tile.columns),
        )

    @property
    def blocks(self) -> int:
        """How many there are."""
        return math.prod(self.extents)

    @property
    def rows(self) -> int:
        """Of a block."""
        return self.tile.rows

    @property
    def columns(self) -> int:
        """Of a block."""
        return self.tile.columns

    @property
    def terms(self) -> int:
        """Of a step."""
        return self.tile.terms

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.tile.threads

    @property
    def padding(self) -> int:
        """Elements behind every line in shared memory: rows stay aligned to 16 bytes and meet other banks."""
        return 16 // self.unit

    @property
    def stages(self) -> int:
        """Steps in shared memory: one is filled while sums go over the other."""
        return 2

    @property
    def at_once(self) -> int:
        """Blocks that a multiprocessor should have registers for: as many as there are."""
        return 1

    @property
    def vector(self) -> int:
        """Elements of 16 bytes."""
        return 16 // self.unit

    @property
    def shared_bytes(self) -> int:
        """Two tiles of both operands: one is filled while sums go over the other."""
        return shared_bytes(self.tile, self.unit)


def shared_bytes(tile: Tile, unit: int) -> int:
    """Of two tiles of both operands."""
    return 2 * tile.terms * (unit * (tile.rows + tile.columns) + 32)


def plan_tiles(product: GridProduct, unit: int, itemsizes: tuple[int, int], machine: GridMachine) -> TiledPlan:
    """The tile that takes the least estimated time; ``itemsizes`` are those of both operands in memory."""
    return tiled_plans(product, unit, itemsizes, machine)[0]


def tiled_plans(
    product: GridProduct, unit: int, itemsizes: tuple[int, int], machine: GridMachine, parts: Parts | None = None
) -> list[TiledPlan]:
    """Plans by estimated time, the best first; ``parts`` are those of the sums if not what the shape says."""
    parts = cut_terms(product) if parts is None else parts
    terms = 8 if unit == 8 or parts.length <= 8 else 16
    tiles = sorted(
        _tiles(terms, unit, machine), key=lambda tile: (tile_cycles(product, parts, tile, unit, machine), -tile.threads)
    )
    return [
        TiledPlan(
            product, unit, tile, parts,
            plan_fill(product.lhs, itemsizes[0], tile.rows, terms, tile.threads, machine),
            plan_fill(product.rhs, itemsizes[1], tile.columns, terms, tile.threads, machine),
        )
        for tile in tiles[:MOST_CANDIDATES]
    ]  # fmt: skip


def plan_fill(
    operand: ProductOperand, itemsize: int, side: int, terms: int, threads: int, machine: GridMachine
) -> Fill:
    """The widest pieces that there are enough of for all threads, in the direction in which elements are neighbours."""
    most = machine.access_bytes // itemsize
    pieces = max(1, side * terms // threads)
    along = operand.lanes(along_terms=True, most=min(most, terms, pieces))
    across = operand.lanes(along_terms=False, most=min(most, side, pieces))
    along_terms = along > across or (along == across and _unit_step(operand))
    return Fill(along if along_terms else across, along_terms)


def _unit_step(operand: ProductOperand) -> bool:
    """Whether terms are neighbours in memory, so that neighbouring threads should take them."""
    return (bool(operand.terms) and operand.terms[-1].strides[0] == 1) or operand.pairs is not Pairs.NONE


def _tiles(terms: int, unit: int, machine: GridMachine) -> Iterator[Tile]:
    sides = (16, 32, 64, 128)
    for rows in sides:
        for columns in sides:
            for thread_rows in (1, 2, 4, 8):
                for thread_columns in (1, 2, 4, 8):
                    tile = Tile(rows, columns, terms, thread_rows, thread_columns)
                    sums = thread_rows * thread_columns * unit // 4
                    fits = shared_bytes(tile, unit) <= machine.shared_bytes
                    filled = min(rows, columns) * terms >= tile.threads
                    whole = tile.threads % machine.warp == 0 and tile.threads <= THREADS
                    if fits and filled and whole and sums <= machine.registers_per_thread // 3:
                        yield tile


def tile_cycles(product: GridProduct, parts: Parts, tile: Tile, unit: int, machine: GridMachine) -> float:
    """Cycles for a term of all sums: multiply-adds, or what they read of shared memory, and filling it."""
    tiles = ceil_divide(product.m, tile.rows) * ceil_divide(product.n, tile.columns)
    blocks = parts.count * product.batch * tiles
    words = unit // 4
    warps = tile.threads // machine.warp
    adds = tile.thread_rows * tile.thread_columns * words * ceil_divide(warps * machine.warp, LANES_A_CYCLE)
    # Half of what a warp reads is the same for several of its threads.
    reads = tile.threads * (tile.thread_rows + tile.thread_columns) * unit / LANES_A_CYCLE / 2
    fills = (tile.rows + tile.columns) * unit / 32
    return ceil_divide(blocks, machine.multiprocessors) * max(adds + fills, reads + fills, LATENCY_CYCLES)


@final
@dataclass(frozen=True, slots=True)
class VectorPlan:
    """A product of few rows, which reads the right operand once.

    Either a team of ``team`` threads shares a column and adds what its threads have (``by_terms``), or a thread has
    ``lanes`` columns and every ``team``-th term, and a block adds its threads' sums.
    """

    product: GridProduct
    parts: Parts
    by_terms: bool
    lanes: int
    team: int
    threads: int

    @property
    def candidate(self) -> Candidate:
        """Its name, and the order of its sums: that of the threads that share one."""
        order = f"{self.team} threads a column{self.parts}" + (f" by {self.lanes}" if self.by_terms else "")
        return Candidate(f"vectors of {self.threads}, {order}", order)

    @property
    def columns(self) -> int:
        """Of a block."""
        return self.threads // self.team * (1 if self.by_terms else self.lanes)

    @property
    def extents(self) -> tuple[int, int, int]:
        """What the number of a block is made of: part, batch, columns."""
        return self.parts.count, self.product.batch, ceil_divide(self.product.n, self.columns)

    @property
    def blocks(self) -> int:
        """How many there are."""
        return math.prod(self.extents)


def vector_plans(product: GridProduct, itemsizes: tuple[int, int], machine: GridMachine) -> list[VectorPlan]:
    """The plan of a product of few rows and, where that changes no sum, blocks of other sizes; none for other products."""
    plan = plan_vectors(product, itemsizes, machine)
    if plan is None or not plan.by_terms:
        return [] if plan is None else [plan]
    return [plan, *(replace(plan, threads=threads) for threads in (THREADS // 2, 2 * THREADS))]


def plan_vectors(product: GridProduct, itemsizes: tuple[int, int], machine: GridMachine) -> VectorPlan | None:
    """The plan of a product of few rows, or None for others."""
    lhs, rhs = product.lhs, product.rhs
    plain = not lhs.windows and not rhs.windows and lhs.pairs is rhs.pairs is Pairs.NONE
    if product.m > MOST_VECTOR_ROWS or not plain:
        return None
    by_terms = not (rhs.free and rhs.free[-1].strides[0] == 1)
    parts = cut_terms(product, columns=NOMINAL_TEAMS if by_terms else 2 * NOMINAL_SIDE)
    most = machine.access_bytes // itemsizes[1]
    lanes = rhs.lanes(along_terms=by_terms, most=most)
    team = 1
    if by_terms:
        while team < machine.warp and 2 * team * lanes <= parts.length:
            team *= 2
        return VectorPlan(product, parts, True, lanes, team, THREADS)
    pieces = ceil_divide(product.n, lanes)
    while team < THREADS // machine.warp or (team < THREADS and THREADS // team > pieces):
        team *= 2
    while team > 1 and team > parts.length:
        team //= 2
    return VectorPlan(product, parts, False, lanes, team, THREADS)

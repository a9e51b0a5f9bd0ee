"""Products by tiles that pass through shared memory (``grid_dot_plan.TiledPlan``).

A block goes over the terms of its tile a step at a time: while its threads add the products of one step, which lies decoded
in shared memory, what they have read of the next one is under way in their registers.  Every sum runs over its terms in
their order, one fused multiply-add a term where elements are floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from hlojit.llvm.product_elements import Elements
from hlojit.llvm.text import Val
from hlojit.lowering.grid_dot_plan import Fill, TiledPlan
from hlojit.lowering.index import Index
from hlojit.lowering.kernel import Phase
from hlojit.simt.frame import GridFrame
from hlojit.simt.product_operands import (
    Arithmetic,
    Piece,
    Reader,
    Writer,
    block_indices,
    load_vector,
    spread,
    store_vector,
    vector_part,
    write_inside,
)

UNROLL: Final = 4
"""Terms whose products are written out."""
EFFICIENCY: Final = 0.5
"""Of the multiply-adds that a machine can do, for estimates."""


@final
class _Side:
    """One operand's tiles: who reads which piece, and where it lies in shared memory."""

    def __init__(self, kernel: TiledProduct, reader: Reader, fill: Fill, rows: int, extent: int, name: str):
        self.kernel = kernel
        self.b = kernel.b
        self.reader = reader
        self.fill = fill
        self.rows = rows
        self.extent = extent
        self.name = name
        tile = kernel.plan.tile
        self.pitch = rows + kernel.plan.padding
        self.size = tile.terms * self.pitch
        self.count = rows * tile.terms // (fill.lanes * tile.threads)
        self.base = self.b.shared(kernel.kind, 2 * self.size)
        self.places: list[tuple[Val, Val]] = []
        """Of every piece of the thread: row and term inside of the tile."""
        self.exists: list[Val | None] = []

    def prepare(self, first: Val) -> None:
        """What does not change from step to step; ``first`` is the tile's first row."""
        b, fill, tile = self.b, self.fill, self.kernel.plan.tile
        for number in range(self.count):
            piece = b.add(b.thread, b.constant("i32", number * tile.threads))
            pieces = (tile.terms if fill.along_terms else self.rows) // fill.lanes
            inner = b.mul(b.urem(piece, b.constant("i32", pieces)), b.constant("i32", fill.lanes))
            outer = b.udiv(piece, b.constant("i32", pieces))
            row, term = (outer, inner) if fill.along_terms else (inner, outer)
            row, term = b.zext(row, "i64"), b.zext(term, "i64")
            self.places.append((row, term))
            whole = b.add(first, row)
            self.kernel.frame.access.variables[f"{self.name}{number}"] = whole
            is_whole = self.extent % self.rows == 0
            self.exists.append(None if is_whole else b.icmp("slt", whole, b.constant("i64", self.extent)))

    def read(self, step: Val, end: Val | None) -> list[Piece]:
        """Ask for the pieces of a step that begins at term ``step``; those from ``end`` on do not exist."""
        b, access = self.b, self.kernel.frame.access
        product = self.kernel.plan.product
        pieces = []
        for number, (_, term) in enumerate(self.places):
            name = f"{self.name}{number}.term"
            access.variables[name] = whole = b.add(step, term)
            valid = self.exists[number]
            if end is not None:
                inside = b.icmp("slt", whole, end)
                valid = inside if valid is None else b.and_(valid, inside)
            place = self.reader.named_place(self.kernel.batch, (f"{self.name}{number}", self.extent), (name, product.k))
            pieces.append(self.reader.read(place, self.fill.lanes, valid))
        return pieces

    def write(self, pieces: Sequence[Piece], stage: Val) -> None:
        """Leave a step's pieces, decoded, in one half of the shared memory."""
        b = self.b
        start = b.mul(stage, b.constant("i64", self.size))
        for piece, (row, term) in zip(pieces, self.places):
            value = self.reader.decoded(piece)
            place = b.add(start, b.add(b.mul(term, b.constant("i64", self.pitch)), row))
            if not self.fill.along_terms:
                store_vector(b, value, self.base, place)
                continue
            for lane in range(value.lanes):
                there = b.add(place, b.constant("i64", lane * self.pitch))
                store_vector(b, b.extract(value, lane) if value.lanes > 1 else value, self.base, there)

    def take(self, line: Val, first: Val, count: int, groups: int, apart: int) -> list[Val]:
        """Of a line of shared memory: ``groups`` vectors of ``count``, ``apart`` from each other."""
        b = self.b
        start = b.add(b.mul(line, b.constant("i64", self.pitch)), first)
        return [
            load_vector(b, self.kernel.kind, self.base, b.add(start, b.constant("i64", group * apart)), count)
            for group in range(groups)
        ]


@final
class TiledProduct:
    """One launch; ``elements`` are those of lhs, rhs and result."""

    def __init__(self, frame: GridFrame, plan: TiledPlan, elements: tuple[Elements, Elements, Elements]):
        self.frame = frame
        self.plan = plan
        self.elements = elements
        self.b = frame.builder
        self.kind = elements[2].compute
        self.arithmetic = Arithmetic(self.b, self.kind)
        tile, vector = plan.tile, plan.vector
        self.row_lanes, self.column_lanes = min(vector, tile.thread_rows), min(vector, tile.thread_columns)
        self.row_groups, self.column_groups = (
            tile.thread_rows // self.row_lanes,
            tile.thread_columns // self.column_lanes,
        )
        self.batch: Index

    def emit(self, symbol: str) -> Phase:
        """Emit the kernel function."""
        plan = self.plan
        with self.frame.kernel(symbol, plan.tile.threads, workspace_bytes=plan.workspace_bytes) as workspace:
            writer = Writer(self.frame, plan.product, self.elements[2], workspace[0] if workspace else None)
            part, self.batch, rows, columns = block_indices(self.frame, plan.extents)
            self._sides(rows, columns)
            sums = self._sum(part)
            self._write(writer, part, rows, columns, sums)
        assert self.frame.target.grid is not None
        rate = self.frame.target.grid.gigahertz * 128 * EFFICIENCY * 4 / plan.unit
        return self.frame.phase(symbol, plan.blocks, plan.parts.length * plan.tile.rows * plan.tile.columns / rate)

    def _sides(self, rows: Index, columns: Index) -> None:
        plan, access, b = self.plan, self.frame.access, self.b
        product, tile = plan.product, plan.tile
        self.lhs = _Side(self, Reader(self.frame, product.lhs, self.elements[0]), plan.lhs, tile.rows, product.m, "row")
        self.rhs = _Side(
            self, Reader(self.frame, product.rhs, self.elements[1]), plan.rhs, tile.columns, product.n, "column"
        )
        self.lhs.prepare(access.uniform(rows * tile.rows))
        self.rhs.prepare(access.uniform(columns * tile.columns))
        across = b.constant("i32", tile.columns // tile.thread_columns)
        self.first_row = b.zext(b.mul(b.udiv(b.thread, across), b.constant("i32", self.row_lanes)), "i64")
        self.first_column = b.zext(b.mul(b.urem(b.thread, across), b.constant("i32", self.column_lanes)), "i64")

    def _sum(self, part: Index) -> list[Val]:
        """The thread's sums: vectors of columns, row after row."""
        plan, b, access = self.plan, self.b, self.frame.access
        terms, length = plan.tile.terms, plan.parts.length
        start = access.uniform(part * length)
        end, steps = self._end(start)
        zero = spread(b, b.constant(self.kind, 0), self.column_lanes)
        sums = [zero] * (plan.tile.thread_rows * self.column_groups)
        with self.frame.scope():
            pieces = [side.read(start, end) for side in (self.lhs, self.rhs)]
        for side, read in zip((self.lhs, self.rhs), pieces):
            side.write(read, b.constant("i64", 0))
        b.barrier()
        loop = b.begin_loop(b.constant("i64", 0), steps, 1, sums, guarded=False)
        with self.frame.scope():
            following = b.add(loop.index, b.constant("i64", 1))
            step = b.add(start, b.mul(following, b.constant("i64", terms)))
            if end is None:
                # Behind the last step comes nothing: what is read of the first one again is never used.
                step = b.select(b.icmp("slt", following, steps), step, start)
            pieces = [side.read(step, end) for side in (self.lhs, self.rhs)]
            stage = b.and_(loop.index, b.constant("i64", 1))
            found = self._add_step(stage, list(loop.carried))
            other = b.xor(stage, b.constant("i64", 1))
            for side, read in zip((self.lhs, self.rhs), pieces):
                side.write(read, other)
            b.barrier()
        return list(b.end_loop(loop, found))

    def _end(self, start: Val) -> tuple[Val | None, Val]:
        """Where the part's terms end (None: every step is whole), and its number of steps."""
        plan, b = self.plan, self.b
        terms, length, k = plan.tile.terms, plan.parts.length, plan.product.k
        whole = length % terms == 0 and k % length == 0
        if plan.parts.count == 1 or whole:
            steps = b.constant("i64", -(-length // terms))
            return (None if whole else b.constant("i64", k)), steps
        last = b.add(start, b.constant("i64", length))
        end = b.select(b.icmp("slt", last, b.constant("i64", k)), last, b.constant("i64", k))
        rounded = b.add(b.sub(end, start), b.constant("i64", terms - 1))
        return end, b.udiv(rounded, b.constant("i64", terms))

    def _add_step(self, stage: Val, sums: list[Val]) -> list[Val]:
        """Add the products of a step that lies in shared memory."""
        plan, b = self.plan, self.b
        tile = plan.tile
        line = b.mul(stage, b.constant("i64", tile.terms))
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", tile.terms), UNROLL, sums)
        sums = list(loop.carried)
        for number in range(UNROLL):
            term = b.add(b.add(line, loop.index), b.constant("i64", number))
            left = self.lhs.take(term, self.first_row, self.row_lanes, self.row_groups, tile.rows // self.row_groups)
            right = self.rhs.take(
                term, self.first_column, self.column_lanes, self.column_groups, tile.columns // self.column_groups
            )
            for row in range(tile.thread_rows):
                vector = left[row // self.row_lanes]
                value = b.extract(vector, row % self.row_lanes) if vector.lanes > 1 else vector
                value = spread(b, value, self.column_lanes)
                for group, column in enumerate(right):
                    at = row * self.column_groups + group
                    sums[at] = self.arithmetic.multiply_add(value, column, sums[at])
        return list(b.end_loop(loop, sums))

    def _write(self, writer: Writer, part: Index, rows: Index, columns: Index, sums: Sequence[Val]) -> None:
        plan, b, access = self.plan, self.b, self.frame.access
        product, tile = plan.product, plan.tile
        lanes = writer.lanes(self.column_lanes)
        first_row = b.add(access.uniform(rows * tile.rows), self.first_row)
        first_column = b.add(access.uniform(columns * tile.columns), self.first_column)
        for number, vector in enumerate(sums):
            row, group = divmod(number, self.column_groups)
            inside = row // self.row_lanes * (tile.rows // self.row_groups) + row % self.row_lanes
            at_row = b.add(first_row, b.constant("i64", inside))
            for lane in range(0, self.column_lanes, lanes):
                offset = group * (tile.columns // self.column_groups) + lane
                at_column = b.add(first_column, b.constant("i64", offset))
                value = vector_part(b, vector, lane, lanes)
                write_inside(self.frame, writer, (part, self.batch), (at_row, product.m), (at_column, product.n), value)

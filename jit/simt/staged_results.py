"""How the sums of a tile get into memory: by way of shared memory, from where whole pieces of a row are written.

A matrix instruction leaves a lane two neighbours of a row here and two there.  Written from there, a warp would touch eight
rows with every store, 16 bytes of each.  So the rows of one instruction are left in shared memory, encoded, by all warps, and
written a piece of 16 bytes a thread, line by line.  What follows a product is computed there as well, piece by piece: in one
loop, where it would be code of its own for each of a thread's sums.

Where rows are no whole pieces (50,257 columns of bf16), every row begins elsewhere between multiples of 16 bytes.  It lies in
shared memory as many elements further, so that pieces are aligned here and there; of the first and the last piece of a row
those elements are written that exist, one by one.  What follows a product has roots of several widths, and operands that lie
elsewhere: it goes over such rows an element a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from hlojit.llvm.text import Val
from hlojit.lowering.index import Index, variable
from hlojit.lowering.target import KIND_BITS
from hlojit.simt.frame import GridFrame
from hlojit.simt.product_operands import WIDEST, load_vector, store_vector
from hlojit.simt.product_results import COLUMN, ROW, IntoGroup, Writer


@final
@dataclass(frozen=True, slots=True)
class Leaving:
    """How the threads of a block leave sums: ``bands`` beside each other in the rows, of ``rows`` each, ``lines`` in each step.

    ``neighbours`` are the columns that a lane leaves at once; the next lanes' rows are ``apart``.
    """

    bands: int
    rows: int
    lines: int
    neighbours: int
    apart: int

    @property
    def steps(self) -> int:
        """Of a band."""
        return self.rows // self.lines


@final
class StagedResults:
    """The results of a block: ``extents`` are the product's rows and columns, ``first`` the tile's first ones (i64).

    A number of steps is left ``together`` before it is written: one, or, where what follows is computed, whose code is there
    for each of them, as many as there is memory for.
    """

    def __init__(
        self,
        frame: GridFrame,
        writer: Writer,
        block: tuple[Index, Index],
        extents: tuple[int, int],
        first: tuple[Val, Val],
        columns: int,
        leaving: Leaving,
    ):
        self.frame = frame
        self.b = frame.builder
        self.writer = writer
        self.block = block
        self.extents = extents
        self.first = first
        self.columns = columns
        self.leaving = leaving
        self.kind = writer.kind
        self.size = max(8, KIND_BITS[self.kind]) // 8
        self.piece = WIDEST // self.size
        """Elements of the widest access."""
        self.lanes = writer.lanes(self.piece)
        self.shifted = self.lanes < self.piece and writer.is_movable
        """Whether rows begin anywhere, and pieces are cut where memory has multiples of 16 bytes."""
        if self.shifted:
            self.lanes = self.piece
        # Four lanes leave neighbours of one row, the next four those of the next one, behind them in the banks.
        padding = max(WIDEST, 4 * leaving.neighbours * self.size // leaving.apart)
        self.pitch = columns + (self.piece if self.shifted else 0) + padding // self.size
        line = leaving.bands * leaving.lines * self.pitch
        self.together = leaving.steps if isinstance(writer, IntoGroup) else 1
        while self.together > 1 and self.together * line * self.size > self.b.shared_bytes:
            self.together //= 2
        self.lines = self.together * leaving.lines
        self.base = self.b.shared_again(self.kind, self.together * line)

    @property
    def rounds(self) -> int:
        """Of leaving and writing."""
        return self.leaving.steps // self.together

    def _at(self, row: Val, column: Val) -> tuple[Index, Index, Index, Index]:
        """Part, batch, row and column of an element."""
        access = self.frame.access
        access.variables[ROW], access.variables[COLUMN] = row, column
        return *self.block, variable(ROW, 0, self.extents[0] - 1), variable(COLUMN, 0, self.extents[1] - 1)

    def shift(self, row: Val) -> Val:
        """Elements by which the tile's first column of a row lies behind a multiple of 16 bytes."""
        b = self.b
        if not self.shifted:
            return b.constant("i64", 0)
        with self.frame.scope():
            place = self.frame.access.uniform(self.writer.place(*self._at(row, self.first[1])))
            return b.and_(place, b.constant("i64", self.piece - 1))

    def leave(self, band: Val, inside: Val, step: int, values: Sequence[tuple[Val, int, Val]]) -> None:
        """Sums of one of a step's lines of a band: columns that begin at a lane's (i64) plus a constant, and neighbours there."""
        b = self.b
        row = b.add(b.add(self.first[0], b.mul(band, b.constant("i64", self.leaving.rows))), inside)
        shift = self.shift(b.add(row, b.constant("i64", step * self.leaving.lines)))
        line = b.add(b.mul(band, b.constant("i64", self.lines)), inside)
        if step % self.together:
            line = b.add(line, b.constant("i64", step % self.together * self.leaving.lines))
        start = b.add(b.mul(line, b.constant("i64", self.pitch)), shift)
        for column, offset, sums in values:
            place = b.add(start, b.add(column, b.constant("i64", offset)))
            encoded = self.writer.encoded(sums)
            if encoded.lanes > 1 and not self.shifted:
                store_vector(b, encoded, self.base, place)
                continue
            for lane in range(encoded.lanes):
                part = b.extract(encoded, lane) if encoded.lanes > 1 else encoded
                store_vector(b, part, self.base, b.add(place, b.constant("i64", lane)))

    def write(self, round: int, threads: int) -> None:
        """Write what all warps have left in the steps of a round."""
        b, lines = self.b, self.b.constant("i64", self.lines)
        across = -(-self.columns // self.lanes) + self.shifted
        count = self.leaving.bands * self.lines * across
        loop = b.begin_loop(b.zext(b.thread, "i64"), b.constant("i64", count), threads)
        line, piece = b.udiv(loop.index, b.constant("i64", across)), b.urem(loop.index, b.constant("i64", across))
        band, inside = b.udiv(line, lines), b.urem(line, lines)
        inside = b.add(inside, b.constant("i64", round * self.lines))
        row = b.add(b.mul(band, b.constant("i64", self.leaving.rows)), inside)
        row = b.add(self.first[0], row)

        def write() -> None:
            start = b.mul(piece, b.constant("i64", self.lanes))
            place = b.add(b.mul(line, b.constant("i64", self.pitch)), start)
            column = b.sub(b.add(self.first[1], start), self.shift(row))
            self._write_piece(row, column, place)

        rows = self.leaving.bands * self.leaving.rows
        self._where(self._misses(self.extents[0], rows), b.icmp("slt", row, self._limit(0)), write)
        b.end_loop(loop)

    def _limit(self, dimension: int) -> Val:
        return self.b.constant("i64", self.extents[dimension])

    @staticmethod
    def _misses(extent: int, tile: int) -> bool:
        return extent % tile != 0

    def _where(self, asks: bool, condition: Val, body: Callable[[], None]) -> None:
        if asks:
            self.b.when(condition, body)
        else:
            body()

    def _write_piece(self, row: Val, column: Val, place: Val) -> None:
        b = self.b

        def whole() -> None:
            with self.frame.scope():
                value = load_vector(b, self.kind, self.base, place, self.lanes)
                self.writer.put(*self._at(row, column), value)

        if not self.shifted:
            self._where(self._misses(self.extents[1], self.columns), b.icmp("slt", column, self._limit(1)), whole)
            return
        first = self.first[1]
        last = b.add(first, b.constant("i64", self.columns))
        last = b.select(b.icmp("slt", last, self._limit(1)), last, self._limit(1))
        end = b.add(column, b.constant("i64", self.lanes))
        inside = b.and_(b.icmp("sge", column, first), b.icmp("sle", end, last))
        b.choose(inside, whole, lambda: self._write_elements(row, column, place, last))

    def _write_elements(self, row: Val, column: Val, place: Val, last: Val) -> None:
        """Those elements of a piece that belong to the tile."""
        b = self.b
        missing = b.sub(self.first[1], column)
        none = b.constant("i64", 0)
        begin = b.select(b.icmp("sgt", missing, none), missing, none)
        left = b.sub(last, column)
        end = b.select(b.icmp("slt", left, b.constant("i64", self.lanes)), left, b.constant("i64", self.lanes))
        loop = b.begin_loop(begin, end)
        with self.frame.scope():
            value = load_vector(b, self.kind, self.base, b.add(place, loop.index), 1)
            self.writer.put(*self._at(row, b.add(column, loop.index)), value)
        b.end_loop(loop)

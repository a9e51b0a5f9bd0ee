"""Products by tiles whose threads have sums of their own (``grid_dot_plan.TiledPlan``).

A step lies decoded in shared memory, lines of rows.  Every sum runs over its terms in their order, one fused multiply-add a
term where elements are floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from hlojit.llvm.product_elements import Elements
from hlojit.llvm.text import Val
from hlojit.lowering.grid_dot_plan import Fill, TiledPlan
from hlojit.lowering.index import Index
from hlojit.lowering.kernel import Phase
from hlojit.simt.block_products import BlockProduct, Side
from hlojit.simt.frame import GridFrame
from hlojit.simt.product_operands import (
    Arithmetic,
    Piece,
    Reader,
    load_vector,
    spread,
    store_vector,
    vector_part,
)
from hlojit.simt.product_results import IntoGroup, Outputs, Writer, write_inside
from hlojit.simt.staged_results import Leaving, StagedResults

UNROLL: Final = 4
"""Terms whose products are written out."""
EFFICIENCY: Final = 0.5
"""Of the multiply-adds that a machine can do, for estimates."""


@final
class _Lines(Side):
    """Lines of rows of one term, some elements apart."""

    def __init__(self, kernel: TiledProduct, reader: Reader, fill: Fill, rows: int, extent: int, name: str):
        super().__init__(kernel, reader, fill, rows, extent, name)
        self.pitch = rows + kernel.tiled.padding
        self.size = self.terms * self.pitch
        self.base = self.b.shared(kernel.kind, 2 * self.size)

    def write(self, pieces: Sequence[Piece], index: Val) -> None:
        """Leave a step's pieces, decoded, in one half of the shared memory."""
        b = self.b
        start = b.mul(b.zext(self.slot(index), "i64"), b.constant("i64", self.size))
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
class TiledProduct(BlockProduct):
    """One launch of a plan."""

    def __init__(self, frame: GridFrame, plan: TiledPlan, elements: tuple[Elements, Elements], outputs: Outputs):
        super().__init__(frame, plan, elements, outputs)
        self.tiled = plan
        self.arithmetic = Arithmetic(self.b, self.kind)
        tile, vector = plan.tile, plan.vector
        self.row_lanes, self.column_lanes = min(vector, tile.thread_rows), min(vector, tile.thread_columns)
        self.row_groups = tile.thread_rows // self.row_lanes
        self.column_groups = tile.thread_columns // self.column_lanes
        self.lhs: _Lines
        self.rhs: _Lines

    def emit(self, symbol: str) -> Phase:
        """Emit the launch."""
        plan = self.tiled
        self.emit_kernel(symbol)
        assert self.frame.target.grid is not None
        rate = self.frame.target.grid.gigahertz * 128 * EFFICIENCY * 4 / plan.unit
        return self.frame.phase(symbol, plan.blocks, plan.parts.length * plan.tile.rows * plan.tile.columns / rate)

    def prepare(self) -> None:
        plan, b = self.tiled, self.b
        product, tile = plan.product, plan.tile
        left, right = self.readers()
        self.lhs = _Lines(self, left, plan.lhs, tile.rows, product.m, "row")
        self.rhs = _Lines(self, right, plan.rhs, tile.columns, product.n, "column")
        across = b.constant("i32", tile.columns // tile.thread_columns)
        self.first_row = b.zext(b.mul(b.udiv(b.thread, across), b.constant("i32", self.row_lanes)), "i64")
        self.first_column = b.zext(b.mul(b.urem(b.thread, across), b.constant("i32", self.column_lanes)), "i64")

    def zeros(self) -> list[Val]:
        zero = spread(self.b, self.b.constant(self.kind, 0), self.column_lanes)
        return [zero] * (self.tiled.tile.thread_rows * self.column_groups)

    def add_step(self, index: Val, sums: list[Val]) -> list[Val]:
        b, tile = self.b, self.tiled.tile
        line = b.mul(b.zext(self.lhs.slot(index), "i64"), b.constant("i64", tile.terms))
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

    def write(self, writer: Writer, part: Index, first_row: Val, first_column: Val, sums: Sequence[Val]) -> None:
        plan, b = self.tiled, self.b
        product, tile = plan.product, plan.tile
        if isinstance(writer, IntoGroup):
            self._stage(writer, part, (first_row, first_column), sums)
            return
        lanes = writer.lanes(self.column_lanes)
        first_row, first_column = b.add(first_row, self.first_row), b.add(first_column, self.first_column)
        for number, vector in enumerate(sums):
            row, group = divmod(number, self.column_groups)
            inside = row // self.row_lanes * (tile.rows // self.row_groups) + row % self.row_lanes
            at_row = b.add(first_row, b.constant("i64", inside))
            for lane in range(0, self.column_lanes, lanes):
                offset = group * (tile.columns // self.column_groups) + lane
                at_column = b.add(first_column, b.constant("i64", offset))
                value = vector_part(b, vector, lane, lanes)
                places = (at_row, product.m), (at_column, product.n)
                write_inside(self.frame, writer, (part, self.batch), *places, value, whole=self.whole)

    def _stage(self, writer: IntoGroup, part: Index, first: tuple[Val, Val], sums: Sequence[Val]) -> None:
        """Leave the sums in shared memory, from where what follows goes over them in one loop."""
        b, tile, product = self.b, self.tiled.tile, self.tiled.product
        leaving = Leaving(1, tile.rows, tile.rows // self.row_groups, self.column_lanes, 1)
        extents = product.m, product.n
        staged = StagedResults(self.frame, writer, (part, self.batch), extents, first, tile.columns, leaving)
        for round in range(staged.rounds):
            if round:
                b.barrier()
            for number in range(tile.thread_rows // staged.rounds):
                step, lane = divmod(number + round * (tile.thread_rows // staged.rounds), self.row_lanes)
                row = (step * self.row_lanes + lane) * self.column_groups
                values = [
                    (self.first_column, group * (tile.columns // self.column_groups), sums[row + group])
                    for group in range(self.column_groups)
                ]
                inside = b.add(self.first_row, b.constant("i64", lane))
                staged.leave(b.constant("i64", 0), inside, step, values)
            b.barrier()
            staged.write(round, self.tiled.threads)

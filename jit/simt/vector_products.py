"""Products of few rows (``grid_dot_plan.VectorPlan``): the right operand goes once from memory into registers.

* Terms are neighbours: a team of threads shares a column.  Each adds the products of every team-th piece; what they have,
  and the lanes of a piece, are added as a tree.
* Columns are neighbours: a thread has a piece of columns and every team-th term; a block adds its threads' sums in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from hlojit.llvm.product_elements import Elements
from hlojit.llvm.text import Val
from hlojit.lowering.grid_dot_plan import PIECES_UNDER_WAY, VectorPlan
from hlojit.lowering.index import Index, variable
from hlojit.lowering.kernel import Phase
from hlojit.simt.frame import GridFrame
from hlojit.simt.product_operands import (
    Arithmetic,
    Piece,
    Reader,
    block_indices,
    load_vector,
    spread,
    store_vector,
    vector_part,
)
from hlojit.simt.product_results import Outputs, Writer, write_inside

Pieces = tuple[list[list[Piece]], Piece]
"""Of every row of the left operand, the pieces that stand against one of the right operand."""


@final
class VectorProduct:
    """One launch; ``elements`` are those of lhs and rhs."""

    def __init__(self, frame: GridFrame, plan: VectorPlan, elements: tuple[Elements, Elements], outputs: Outputs):
        self.frame = frame
        self.plan = plan
        self.elements = elements
        self.outputs = outputs
        self.b = frame.builder
        self.kind = outputs.elements.compute
        self.arithmetic = Arithmetic(self.b, self.kind)
        self.reads = 0
        self.batch: Index
        self.column: Val

    def emit(self, symbol: str) -> Phase:
        """Emit the kernel function."""
        plan, product = self.plan, self.plan.product
        workspace_bytes = self.outputs.workspace_bytes(plan.parts)
        with self.frame.kernel(symbol, plan.threads, workspace_bytes=workspace_bytes) as workspace:
            writer = self.outputs.writer(self.frame, plan.parts, workspace)
            part, self.batch, block = block_indices(self.frame, plan.extents)
            self.lhs = Reader(self.frame, product.lhs, self.elements[0])
            self.rhs = Reader(self.frame, product.rhs, self.elements[1])
            start, end = self._range(part)
            first = self.frame.access.uniform(block * plan.columns)
            if plan.by_terms:
                self._by_terms(writer, part, first, start, end)
            else:
                self._by_columns(writer, part, first, start, end)
        assert self.frame.target.grid is not None
        moved = plan.parts.length * plan.columns * self.elements[1].size
        share = self.frame.target.grid.memory_bandwidth / self.frame.target.grid.multiprocessors
        return self.frame.phase(symbol, plan.blocks, moved / share)

    def _range(self, part: Index) -> tuple[Val, Val]:
        """The terms of a part."""
        plan, b = self.plan, self.b
        k = b.constant("i64", plan.product.k)
        if plan.parts.count == 1:
            return b.constant("i64", 0), k
        start = self.frame.access.uniform(part * plan.parts.length)
        last = b.add(start, b.constant("i64", plan.parts.length))
        return start, b.select(b.icmp("slt", last, k), last, k)

    def _thread_parts(self, divisor: int) -> tuple[Val, Val]:
        """The thread's number as quotient and remainder."""
        b = self.b
        by = b.constant("i32", divisor)
        return b.zext(b.udiv(b.thread, by), "i64"), b.zext(b.urem(b.thread, by), "i64")

    def _read(self, term: Val, column: Val) -> Pieces:
        """The pieces of one term (or of neighbouring terms) of every row and of a column that exists."""
        plan, access = self.plan, self.frame.access
        name = f"term{self.reads}"
        self.reads += 1
        access.variables[name], access.variables["column"] = term, column
        lanes = plan.lanes
        right = self.rhs.read(
            self.rhs.named_place(self.batch, ("column", plan.product.n), (name, plan.product.k)), lanes, None
        )
        left = []
        step = plan.product.lhs.lanes(along_terms=True, most=lanes) if plan.by_terms else 1
        for row in range(plan.product.m):
            pieces = []
            for lane in range(0, lanes if plan.by_terms else 1, step):
                place = plan.product.lhs.place(
                    self.batch, variable("row", row, row), variable(name, 0, plan.product.k - 1) + lane
                )
                pieces.append(self.lhs.read(place, step, None))
            left.append(pieces)
        return left, right

    def _add(self, pieces: Pieces, sums: Sequence[Val]) -> list[Val]:
        left, right = pieces
        vector = self.rhs.decoded(right)
        return [
            self.arithmetic.multiply_add(self._joined([self.lhs.decoded(piece) for piece in row]), vector, total)
            for row, total in zip(left, sums)
        ]

    def _joined(self, values: Sequence[Val]) -> Val:
        """The lanes of several values, one after the other; a single one in all lanes."""
        b, lanes = self.b, self.plan.lanes
        if len(values) == 1:
            return spread(b, values[0], lanes)
        result = Val("poison", self.kind, lanes)
        for number in range(lanes):
            value = values[number // values[0].lanes]
            result = b.insert(result, number, vector_part(b, value, number % value.lanes, 1))
        return result

    def _sums(self, first: Val, end: Val, step: int, column: Val) -> list[Val]:
        """The products of every ``step``-th term from the first on, added in their order."""
        b, plan = self.b, self.plan
        sums = [spread(b, b.constant(self.kind, 0), plan.lanes)] * plan.product.m
        together = PIECES_UNDER_WAY * step
        several = b.sub(end, b.constant("i64", (PIECES_UNDER_WAY - 1) * step))
        loop = b.begin_loop(first, several, together, sums)
        with self.frame.scope():
            terms = [b.add(loop.index, b.constant("i64", n * step)) for n in range(PIECES_UNDER_WAY)]
            pieces = [self._read(term, column) for term in terms]
            found = list(loop.carried)
            for each in pieces:
                found = self._add(each, found)
        sums = list(b.end_loop(loop, found))
        # Where the loop ends follows from where it begins: nothing is carried for it.
        left = b.sub(end, first)
        left = b.select(b.icmp("slt", left, b.constant("i64", 0)), b.constant("i64", 0), left)
        rounds = b.udiv(b.add(left, b.constant("i64", step - 1)), b.constant("i64", step))
        whole = b.sub(rounds, b.urem(rounds, b.constant("i64", PIECES_UNDER_WAY)))
        loop = b.begin_loop(b.add(first, b.mul(whole, b.constant("i64", step))), end, step, sums)
        with self.frame.scope():
            found = self._add(self._read(loop.index, column), loop.carried)
        return list(b.end_loop(loop, found))

    # -------------------------------------------------------------- terms are neighbours

    def _by_terms(self, writer: Writer, part: Index, first: Val, start: Val, end: Val) -> None:
        b, plan = self.b, self.plan
        team, member = self._thread_parts(plan.team)
        column = b.add(first, team)
        exists = b.icmp("slt", column, b.constant("i64", plan.product.n))
        there = b.select(exists, column, b.constant("i64", 0))
        begin = b.add(start, b.mul(member, b.constant("i64", plan.lanes)))
        sums = self._sums(begin, end, plan.team * plan.lanes, there)
        for row, vector in enumerate(sums):
            total = self._folded(vector)
            distance = plan.team // 2
            while distance:
                total = self.arithmetic.add(total, b.shuffle_xor(total, distance))
                distance //= 2
            # All of a team have the sum.
            writes = b.select(b.icmp("eq", member, b.constant("i64", 0)), column, b.constant("i64", plan.product.n))
            self._write(writer, part, row, writes, total)

    def _folded(self, vector: Val) -> Val:
        """The lanes added as a tree."""
        while vector.lanes > 1:
            half = vector.lanes // 2
            vector = self.arithmetic.add(vector_part(self.b, vector, 0, half), vector_part(self.b, vector, half, half))
        return vector

    # ------------------------------------------------------------ columns are neighbours

    def _by_columns(self, writer: Writer, part: Index, first: Val, start: Val, end: Val) -> None:
        b, plan = self.b, self.plan
        slot, piece = self._thread_parts(plan.threads // plan.team)
        inside = b.mul(piece, b.constant("i64", plan.lanes))
        column = b.add(first, inside)
        exists = b.icmp("slt", column, b.constant("i64", plan.product.n))
        sums = self._sums(b.add(start, slot), end, plan.team, b.select(exists, column, b.constant("i64", 0)))
        if plan.team == 1:
            lanes = writer.lanes(plan.lanes)
            for row, vector in enumerate(sums):
                for lane in range(0, plan.lanes, lanes):
                    at = b.add(column, b.constant("i64", lane))
                    self._write(writer, part, row, at, vector_part(b, vector, lane, lanes))
            return
        shared = b.shared(self.kind, plan.product.m * plan.team * plan.columns)
        for row, vector in enumerate(sums):
            line = b.add(b.mul(slot, b.constant("i64", plan.product.m)), b.constant("i64", row))
            store_vector(b, vector, shared, b.add(b.mul(line, b.constant("i64", plan.columns)), inside))
        b.barrier()
        for number in range(0, plan.product.m * plan.columns, plan.threads):
            self._add_slots(writer, part, first, shared, b.add(b.zext(b.thread, "i64"), b.constant("i64", number)))

    def _add_slots(self, writer: Writer, part: Index, first: Val, shared: Val, number: Val) -> None:
        """Add what the threads of a block have for one row and column, given as one number."""
        b, plan = self.b, self.plan
        count = plan.product.m * plan.columns

        def run() -> None:
            total = load_vector(b, self.kind, shared, number, 1)
            loop = b.begin_loop(b.constant("i64", 1), b.constant("i64", plan.team), 1, [total])
            place = b.add(b.mul(loop.index, b.constant("i64", count)), number)
            found = self.arithmetic.add(loop.carried[0], load_vector(b, self.kind, shared, place, 1))
            (total,) = b.end_loop(loop, [found])
            columns = b.constant("i64", plan.columns)
            column = b.add(first, b.urem(number, columns))
            row = b.udiv(number, columns)
            write_inside(self.frame, writer, (part, self.batch), (row, plan.product.m), (column, plan.product.n), total)

        b.when(b.icmp("slt", number, b.constant("i64", count)), run)

    def _write(self, writer: Writer, part: Index, row: int, column: Val, value: Val) -> None:
        b, product = self.b, self.plan.product
        at = b.constant("i64", row)
        write_inside(self.frame, writer, (part, self.batch), (at, product.m), (column, product.n), value)

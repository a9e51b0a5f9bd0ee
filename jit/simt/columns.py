"""Columns: reductions of leading dimensions.  Threads lie along what is kept, and one above the other along what is not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import final

from hlojit.ir.scalar.builder import Scalar
from hlojit.llvm.combiners import Combiners
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.grid_reduction_plan import BoundReduction, ColumnGrid, bind_columns, reduction_columns
from hlojit.lowering.index import Index, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.reduction_plan import Plan
from hlojit.lowering.row_plan import COLUMN
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame
from hlojit.simt.halves import together_down
from hlojit.simt.partials import Partials, combiners_of
from hlojit.simt.teams import divided, scaled


def emit_column_reduction(body: Body, target: Target, dialect: Dialect, symbol: str, plan: Plan) -> KernelCode:
    """Reductions that keep the innermost variable, or reduce nothing."""
    assert target.grid is not None
    grid = reduction_columns(body, plan, target.grid)
    kernel = _ColumnKernel(plan, grid, GridFrame(target, body, dialect))
    moved = sum(root.tensor_type.nbytes for root in body.roots) + sum(each.nbytes for each in body.operand_types)
    phases = [kernel.emit(symbol, moved / target.grid.memory_bandwidth / grid.blocks)]
    if grid.chunks > 1:
        phases.append(kernel.partials.combine(f"{symbol}.chunks", target.grid))
    return kernel.frame.code(phases, kernel.partials.nbytes)


@final
class _ColumnKernel:
    def __init__(self, plan: Plan, grid: ColumnGrid, frame: GridFrame):
        self.plan, self.grid, self.frame = plan, grid, frame
        self.builder = frame.builder
        self.bound: BoundReduction = bind_columns(plan)
        self.partials = Partials(frame, plan.instructions, plan.results, grid.chunks)
        self.combiners: Combiners
        self.down: Val
        self.active: Val | None = None
        """Whether the thread has columns at all."""

    def emit(self, symbol: str, cost: float) -> Phase:
        grid, frame, b = self.grid, self.frame, self.builder
        with frame.kernel(
            symbol, grid.threads, workspace_bytes=self.partials.nbytes, at_once=grid.at_once
        ) as workspace:
            self.partials.open(workspace)
            first, count = self._open()
            with frame.access.guarded(self.active):
                frame.evaluate(self.bound.facts, frozenset(("row",)))
                self.combiners = combiners_of(frame, self.plan.instructions)
                with frame.access.lanes(grid.lanes, COLUMN):
                    frame.evaluate(self.bound.facts, frozenset(("row", COLUMN)))
                    flat = self._together(self._reduce(first, count))
                    is_top = b.icmp("eq", self.down, b.constant("i64", 0))
                    chunk = variable("chunk", 0, grid.chunks - 1)
                    is_last = is_top if self.active is None else b.and_(is_top, self.active)
                    store = partial(self.partials.store, self.combiners, flat, self.bound.output, chunk)
                    b.when(is_last, store)
        return frame.phase(symbol, grid.blocks, cost)

    def _open(self) -> tuple[Val, Val]:
        """Set the thread's row and columns; its first reduced element and how many it takes, ``down`` apart."""
        grid, b, access = self.grid, self.builder, self.frame.access
        thread = b.zext(b.thread, "i64")
        across = b.and_(thread, b.constant("i64", grid.across - 1))
        self.down = b.lshr(thread, b.constant("i64", grid.across.bit_length() - 1))
        stretch = b.urem(b.block, b.constant("i32", grid.stretches))
        rest = b.udiv(b.block, b.constant("i32", grid.stretches))
        access.variables["row"] = b.zext(b.urem(rest, b.constant("i32", grid.rows)), "i64")
        chunk = b.zext(b.udiv(rest, b.constant("i32", grid.rows)), "i64")
        access.variables["chunk"] = chunk
        piece = b.add(b.mul(b.zext(stretch, "i64"), b.constant("i64", grid.across)), across)
        access.variables[COLUMN] = b.mul(piece, b.constant("i64", grid.lanes))
        access.multiples[COLUMN] = grid.lanes
        low = b.mul(chunk, b.constant("i64", grid.chunk))
        high = b.constant("i64", grid.reduced)
        if grid.chunks > 1:
            end = b.add(low, b.constant("i64", grid.chunk))
            high = b.select(b.icmp("slt", end, high), end, high)
        first = b.add(low, self.down)
        above = b.add(b.sub(high, first), b.constant("i64", grid.down - 1))
        count = b.lshr(above, b.constant("i64", grid.down.bit_length() - 1))
        # Below the last element there is nothing left: the difference may be negative.
        count = b.select(b.icmp("slt", first, high), count, b.constant("i64", 0))
        if grid.pieces % grid.across:
            self.active = b.icmp("slt", piece, b.constant("i64", grid.pieces))
            count = b.select(self.active, count, b.constant("i64", 0))
        return first, count

    def _reduce(self, first: Val, count: Val) -> list[Val]:
        """What the thread takes in of its columns, ``unroll`` elements under way."""
        grid, b = self.grid, self.builder
        carried = [b.splat(start, grid.lanes) for start in self.combiners.starts()]
        groups = b.constant("i64", 0)
        # The loops' bodies run only in threads that have columns.
        with self.frame.access.guarded(None):
            if grid.unroll > 1:
                groups = divided(b, count, grid.unroll)
                carried = self._loop(b.constant("i64", 0), groups, carried, grid.unroll, first)
            return self._loop(scaled(b, groups, grid.unroll), count, carried, 1, first)

    def _loop(self, start: Val, end: Val, carried: Sequence[Val], unroll: int, first: Val) -> list[Val]:
        b = self.builder
        loop = b.begin_loop(start, end, 1, carried)
        with self.frame.scope():
            number = scaled(b, loop.index, unroll)
            indices = [self._place(b.add(number, b.constant("i64", n)), n, first) for n in range(unroll)]
            found = [(self._elements(index), self._roots(index)) for index in indices]
            values = list(loop.carried)
            for index, (elements, roots) in zip(indices, found):
                values = self.combiners.combine(values, elements)
                for root, value in zip(self.plan.stored, roots):
                    self.frame.store_root(root, index, value, rounded=True)
        return list(b.end_loop(loop, values))

    def _place(self, number: Val, which: int, first: Val) -> tuple[Index, ...]:
        """The index of the thread's reduced element ``number``."""
        b, name = self.builder, f"step.{which}"
        self.frame.access.variables[name] = b.add(first, b.mul(number, b.constant("i64", self.grid.down)))
        mapping = {"step": variable(name, 0, self.grid.reduced - 1)}
        return tuple(position.substitute(mapping) for position in self.bound.index)

    def _elements(self, index: tuple[Index, ...]) -> list[list[Val]]:
        return [combiner.at(index) for combiner in self.combiners]

    def _roots(self, index: tuple[Index, ...]) -> list[Scalar]:
        return [self.frame.elements.root(self.frame.body.roots[number], index) for number in self.plan.stored]

    def _together(self, flat: list[Val]) -> list[Val]:
        """The columns' halves of a block come together until the first row has all."""
        grid = self.grid
        return together_down(self.frame, self.combiners, flat, self.down, grid.down, grid.threads)

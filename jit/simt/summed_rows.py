"""Row kernels that also reduce the columns of all rows: a norm's gradients in one kernel that reads its inputs once.

A block goes through several rows.  A thread has the same columns in each, whose accumulators it carries from row to row in
registers.  At the end a block writes one row of them to the workspace, and a second phase combines these rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import final

from hlojit.llvm.combiners import Combiners
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.index import Index, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.row_plan import COLUMN, RowPlan
from hlojit.lowering.summed_row_plan import SummedRowGrid, summed_row_grid, summed_row_plan
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame
from hlojit.simt.halves import together_down
from hlojit.simt.partials import Partials, chosen, combiners_of
from hlojit.simt.rows import RowKernel, moved
from hlojit.simt.teams import Piece, Team

_CHUNK = "chunk"


def emit_summed_rows(body: Body, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """A kernel that goes over rows once, with several loops in each, and reduces columns of all of them."""
    machine = target.grid
    assert machine is not None
    plan = summed_row_plan(body)
    frame = GridFrame(target, body, dialect)
    kernel = _SummedRows(plan, summed_row_grid(plan, machine), frame, machine)
    phases = [kernel.emit(symbol)]
    if kernel.grid.blocks > 1:
        phases.append(kernel.combine(f"{symbol}.columns"))
    return frame.code(phases, kernel.partials.nbytes)


@final
class _SummedRows:
    def __init__(self, plan: RowPlan, grid: SummedRowGrid, frame: GridFrame, machine: GridMachine):
        self.plan, self.grid, self.frame, self.machine = plan, grid, frame, machine
        self.builder = frame.builder
        self.partials = Partials(frame, plan.columns, plan.extent, grid.blocks)
        self.carried: list[list[Val]] = []
        """The accumulators of each of the thread's pieces."""
        self.combiners: Combiners

    def emit(self, symbol: str) -> Phase:
        """The kernel of the rows."""
        grid, frame, b = self.grid, self.frame, self.builder
        rows, nbytes = grid.rows, self.partials.nbytes
        with frame.kernel(symbol, rows.threads, workspace_bytes=nbytes, at_once=rows.at_once) as workspace:
            self.partials.open(workspace)
            self.combiners = combiners_of(frame, self.plan.columns)
            starts = [b.splat(start, rows.lanes) for start in self.combiners.starts()] * rows.rounds
            block = b.zext(b.block, "i64")
            loop = b.begin_loop(b.constant("i64", 0), self._steps(), 1, starts, guarded=False)
            with frame.scope():
                self.carried = self._by_piece(loop.carried)
                self._row(b.add(block, b.mul(loop.index, b.constant("i64", grid.blocks))))
            self.carried = self._by_piece(b.end_loop(loop, [value for piece in self.carried for value in piece]))
            self._store(block)
        return frame.phase(symbol, grid.blocks, moved(self.plan.body) / self.machine.memory_bandwidth / grid.blocks)

    def _by_piece(self, flat: list[Val] | tuple[Val, ...]) -> list[list[Val]]:
        width = len(self.combiners.kinds)
        return [list(flat[first : first + width]) for first in range(0, len(flat), width)]

    def _steps(self) -> Val:
        """How many rows a team of the block takes: at least one, and the same for all threads of the block."""
        b, grid = self.builder, self.grid
        whole, rest = divmod(grid.rows.blocks, grid.blocks)
        if not rest:
            return b.constant("i64", whole)
        has_more = b.icmp("slt", b.zext(b.block, "i64"), b.constant("i64", rest))
        return b.select(has_more, b.constant("i64", whole + 1), b.constant("i64", whole))

    def _row(self, block: Val) -> None:
        team = Team(self.frame, self.grid.rows, self.machine.warp)
        kernel = RowKernel(self.plan, team, lambda piece: self._take(team.pieces.index(piece), piece))
        kernel.row(block)
        levels = sum(bool(loop.reductions) for loop in self.plan.loops)
        if self.grid.rows.team > self.machine.warp and levels == 1:
            # Warps tell each other of the next row where some may still read what they were told of this one: the barrier
            # of another reduction would have been in between.
            self.builder.barrier()

    def _take(self, number: int, piece: Piece) -> None:
        """Combine the elements of one of the thread's pieces, in its lanes."""
        index, carried = piece.at(self.plan.index), self.carried[number]
        taken = self.combiners.combine(carried, [combiner.at(index) for combiner in self.combiners])
        self.carried[number] = chosen(self.builder, piece.active, taken, carried)

    def _store(self, block: Val) -> None:
        """The teams of a block come together; the first one stores what it has, of every piece."""
        b, rows = self.builder, self.grid.rows
        team = Team(self.frame, replace(rows, rows=rows.teams * self.grid.blocks), self.machine.warp)
        team.open()
        self.frame.access.variables[_CHUNK] = block
        chunk, column = variable(_CHUNK, 0, self.grid.blocks - 1), variable(COLUMN, 0, self.plan.extent - 1)
        is_top = b.icmp("eq", team.number, b.constant("i64", 0))
        kinds = self.combiners.kinds if rows.teams > 1 else []
        arrays = [self.frame.access.add_shared(kind, rows.threads * rows.lanes) for kind in kinds]
        for number, (piece, flat) in enumerate(zip(team.pieces, self.carried, strict=True)):
            with team.on(piece):
                if number and rows.teams > 1:
                    b.barrier()
                sizes = rows.teams, rows.threads
                whole = together_down(self.frame, self.combiners, flat, team.number, *sizes, arrays)
                stores = is_top if piece.active is None else b.and_(is_top, piece.active)
                (place,) = piece.at([column])
                b.when(stores, partial(self._store_piece, whole, place, chunk))

    def _store_piece(self, flat: list[Val], column: Index, chunk: Index) -> None:
        with self.frame.scope():
            if self.grid.blocks == 1:
                self.partials.store_whole(self.combiners, flat, column)
            for buffer, value in zip(self.partials.buffers, flat, strict=bool(self.partials.buffers)):
                self.frame.access.store(value, buffer, chunk * self.plan.extent + column)

    def combine(self, symbol: str) -> Phase:
        """The second phase: threads lie along the columns, and those above each other divide the rows of the workspace."""
        grid, frame, b, extent = self.grid, self.frame, self.builder, self.plan.extent
        threads, nbytes = grid.across * grid.down, self.partials.nbytes
        with frame.kernel(symbol, threads, workspace_bytes=nbytes) as workspace:
            self.partials.open(workspace)
            self.combiners = combiners_of(frame, self.plan.columns)
            thread = b.zext(b.thread, "i64")
            down = b.lshr(thread, b.constant("i64", grid.across.bit_length() - 1))
            across = b.and_(thread, b.constant("i64", grid.across - 1))
            place = b.add(b.mul(b.zext(b.block, "i64"), b.constant("i64", grid.across)), across)
            frame.access.variables[COLUMN] = place
            active = b.icmp("slt", place, b.constant("i64", extent)) if extent % grid.across else None
            with frame.access.guarded(active):
                flat = self._add_up(down)
                flat = together_down(frame, self.combiners, flat, down, grid.down, threads)
            stores = b.icmp("eq", down, b.constant("i64", 0))
            stores = stores if active is None else b.and_(stores, active)
            column = variable(COLUMN, 0, extent - 1)
            with frame.scope():
                b.when(stores, lambda: self.partials.store_whole(self.combiners, flat, column))
        blocks = -(-extent // grid.across)
        return frame.phase(symbol, blocks, nbytes / self.machine.memory_bandwidth / blocks)

    def _add_up(self, down: Val) -> list[Val]:
        """What every ``down``-th row of the workspace has in the thread's column."""
        grid, frame, b, extent = self.grid, self.frame, self.builder, self.plan.extent
        above = b.sub(b.constant("i64", grid.blocks + grid.down - 1), down)
        steps = b.lshr(above, b.constant("i64", grid.down.bit_length() - 1))
        loop = b.begin_loop(b.constant("i64", 0), steps, 1, self.combiners.starts())
        with frame.scope():
            frame.access.variables[_CHUNK] = b.add(down, b.mul(loop.index, b.constant("i64", grid.down)))
            place = variable(_CHUNK, 0, grid.blocks - 1) * extent + variable(COLUMN, 0, extent - 1)
            pairs = zip(self.partials.buffers, self.combiners.kinds, strict=True)
            found = [frame.access.load(buffer, kind, place, None) for buffer, kind in pairs]
            values = self.combiners.merge(list(loop.carried), found)
        return list(b.end_loop(loop, values))

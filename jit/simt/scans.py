"""Scans: windows that are all prefixes (or suffixes) of their line, so that every element is combined once.

Along the innermost dimension a team of threads scans a line, tile by tile: each thread its piece, the warp by shuffles,
the warps through shared memory.  Along another one, a thread scans lines that lie next to each other from end to end.
Few long lines are cut into chunks: a first phase reduces them, and each chunk begins with what those before it gave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import final

from hlojit.ir.graph import Instruction
from hlojit.llvm.builder import Val
from hlojit.llvm.combiners import Combiner, Combiners
from hlojit.lowering.body import Body
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_reduction_plan import ColumnGrid, RowGrid, scan_columns, scan_rows
from hlojit.lowering.index import Index, constant, delinearized, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.row_plan import COLUMN
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame
from hlojit.simt.partials import Partials, chosen, combiners_of
from hlojit.simt.rows import RowLoop
from hlojit.simt.teams import Piece, Team, divided, scaled


def emit_scan(
    instruction: Instruction, target: Target, dialect: Dialect, symbol: str, dimension: int, *, reverse: bool
) -> KernelCode:
    """The kernel of a ``reduce_window`` whose windows are prefixes along a dimension, or suffixes (``reverse``)."""
    assert target.grid is not None
    frame = GridFrame(target, Body.of(instruction), dialect)
    if math.prod(instruction.operands[0].tensor_type.shape[dimension + 1 :]) == 1:
        return _LineScan(instruction, frame, target.grid, dimension, reverse).emit(symbol)
    return _ColumnScan(instruction, frame, target.grid, dimension, reverse).emit(symbol)


class _Scan:
    """What both forms share: ``lines`` outer lines, ``extent`` elements of each, ``inner`` lines next to each other."""

    def __init__(self, instruction: Instruction, frame: GridFrame, machine: GridMachine, dimension: int, reverse: bool):
        self.instruction, self.frame, self.machine, self.reverse = instruction, frame, machine, reverse
        self.builder = frame.builder
        self.shape = instruction.operands[0].tensor_type.shape
        self.lines, self.extent = math.prod(self.shape[:dimension]), self.shape[dimension]
        self.inner = math.prod(self.shape[dimension + 1 :])
        values = (*instruction.operands[: len(instruction.results)], *instruction.results)
        self.kinds = [memory_kind(value.tensor_type.element_type) for value in values]
        self.partials: Partials

    def cost(self, blocks: int) -> float:
        """Nanoseconds of a block."""
        types = [*self.frame.body.operand_types, *(result.tensor_type for result in self.instruction.results)]
        return sum(int(each.nbytes) for each in types) / self.machine.memory_bandwidth / blocks

    def store(self, combiner: Combiner, values: Sequence[Val], linear: Index) -> None:
        """Store elements of all results."""
        first = len(self.frame.body.operand_types)
        for number, stored in enumerate(combiner.encoded(values)):
            self.frame.access.store(stored, first + number, linear)

    def carried_in(self, combiners: Combiners, chunk: Val, start: Val, step: int, place: Index) -> list[Val]:
        """What the chunks before ``chunk`` gave, every ``step``-th from ``start`` on; ``place`` is in terms of ``before``."""
        b, frame = self.builder, self.frame
        begin = [b.splat(value) for value in combiners.starts()]
        loop = b.begin_loop(start, chunk, step, begin)
        frame.access.variables["before"] = loop.index
        with frame.scope():
            pairs = zip(self.partials.buffers, combiners.kinds, strict=True)
            found = [frame.access.load(buffer, kind, place, None) for buffer, kind in pairs]
            values = combiners.merge(loop.carried, found)
        return list(b.end_loop(loop, values))


@final
class _LineScan(_Scan):
    """Along the innermost dimension."""

    def emit(self, symbol: str) -> KernelCode:
        frame, b = self.frame, self.builder
        self.grid: RowGrid = scan_rows(self.kinds, self.lines, self.extent, self.machine)
        self.partials = Partials(frame, [self.instruction], self.lines, self.grid.chunks)
        self.row = variable("row", 0, self.lines - 1)
        column = variable(COLUMN, 0, self.extent - 1)
        self.index = delinearized(self.row * self.extent + column, self.shape)
        self.linear = self.row * self.extent + column
        phases = [self._chunks(f"{symbol}.chunks")] if self.grid.chunks > 1 else []
        with frame.kernel(
            symbol, self.grid.threads, workspace_bytes=self.partials.nbytes, at_once=self.grid.at_once
        ) as workspace:
            self.partials.open(workspace)
            team = self._team()
            scan = TeamScan(team, combiners_of(frame, [self.instruction]))
            with frame.access.guarded(team.row_active):
                carry = self._begin(team, scan.combiners)
                rounds = b.constant("i64", self.grid.rounds)
                loop = b.begin_loop(b.constant("i64", 0), rounds, 1, carry)
                with frame.scope():
                    carry = self._tile(team, scan, loop.index, list(loop.carried))
                b.end_loop(loop, carry)
        phases.append(frame.phase(symbol, self.grid.blocks, self.cost(self.grid.blocks)))
        return frame.code(phases, self.partials.nbytes)

    def _team(self) -> Team:
        team = Team(self.frame, self.grid, self.machine.warp, reverse=self.reverse)
        team.open()
        return team

    def _chunks(self, symbol: str) -> Phase:
        """The first phase: what each chunk gives."""
        frame, grid = self.frame, self.grid
        with frame.kernel(
            symbol, grid.threads, workspace_bytes=self.partials.nbytes, at_once=grid.at_once
        ) as workspace:
            self.partials.open(workspace)
            team = self._team()
            loop = RowLoop(team, self.index, [self.instruction], ())
            flat = loop.run()
            frame.access.variables["chunk"] = team.chunk
            chunk = variable("chunk", 0, grid.chunks - 1)
            self.builder.when(team.is_first, partial(self.partials.store, loop.combiners, flat, self.row, chunk))
        return frame.phase(symbol, grid.blocks, self.cost(grid.blocks) / 2)

    def _begin(self, team: Team, combiners: Combiners) -> list[Val]:
        """What a line, or a chunk of one, begins with: the init value, which may be a zero of the identity's other sign."""
        init = [value for combiner in combiners for value in combiner.init()]
        if self.grid.chunks == 1:
            return init
        place = self.row * self.grid.chunks + variable("before", 0, self.grid.chunks - 1)
        found = self.carried_in(combiners, team.chunk, team.position, self.grid.team, place)
        return combiners.merge(init, team.together(combiners, found))

    def _tile(self, team: Team, scan: TeamScan, round_: Val, carry: list[Val]) -> list[Val]:
        """Scan the team's next pieces; what follows them begins with what is returned."""
        b, combiners = self.builder, scan.combiners
        piece = team.piece(round_, 0, team.has(round_))
        with team.on(piece):
            (combiner,) = combiners
            index = piece.at(self.index)
            values = combiner.at(index)
            lanes = range(piece.lanes)[:: -1 if self.reverse else 1]
            prefixes: list[list[Val]] = []
            for lane in lanes:
                element = [b.extract(value, lane) for value in values]
                prefixes.append(combiners.merge(prefixes[-1], element) if prefixes else element)
            before, total = scan.exclusive(prefixes[-1], round_)
            before = combiners.merge(carry, before)
            results = [Val("poison", kind, piece.lanes) for kind in combiners.kinds]
            for lane, prefix in zip(lanes, prefixes):
                whole = combiners.merge(before, prefix)
                results = [
                    b.insert(result, lane, value) if piece.lanes > 1 else value for result, value in zip(results, whole)
                ]
            (linear,) = piece.at([self.linear])
            self._store_piece(combiner, piece, results, linear)
        return combiners.merge(carry, total)

    def _store_piece(self, combiner: Combiner, piece: Piece, results: Sequence[Val], linear: Index) -> None:
        def store() -> None:
            with self.frame.scope():
                self.store(combiner, results, linear)

        assert piece.active is not None
        self.builder.when(piece.active, store)


@final
class TeamScan:
    """Exclusive prefixes over the threads of a team."""

    def __init__(self, team: Team, combiners: Combiners):
        self.team, self.combiners = team, combiners
        self.builder = team.builder
        self.arrays: list[int] = []
        if team.grid.team > team.warp:
            count = 2 * team.grid.threads // team.warp
            self.arrays = [team.frame.access.add_shared(kind, count) for kind in combiners.kinds]

    def exclusive(self, values: Sequence[Val], round_: Val) -> tuple[list[Val], list[Val]]:
        """What the threads before this one have together, and all of the team; ``round_`` counts the calls."""
        b, team = self.builder, self.team
        width = min(team.grid.team, team.warp)
        lane = b.and_(b.thread, b.constant("i32", width - 1))
        inclusive = self._inclusive(values, lane, width)
        before = self._from_below(inclusive, lane, 1, self.combiners.starts())
        if not self.arrays:
            return before, self._from(inclusive, lane, width - 1)
        warps = team.grid.team // team.warp
        found = self._between_warps(inclusive, lane, round_, warps)
        other = b.and_(b.thread, b.constant("i32", warps - 1))
        sums = self._inclusive(found, other, warps)
        warp = b.and_(b.lshr(b.thread, b.constant("i32", team.warp.bit_length() - 1)), b.constant("i32", warps - 1))
        # Lane n of a warp holds what warps up to n have, as far as there are warps.
        is_first = b.icmp("eq", warp, b.constant("i32", 0))
        source = b.select(is_first, warp, b.sub(warp, b.constant("i32", 1)))
        below = chosen(b, is_first, self.combiners.starts(), [b.shuffle_from(value, source) for value in sums])
        total = [b.shuffle_from(value, b.constant("i32", warps - 1)) for value in sums]
        return self.combiners.merge(below, before), total

    def _between_warps(self, inclusive: Sequence[Val], lane: Val, round_: Val, warps: int) -> list[Val]:
        """What each warp of the team has, in as many lanes as there are warps, again and again."""
        b, team, access = self.builder, self.team, self.team.frame.access
        count = team.grid.threads // team.warp
        # Two halves take turns: who is late still reads one while the others write the other.
        half = b.mul(b.and_(round_, b.constant("i64", 1)), b.constant("i64", count))
        slot = b.add(half, b.zext(b.lshr(b.thread, b.constant("i32", team.warp.bit_length() - 1)), "i64"))

        def publish() -> None:
            for array, value in zip(self.arrays, inclusive, strict=True):
                access.store_at(value, array, slot)

        b.when(b.icmp("eq", lane, b.constant("i32", team.warp - 1)), publish)
        b.barrier()
        place = b.add(half, b.zext(b.and_(lane, b.constant("i32", warps - 1)), "i64"))
        if team.grid.teams > 1:
            place = b.add(place, b.mul(team.number, b.constant("i64", warps)))
        return [access.load_at(array, kind, place) for array, kind in zip(self.arrays, self.combiners.kinds)]

    def _inclusive(self, values: Sequence[Val], lane: Val, width: int) -> list[Val]:
        found, distance = list(values), 1
        while distance < width:
            together = self.combiners.merge(self._from_below(found, lane, distance, found), found)
            has_below = self.builder.icmp("sge", lane, self.builder.constant("i32", distance))
            found = chosen(self.builder, has_below, together, found)
            distance *= 2
        return found

    def _from_below(self, values: Sequence[Val], lane: Val, distance: int, others: Sequence[Val]) -> list[Val]:
        """The values ``distance`` lanes below, others where there is no such lane."""
        b = self.builder
        has_below = b.icmp("sge", lane, b.constant("i32", distance))
        place = b.and_(b.thread, b.constant("i32", self.team.warp - 1))
        source = b.select(has_below, b.sub(place, b.constant("i32", distance)), place)
        return chosen(b, has_below, [b.shuffle_from(value, source) for value in values], others)

    def _from(self, values: Sequence[Val], lane: Val, number: int) -> list[Val]:
        """The values of one lane of each part of the warp."""
        b = self.builder
        place = b.and_(b.thread, b.constant("i32", self.team.warp - 1))
        source = b.add(b.sub(place, lane), b.constant("i32", number))
        return [b.shuffle_from(value, source) for value in values]


@final
class _ColumnScan(_Scan):
    """Along an outer dimension."""

    def emit(self, symbol: str) -> KernelCode:
        frame = self.frame
        self.grid: ColumnGrid = scan_columns(self.kinds, self.lines, self.inner, self.extent, self.machine)
        self.partials = Partials(frame, [self.instruction], self.lines * self.inner, self.grid.chunks)
        self.line = variable("row", 0, self.lines - 1) * self.inner + variable(COLUMN, 0, self.inner - 1)
        phases = [self._phase(f"{symbol}.chunks", is_scan=False)] if self.grid.chunks > 1 else []
        phases.append(self._phase(symbol, is_scan=True))
        return frame.code(phases, self.partials.nbytes)

    def _phase(self, symbol: str, *, is_scan: bool) -> Phase:
        grid, frame, b = self.grid, self.frame, self.builder
        with frame.kernel(
            symbol, grid.threads, workspace_bytes=self.partials.nbytes, at_once=grid.at_once
        ) as workspace:
            self.partials.open(workspace)
            combiners = combiners_of(frame, [self.instruction])
            chunk, active = self._open()
            frame.access.variables["chunk"] = chunk

            def run() -> None:
                with frame.scope(), frame.access.lanes(grid.lanes, COLUMN):
                    self._scan(combiners, chunk) if is_scan else self._reduce(combiners, chunk)

            b.when(active, run)
        return frame.phase(symbol, grid.blocks, self.cost(grid.blocks))

    def _open(self) -> tuple[Val, Val]:
        """Set the thread's line and its place in it; its chunk, and whether it has one."""
        grid, b, access = self.grid, self.builder, self.frame.access
        stretch = b.urem(b.block, b.constant("i32", grid.stretches))
        rest = b.udiv(b.block, b.constant("i32", grid.stretches))
        access.variables["row"] = b.zext(b.urem(rest, b.constant("i32", grid.rows)), "i64")
        piece = b.add(b.mul(stretch, b.constant("i32", grid.across)), b.thread)
        access.variables[COLUMN] = b.mul(b.zext(piece, "i64"), b.constant("i64", grid.lanes))
        access.multiples[COLUMN] = grid.lanes
        chunk = b.zext(b.udiv(rest, b.constant("i32", grid.rows)), "i64")
        return chunk, b.icmp("slt", piece, b.constant("i32", grid.pieces))

    def _reduce(self, combiners: Combiners, chunk: Val) -> None:
        starts = [self.builder.splat(value) for value in combiners.starts()]
        flat = self._through(combiners, chunk, starts, is_scan=False)
        self.partials.store(combiners, flat, self.line, variable("chunk", 0, self.grid.chunks - 1))

    def _scan(self, combiners: Combiners, chunk: Val) -> None:
        b = self.builder
        carry = [b.splat(value) for combiner in combiners for value in combiner.init()]
        if self.grid.chunks > 1:
            place = self.line * self.grid.chunks + variable("before", 0, self.grid.chunks - 1)
            before = self.carried_in(combiners, chunk, b.constant("i64", 0), 1, place)
            carry = combiners.merge(carry, before)
        self._through(combiners, chunk, carry, is_scan=True)

    def _through(self, combiners: Combiners, chunk: Val, carried: Sequence[Val], *, is_scan: bool) -> list[Val]:
        """From end to end of the chunk, ``unroll`` elements under way."""
        b, grid = self.builder, self.grid
        low, count = b.constant("i64", 0), b.constant("i64", self.extent)
        if grid.chunks > 1:
            low = b.mul(chunk, b.constant("i64", grid.chunk))
            left = b.sub(count, low)
            count = b.constant("i64", grid.chunk)
            count = b.select(b.icmp("slt", left, count), left, count)
        groups = divided(b, count, grid.unroll)
        for start, end, unroll in (
            (b.constant("i64", 0), groups, grid.unroll),
            (scaled(b, groups, grid.unroll), count, 1),
        ):
            loop = b.begin_loop(start, end, 1, carried)
            with self.frame.scope():
                first = b.add(low, scaled(b, loop.index, unroll))
                values = self._some(combiners, first, unroll, list(loop.carried), is_scan=is_scan)
            carried = b.end_loop(loop, values)
        return list(carried)

    def _some(self, combiners: Combiners, first: Val, count: int, carried: list[Val], *, is_scan: bool) -> list[Val]:
        b, frame = self.builder, self.frame
        (combiner,) = combiners
        places, found = [], []
        for number in range(count):
            name = f"step.{number}"
            frame.access.variables[name] = b.add(first, b.constant("i64", number))
            step = variable(name, 0, self.extent - 1)
            position = constant(self.extent - 1) - step if self.reverse else step
            row, column = variable("row", 0, self.lines - 1), variable(COLUMN, 0, self.inner - 1)
            places.append((row * self.extent + position) * self.inner + column)
            index = delinearized(places[-1], self.shape)
            found.append(combiner.at(index))
        for place, values in zip(places, found):
            carried = combiners.merge(carried, values)
            if is_scan:
                self.store(combiner, carried, place)
        return carried

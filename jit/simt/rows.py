"""Rows: reductions of the last dimensions, and row kernels, which also compute what follows from them.

Softmax reads its input once: the pieces of a thread are written out, so that what the loop of the maximum loaded the
loops of the sum and of the quotients find in registers.  Rows too long for that keep values in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast, final

from hlojit.ir.graph import Instruction
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.builder import Scalar
from hlojit.llvm.combiners import Combiners
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.elements import Key
from hlojit.lowering.grid_reduction_plan import bind_rows, grid_row_plan, reduction_rows, row_kernel_rows
from hlojit.lowering.index import Index, variable
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.reduction_plan import Plan
from hlojit.lowering.row_plan import Loop, RowPlan
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame
from hlojit.simt.partials import Partials, chosen, combiners_of
from hlojit.simt.teams import Piece, Team

AT_ONCE = 1
"""Pieces of rows that are no whole ones whose results are computed before they are stored."""


@final
class RowLoop:
    """One loop of a team over its row: reductions, stored roots, values that are kept for later loops."""

    def __init__(self, team: Team, index: tuple[Index, ...], reductions: Sequence[Instruction], stored: Sequence[int]):
        self.team = team
        self.frame = team.frame
        self.index = index
        self.combiners = combiners_of(team.frame, reductions)
        self.stored = stored
        self.before: Callable[[Sequence[Piece]], None] = lambda pieces: None
        """Called with the pieces that are going to be taken."""
        self.after: Callable[[Piece], None] = lambda piece: None
        """Called in the lanes of each piece that was taken."""

    def run(self) -> list[Val]:
        """Emit the loop; what all elements gave, in every thread."""
        b, team, combiners = self.frame.builder, self.team, self.combiners
        carried = [b.splat(start, team.grid.lanes) for start in combiners.starts()]
        carried = team.through(carried, self._take)
        if team.grid.reference is not None:
            carried = team.turned(combiners, carried)
        flat = combiners.reduce_lanes(carried)
        if team.tail is not None:
            if team.grid.resident:
                flat = self._take([team.tail], flat)
            else:
                with self.frame.scope():
                    flat = self._take([team.tail], flat)
        return team.together(combiners, flat) if combiners.kinds else []

    def _take(self, pieces: Sequence[Piece], carried: list[Val]) -> list[Val]:
        """Everything is loaded and computed before it is combined, so that several loads are under way."""
        if len(pieces) > AT_ONCE and self.team.grid.reference is not None and not self.combiners.kinds:
            # What is read for other columns than a piece's takes twice the registers.
            for first in range(0, len(pieces), AT_ONCE):
                carried = self._take(pieces[first : first + AT_ONCE], carried)
            return carried
        self.before(pieces)
        found = []
        for piece in pieces:
            with self.team.on(piece):
                found.append((self._elements(piece), self._roots(piece)))
        for piece, (elements, roots) in zip(pieces, found):
            with self.team.on(piece):
                taken = self.combiners.combine(carried, elements)
                carried = chosen(self.frame.builder, self.team.taken(piece), taken, carried)
                self.after(piece)
                self._store(piece, roots)
        return carried

    def _elements(self, piece: Piece) -> list[list[Val]]:
        index = piece.at(self.index)
        return [combiner.at(index) for combiner in self.combiners]

    def _roots(self, piece: Piece) -> list[Scalar]:
        index = piece.at(self.index)
        rounded = bool(self.combiners.kinds)
        roots = self.frame.body.roots
        return [self.frame.elements.root(roots[number], index, rounded=rounded) for number in self.stored]

    def _store(self, piece: Piece, values: Sequence[Scalar]) -> None:
        if not values:
            return
        index, rounded = piece.at(self.index), bool(self.combiners.kinds)

        def store() -> None:
            with self.frame.scope():
                for number, value in zip(self.stored, values, strict=True):
                    self.frame.store_root(number, index, value, rounded=rounded)

        if piece.active is None:
            store()
        else:
            self.frame.builder.when(piece.active, store)


def emit_row_reduction(body: Body, target: Target, dialect: Dialect, symbol: str, plan: Plan) -> KernelCode:
    """Reductions of the innermost variable: a team of threads a row, or a block a chunk of one."""
    machine = target.grid
    assert machine is not None
    grid, bound = reduction_rows(body, plan, machine), bind_rows(plan)
    frame = GridFrame(target, body, dialect)
    b = frame.builder
    partials = Partials(frame, plan.instructions, plan.results, grid.chunks)
    with frame.kernel(symbol, grid.threads, workspace_bytes=partials.nbytes, at_once=grid.at_once) as workspace:
        partials.open(workspace)
        team = Team(frame, grid, machine.warp)
        team.open()
        with frame.access.guarded(team.row_active):
            frame.evaluate(bound.facts, frozenset(("row",)))
            loop = RowLoop(team, bound.index, plan.instructions, plan.stored)
            flat = loop.run()
            chunk = Index(0)
            if grid.chunks > 1:
                frame.access.variables["chunk"] = team.chunk
                chunk = variable("chunk", 0, grid.chunks - 1)
            b.when(team.is_first, partial(partials.store, loop.combiners, flat, bound.output, chunk))
    cost = moved(body) / machine.memory_bandwidth / grid.blocks
    phases = [frame.phase(symbol, grid.blocks, cost)]
    if grid.chunks > 1:
        phases.append(partials.combine(f"{symbol}.chunks", machine))
    return frame.code(phases, partials.nbytes)


def emit_row_kernel(body: Body, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """A kernel that goes over rows once, with several loops in each."""
    machine = target.grid
    assert machine is not None
    plan = grid_row_plan(body, machine)
    grid = row_kernel_rows(plan, machine)
    frame = GridFrame(target, body, dialect)
    with frame.kernel(symbol, grid.threads, at_once=grid.at_once):
        RowKernel(plan, Team(frame, grid, machine.warp)).row()
    cost = moved(body) / machine.memory_bandwidth / grid.blocks
    return frame.code([frame.phase(symbol, grid.blocks, cost)], in_place=plan.in_place)


@final
class RowKernel:
    """The loops of a team over its row."""

    def __init__(self, plan: RowPlan, team: Team, after: Callable[[Piece], None] | None = None):
        """``after`` is called in the lanes of each piece that the last loop took."""
        self.plan, self.grid, self.team = plan, team.grid, team
        self.frame = team.frame
        self.after = after
        self.stash: dict[Key, tuple[int, str]] = {}

    def row(self, block: Val | None = None) -> None:
        """Emit everything of one row of every team; ``block``: they do the work of that block."""
        self.team.open(block)
        if not self.grid.resident:
            self._make_stash()
        with self.frame.access.guarded(self.team.row_active):
            for loop in self.plan.loops:
                self._loop(loop)
            self._store_per_row()

    def _make_stash(self) -> None:
        """Shared memory for the kept values of the block's only row."""
        for key in dict.fromkeys(key for loop in self.plan.loops for key in loop.kept):
            kind = formats.compute_kind(key[0].tensor_type.element_type)
            # Pieces may reach over the row's ends.
            beyond = 2 * self.grid.lanes if self.grid.reference is not None else 0
            self.stash[key] = self.frame.access.add_shared(kind, self.plan.extent + beyond), kind

    def _loop(self, loop: Loop) -> None:
        frame = self.frame
        frame.evaluate(loop.facts, frozenset(("row",)))
        stored = [] if loop.reductions else self.plan.stored
        walk = RowLoop(self.team, self.plan.index, loop.reductions, stored)
        if not self.grid.resident:
            walk.before, walk.after = self._fetching(loop), self._keeping(loop)
        elif self.after is not None and not loop.reductions:
            walk.after = self.after
        flat = walk.run()
        self._publish(walk.combiners, flat)

    def _fetching(self, loop: Loop) -> Callable[[Sequence[Piece]], None]:
        def fetch(pieces: Sequence[Piece]) -> None:
            found = {}
            for piece in pieces:
                for key in loop.fetched:
                    found[key[0], piece.at(key[1])] = (*self.stash[key], piece.place)
            self.frame.elements.stash = found

        return fetch

    def _keeping(self, loop: Loop) -> Callable[[Piece], None]:
        def keep(piece: Piece) -> None:
            for key in loop.kept:
                value = cast(Val, self.frame.elements.value(key[0], piece.at(key[1])))
                self._store_kept(piece, value, self.stash[key][0], piece.place)

        return keep

    def _store_kept(self, piece: Piece, value: Val, buffer: int, place: Index) -> None:
        if piece.active is None:
            self.frame.access.store(value, buffer, place)
            return

        def store() -> None:
            with self.frame.scope():
                self.frame.access.store(value, buffer, place)

        self.frame.builder.when(piece.active, store)

    def _publish(self, combiners: Combiners, flat: Sequence[Val]) -> None:
        """Results of a loop's reductions are known to all later ones, and stored where they are roots."""
        frame = self.frame
        for combiner, values in zip(combiners.combiners, combiners.finish(flat), strict=True):
            for result, rounded, stored in combiner.finished(values):
                frame.elements.reduced[result] = self.plan.row, rounded
                for number, root in enumerate(self.plan.body.roots):
                    if root is result:
                        buffer = len(self.plan.body.operand_types) + number
                        self._store_one(stored, buffer)

    def _store_one(self, value: Val, buffer: int) -> None:
        def store() -> None:
            with self.frame.scope():
                self.frame.access.store(value, buffer, self.plan.row)

        self.frame.builder.when(self.team.is_first, store)

    def _store_per_row(self) -> None:
        plan, frame = self.plan, self.frame
        for number in plan.per_row:
            value = frame.elements.root(plan.body.roots[number], plan.row_index, rounded=False)

            def store(number: int = number, value: Scalar = value) -> None:
                with frame.scope():
                    frame.store_root(number, plan.row_index, value, rounded=False)

            frame.builder.when(self.team.is_first, store)


def moved(body: Body) -> int:
    """Bytes of all operands and results."""
    types = [*body.operand_types, *(root.tensor_type for root in body.roots)]
    return sum(int(each.nbytes) for each in types)

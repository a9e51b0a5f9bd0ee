"""Products by panels: tiles of rows x vectors of columns, blocks of k, the right operand in place or packed.

A task is one block of rows against a group of panels of one batch element.  Where the right operand's columns are not
neighbours in memory, or it is large and read by many rows, a task packs one panel of ``block_k`` rows at a time on its
stack; the sums then continue from one block of k to the next in the result (or in workspace, where the result is
narrower than the sums).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hlojit.cpu.kernels.elements import Arithmetic, Elements, at, scaled
from hlojit.cpu.kernels.packing import PARAMETERS, ZERO, PanelPack, buffer, dot_product, literal, minimum, unflatten
from hlojit.cpu.kernels.problem import DotProblem, ceil_divide, dense_steps, round_up
from hlojit.cpu.kernels.tiles import Side, Tile, choose_shape, segments_of
from hlojit.ir.formats import element_type
from hlojit.lowering.kernel import Phase
from hlojit.lowering.llvm_builder import LlvmBuilder, Val
from hlojit.lowering.target import KIND_BITS, Target

WORKSPACE = 3
PANEL_BYTES = 96 << 10
"""Stack memory for one packed panel: a part of the second-level cache, twice the first."""
PACK_ABOVE_BYTES = 1_200_000
PACK_ABOVE_ROWS = 128
TALL_PANEL_BYTES = 256 << 10
"""A panel that does not stay in the second-level cache when its rows are strided: packed for fewer rows already."""
ROW_TILES = 40
NANOSECONDS_PER_BYTE = 0.02
PREFETCH_ROWS = 4
TASK_NANOSECONDS = 20_000.0
MAXIMUM_TASKS = 64

Place = tuple[int, int]
"""Number of a buffer, and an offset in bytes."""


def dense(kind: str) -> Elements:
    """Elements whose memory is the compute kind itself."""
    return Elements(element_type(kind), kind)


@dataclass(frozen=True, slots=True)
class DotPanels:
    """One product in this form; ``reserve`` takes bytes of workspace and returns their offset."""

    symbol: str
    problem: DotProblem
    target: Target
    left: Elements
    left_at: Place
    right: Elements
    right_at: Place
    result: Elements
    result_at: Place
    arithmetic: Arithmetic
    reserve: Callable[[int], int]

    @property
    def kind(self) -> str:
        """The compute kind."""
        return self.left.compute

    @property
    def lanes(self) -> int:
        """Lanes of a native vector."""
        return self.target.native_lanes(self.kind)

    def emit(self, b: LlvmBuilder) -> list[Phase]:
        """Choose tile, packing and tasks; emit everything."""
        problem = self.problem
        shape = choose_shape(problem.m, problem.n, self.kind, self.target, streamed=problem.m <= 8)
        width = shape.vectors * self.lanes
        large = problem.k * problem.n * self.right.size > PACK_ABOVE_BYTES
        tall = problem.m > PACK_ABOVE_ROWS or problem.k * width * self.right.size > TALL_PANEL_BYTES
        pack = not (problem.rhs.column == 1 or problem.n == 1) or (problem.m >= PACK_ABOVE_ROWS and large and tall)
        pack = pack or (not self.right.is_native and problem.m > shape.rows)
        cut = self._cut(shape.rows, shape.vectors)
        panels = _Panels(self, shape.rows, width, pack, self._block_k(width) if pack else problem.k, *cut)
        return panels.emit(b)

    def _block_k(self, width: int) -> int:
        """Rows of one packed panel: equal blocks that fit the stack."""
        k = self.problem.k
        most = max(64, PANEL_BYTES // (width * KIND_BITS[self.kind] // 8) // 16 * 16)
        blocks = ceil_divide(k, most)
        return min(k, round_up(ceil_divide(k, blocks), 16))

    def _cut(self, rows: int, vectors: int) -> tuple[int, int]:
        """Tiles of rows, and panels, of one task."""
        problem = self.problem
        tiles = ceil_divide(problem.m, rows)
        panels = ceil_divide(problem.n, vectors * self.lanes)
        tile_cost = rows * vectors / 2 * problem.k * 0.27
        if tiles == 1:  # the panel is read from memory for it alone
            tile_cost = max(tile_cost, problem.k * vectors * self.lanes * self.right.size * NANOSECONDS_PER_BYTE)
        row_tiles = tiles if tiles <= ROW_TILES else ceil_divide(tiles, ceil_divide(tiles, ROW_TILES))
        total = tile_cost * tiles * panels * problem.batch_size
        per_task = max(TASK_NANOSECONDS, total / MAXIMUM_TASKS)
        group = max(1, min(panels, int(per_task / (tile_cost * row_tiles))))
        return row_tiles, ceil_divide(panels, ceil_divide(panels, group))


@dataclass(frozen=True, slots=True)
class _Panels:
    """A planned product: the tile's rows, the panel's columns, packing, and the cut into tasks."""

    plan: DotPanels
    rows: int
    width: int
    pack: bool
    block_k: int
    row_tiles: int
    group: int

    def emit(self, b: LlvmBuilder) -> list[Phase]:
        """Emit micro-kernels, panels and the task loop."""
        plan, problem = self.plan, self.plan.problem
        result, out = plan.result, plan.result_at
        resumes = self.block_k < problem.k
        widen = resumes and not result.is_native
        if widen:
            result = dense(plan.kind)
            out = WORKSPACE, plan.reserve(problem.batch_size * problem.m * problem.n * result.size)
        width = self.width
        whole, rest = divmod(problem.n, width)
        functions = {
            columns: self._panel(b, f"{plan.symbol}.p{columns}", columns, result, resumes)
            for columns in ([width] if whole else []) + ([rest] if rest else [])
        }
        tiles = ceil_divide(problem.m, self.rows)
        blocks = ceil_divide(tiles, self.row_tiles)
        groups = ceil_divide(whole + (rest > 0), self.group)
        extents = [*problem.batch, blocks, groups]
        tasks = problem.batch_size * blocks * groups
        with b.function(plan.symbol, PARAMETERS) as (_, buffers, begin, end):
            a_base, b_base, c_base = (
                at(b, buffer(b, buffers, place[0]), place[1]) for place in (plan.left_at, plan.right_at, out)
            )
            loop = b.begin_loop(begin, end)
            *batch, block, group = unflatten(b, loop.index, extents)
            steps = dense_steps(problem.batch, problem.m * problem.n)
            first_tile = scaled(b, block, self.row_tiles)
            first_row = scaled(b, first_tile, self.rows)
            a = at(b, a_base, self._offset(b, batch, problem.lhs.batch, first_row, problem.lhs.row, plan.left.size))
            right = at(b, b_base, dot_product(b, batch, [s * plan.right.size for s in problem.rhs.batch]))
            c = at(b, c_base, self._offset(b, batch, steps, first_row, problem.n, result.size))
            whole_tiles = b.sub(
                minimum(b, literal(problem.m // self.rows), b.add(first_tile, literal(self.row_tiles))), first_tile
            )
            edge = b.icmp("eq", block, literal(blocks - 1)) if problem.m % self.rows else Val("false", "i1")
            if whole:
                first_panel = scaled(b, group, self.group)
                last_panel = minimum(b, literal(whole), b.add(first_panel, literal(self.group)))
                panel = b.begin_loop(first_panel, last_panel)
                columns = scaled(b, panel.index, width)
                self._call_panel(b, functions[width], a, right, c, columns, whole_tiles, edge, result)
                b.end_loop(panel)
            if rest:
                last, done = b.fresh_label("edge"), b.fresh_label("next")
                b.branch_if(b.icmp("eq", group, literal(groups - 1)), last, done)
                b.begin_block(last)
                self._call_panel(b, functions[rest], a, right, c, literal(whole * width), whole_tiles, edge, result)
                b.branch(done)
                b.begin_block(done)
            b.end_loop(loop)
        cost = problem.macs / tasks / (2 * plan.lanes) * 0.27
        memory = problem.k * problem.n * problem.batch_size * plan.right.size / tasks * NANOSECONDS_PER_BYTE
        phases = [Phase(plan.symbol, tasks, max(cost, memory) + 10)]
        if widen:
            phases.append(self._narrow(b, out))
        return phases

    @staticmethod
    def _offset(b: LlvmBuilder, batch: list[Val], steps: Sequence[int], row: Val, step: int, size: int) -> Val:
        return dot_product(b, [*batch, row], [*(s * size for s in steps), step * size])

    def _call_panel(
        self,
        b: LlvmBuilder,
        function: str,
        a: Val,
        right: Val,
        c: Val,
        column: Val,
        tiles: Val,
        edge: Val,
        result: Elements,
    ) -> None:
        plan = self.plan
        right = at(b, right, scaled(b, column, plan.problem.rhs.column * plan.right.size))
        c = at(b, c, scaled(b, column, result.size))
        b.line(f"call void @{function}(ptr {a.text}, ptr {right.text}, ptr {c.text}, i64 {tiles.text}, i1 {edge.text})")

    def _tiles(
        self, b: LlvmBuilder, symbol: str, columns: int, result: Elements, resumes: bool
    ) -> tuple[Tile, PanelPack]:
        """Emit the micro-kernels of one panel, and what packs it."""
        plan, problem = self.plan, self.plan.problem
        parts = segments_of(columns, plan.lanes)
        step_k, step_column = problem.rhs.row * plan.right.size, problem.rhs.column * plan.right.size
        pack = PanelPack(f"{symbol}.pack", plan.right, parts, step_k, step_column, plan.lanes)
        right = Side(plan.right, 0, step_k)
        if self.pack:
            pack.emit(b)
            parts = tuple(replace(part, count=part.lanes) for part in parts)
            right = Side(dense(plan.kind), 0, pack.row_bytes)
        left = Side(plan.left, problem.lhs.row * plan.left.size, problem.lhs.column * plan.left.size)
        prefetch = 0 if self.pack or step_k * problem.k < 32768 else PREFETCH_ROWS
        out = Side(result, problem.n * result.size, 0)
        existing = segments_of(columns, plan.lanes) if self.pack else None
        tile = Tile(
            f"{symbol}.tile",
            plan.arithmetic,
            self.rows,
            parts,
            left,
            right,
            out,
            resumes,
            prefetch,
            out_segments=existing,
        )
        if problem.m >= self.rows:
            tile.emit(b)
        if problem.m % self.rows:
            self._edge(tile).emit(b)
        return tile, pack

    def _edge(self, tile: Tile) -> Tile:
        """The tile of the last rows."""
        return replace(tile, rows=self.plan.problem.m % self.rows, symbol=tile.symbol.replace(".tile", ".edge"))

    def _panel(self, b: LlvmBuilder, symbol: str, columns: int, result: Elements, resumes: bool) -> str:
        """Emit ``void symbol(ptr a, ptr b, ptr c, i64 tiles, i1 edge)``: one panel, all k, some tiles of rows."""
        problem = self.plan.problem
        tile, pack = self._tiles(b, symbol, columns, result, resumes)
        edge_tile, left, out = self._edge(tile), tile.a, tile.c
        parameters = [("ptr", "a"), ("ptr", "b"), ("ptr", "c"), ("i64", "tiles"), ("i1", "edge")]
        with b.function(symbol, parameters, attributes="nounwind noinline", linkage="internal") as (
            a,
            source,
            c,
            tiles,
            edge,
        ):
            panel = source
            if self.pack:
                panel = b.emit("ptr", 1, f"alloca i8, i64 {self.block_k * pack.row_bytes}, align 64")
            loop = b.begin_loop(ZERO, literal(problem.k), self.block_k)
            k = (
                minimum(b, b.sub(literal(problem.k), loop.index), literal(self.block_k))
                if resumes
                else literal(problem.k)
            )
            resume = b.icmp("ne", loop.index, ZERO) if resumes else Val("false", "i1")
            block = at(b, source, scaled(b, loop.index, pack.step_k))
            if self.pack:
                pack.call(b, block, panel, k)
                block = panel
            left_block = at(b, a, scaled(b, loop.index, left.step_k))
            if problem.m >= self.rows:
                rows = b.begin_loop(ZERO, tiles)
                tile.call(
                    b,
                    at(b, left_block, scaled(b, rows.index, self.rows * left.step_row)),
                    block,
                    at(b, c, scaled(b, rows.index, self.rows * out.step_row)),
                    k,
                    resume,
                )
                b.end_loop(rows)
            if edge_tile.rows:
                then, done = b.fresh_label("edge"), b.fresh_label("next")
                b.branch_if(edge, then, done)
                b.begin_block(then)
                edge_tile.call(
                    b,
                    at(b, left_block, scaled(b, tiles, self.rows * left.step_row)),
                    block,
                    at(b, c, scaled(b, tiles, self.rows * out.step_row)),
                    k,
                    resume,
                )
                b.branch(done)
                b.begin_block(done)
            b.end_loop(loop)
        return symbol

    def _narrow(self, b: LlvmBuilder, place: Place) -> Phase:
        """Round the sums, which were kept in workspace between blocks of k, into the result."""
        plan, problem = self.plan, self.plan.problem
        stored, sums, lanes = plan.result, dense(plan.kind), plan.lanes
        count = problem.batch_size * problem.m * problem.n
        chunk = 16384
        with b.function(f"{plan.symbol}.round", PARAMETERS) as (_, buffers, begin, end):
            source, out = (at(b, buffer(b, buffers, at_[0]), at_[1]) for at_ in (place, plan.result_at))
            last = minimum(b, scaled(b, end, chunk), literal(count))
            first = scaled(b, begin, chunk)
            whole = b.sub(last, b.and_(b.sub(last, first), literal(lanes - 1)))
            for start, stop, step in ((first, whole, lanes), (whole, last, 1)):
                loop = b.begin_loop(start, stop, step)
                value = sums.load(b, at(b, source, scaled(b, loop.index, sums.size)), step)
                stored.store(b, value, at(b, out, scaled(b, loop.index, stored.size)))
                b.end_loop(loop)
        return Phase(f"{plan.symbol}.round", ceil_divide(count, chunk), chunk * 0.1)

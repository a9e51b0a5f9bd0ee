"""Products by panels: tiles of rows x vectors of columns, blocks of k, the right operand in place or packed.

A task is one block of rows against a group of panels of one batch element.  ``blocking`` chooses whether a panel is read
in place or packed on the task's stack, and in how many blocks of k; the sums continue from one block to the next in the
result (or in workspace, where the result is narrower than the sums).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, buffer, dot_product, literal, minimum, unflatten
from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.cpu.kernels.dot_outputs import WORKSPACE, InMemory, InScratch, Output, Place, Scratch
from hlojit.cpu.kernels.packing import CopyKernel, PanelPack
from hlojit.cpu.kernels.tiles import Side, Tile, segments_of
from hlojit.ir.formats import element_type
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.epilogue import Epilogue
from hlojit.llvm.product_elements import Elements, at, passed, prefetch, scaled
from hlojit.lowering.copy_plan import VECTOR_CYCLES, divide_rows
from hlojit.lowering.dot_blocking import PREFETCH_QUADS, PREFETCH_ROWS, STACK_BYTES, Blocking, Panels, is_cuttable
from hlojit.lowering.dot_problem import Axis, Copy, DotProblem, Matrix, ceil_divide, dense_steps, round_up
from hlojit.lowering.dot_tiles import FEW_TERMS, TALLEST_TILE, Shape, choose_shape
from hlojit.lowering.kernel import Phase
from hlojit.lowering.loop_plan import CALL_CYCLES
from hlojit.lowering.target import KIND_BITS, Target


def dense(kind: str) -> Elements:
    """Elements whose memory is the compute kind itself."""
    return Elements(element_type(kind), kind)


DETOUR = 8
"""Times that an operand which a loop computes in front of a product could be read while it is written, waited for and read."""


def _shape(problem: DotProblem, right: Elements, target: Target) -> tuple[Shape, bool]:
    """The tile, and whether its sums are interleaved."""
    interleaves = problem.k > FEW_TERMS and not is_cuttable(problem, is_native=right.is_native)
    streamed = problem.m <= TALLEST_TILE
    shape = choose_shape(problem.m, problem.n, right.compute, target, streamed=streamed, interleaves=interleaves)
    return shape, interleaves


def can_compute_right(problem: DotProblem, right: Elements, target: Target) -> bool:
    """Whether the right operand can be computed where it is read: once for few rows, and into a panel that fits for many."""
    if is_cuttable(problem, is_native=right.is_native):
        return True
    if problem.m <= TALLEST_TILE and problem.rhs.column == 1:
        return True
    width = _shape(problem, right, target)[0].vectors * target.native_lanes(right.compute)
    return problem.k * width * KIND_BITS[right.compute] // 8 <= STACK_BYTES


def pays_to_compute(problem: DotProblem, right: Elements, target: Target) -> bool:
    """Whether computing the right operand again for each block of rows takes less than its way through memory would."""
    machine, unit = target.machine, KIND_BITS[right.compute] // 8
    shape, _ = _shape(problem, right, target)
    panels = _panels(problem, right, target, shape, result_is_native=True)
    tiles = ceil_divide(problem.m, shape.rows)
    again = ceil_divide(tiles, panels.row_tiles(panels.choose().block_k)) - 1
    nbytes = problem.k * problem.n * problem.batch_size * unit
    level = sum(nbytes > cache.size for cache in machine.caches)
    return again * right.nanoseconds <= machine.nanoseconds(DETOUR * unit / machine.bandwidth(level))


def _panels(problem: DotProblem, right: Elements, target: Target, shape: Shape, *, result_is_native: bool) -> Panels:
    return Panels(
        problem,
        target.machine,
        shape.rows,
        shape.vectors,
        shape.vectors * target.native_lanes(right.compute),
        right.size,
        KIND_BITS[right.compute] // 8,
        right.is_native,
        result_is_native,
        right.is_computed,
    )


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
    epilogue: Epilogue | None = None
    """What takes the sums, box by box; then nothing is written to ``result_at``."""

    @property
    def kind(self) -> str:
        """The compute kind."""
        return self.left.compute

    @property
    def lanes(self) -> int:
        """Lanes of a native vector."""
        return self.target.native_lanes(self.kind)

    def emit(self, b: LlvmBuilder) -> list[Phase]:
        """Choose tile, blocking and tasks; emit everything."""
        problem = self.problem
        shape, interleaves = _shape(problem, self.right, self.target)
        width = shape.vectors * self.lanes
        panels = _panels(problem, self.right, self.target, shape, result_is_native=self.result.is_native)
        blocking = panels.choose()
        phases: list[Phase] = []
        plan = self
        if blocking.copies_rows:
            plan = self._with_padded_rows(b, phases)
        cut = self._cut(shape.rows, shape.vectors, panels.row_tiles(blocking.block_k))
        phases += _Panels(plan, shape.rows, width, blocking, interleaves, *cut).emit(b)
        return phases

    def _with_padded_rows(self, b: LlvmBuilder, phases: list[Phase]) -> DotPanels:
        """Copy the left operand, its rows an odd number of cache lines apart."""
        problem, unit = self.problem, KIND_BITS[self.kind] // 8
        line = self.target.machine.first.line
        lines = ceil_divide(problem.k * unit, line)
        row = (lines + 1 - lines % 2) * line // unit
        lhs = problem.lhs
        axes = zip([*problem.batch, problem.m, problem.k], [*lhs.batch, lhs.row, lhs.column])
        copy = Copy(tuple(Axis(extent, (step,)) for extent, step in axes))
        offset = self.reserve(problem.batch_size * problem.m * row * unit)
        kernel = CopyKernel(
            f"{self.symbol}.rows",
            copy,
            self.left,
            self.left_at[0],
            WORKSPACE,
            offset,
            source_offset=self.left_at[1],
            padding=(row - problem.k) * unit,
        )
        phases.append(kernel.emit(b, self.target))
        steps = tuple(dense_steps(problem.batch, problem.m * row))
        problem = replace(problem, lhs=Matrix(steps, row, 1))
        return replace(self, problem=problem, left=dense(self.kind), left_at=(WORKSPACE, offset))

    def _cut(self, rows: int, vectors: int, row_tiles: int) -> tuple[int, int]:
        """Tiles of rows, and panels, of one task."""
        problem, machine = self.problem, self.target.machine
        tiles = ceil_divide(problem.m, rows)
        panels = ceil_divide(problem.n, vectors * self.lanes)
        tile_cost = problem.k * self.nanoseconds(rows * vectors)
        computed = problem.k * vectors * self.lanes * self.right.nanoseconds
        tile_cost += computed / min(tiles, row_tiles)
        if tiles == 1:  # the panel is read from memory for it alone
            nbytes = problem.k * vectors * self.lanes * self.right.size * len(self.right.rows)
            tile_cost = max(tile_cost, nbytes / machine.memory_bandwidth)
        total = tile_cost * tiles * panels * problem.batch_size
        per_task = max(machine.task_nanoseconds, total / machine.most_tasks)
        group = max(1, min(panels, int(per_task / (tile_cost * row_tiles))))
        return row_tiles, ceil_divide(panels, ceil_divide(panels, group))

    def nanoseconds(self, vectors: float) -> float:
        """Estimated time of multiply-adds of whole vectors."""
        return self.target.machine.product_nanoseconds(vectors)


@dataclass(frozen=True, slots=True)
class _Panels:
    """A planned product: the tile's rows, the panel's columns, packing, and the cut into tasks."""

    plan: DotPanels
    rows: int
    width: int
    blocking: Blocking
    interleaves: bool
    row_tiles: int
    group: int

    @property
    def block_k(self) -> int:
        """Steps of k in a block."""
        return self.blocking.block_k

    @property
    def pack(self) -> bool:
        """Whether panels are packed."""
        return self.blocking.packs

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
        tiles = ceil_divide(problem.m, self.rows)
        blocks = ceil_divide(tiles, self.row_tiles)
        groups = ceil_divide(whole + (rest > 0), self.group)
        extents = [*problem.batch, blocks, groups]
        tasks = problem.batch_size * blocks * groups
        output: Output = InMemory(result, out, problem)
        if plan.epilogue is not None:
            # Sums that a later block of k goes on with are kept for all rows of a task.
            box = (self.row_tiles if resumes else 1) * self.rows * width * result.size
            scratch = Scratch.of(box, tasks, WORKSPACE, plan.reserve)
            output = InScratch(result, problem, plan.epilogue, width, scratch, resumes)
        functions = {
            columns: self._panel(b, f"{plan.symbol}.p{columns}", columns, output, resumes)
            for columns in ([width] if whole else []) + ([rest] if rest else [])
        }
        with b.function(plan.symbol, PARAMETERS, outer=True) as (_, buffers, begin, end):
            a_base, b_base = (at(b, buffer(b, buffers, place[0]), place[1]) for place in (plan.left_at, plan.right_at))
            c_base, sources = output.begin(b, buffers), plan.right.arguments(b, buffers)
            loop = b.begin_loop(begin, end)
            *batch, block, group = unflatten(b, loop.index, extents)
            first_tile = scaled(b, block, self.row_tiles)
            first_row = scaled(b, first_tile, self.rows)
            a = at(b, a_base, self._offset(b, batch, problem.lhs.batch, first_row, problem.lhs.row, plan.left.size))
            right = at(b, b_base, dot_product(b, batch, [s * plan.right.size for s in problem.rhs.batch]))
            c = output.of_task(b, c_base, loop.index, batch, first_row)
            whole_tiles = b.sub(
                minimum(b, literal(problem.m // self.rows), b.add(first_tile, literal(self.row_tiles))), first_tile
            )
            edge = b.icmp("eq", block, literal(blocks - 1)) if problem.m % self.rows else Val("false", "i1")

            there = (buffers, output.above(b, batch, first_row)) if isinstance(output, InScratch) else None

            def panel_at(column: Val, size: int) -> None:
                self._call_panel(b, functions[size], (a, right, c), output, column, (whole_tiles, edge), there, sources)

            if whole:
                first_panel = scaled(b, group, self.group)
                last_panel = minimum(b, literal(whole), b.add(first_panel, literal(self.group)))
                panel = b.begin_loop(first_panel, last_panel)
                panel_at(scaled(b, panel.index, width), width)
                b.end_loop(panel)
            if rest:
                last, done = b.fresh_label("edge"), b.fresh_label("next")
                b.branch_if(b.icmp("eq", group, literal(groups - 1)), last, done)
                b.begin_block(last)
                panel_at(literal(whole * width), rest)
                b.branch(done)
                b.begin_block(done)
            b.end_loop(loop)
        cost = plan.nanoseconds(problem.macs / tasks / plan.lanes)
        cost += problem.k * problem.n * problem.batch_size * blocks / tasks * plan.right.nanoseconds
        nbytes = problem.k * problem.n * problem.batch_size * plan.right.size * len(plan.right.rows)
        memory = nbytes / tasks / plan.target.machine.memory_bandwidth
        phases = [Phase(plan.symbol, tasks, max(cost, memory) + plan.target.machine.nanoseconds(CALL_CYCLES))]
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
        pointers: tuple[Val, Val, Val],
        output: Output,
        column: Val,
        rows: tuple[Val, Val],
        there: tuple[Val, Val] | None,
        sources: Sequence[Val],
    ) -> None:
        plan, (a, right, c), (tiles, edge) = self.plan, pointers, rows
        right = at(b, right, scaled(b, column, plan.problem.rhs.column * plan.right.size))
        c = output.at_column(b, c, column)
        behind = f", ptr {there[0].text}, i64 {there[1].text}, i64 {column.text}" if there is not None else ""
        b.line(
            f"call void @{function}(ptr {a.text}, ptr {right.text}, ptr {c.text}, i64 {tiles.text}, i1 {edge.text}"
            f"{behind}{passed(sources)})"
        )

    def _tiles(
        self, b: LlvmBuilder, symbol: str, columns: int, output: Output, resumes: bool
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
        is_near = step_k * problem.k < plan.target.machine.first.size
        ahead = PREFETCH_ROWS if len(plan.right.rows) == 1 else PREFETCH_QUADS
        prefetch = 0 if self.pack or is_near else ahead
        out = Side(output.elements, output.row_bytes, 0)
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
            self.interleaves,
            prefetch,
            out_segments=existing,
            edge_rows=problem.m % self.rows,
            line=plan.target.machine.first.line,
        )
        tile.emit(b)
        return tile, pack

    def _panel(self, b: LlvmBuilder, symbol: str, columns: int, output: Output, resumes: bool) -> str:
        """Emit ``void symbol(ptr a, ptr b, ptr c, i64 tiles, i1 edge)``: one panel, all k, some tiles of rows."""
        problem = self.plan.problem
        tile, pack = self._tiles(b, symbol, columns, output, resumes)
        left = tile.a
        parameters = [("ptr", "a"), ("ptr", "b"), ("ptr", "c"), ("i64", "tiles"), ("i1", "edge")]
        if isinstance(output, InScratch):
            parameters += [("ptr", "buffers"), ("i64", "row"), ("i64", "column")]
        parameters += self.plan.right.parameters
        with b.function(symbol, parameters, linkage="internal", outer=True) as (a, source, c, tiles, edge, *more):
            there, sources = (more[:3], more[3:]) if isinstance(output, InScratch) else ((), more)
            behind = () if self.pack else sources
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
                pack.call(b, block, panel, k, sources)
                block = panel
            left_block = at(b, a, scaled(b, loop.index, left.step_k))
            following = self._following(b, source, loop.index, pack, columns)
            if problem.m >= self.rows:
                rows = b.begin_loop(ZERO, tiles)
                if self.blocking.ahead:
                    self._fetch(b, following, rows.index, pack, columns)
                left_rows = at(b, left_block, scaled(b, rows.index, self.rows * left.step_row))
                sums = output.at_row(b, c, rows.index, self.rows)
                self._ahead(b, output, columns, (rows.index, self.rows), loop.index, there)
                tile.call(b, left_rows, block, sums, k, resume, sources=behind)
                self._finish(b, output, columns, sums, (rows.index, self.rows), loop.index, there)
                b.end_loop(rows)
            if tile.edge_rows:
                then, done = b.fresh_label("edge"), b.fresh_label("next")
                b.branch_if(edge, then, done)
                b.begin_block(then)
                left_rows = at(b, left_block, scaled(b, tiles, self.rows * left.step_row))
                sums = output.at_row(b, c, tiles, self.rows)
                tile.call(b, left_rows, block, sums, k, resume, edge=True, sources=behind)
                self._finish(b, output, columns, sums, (tiles, tile.edge_rows), loop.index, there)
                b.branch(done)
                b.begin_block(done)
            b.end_loop(loop)
        return symbol

    def _ahead(
        self, b: LlvmBuilder, output: Output, columns: int, rows: tuple[Val, int], k: Val, there: Sequence[Val]
    ) -> None:
        """Ask for what follows for a tile will want, before the last block of its sums is computed."""
        if isinstance(output, InScratch) and output.epilogue.streams:
            with self._in_last_block(b, output, k):
                low = b.add(there[1], scaled(b, rows[0], self.rows))
                output.ahead(b, columns, there[0], (low, b.add(low, literal(rows[1]))), there[2])

    @contextmanager
    def _in_last_block(self, b: LlvmBuilder, output: InScratch, k: Val) -> Iterator[None]:
        """What is emitted inside is done if the block from ``k`` on is the last."""
        labels = b.fresh_label("last"), b.fresh_label("summed")
        if output.keeps:
            b.branch_if(b.icmp("sge", b.add(k, literal(self.block_k)), literal(self.plan.problem.k)), *labels)
            b.begin_block(labels[0])
        yield
        if output.keeps:
            b.branch(labels[1])
            b.begin_block(labels[1])

    def _finish(
        self,
        b: LlvmBuilder,
        output: Output,
        columns: int,
        sums: Val,
        rows: tuple[Val, int],
        k: Val,
        there: Sequence[Val],
    ) -> None:
        """What follows for a tile (its number, its rows), once the block from ``k`` on is the last."""
        if not isinstance(output, InScratch):
            return
        buffers, row, column = there
        with self._in_last_block(b, output, k):
            low = b.add(row, scaled(b, rows[0], self.rows))
            output.finish(b, columns, buffers, sums, (low, b.add(low, literal(rows[1]))), column)

    def _following(self, b: LlvmBuilder, source: Val, start: Val, pack: PanelPack, columns: int) -> Val:
        """Where the block behind the one from ``start`` on begins: the next of k, or the first of the next panel."""
        if not self.blocking.ahead:
            return source
        after = b.add(start, literal(self.block_k))
        panel = at(b, source, columns * pack.step_column)
        return b.select(
            b.icmp("slt", after, literal(self.plan.problem.k)), at(b, source, scaled(b, after, pack.step_k)), panel
        )

    def _fetch(self, b: LlvmBuilder, block: Val, tile: Val, pack: PanelPack, columns: int) -> None:
        """Bring the part of the next block that falls to one tile of rows into the second-level cache."""
        line = self.plan.target.machine.first.line
        share = ceil_divide(self.block_k, max(1, min(self.row_tiles, self.plan.problem.m // self.rows)))
        first = scaled(b, tile, share)
        loop = b.begin_loop(first, minimum(b, b.add(first, literal(share)), literal(self.block_k)))
        row = at(b, block, scaled(b, loop.index, pack.step_k))
        for offset in range(0, columns * pack.step_column, line):
            prefetch(b, at(b, row, offset), level=2)
        b.end_loop(loop)

    def _narrow(self, b: LlvmBuilder, place: Place) -> Phase:
        """Round the sums, which were kept in workspace between blocks of k, into the result."""
        plan, problem = self.plan, self.plan.problem
        stored, sums, lanes = plan.result, dense(plan.kind), plan.lanes
        count = problem.batch_size * problem.m * problem.n
        work = divide_rows(count, 1, VECTOR_CYCLES, sums.size + stored.size, plan.target.machine)
        chunk = round_up(work.per_task, lanes)
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
        return Phase(f"{plan.symbol}.round", ceil_divide(count, chunk), work.cost)

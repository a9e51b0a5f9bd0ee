"""Products whose vectors run along k: rows of the left operand against rows of the (transposed) right one.

For matrix times vector, for few rows against weights stored with k innermost, and for few columns: nothing is packed,
every operand is read once in the order of memory.  A tile holds rows x columns x ``chains`` vector sums; at the end a
tree of shuffles and additions leaves the columns' sums in the lanes of one vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, buffer, dot_product, literal, minimum, unflatten
from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.cpu.kernels.dot_outputs import WORKSPACE, InMemory, InScratch, Output, Scratch
from hlojit.cpu.kernels.row_sums import add_across, row_offsets
from hlojit.ir.formats import element_type
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.epilogue import Epilogue
from hlojit.llvm.product_elements import Elements, at, constant_mask, passed, scaled, store_kind
from hlojit.lowering.dot_problem import DotProblem, ceil_divide, round_up
from hlojit.lowering.kernel import Phase
from hlojit.lowering.loop_plan import CALL_CYCLES
from hlojit.lowering.target import KIND_BITS, Target


def prefers_rows(problem: DotProblem, kind: str, target: Target) -> bool:
    """Whether vectors along k beat panels: the cost of the final tree against that of packing (or of idle lanes)."""
    lanes = target.native_lanes(kind)
    if problem.k < 2 * lanes:
        return False
    if problem.rhs.row == 1 and problem.rhs.column != 1 and problem.n > 1:
        return problem.m <= 2 or problem.k >= 8 * problem.m
    if problem.m == 1 and problem.n == 1:
        return True
    return problem.n * 2 <= lanes and problem.lhs.column == 1 and problem.k >= 4 * lanes and problem.m > problem.n


@dataclass(frozen=True, slots=True)
class RowTile:
    """``void symbol(ptr a, ptr b, ptr c)``: ``rows`` x ``columns`` results, each a sum over all of k."""

    symbol: str
    arithmetic: Arithmetic
    rows: int
    columns: int
    k: int
    lanes: int
    a: Elements
    b: Elements
    c: Elements
    a_row: int
    b_row: int
    c_row: int
    """Byte steps between rows of a and of c, and between columns (rows of the transposed right operand)."""

    @property
    def chains(self) -> int:
        """Vectors of k that are summed apart, to hide the latency of the addition."""
        return max(1, min(8 // (self.rows * self.columns), self.k // self.lanes))

    def emit(self, b: LlvmBuilder) -> None:
        """Emit the function."""
        parameters = [("ptr", "a"), ("ptr", "b"), ("ptr", "c"), *self.b.parameters]
        with b.function(self.symbol, parameters, attributes="nounwind noinline", linkage="internal") as values:
            a, right, c, *sources = values
            self.b.begin(b, sources)
            lanes, chains = self.lanes, self.chains
            zero = b.splat(self.arithmetic.zero, lanes)
            count = self.rows * self.columns
            vectors = self._vectors(chains)
            step = lanes * vectors
            whole = self.k // step * step
            sums = [zero] * (count * chains)
            line = self.b.line_of(b, right)
            if whole:
                loop = b.begin_loop(ZERO, literal(whole), step, [a, right, *sums])
                a_k, b_k, *carried = loop.carried
                carried = self._steps(b, a_k, b_k, (line, loop.index), vectors, carried)
                following = [at(b, a_k, step * self.a.size), at(b, b_k, step * self.b.size)]
                sums = list(b.end_loop(loop, [*following, *carried]))[2:]
            for position in range(whole, self.k, lanes):
                chain = (position - whole) // lanes % chains
                mask = constant_mask(self.k - position, lanes)
                columns = self._columns(b, right, (line, ZERO), position, 1, mask)[0]
                part = self._step(b, a, columns, position, sums[chain * count : (chain + 1) * count], mask)
                sums[chain * count : (chain + 1) * count] = part
            while len(sums) > count:
                groups = len(sums) // count
                keep = ceil_divide(groups, 2)
                sums = [
                    self.arithmetic.add(b, sums[i], sums[i + keep * count]) if i // count + keep < groups else sums[i]
                    for i in range(keep * count)
                ]
            offsets = row_offsets(b, self.arithmetic, self.a, a, self.a_row, self.rows, literal(self.k))
            self._store(b, c, sums, zero, offsets)

    def _vectors(self, chains: int) -> int:
        """Vectors of k in a turn of the loop: one for each chain, or as many as are computed at once."""
        widest = self.b.widest(self.lanes) // self.lanes
        return max(widest, chains) if max(widest, chains) % min(widest, chains) == 0 else chains

    def _steps(
        self, b: LlvmBuilder, a: Val, right: Val, place: tuple[Val, Val], vectors: int, sums: Sequence[Val]
    ) -> list[Val]:
        """A turn of the loop: vectors go to the chains by turns."""
        count, result = self.rows * self.columns, list(sums)
        at_once = min(vectors, self.b.widest(self.lanes) // self.lanes)
        if vectors % at_once:
            at_once = 1
        for first in range(0, vectors, at_once):
            pieces = self._columns(b, right, place, first * self.lanes, at_once, None)
            for number, columns in enumerate(pieces, first):
                chain = slice(number % self.chains * count, (number % self.chains + 1) * count)
                result[chain] = self._step(b, a, columns, number * self.lanes, result[chain], None)
        return result

    def _columns(
        self, b: LlvmBuilder, right: Val, place: tuple[Val, Val], position: int, vectors: int, mask: Val | None
    ) -> Sequence[Iterable[Val]]:
        """Vectors of k of every column, those of one place together; ``right`` is at a place: its line, and where in it."""
        if vectors == 1:
            return [(self._load(b, right, place, column, position, 1, mask) for column in range(self.columns))]
        lanes, found = self.lanes, []
        for column in range(self.columns):
            wide = self._load(b, right, place, column, position, vectors, mask)
            found.append([b.shuffled(wide, wide, range(part * lanes, (part + 1) * lanes)) for part in range(vectors)])
        return list(zip(*found))

    def _load(
        self,
        b: LlvmBuilder,
        right: Val,
        place: tuple[Val, Val],
        column: int,
        position: int,
        vectors: int,
        mask: Val | None,
    ) -> Val:
        pointer = at(b, right, column * self.b_row + position * self.b.size)
        if not self.b.is_computed:
            return self.b.load(b, pointer, self.lanes * vectors, mask)
        line = b.add(place[0], literal(self.b.lines(column * self.b_row)))
        return self.b.load_in_line(b, pointer, line, b.add(place[1], literal(position)), self.lanes * vectors, mask)

    def _step(
        self, b: LlvmBuilder, a: Val, columns: Iterable[Val], position: int, sums: Sequence[Val], mask: Val | None
    ) -> list[Val]:
        """One vector of k for every row and column."""
        left = [
            self.a.load(b, at(b, a, row * self.a_row + position * self.a.size), self.lanes, mask)
            for row in range(self.rows)
        ]
        result = list(sums)
        for column, vector in enumerate(columns):
            for row in range(self.rows):
                place = row * self.columns + column
                result[place] = self.arithmetic.multiply_add(b, left[row], vector, result[place])
        return result

    def _store(self, b: LlvmBuilder, c: Val, sums: Sequence[Val], zero: Val, offsets: Sequence[Val]) -> None:
        """Add across lanes and write: the hook for a fused epilogue."""
        padded = 1 << (self.columns - 1).bit_length()
        for row in range(self.rows):
            vectors = [*sums[row * self.columns : (row + 1) * self.columns], *[zero] * (padded - self.columns)]
            total = add_across(b, self.arithmetic, vectors)
            if offsets:
                total = b.add(total, b.splat(offsets[row], padded))
            self.c.store(b, total, at(b, c, row * self.c_row), constant_mask(self.columns, padded))

    def call(self, b: LlvmBuilder, a: Val, right: Val, c: Val, sources: Sequence[Val]) -> None:
        """Emit a call."""
        b.line(f"call void @{self.symbol}(ptr {a.text}, ptr {right.text}, ptr {c.text}{passed(sources)})")


@dataclass(frozen=True, slots=True)
class RowPack:
    """``void symbol(ptr source, ptr panel, i64 columns, ...)``: computes columns of the right operand, for several tiles."""

    symbol: str
    elements: Elements
    k: int
    lanes: int
    step: int
    """Bytes between columns in memory."""

    @property
    def column_bytes(self) -> int:
        """Bytes between columns of the panel."""
        return round_up(self.k, self.lanes) * KIND_BITS[self.elements.compute] // 8

    def emit(self, b: LlvmBuilder) -> None:
        """Emit the function."""
        parameters = [("ptr", "source"), ("ptr", "panel"), ("i64", "columns"), *self.elements.parameters]
        with b.function(self.symbol, parameters, attributes="nounwind noinline", linkage="internal") as values:
            source, panel, columns, *sources = values
            self.elements.begin(b, sources)
            whole, unit = self.k // self.lanes * self.lanes, KIND_BITS[self.elements.compute] // 8
            outer = b.begin_loop(ZERO, columns)
            column = at(b, source, scaled(b, outer.index, self.step))
            out = at(b, panel, scaled(b, outer.index, self.column_bytes))
            loop = b.begin_loop(ZERO, literal(whole), self.lanes)
            value = self.elements.load(b, at(b, column, scaled(b, loop.index, self.elements.size)), self.lanes)
            store_kind(b, value, at(b, out, scaled(b, loop.index, unit)))
            b.end_loop(loop)
            if whole < self.k:
                mask = constant_mask(self.k - whole, self.lanes)
                value = self.elements.load(b, at(b, column, whole * self.elements.size), self.lanes, mask)
                store_kind(b, value, at(b, out, whole * unit))
            b.end_loop(outer)

    def call(self, b: LlvmBuilder, source: Val, panel: Val, columns: int, sources: Sequence[Val]) -> None:
        """Emit a call."""
        b.line(f"call void @{self.symbol}(ptr {source.text}, ptr {panel.text}, i64 {columns}{passed(sources)})")


def can_compute_columns(problem: DotProblem, right: Elements, target: Target) -> bool:
    """Whether columns of the right operand can be computed for a tile: once, or into memory that stays near."""
    lanes = target.native_lanes(right.compute)
    rows, columns = _tile_shape(problem.m, problem.n, lanes, target.vector_registers)
    nbytes = columns * round_up(problem.k, lanes) * KIND_BITS[right.compute] // 8
    return problem.m <= rows or nbytes <= target.machine.second.size // 2


def _tile_shape(rows: int, columns: int, lanes: int, registers: int) -> tuple[int, int]:
    """Rows and columns of a tile: all in registers, columns a power of two no larger than a vector has lanes."""
    r = min(rows, 4 if registers >= 32 else 2)
    c = 8 if r == 1 else 4
    c = min(c, lanes, 1 << (columns - 1).bit_length())
    return r, max(1, c)


def _from(b: LlvmBuilder, corner: Val, index: Val) -> Val:
    return index if corner.is_literal else b.sub(index, corner)


class _Cut(NamedTuple):
    """How a product is cut into tasks."""

    tile: tuple[int, int]
    rows: int
    """Of a task, as are the columns."""
    columns: int
    blocks: int
    """Tasks along rows, and along columns."""
    groups: int
    tasks: int
    nanoseconds: float
    """Of all of them."""


@dataclass(frozen=True, slots=True)
class DotRows:
    """The launch of a product in this form; the operands' k must be neighbours in memory."""

    symbol: str
    problem: DotProblem
    arithmetic: Arithmetic
    target: Target
    left: Elements
    left_at: tuple[int, int]
    right: Elements
    right_at: tuple[int, int]
    result: Elements
    result_at: tuple[int, int]
    reserve: Callable[[int], int]
    epilogue: Epilogue | None = None
    """What takes the sums, box by box; then nothing is written to ``result_at``."""

    def emit(self, b: LlvmBuilder) -> Phase:
        """Emit tiles and the task loop."""
        problem, lanes = self.problem, self.target.native_lanes(self.arithmetic.kind)
        cut = self._cut(lanes)
        r, c = cut.tile
        output = self._output(cut.rows, cut.columns, cut.tasks)
        pack = self._pack(b, ceil_divide(problem.m, r), lanes)
        scratch = None if pack is None else Scratch.of(c * pack.column_bytes, cut.tasks, WORKSPACE, self.reserve)
        tiles = self._tiles(b, cut.tile, lanes, pack, output.row_bytes)
        sizes = [min(cut.columns, problem.n), problem.n - (cut.groups - 1) * cut.columns]
        with b.function(self.symbol, PARAMETERS, outer=True) as (_, buffers, begin, end):
            a, right = (at(b, buffer(b, buffers, place[0]), place[1]) for place in (self.left_at, self.right_at))
            base, sources = output.begin(b, buffers), self.right.arguments(b, buffers)
            panels = scratch.begin(b, buffers) if scratch is not None else ZERO
            loop = b.begin_loop(begin, end)
            panel = (pack, scratch.of_task(b, panels, loop.index)) if pack is not None and scratch is not None else None
            *batch, row_block, group_index = unflatten(b, loop.index, [*problem.batch, cut.blocks, cut.groups])
            a = at(b, a, dot_product(b, batch, [s * self.left.size for s in problem.lhs.batch]))
            right = at(b, right, dot_product(b, batch, [s * self.right.size for s in problem.rhs.batch]))
            out = output.of_task(b, base, loop.index, batch, ZERO)
            first = scaled(b, group_index, cut.columns)
            last = minimum(b, b.add(first, literal(cut.columns)), literal(problem.n))
            low = scaled(b, row_block, cut.rows)
            high = minimum(b, b.add(low, literal(cut.rows)), literal(problem.m))
            corner = (low, first) if isinstance(output, InScratch) else (ZERO, ZERO)
            self._columns(b, tiles, cut.tile, (a, right, out), (low, high), (first, last), corner, sources, panel)
            if isinstance(output, InScratch):
                is_last = b.icmp("eq", group_index, literal(cut.groups - 1))
                rows = output.above(b, batch, low), output.above(b, batch, high)
                self._finish(b, output, sizes, is_last, (buffers, out), rows, first)
            b.end_loop(loop)
        return Phase(self.symbol, cut.tasks, cut.nanoseconds / cut.tasks)

    def _cut(self, lanes: int) -> _Cut:
        problem, machine = self.problem, self.target.machine
        r, c = _tile_shape(problem.m, problem.n, lanes, self.target.vector_registers)
        c = min(c, problem.n)
        column_tiles, row_tiles = ceil_divide(problem.n, c), ceil_divide(problem.m, r)
        # Vectors along k are for few rows: a task takes no more tiles of them than this, and as many columns as fill it.
        block = min(row_tiles, 32)
        loads = c * lanes * self.right.size / (machine.first.bandwidth * machine.gigahertz)
        cost = max(machine.product_nanoseconds(r * c), loads) * problem.k / lanes + machine.nanoseconds(CALL_CYCLES)
        cost += problem.k * c * self.right.nanoseconds / block
        total = cost * row_tiles * column_tiles * problem.batch_size
        per_task = max(machine.task_nanoseconds, total / machine.most_tasks)
        group = max(1, min(column_tiles, int(per_task / (cost * block))))
        blocks, groups = ceil_divide(row_tiles, block), ceil_divide(column_tiles, group)
        return _Cut((r, c), block * r, group * c, blocks, groups, problem.batch_size * blocks * groups, total)

    def _tiles(
        self, b: LlvmBuilder, tile: tuple[int, int], lanes: int, pack: RowPack | None, row_bytes: int
    ) -> dict[tuple[int, int], RowTile]:
        """The functions of tiles, those at the edges included, by their rows and columns."""
        (r, c), problem = tile, self.problem
        full = RowTile(
            f"{self.symbol}.tile",
            self.arithmetic,
            r,
            c,
            problem.k,
            lanes,
            self.left,
            self.right if pack is None else Elements(element_type(self.right.compute), self.right.compute),
            self.result,
            problem.lhs.row * self.left.size,
            problem.rhs.column * self.right.size if pack is None else pack.column_bytes,
            row_bytes,
        )
        tiles = {
            (rows, columns): replace(full, rows=rows, columns=columns, symbol=f"{self.symbol}.tile.{rows}x{columns}")
            for rows in {r, problem.m % r} - {0}
            for columns in {c, problem.n % c} - {0}
        }
        for each in tiles.values():
            each.emit(b)
        return tiles

    def _pack(self, b: LlvmBuilder, row_tiles: int, lanes: int) -> RowPack | None:
        """What computes the columns of a tile for several tiles of rows, if they are computed."""
        if not self.right.is_computed or row_tiles == 1:
            return None
        step = self.problem.rhs.column * self.right.size
        pack = RowPack(f"{self.symbol}.columns", self.right, self.problem.k, lanes, step)
        pack.emit(b)
        return pack

    def _output(self, rows: int, columns: int, tasks: int) -> Output:
        """Where tasks of so many rows and columns write."""
        if self.epilogue is None:
            return InMemory(self.result, self.result_at, self.problem)
        columns = min(columns, self.problem.n)
        scratch = Scratch.of(rows * columns * self.result.size, tasks, WORKSPACE, self.reserve)
        return InScratch(self.result, self.problem, self.epilogue, columns, scratch, True)

    @staticmethod
    def _finish(
        b: LlvmBuilder,
        output: InScratch,
        sizes: list[int],
        is_last: Val,
        pointers: tuple[Val, Val],
        rows: tuple[Val, Val],
        column: Val,
    ) -> None:
        """What follows for a task's box: of ``sizes`` columns, the second one in the last group."""
        if sizes[0] == sizes[1]:
            output.finish(b, sizes[0], *pointers, rows, column)
            return
        labels = b.fresh_label("rest"), b.fresh_label("whole"), b.fresh_label("next")
        b.branch_if(is_last, labels[0], labels[1])
        for label, size in zip(labels, reversed(sizes)):
            b.begin_block(label)
            output.finish(b, size, *pointers, rows, column)
            b.branch(labels[2])
        b.begin_block(labels[2])

    def _columns(
        self,
        b: LlvmBuilder,
        tiles: dict[tuple[int, int], RowTile],
        shape: tuple[int, int],
        pointers: tuple[Val, Val, Val],
        rows_of_block: tuple[Val, Val],
        columns_of_group: tuple[Val, Val],
        corner: tuple[Val, Val],
        sources: Sequence[Val],
        panel: tuple[RowPack, Val] | None,
    ) -> None:
        """Tiles of columns from ``first`` to ``last``, each against the block's rows; results count from ``corner``."""
        problem, (r, c) = self.problem, shape
        (low, high), (first, last) = rows_of_block, columns_of_group
        step = tiles[r, c].c_row
        n_full, m_full = problem.n // c * c, problem.m // r * r
        for columns in (c, problem.n % c):
            if not columns:
                continue
            if columns == c:
                loop = b.begin_loop(first, minimum(b, last, literal(n_full)), c)
            else:
                loop = b.begin_loop(b.intrinsic("smax", first, literal(n_full)), last, c)
            right = at(b, pointers[1], scaled(b, loop.index, problem.rhs.column * self.right.size))
            if panel is not None:
                panel[0].call(b, right, panel[1], columns, sources)
                right = panel[1]
            behind = sources if panel is None else ()
            for rows in (r, problem.m % r):
                if not rows:
                    continue
                start = low if rows == r else b.intrinsic("smax", low, literal(m_full))
                row = b.begin_loop(start, minimum(b, high, literal(m_full)) if rows == r else high, r)
                a = at(b, pointers[0], scaled(b, row.index, problem.lhs.row * self.left.size))
                place = dot_product(
                    b, [_from(b, corner[0], row.index), _from(b, corner[1], loop.index)], [step, self.result.size]
                )
                tiles[rows, columns].call(b, a, right, at(b, pointers[2], place), behind)
                b.end_loop(row)
            b.end_loop(loop)

"""The loops around the micro-kernel of a convolution: tasks, panels, taps beyond the cache, output rows, tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, buffer, dot_product, literal, minimum, unflatten
from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.cpu.kernels.dot_outputs import WORKSPACE, Scratch
from hlojit.cpu.kernels.tiles import Side, Tile, segments_of
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.epilogue import Epilogue
from hlojit.llvm.product_elements import Elements, at, scaled
from hlojit.lowering.convolution_problem import ConvolutionProblem
from hlojit.lowering.dot_problem import Axis, ceil_divide
from hlojit.lowering.kernel import Phase
from hlojit.lowering.loop_plan import CALL_CYCLES
from hlojit.lowering.target import KIND_BITS, Target

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """An operand, or the result, as it is accessed: buffer, byte offset, elements, and element steps."""

    buffer: int
    offset: int
    elements: Elements
    spatial: list[int]
    outer: int
    """Step of the batch (0 for the kernel)."""
    channel: int
    group: int
    feature: int = 0


@dataclass(frozen=True, slots=True)
class WindowNest:
    """One such nest.

    All steps are (input, kernel, result) in elements; ``columns`` says that the kernel is the tile's left operand.
    """

    symbol: str
    target: Target
    problem: ConvolutionProblem
    sources: tuple[Source, Source, Source]
    columns: bool
    outer: list[tuple[int, Triple]]
    """Output dimensions before the last: extents and steps."""
    tall: tuple[int, Triple]
    """What the rows of tiles run over."""
    wide: tuple[int, Triple]
    """What the vectors of tiles run over."""
    taps: list[Axis]
    inside: list[Axis]
    tile_rows: int
    width: int
    interleaves: bool
    reserve: Callable[[int], int]
    epilogue: Epilogue | None = None
    """What takes the sums, box by box: rows of ``width`` of them in scratch memory, in the place of the result."""

    @property
    def kind(self) -> str:
        """The compute kind."""
        return self.sources[0].elements.compute

    def emit(self, b: LlvmBuilder) -> Phase:
        """Emit micro-kernels, panels and the task loop."""
        whole, rest = divmod(self.wide[0], self.width)
        lines = math.prod(extent for extent, _ in self.outer)
        panels = whole + (rest > 0)
        blocks, group = self._cut(lines, panels)
        per_block = ceil_divide(lines, blocks)
        blocks = ceil_divide(lines, per_block)
        groups = ceil_divide(panels, group)
        functions = {
            columns: self._panel(b, f"{self.symbol}.p{columns}", columns)
            for columns in ([self.width] if whole else []) + ([rest] if rest else [])
        }
        extents = [self.problem.batch, self.problem.groups, blocks, groups]
        scratch = None
        if self.epilogue is not None:
            box = (per_block if self.taps else 1) * self._line_bytes
            scratch = Scratch.of(box, math.prod(extents), WORKSPACE, self.reserve)
        sources = self.sources if scratch is None else self.sources[:2]
        steps = [(source.outer, source.group) for source in sources]
        with b.function(self.symbol, PARAMETERS, outer=True) as (_, buffers, begin, end):
            bases = [at(b, buffer(b, buffers, source.buffer), source.offset) for source in sources]
            memory = None if scratch is None else scratch.begin(b, buffers)
            loop = b.begin_loop(begin, end)
            *outer, block, panel_group = unflatten(b, loop.index, extents)
            pointers = [self._move(b, bases[i], i, outer, [*steps[i]]) for i in range(len(bases))]
            there = (buffers, *outer)
            if scratch is not None and memory is not None:
                pointers.append(scratch.of_task(b, memory, loop.index))
            first = scaled(b, block, per_block)
            last = minimum(b, b.add(first, literal(per_block)), literal(lines))
            if whole:
                start = scaled(b, panel_group, group)
                panel = b.begin_loop(start, minimum(b, b.add(start, literal(group)), literal(whole)))
                columns = scaled(b, panel.index, self.width)
                self._call_panel(b, functions[self.width], pointers, columns, (first, last), there)
                b.end_loop(panel)
            if rest:
                edge, done = b.fresh_label("edge"), b.fresh_label("next")
                b.branch_if(b.icmp("eq", panel_group, literal(groups - 1)), edge, done)
                b.begin_block(edge)
                self._call_panel(b, functions[rest], pointers, literal(whole * self.width), (first, last), there)
                b.branch(done)
                b.begin_block(done)
            b.end_loop(loop)
        tasks = math.prod(extents)
        return Phase(self.symbol, tasks, self._nanoseconds / tasks + self.target.machine.nanoseconds(2 * CALL_CYCLES))

    @property
    def _nanoseconds(self) -> float:
        """Estimated time of all on one core."""
        return self.target.machine.product_nanoseconds(self.problem.macs / self.target.native_lanes(self.kind))

    @property
    def _line_bytes(self) -> int:
        """Of the sums of one panel in one output row."""
        return self.tall[0] * self.width * KIND_BITS[self.kind] // 8

    def _cut(self, lines: int, panels: int) -> tuple[int, int]:
        """Blocks of output rows, and panels in one task."""
        problem, machine = self.problem, self.target.machine
        wanted = max(1, min(machine.most_tasks // 2, int(self._nanoseconds / machine.task_nanoseconds)))
        parts = ceil_divide(wanted, problem.batch * problem.groups)
        weights = problem.taps * problem.channels * problem.features * KIND_BITS[self.kind] // 8
        # Weights that would fill half of the second-level cache are shared out, rather than the image.
        if weights > machine.second.size // 2 and panels >= 4 and not self.columns:
            group = max(1, panels // parts)
            return max(1, min(lines, parts // ceil_divide(panels, group))), group
        blocks = max(1, min(lines, parts))
        return blocks, max(1, panels // ceil_divide(parts, blocks))

    def _move(self, b: LlvmBuilder, pointer: Val, which: int, values: list[Val], steps: list[int]) -> Val:
        size = self.sources[which].elements.size
        return at(b, pointer, dot_product(b, values, [step * size for step in steps]))

    def _call_panel(
        self,
        b: LlvmBuilder,
        function: str,
        pointers: list[Val],
        column: Val,
        lines: tuple[Val, Val],
        there: tuple[Val, ...],
    ) -> None:
        moved = [self._move(b, pointers[i], i, [column], [self.wide[1][i]]) for i in range(3)]
        text = ", ".join(f"ptr {pointer.text}" for pointer in moved)
        first, last = lines
        behind = ""
        if self.epilogue is not None:
            buffers, batch, group = there
            behind = f", ptr {buffers.text}, i64 {batch.text}, i64 {group.text}, i64 {column.text}"
        b.line(f"call void @{function}({text}, i64 {first.text}, i64 {last.text}{behind})")

    def _tile(self, symbol: str, columns: int) -> Tile:
        inner, outer = self.inside[-1], self.inside[:-1]
        sizes = [source.elements.size for source in self.sources]
        order = (1, 0) if self.columns else (0, 1)
        sides = []
        for which, step in zip(order, (self.tall[1], self.wide[1])):
            elements = self.sources[which].elements
            sides.append(Side(elements, step[which] * sizes[which], inner.strides[which] * sizes[which]))
        loops = tuple(
            (axis.extent, axis.strides[order[0]] * sizes[order[0]], axis.strides[order[1]] * sizes[order[1]])
            for axis in outer
        )
        parts = segments_of(columns, self.target.native_lanes(self.kind))
        out = Side(self.sources[2].elements, self.tall[1][2] * self.sources[2].elements.size, 0)
        return Tile(
            symbol,
            Arithmetic.of(self.kind, self.target, self.problem.terms),
            self.tile_rows,
            parts,
            sides[0],
            sides[1],
            out,
            bool(self.taps),
            self.interleaves,
            outer=loops,
        )

    def _panel(self, b: LlvmBuilder, symbol: str, columns: int) -> str:
        """Emit ``void symbol(ptr input, ptr kernel, ptr result, i64 first, i64 last)``: some output rows, all taps."""
        tile = self._tile(f"{symbol}.tile", columns)
        tiles, edge_rows = divmod(self.tall[0], self.tile_rows)
        tile = replace(tile, rows=self.tile_rows if tiles else 0, edge_rows=edge_rows)
        tile.emit(b)
        parameters = [("ptr", "input"), ("ptr", "kernel"), ("ptr", "result"), ("i64", "first"), ("i64", "last")]
        if self.epilogue is not None:
            parameters += [("ptr", "buffers"), ("i64", "batch"), ("i64", "group"), ("i64", "column")]
        with b.function(symbol, parameters, linkage="internal", outer=True) as values:
            pointers, (first, last), there = values[:3], values[3:5], values[5:]
            loops = []
            for axis in self.taps:
                loops.append(b.begin_loop(ZERO, literal(axis.extent)))
                moved = [self._move(b, pointers[i], i, [loops[-1].index], [axis.strides[i]]) for i in range(2)]
                pointers = [*moved, pointers[2]]
            resume = Val("false", "i1")
            if loops:
                taken = loops[0].index
                for loop in loops[1:]:
                    taken = b.or_(taken, loop.index)
                resume = b.icmp("ne", taken, ZERO)
            line = b.begin_loop(first, last)
            coordinates = unflatten(b, line.index, [extent for extent, _ in self.outer])
            here = [self._move(b, pointers[i], i, coordinates, [step[i] for _, step in self.outer]) for i in range(3)]
            if self.epilogue is not None and loops:
                here[2] = self._line_at(b, pointers[2], line.index, first)
            if self.epilogue is not None and not loops:
                buffers, batch, group, column = there
                rows = ZERO, literal(self.tall[0])
                self.epilogue.ahead(b, buffers, (batch, group, line.index), rows, (column, columns))
            if tiles:
                row = b.begin_loop(ZERO, literal(tiles))
                self._call_tile(b, tile, here, scaled(b, row.index, self.tile_rows), resume)
                b.end_loop(row)
            if edge_rows:
                self._call_tile(b, tile, here, literal(tiles * self.tile_rows), resume, edge=True)
            if self.epilogue is not None and not loops:
                self._finish(b, columns, here[2], line.index, there)
            b.end_loop(line)
            for loop in reversed(loops):
                b.end_loop(loop)
            if self.epilogue is not None and loops:
                line = b.begin_loop(first, last)
                self._finish(b, columns, self._line_at(b, pointers[2], line.index, first), line.index, there)
                b.end_loop(line)
        return symbol

    def _line_at(self, b: LlvmBuilder, memory: Val, line: Val, first: Val) -> Val:
        """Where in scratch memory the sums of an output row are, if all rows' are kept."""
        return at(b, memory, scaled(b, b.sub(line, first), self._line_bytes))

    def _finish(self, b: LlvmBuilder, columns: int, sums: Val, line: Val, there: list[Val]) -> None:
        """What follows for the sums of one panel in one output row."""
        assert self.epilogue is not None
        buffers, batch, group, column = there
        rows = (ZERO, literal(self.tall[0]))
        entry = self.epilogue.entry(columns, self.width * self.sources[2].elements.size)
        self.epilogue.call(b, entry, buffers, sums, (batch, group, line), rows, (column, columns))

    def _call_tile(
        self, b: LlvmBuilder, tile: Tile, pointers: list[Val], row: Val, resume: Val, *, edge: bool = False
    ) -> None:
        moved = [self._move(b, pointers[i], i, [row], [self.tall[1][i]]) for i in range(3)]
        left, right = (moved[1], moved[0]) if self.columns else (moved[0], moved[1])
        tile.call(b, left, right, moved[2], literal(self.inside[-1].extent), resume, edge=edge)

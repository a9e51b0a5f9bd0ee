"""The loops around the micro-kernel of a convolution: tasks, panels, taps beyond the cache, output rows, tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, buffer, dot_product, literal, minimum, unflatten
from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.cpu.kernels.tiles import Side, Tile, segments_of
from hlojit.llvm.builder import LlvmBuilder, Val
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
        steps = [(source.outer, source.group) for source in self.sources]
        with b.function(self.symbol, PARAMETERS, outer=True) as (_, buffers, begin, end):
            bases = [at(b, buffer(b, buffers, source.buffer), source.offset) for source in self.sources]
            loop = b.begin_loop(begin, end)
            *outer, block, panel_group = unflatten(b, loop.index, extents)
            pointers = [self._move(b, bases[i], i, outer, [*steps[i]]) for i in range(3)]
            first = scaled(b, block, per_block)
            last = minimum(b, b.add(first, literal(per_block)), literal(lines))
            if whole:
                start = scaled(b, panel_group, group)
                panel = b.begin_loop(start, minimum(b, b.add(start, literal(group)), literal(whole)))
                self._call_panel(b, functions[self.width], pointers, scaled(b, panel.index, self.width), first, last)
                b.end_loop(panel)
            if rest:
                edge, done = b.fresh_label("edge"), b.fresh_label("next")
                b.branch_if(b.icmp("eq", panel_group, literal(groups - 1)), edge, done)
                b.begin_block(edge)
                self._call_panel(b, functions[rest], pointers, literal(whole * self.width), first, last)
                b.branch(done)
                b.begin_block(done)
            b.end_loop(loop)
        tasks = math.prod(extents)
        return Phase(self.symbol, tasks, self._nanoseconds / tasks + self.target.machine.nanoseconds(2 * CALL_CYCLES))

    @property
    def _nanoseconds(self) -> float:
        """Estimated time of all on one core."""
        return self.target.machine.product_nanoseconds(self.problem.macs / self.target.native_lanes(self.kind))

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
        self, b: LlvmBuilder, function: str, pointers: list[Val], column: Val, first: Val, last: Val
    ) -> None:
        moved = [self._move(b, pointers[i], i, [column], [self.wide[1][i]]) for i in range(3)]
        text = ", ".join(f"ptr {pointer.text}" for pointer in moved)
        b.line(f"call void @{function}({text}, i64 {first.text}, i64 {last.text})")

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
        with b.function(symbol, parameters, linkage="internal", outer=True) as values:
            *pointers, first, last = values
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
            if tiles:
                row = b.begin_loop(ZERO, literal(tiles))
                self._call_tile(b, tile, here, scaled(b, row.index, self.tile_rows), resume)
                b.end_loop(row)
            if edge_rows:
                self._call_tile(b, tile, here, literal(tiles * self.tile_rows), resume, edge=True)
            b.end_loop(line)
            for loop in reversed(loops):
                b.end_loop(loop)
        return symbol

    def _call_tile(
        self, b: LlvmBuilder, tile: Tile, pointers: list[Val], row: Val, resume: Val, *, edge: bool = False
    ) -> None:
        moved = [self._move(b, pointers[i], i, [row], [self.tall[1][i]]) for i in range(3)]
        left, right = (moved[1], moved[0]) if self.columns else (moved[0], moved[1])
        tile.call(b, left, right, moved[2], literal(self.inside[-1].extent), resume, edge=edge)

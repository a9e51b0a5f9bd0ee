"""sort on a machine with threads, stable, by any comparator: tiles in shared memory, then merges of runs of them.

Two sorted runs are merged by all threads at once: an element's place is its place in its own run plus the number of
elements of the other one that come before it, which a binary search finds.  The comparator has to be an order (as the
specification demands): with one that is none, the results hold some elements twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from hlojit.ir.graph import Instruction
from hlojit.ir.scalar import formats
from hlojit.llvm.builder import scalars
from hlojit.llvm.region import Variable, inline_region, while_loop
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.elements import memory_kind
from hlojit.lowering.grid_plan import THREADS
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.sort_plan import GridSortPlan
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame

SEARCH_NANOSECONDS: Final = 300.0
"""Of one step of a search in memory, which waits for the one before it."""

Place = Callable[[Val], Val]
"""From an element's number in its line to its offset in an array."""


def emit_sort(instruction: Instruction, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """Sort all operands along one dimension in the order that the comparator gives."""
    return _Sort(instruction, target, dialect).emit(symbol)


@final
class _Sort:
    def __init__(self, instruction: Instruction, target: Target, dialect: Dialect):
        assert target.grid is not None
        self.instruction = instruction
        self.plan = GridSortPlan.of(instruction, target.grid)
        self.frame = GridFrame(target, Body.of(instruction), dialect)
        self.b = self.frame.builder
        self.kinds = [memory_kind(element) for element in self.plan.elements]
        self.count = len(self.kinds)

    def emit(self, symbol: str) -> KernelCode:
        phases = [self._tiles(symbol)]
        for number, width in enumerate(self.plan.widths):
            phases.append(self._merge_pass(f"{symbol}_merge_{width}", width, number))
        return self.frame.code(phases, self.plan.workspace_bytes)

    # ------------------------------------------------------------------- places

    def _line_place(self, line: Val) -> Place:
        """Offsets of a line's elements in operands and results."""
        b, plan = self.b, self.plan
        if plan.inner == 1:
            start = b.mul(line, b.constant("i64", plan.length))
            return lambda number: b.add(start, number)
        inner = b.constant("i64", plan.inner)
        outer = b.mul(b.udiv(line, inner), b.constant("i64", plan.inner * plan.length))
        start = b.add(outer, b.urem(line, inner))
        return lambda number: b.add(start, b.mul(number, inner))

    def _area_place(self, line: Val) -> Place:
        """Offsets of a line's elements in the workspace."""
        start = self.b.mul(line, self.b.constant("i64", self.plan.length))
        return lambda number: self.b.add(start, number)

    def _area(self, workspace: Val, area: int) -> list[Val]:
        b = self.b
        return [
            b.emit(
                "ptr", 1, f"getelementptr inbounds i8, ptr {workspace.text}, i64 {self.plan.area_offset(area, operand)}"
            )
            for operand in range(self.count)
        ]

    def _operands(self) -> list[Val]:
        return self.frame.access.bases[: self.count]

    def _results(self) -> list[Val]:
        return self.frame.access.bases[self.count : 2 * self.count]

    # ---------------------------------------------------------------- the merging

    def _bits(self, bases: Sequence[Val], offset: Val) -> list[Val]:
        """An element of every operand as it stands in memory."""
        b = self.b
        return [b.load(kind, b.element_pointer(base, kind, offset)) for kind, base in zip(self.kinds, bases)]

    def _write(self, bits: Sequence[Val], bases: Sequence[Val], offset: Val) -> None:
        b = self.b
        for kind, base, value in zip(self.kinds, bases, bits):
            b.store(value, b.element_pointer(base, kind, offset))

    def _before(self, first: Sequence[Val], second: Sequence[Val]) -> Val:
        """Whether one element comes before another, both as they stand in memory."""
        pairs = []
        for element, x, y in zip(self.plan.elements, first, second):
            pairs += [formats.decode(scalars(self.b), value, element) for value in (x, y)]
        return inline_region(self.b, self.instruction.regions[0], pairs)[0]  # type: ignore[arg-type]

    def _destination(
        self, own: Sequence[Val], bases: Sequence[Val], place: Place, number: Val, width: Val, length: Val
    ) -> Val:
        """Where an element of one of two neighbouring runs of ``width`` goes when they are merged."""
        b = self.b
        one, both = b.constant("i64", 1), b.add(width, width)
        start = b.sub(number, b.urem(number, both))
        middle = self._minimum(b.add(start, width), length)
        end = self._minimum(b.add(start, both), length)
        is_left = b.icmp("slt", number, middle)
        begin = b.select(is_left, middle, start)
        low = Variable(b, "i64", begin)
        high = Variable(b, "i64", b.select(is_left, end, middle))

        def halve() -> None:
            at_low, at_high = low.get(), high.get()
            probe = b.lshr(b.add(at_low, at_high), one)
            other = self._bits(bases, place(probe))
            # Equal elements keep their order: those of the left run come first.
            goes_before = b.select(
                is_left, self._before(other, own), b.xor(self._before(own, other), b.constant("i1", 1))
            )
            low.set(b.select(goes_before, b.add(probe, one), at_low))
            high.set(b.select(goes_before, at_high, probe))

        while_loop(b, lambda: b.icmp("slt", low.get(), high.get()), halve)
        own_place = b.sub(number, b.select(is_left, start, middle))
        return b.add(b.add(start, own_place), b.sub(low.get(), begin))

    def _minimum(self, x: Val, y: Val) -> Val:
        return self.b.select(self.b.icmp("slt", x, y), x, y)

    # ------------------------------------------------------------------- the passes

    def _tiles(self, symbol: str) -> Phase:
        """Sort every tile of every line in shared memory, a thread an element."""
        plan, b = self.plan, self.b
        with self.frame.kernel(symbol, plan.threads, workspace_bytes=plan.workspace_bytes) as workspace:
            block, tiles = b.zext(b.block, "i64"), b.constant("i64", plan.tiles)
            line, first = b.udiv(block, tiles), b.mul(b.urem(block, tiles), b.constant("i64", plan.tile))
            left = b.sub(b.constant("i64", plan.length), first)
            length = self._minimum(left, b.constant("i64", plan.tile))
            mine = b.zext(b.thread, "i64")
            exists = b.icmp("slt", mine, length)
            halves = [[b.shared(kind, plan.tile) for kind in self.kinds] for _ in range(2)]
            line_place = self._line_place(line)
            operands = self._operands()
            b.when(exists, lambda: self._write(self._bits(operands, line_place(b.add(first, mine))), halves[0], mine))
            b.barrier()
            levels = plan.tile.bit_length() - 1
            for level in range(levels):
                self._tile_level(halves[level % 2], halves[(level + 1) % 2], mine, 1 << level, length)
            place, results = line_place, self._results()
            if plan.widths:
                place, results = self._area_place(line), self._area(workspace[0], 0)
            sorted_half = halves[levels % 2]
            b.when(exists, lambda: self._write(self._bits(sorted_half, mine), results, place(b.add(first, mine))))
        steps = sum(level + 1 for level in range(levels))
        return self.frame.phase(symbol, plan.lines * plan.tiles, 30.0 * steps)

    def _tile_level(self, source: list[Val], target: list[Val], mine: Val, width: int, length: Val) -> None:
        b = self.b

        def move() -> None:
            own = self._bits(source, mine)
            to = self._destination(own, source, lambda number: number, mine, b.constant("i64", width), length)
            self._write(own, target, to)

        b.when(b.icmp("slt", mine, length), move)
        b.barrier()

    def _merge_pass(self, symbol: str, width: int, number: int) -> Phase:
        """Merge runs of ``width``, a thread an element, into the other area or, the last time, into the results."""
        plan, b = self.plan, self.b
        total = plan.lines * plan.length
        with self.frame.kernel(symbol, THREADS, workspace_bytes=plan.workspace_bytes) as workspace:
            element = b.global_thread()
            source = self._area(workspace[0], number % 2)

            def move() -> None:
                length = b.constant("i64", plan.length)
                line, mine = b.udiv(element, length), b.urem(element, length)
                place = self._area_place(line)
                own = self._bits(source, place(mine))
                to = self._destination(own, source, place, mine, b.constant("i64", width), length)
                if width == plan.widths[-1]:
                    self._write(own, self._results(), self._line_place(line)(to))
                else:
                    self._write(own, self._area(workspace[0], (number + 1) % 2), place(to))

            b.when(b.icmp("slt", element, b.constant("i64", total)), move)
        blocks = -(-total // THREADS)
        return self.frame.phase(symbol, blocks, SEARCH_NANOSECONDS * width.bit_length())

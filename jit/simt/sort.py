"""sort on a machine with threads, stable, by any comparator: tiles in shared memory, then merges of runs of them.

Two sorted runs are merged by all threads at once.  An element of the left run finds its *rank*, the number of elements of
the right one that come before it, by a binary search; an element of the right run finds how many ranks do not exceed its
own place.  A comparator that is no order (numbers compared with NaN among them) gives ranks that fall somewhere: they
are then raised to the largest before them, so that the results always hold every element once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, final

from hlojit.ir.graph import Instruction
from hlojit.ir.scalar import formats
from hlojit.llvm.builder import scalars
from hlojit.llvm.region import Variable, inline_region, while_loop
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.grid_plan import THREADS
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.radix_plan import RadixPlan
from hlojit.lowering.sort_plan import GridSortPlan
from hlojit.lowering.target import KIND_BITS, Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame
from hlojit.simt.radix_sort import RadixSort

SEARCH_NANOSECONDS: Final = 300.0
"""Of one step of a search in memory, which waits for the one before it."""

Place = Callable[[Val], Val]
"""From an element's number in its line to its offset in an array."""


def emit_sort(instruction: Instruction, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """Sort all operands along one dimension in the order that the comparator gives."""
    assert target.grid is not None
    if (by_keys := RadixPlan.of(instruction, target.grid)) is not None:
        frame, operands = GridFrame(target, Body.of(instruction), dialect), range(len(instruction.operands))
        return RadixSort(by_keys, frame, operands, operands).emit(symbol)
    return _Sort(instruction, target, dialect).emit(symbol)


class _Runs(NamedTuple):
    """Two neighbouring runs of a line, and an element of one of them; all counted from the line's beginning."""

    number: Val
    start: Val
    middle: Val
    end: Val
    is_left: Val


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
        self.workspace: Val

    def emit(self, symbol: str) -> KernelCode:
        phases = [self._tiles(symbol)]
        for number, width in enumerate(self.plan.widths):
            phases.append(self._ranks(f"{symbol}_rank_{width}", width, number))
            phases.append(self._repair(f"{symbol}_repair_{width}", width))
            phases.append(self._merge(f"{symbol}_merge_{width}", width, number))
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

    def _in_workspace(self, offset: int) -> Val:
        return self.b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {self.workspace.text}, i64 {offset}")

    def _area(self, area: int) -> list[Val]:
        return [self._in_workspace(self.plan.area_offset(area, operand)) for operand in range(self.count)]

    def _operands(self) -> list[Val]:
        return self.frame.access.bases[: self.count]

    def _results(self) -> list[Val]:
        return self.frame.access.bases[self.count : 2 * self.count]

    # ------------------------------------------------------------------ elements

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

    # ---------------------------------------------------------------- the merging

    def _runs(self, number: Val, width: int, length: Val) -> _Runs:
        """The runs of ``width`` that an element of a line of ``length`` belongs to."""
        b = self.b
        start = b.sub(number, b.urem(number, b.constant("i64", 2 * width)))
        middle = self._minimum(b.add(start, b.constant("i64", width)), length)
        end = self._minimum(b.add(start, b.constant("i64", 2 * width)), length)
        return _Runs(number, start, middle, end, b.icmp("slt", number, middle))

    def _rank(self, own: Sequence[Val], bases: Sequence[Val], place: Place, runs: _Runs) -> Val:
        """How many elements of the right run come before one of the left."""
        # Equal elements keep their order: those of the left run come first.
        found = self._first(runs.middle, runs.end, lambda other: self._before(self._bits(bases, place(other)), own))
        return self.b.sub(found, runs.middle)

    def _not_above(self, ranks: Val, place: Place, runs: _Runs) -> Val:
        """How many elements of the left run come before one of the right: those whose rank does not exceed its place."""
        b, kind = self.b, self.plan.rank_kind
        own = b.sub(runs.number, runs.middle)

        def goes_before(other: Val) -> Val:
            return b.icmp("sle", b.sext(self._load(ranks, kind, place(other)), "i64"), own)

        return b.sub(self._first(runs.start, runs.middle, goes_before), runs.start)

    def _first(self, low: Val, high: Val, goes_before: Callable[[Val], Val]) -> Val:
        """The first number between two for which something that holds up to a point does not hold."""
        b = self.b
        first, last = Variable(b, "i64", low), Variable(b, "i64", high)

        def halve() -> None:
            at_first, at_last = first.get(), last.get()
            probe = b.lshr(b.add(at_first, at_last), b.constant("i64", 1))
            before = goes_before(probe)
            first.set(b.select(before, b.add(probe, b.constant("i64", 1)), at_first))
            last.set(b.select(before, at_last, probe))

        while_loop(b, lambda: b.icmp("slt", first.get(), last.get()), halve)
        return first.get()

    def _destination(self, ranks: Val, place: Place, runs: _Runs) -> Val:
        """Where an element goes when its runs are merged."""
        b = self.b
        to = Variable(b, "i64", runs.number)

        def left() -> None:
            rank = self._load(ranks, self.plan.rank_kind, place(runs.number))
            to.set(b.add(runs.number, b.sext(rank, "i64")))

        def right() -> None:
            own = b.sub(runs.number, runs.middle)
            to.set(b.add(b.add(runs.start, own), self._not_above(ranks, place, runs)))

        b.choose(runs.is_left, left, right)
        return to.get()

    def _load(self, base: Val, kind: str, offset: Val) -> Val:
        return self.b.load(kind, self.b.element_pointer(base, kind, offset))

    def _store(self, value: Val, base: Val, offset: Val) -> None:
        self.b.store(value, self.b.element_pointer(base, value.kind, offset))

    def _minimum(self, x: Val, y: Val) -> Val:
        return self.b.select(self.b.icmp("slt", x, y), x, y)

    # ---------------------------------------------------------------------- tiles

    def _tiles(self, symbol: str) -> Phase:
        """Sort every tile of every line in shared memory, a thread an element."""
        plan, b = self.plan, self.b
        with self.frame.kernel(symbol, plan.threads, workspace_bytes=plan.workspace_bytes) as workspace:
            block, tiles = b.zext(b.block, "i64"), b.constant("i64", plan.tiles)
            line, tile = b.udiv(block, tiles), b.urem(block, tiles)
            first = b.mul(tile, b.constant("i64", plan.tile))
            length = self._minimum(b.sub(b.constant("i64", plan.length), first), b.constant("i64", plan.tile))
            mine = b.zext(b.thread, "i64")
            exists = b.icmp("slt", mine, length)
            halves = [[b.shared(kind, plan.tile) for kind in self.kinds] for _ in range(2)]
            ranks, flag = b.shared(plan.rank_kind, plan.tile), b.shared("i32", 1)
            place = self._line_place(line)
            operands = self._operands()
            if plan.inner == 1:
                self._move_tile(operands, halves[0], line, first, length, to_shared=True)
            else:
                b.when(exists, lambda: self._write(self._bits(operands, place(b.add(first, mine))), halves[0], mine))
            zero = b.constant("i64", 0)
            b.when(b.icmp("eq", mine, zero), lambda: self._store(b.constant("i32", 0), flag, zero))
            b.barrier()
            levels = plan.tile.bit_length() - 1
            for level in range(levels):
                runs = self._runs(mine, 1 << level, length)
                self._tile_level(halves[level % 2], halves[(level + 1) % 2], runs, exists, ranks, flag)
            results = self._results()
            if plan.widths:
                self.workspace = workspace[0]
                place, results = self._area_place(line), self._area(0)
                self._clear_flag(line, tile, mine)
            sorted_half = halves[levels % 2]
            if plan.widths or plan.inner == 1:
                self._move_tile(results, sorted_half, line, first, length, to_shared=False)
            else:
                b.when(exists, lambda: self._write(self._bits(sorted_half, mine), results, place(b.add(first, mine))))
        steps = sum(2 * (level + 1) for level in range(levels))
        return self.frame.phase(symbol, plan.lines * plan.tiles, 30.0 * steps)

    def _move_tile(
        self, outside: list[Val], shared: list[Val], line: Val, first: Val, length: Val, *, to_shared: bool
    ) -> None:
        """Between a tile of a contiguous line and shared memory, in pieces of up to 16 bytes."""
        b, plan = self.b, self.plan
        start = b.add(b.mul(line, b.constant("i64", plan.length)), first)
        thread = b.zext(b.thread, "i64")
        for own_kind, base, array in zip(self.kinds, outside, shared):
            # A boolean is moved as its byte.
            kind = "i8" if own_kind == "i1" else own_kind
            lanes = math.gcd(128 // KIND_BITS[kind], plan.tile, plan.length if plan.lines > 1 else 0)

            def move(position: Val, lanes: int, base: Val = base, array: Val = array, kind: str = kind) -> None:
                places = b.element_pointer(base, kind, b.add(start, position)), b.element_pointer(array, kind, position)
                source, target = places if to_shared else places[::-1]
                with self.frame.access.lanes(lanes, "piece"):
                    align = lanes * KIND_BITS[kind] // 8
                    b.store(b.load(kind, source, vector=lanes > 1, align=align), target, align=align)

            position = b.mul(thread, b.constant("i64", lanes))
            is_whole = b.icmp("slt", b.add(position, b.constant("i64", lanes - 1)), length)
            b.when(is_whole, partial(move, position, lanes))
            if lanes > 1:
                position = b.add(b.and_(length, b.constant("i64", -lanes)), thread)
                b.when(b.icmp("slt", position, length), partial(move, position, 1))

    def _clear_flag(self, line: Val, tile: Val, mine: Val) -> None:
        """The first thread of every other tile clears the flag of its pair."""
        b, zero = self.b, self.b.constant("i64", 0)
        is_even = b.icmp("eq", b.and_(tile, b.constant("i64", 1)), zero)
        pair = b.add(
            b.mul(line, b.constant("i64", self.plan.pairs(self.plan.tile))), b.lshr(tile, b.constant("i64", 1))
        )
        b.when(
            b.and_(is_even, b.icmp("eq", mine, zero)), lambda: self._store(b.constant("i32", 0), self._flags(), pair)
        )

    def _tile_level(
        self, source: list[Val], target: list[Val], runs: _Runs, exists: Val, ranks: Val, flag: Val
    ) -> None:
        b, zero = self.b, self.b.constant("i64", 0)
        mine, is_left = runs.number, self.b.and_(exists, runs.is_left)

        def rank() -> None:
            found = self._rank(self._bits(source, mine), source, lambda number: number, runs)
            self._store(b.trunc(found, self.plan.rank_kind), ranks, mine)

        b.when(is_left, rank)
        b.barrier()
        b.when(b.and_(is_left, b.icmp("sgt", mine, runs.start)), lambda: self._compare(ranks, mine, flag, zero))
        b.barrier()

        def repair() -> None:
            first = b.and_(exists, b.icmp("eq", mine, runs.start))
            b.when(first, lambda: self._raise_serially(ranks, runs))
            b.barrier()
            b.when(b.icmp("eq", mine, zero), lambda: self._store(b.constant("i32", 0), flag, zero))

        b.when(b.icmp("ne", self._load(flag, "i32", zero), b.constant("i32", 0)), repair)

        def move() -> None:
            to = self._destination(ranks, lambda number: number, runs)
            self._write(self._bits(source, mine), target, to)

        b.when(exists, move)
        b.barrier()

    def _compare(self, ranks: Val, mine: Val, flags: Val, flag: Val) -> None:
        """Set a flag where an element's rank is below that of the one before it."""
        b, kind = self.b, self.plan.rank_kind
        before = self._load(ranks, kind, b.sub(mine, b.constant("i64", 1)))
        self._flag_if(b.icmp("slt", self._load(ranks, kind, mine), before), flags, flag)

    def _flag_if(self, condition: Val, flags: Val, flag: Val) -> None:
        b = self.b
        pointer = b.element_pointer(flags, "i32", flag)

        def set_flag() -> None:
            b.atomic("or", pointer, b.constant("i32", 1))

        b.when(condition, set_flag)

    def _raise_serially(self, ranks: Val, runs: _Runs) -> None:
        """Raise every rank of a run to the largest before it."""
        b, kind = self.b, self.plan.rank_kind
        largest = Variable(b, kind, b.constant(kind, 0))
        loop = b.begin_loop(runs.start, runs.middle)
        rank = self._load(ranks, kind, loop.index)
        known = largest.get()
        largest.set(b.select(b.icmp("slt", rank, known), known, rank))
        self._store(largest.get(), ranks, loop.index)
        b.end_loop(loop)

    # ------------------------------------------------------------- passes over lines

    def _ranks_area(self) -> Val:
        return self._in_workspace(self.plan.ranks_offset)

    def _flags(self) -> Val:
        return self._in_workspace(self.plan.flags_offset)

    def _blocks(self) -> int:
        return -(-self.plan.lines * self.plan.length // THREADS)

    def _ranks(self, symbol: str, width: int, number: int) -> Phase:
        """The ranks of all elements of left runs; a flag where one falls."""
        plan, b = self.plan, self.b
        length = b.constant("i64", plan.length)
        with self.frame.kernel(symbol, THREADS, workspace_bytes=plan.workspace_bytes) as workspace:
            self.workspace = workspace[0]
            element = b.global_thread()
            exists = b.icmp("slt", element, b.constant("i64", plan.lines * plan.length))
            line, mine = b.udiv(element, length), b.urem(element, length)
            runs = self._runs(mine, width, length)
            place, source, ranks = self._area_place(line), self._area(number % 2), self._ranks_area()
            shared, thread = b.shared("i64", THREADS), b.zext(b.thread, "i64")
            is_left = b.and_(exists, runs.is_left)

            def rank_of(other: Val) -> Val:
                return self._rank(self._bits(source, place(other)), source, place, runs)

            def rank() -> None:
                found = rank_of(mine)
                self._store(found, shared, thread)
                self._store(b.trunc(found, plan.rank_kind), ranks, place(mine))

            b.when(is_left, rank)
            b.barrier()
            pair = b.add(b.mul(line, b.constant("i64", plan.pairs(width))), b.udiv(mine, b.constant("i64", 2 * width)))

            def compare() -> None:
                before = Variable(b, "i64", b.constant("i64", 0))
                neighbour = b.sub(thread, b.constant("i64", 1))
                b.choose(
                    b.icmp("sgt", thread, b.constant("i64", 0)),
                    lambda: before.set(self._load(shared, "i64", neighbour)),
                    lambda: before.set(rank_of(b.sub(mine, b.constant("i64", 1)))),
                )
                falls = b.icmp("slt", self._load(shared, "i64", thread), before.get())
                self._flag_if(falls, self._flags(), pair)

            b.when(b.and_(is_left, b.icmp("sgt", mine, runs.start)), compare)
        return self.frame.phase(symbol, self._blocks(), SEARCH_NANOSECONDS * width.bit_length())

    def _repair(self, symbol: str, width: int) -> Phase:
        """A block a pair of runs: where ranks fall, raise each to the largest before it."""
        plan, b = self.plan, self.b
        pairs = plan.pairs(width)
        with self.frame.kernel(symbol, THREADS, workspace_bytes=plan.workspace_bytes) as workspace:
            self.workspace = workspace[0]
            block = b.zext(b.block, "i64")
            line, pair = b.udiv(block, b.constant("i64", pairs)), b.urem(block, b.constant("i64", pairs))
            runs = self._runs(b.mul(pair, b.constant("i64", 2 * width)), width, b.constant("i64", plan.length))
            flags, shared = self._flags(), b.shared(plan.rank_kind, THREADS)
            found = self._load(flags, "i32", block)
            b.barrier()

            def repair() -> None:
                self._raise_together(runs, self._area_place(line), shared)
                clear = partial(self._store, b.constant("i32", 0), flags, block)
                b.when(b.icmp("eq", b.thread, b.constant("i32", 0)), clear)

            b.when(b.icmp("ne", found, b.constant("i32", 0)), repair)
        return self.frame.phase(symbol, plan.lines * pairs, SEARCH_NANOSECONDS)

    def _raise_together(self, runs: _Runs, place: Place, shared: Val) -> None:
        """The largest rank so far, for as many elements at once as there are threads."""
        b, kind, ranks = self.b, self.plan.rank_kind, self._ranks_area()
        thread = b.zext(b.thread, "i64")
        loop = b.begin_loop(runs.start, runs.middle, THREADS, [b.constant(kind, 0)])
        mine = b.add(loop.index, thread)
        exists = b.icmp("slt", mine, runs.middle)
        largest = Variable(b, kind, loop.carried[0])

        def take(other: Val) -> None:
            known = largest.get()
            largest.set(b.select(b.icmp("slt", other, known), known, other))

        def take_from(distance: int) -> None:
            take(self._load(shared, kind, b.sub(thread, b.constant("i64", distance))))

        b.when(exists, lambda: take(self._load(ranks, kind, place(mine))))
        distance = 1
        while distance < THREADS:
            self._store(largest.get(), shared, thread)
            b.barrier()
            b.when(b.icmp("sge", thread, b.constant("i64", distance)), partial(take_from, distance))
            b.barrier()
            distance *= 2
        b.when(exists, lambda: self._store(largest.get(), ranks, place(mine)))
        self._store(largest.get(), shared, thread)
        b.barrier()
        last = self._load(shared, kind, b.constant("i64", THREADS - 1))
        b.barrier()
        b.end_loop(loop, [last])

    def _merge(self, symbol: str, width: int, number: int) -> Phase:
        """Move every element where it belongs: into the other area or, the last time, into the results."""
        plan, b = self.plan, self.b
        length = b.constant("i64", plan.length)
        with self.frame.kernel(symbol, THREADS, workspace_bytes=plan.workspace_bytes) as workspace:
            self.workspace = workspace[0]
            element = b.global_thread()
            source, ranks = self._area(number % 2), self._ranks_area()

            def move() -> None:
                line, mine = b.udiv(element, length), b.urem(element, length)
                place = self._area_place(line)
                to = self._destination(ranks, place, self._runs(mine, width, length))
                bits = self._bits(source, place(mine))
                if width == plan.widths[-1]:
                    self._write(bits, self._results(), self._line_place(line)(to))
                else:
                    self._write(bits, self._area((number + 1) % 2), place(to))

            b.when(b.icmp("slt", element, b.constant("i64", plan.lines * plan.length)), move)
        return self.frame.phase(symbol, self._blocks(), SEARCH_NANOSECONDS * width.bit_length())

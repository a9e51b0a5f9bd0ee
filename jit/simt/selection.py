"""The first elements of sorted lines (top-k) on a machine with threads (``hlojit.lowering.selection_plan``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, final

from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.radix_plan import DIGIT, THREADS
from hlojit.lowering.selection import Selection
from hlojit.lowering.selection_plan import SelectionPlan
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.digit_order import BlockScan, DigitOrder
from hlojit.simt.frame import GridFrame
from hlojit.simt.radix_elements import RadixKernels
from hlojit.simt.radix_sort import ROUND_NANOSECONDS, RadixSort

HALF: Final = 16
"""Bits of one of two numbers in a word: those of a tile are small."""


def emit_selection(body: Body, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """The first elements of sorted lines; roots are results of the sort, as far as they are wanted."""
    assert target.grid is not None
    selection = Selection.of(body)
    assert selection is not None
    plan = SelectionPlan.of(selection, target.grid)
    frame = GridFrame(target, body, dialect)
    if plan.radix.rows:
        return RadixSort(plan.radix, frame, selection.sources, selection.outputs).emit(symbol)
    return _RadixSelection(plan, frame, selection).emit(symbol)


class _Bound(NamedTuple):
    """The keys of the last element that is wanted, and how many elements equal to it are (i32)."""

    keys: list[Val]
    equal: Val


@final
class _RadixSelection(RadixKernels):
    """Of lines that take several blocks."""

    def __init__(self, plan: SelectionPlan, frame: GridFrame, selection: Selection):
        super().__init__(plan.radix, frame, selection.sources, selection.outputs)
        self.selection = plan
        self.workspace_bytes = plan.workspace_bytes

    def emit(self, symbol: str) -> KernelCode:
        plan = self.selection
        phases = [self._clear(symbol)]
        phases += [self._look(f"{symbol}_look_{place}", place) for place in range(len(plan.digits))]
        phases.append(self._count(f"{symbol}_count"))
        phases.append(self._take(f"{symbol}_take"))
        phases.append(self._sort(f"{symbol}_sort"))
        return self.frame.code(phases, plan.workspace_bytes)

    # ------------------------------------------------------------------ the workspace

    def _totals(self, place: int, digit: Val) -> Val:
        """Address of how often the block's line has a digit, of the ``place``-th that is looked at."""
        b = self.b
        line = b.add(b.mul(self.line, b.constant("i64", len(self.selection.digits))), b.constant("i64", place))
        number = b.add(b.mul(line, b.constant("i64", 1 << DIGIT)), b.zext(digit, "i64"))
        return b.element_pointer(self._in_workspace(0), "i32", number)

    def _tile_counts(self, tile: Val) -> list[Val]:
        """Addresses of how many elements of a tile of the line are below the bound, and equal to it."""
        b, plan = self.b, self.plan
        base = self._in_workspace(self.selection.totals_bytes)
        number = b.add(b.mul(self.line, b.constant("i64", plan.tiles)), tile)
        first = b.mul(number, b.constant("i64", 2))
        return [b.element_pointer(base, "i32", b.add(first, b.constant("i64", each))) for each in range(2)]

    def _found(self) -> list[Val]:
        """Where keys and numbers of the found elements lie."""
        return [self._in_workspace(self.selection.found_offset(part)) for part in range(len(self.plan.kinds))]

    def _found_place(self, number: Val) -> Val:
        return self.b.add(self.b.mul(self.line, self.b.constant("i64", self.plan.count)), number)

    # ----------------------------------------------------------------------- the bound

    def _bound(self, scan: BlockScan, places: int) -> _Bound:
        """What is known from so many digits; every thread gets it."""
        b, plan = self.b, self.plan
        keys = [b.constant(code.kind, 0) for code in plan.codes]
        wanted = b.constant("i32", plan.count)
        known = b.shared("i32", 2)
        zero, one = (b.constant("i64", number) for number in range(2))
        for place, digit in enumerate(self.selection.digits[:places]):
            mine = b.load("i32", self._totals(place, b.thread))
            before, _ = scan.exclusive(mine)
            is_it = b.and_(b.icmp("slt", before, wanted), b.icmp("sge", b.add(before, mine), wanted))

            def publish(before: Val = before, wanted: Val = wanted) -> None:
                self._store(b.thread, known, zero)
                self._store(b.sub(wanted, before), known, one)

            b.when(is_it, publish)
            b.barrier()
            found, wanted = self._load(known, "i32", zero), self._load(known, "i32", one)
            # Before the next digit is written there.
            b.barrier()
            kind = plan.codes[digit.code].kind
            part = found if kind == "i32" else b.zext(found, kind) if kind == "i64" else b.trunc(found, kind)
            keys[digit.code] = b.or_(keys[digit.code], b.shl(part, b.constant(kind, digit.shift)))
        return _Bound(keys, wanted)

    def _clear(self, symbol: str) -> Phase:
        """Nothing is counted yet."""
        b, plan = self.b, self.selection
        count = plan.radix.lines * len(plan.digits) << DIGIT
        with self.frame.kernel(symbol, THREADS, workspace_bytes=plan.workspace_bytes) as workspace:
            self.workspace = workspace[0]
            self._store(b.constant("i32", 0), self._in_workspace(0), b.global_thread())
        return self.frame.phase(symbol, count // THREADS, ROUND_NANOSECONDS)

    def _look(self, symbol: str, place: int) -> Phase:
        """Count a digit of the elements that have the digits before it in common with the bound."""
        b, plan = self.b, self.plan
        digit = self.selection.digits[place]
        with self._tile(symbol) as count:
            counter = DigitOrder(b, (), 0, DIGIT)
            bound = self._bound(counter.scan, place)
            counter.clear(digit.bits)

            def add(values: Sequence[Val]) -> None:
                matches = b.constant("i1", 1)
                for number, (key, known) in enumerate(zip(values, bound.keys)):
                    # Of the keys before this one everything is known, of this one what lies above the digit.
                    shift = 0 if number < digit.code else digit.shift + digit.bits
                    if number > digit.code or shift >= plan.codes[number].bits:
                        continue
                    amount = b.constant(key.kind, shift)
                    ours, other = (b.lshr(each, amount) if shift else each for each in (key, known))
                    matches = b.and_(matches, b.icmp("eq", ours, other))
                b.when(matches, lambda: counter.add(self._digit(digit, None, values), digit.bits))

            self._each_taken(count, self._tile_place, lambda _, values: add(values))
            b.barrier()
            total = b.constant("i32", 0)
            for found in counter.counted(digit.bits):
                total = b.add(total, found)

            def publish() -> None:
                b.atomic("add", self._totals(place, b.thread), total)

            b.when(b.icmp("ne", total, b.constant("i32", 0)), publish)
        return self.frame.phase(symbol, plan.blocks, ROUND_NANOSECONDS * plan.items)

    # --------------------------------------------------------------------- what is found

    def _against(self, values: Sequence[Val], bound: _Bound) -> tuple[Val, Val]:
        """Whether an element is below the bound, and whether it is equal to it."""
        b = self.b
        below, equal = b.constant("i1", 0), b.constant("i1", 1)
        for key, known in zip(values, bound.keys):
            below = b.or_(below, b.and_(equal, b.icmp("ult", key, known)))
            equal = b.and_(equal, b.icmp("eq", key, known))
        return below, equal

    def _count(self, symbol: str) -> Phase:
        """How many elements of each tile are below the bound and equal to it."""
        b, plan = self.b, self.plan
        with self._tile(symbol) as count:
            scan = BlockScan(b)
            bound = self._bound(scan, len(self.selection.digits))
            counts = b.shared("i32", 2)
            places = [b.element_pointer(counts, "i32", b.constant("i64", number)) for number in range(2)]
            is_first = b.icmp("eq", b.thread, b.constant("i32", 0))

            def clear() -> None:
                for place in places:
                    b.store(b.constant("i32", 0), place)

            b.when(is_first, clear)
            b.barrier()

            def one_more(place: Val) -> None:
                b.atomic("add", place, b.constant("i32", 1))

            def add(_: Val, values: Sequence[Val]) -> None:
                for found, place in zip(self._against(values, bound), places):
                    b.when(found, partial(one_more, place))

            self._each_taken(count, self._tile_place, add)
            b.barrier()

            def publish() -> None:
                for place, target in zip(places, self._tile_counts(self.number)):
                    b.store(b.load("i32", place), target)

            b.when(is_first, publish)
        return self.frame.phase(symbol, plan.blocks, ROUND_NANOSECONDS * plan.items)

    def _take(self, symbol: str) -> Phase:
        """Put what is wanted of each tile behind what is wanted of those before it."""
        b, plan = self.b, self.plan
        with self._tile(symbol) as count:
            scan = BlockScan(b)
            bound = self._bound(scan, len(self.selection.digits))
            below, equal = self._before(scan)
            # What is equal lies behind everything that is below.
            first_equal = b.sub(b.constant("i32", plan.count), bound.equal)
            bases = self._found()
            loop = b.begin_loop(b.constant("i64", 0), b.zext(count, "i64"), b.threads, [below, equal], guarded=False)
            position = b.add(b.trunc(loop.index, "i32"), b.thread)
            exists = b.icmp("ult", position, count)
            nothing = [b.constant(kind, 0) for kind in plan.kinds]
            values = b.either(exists, lambda: self._taken(*self._tile_place(position)), nothing)
            flags = [b.and_(exists, flag) for flag in self._against(values, bound)]
            both = b.add(b.zext(flags[0], "i32"), b.shl(b.zext(flags[1], "i32"), b.constant("i32", HALF)))
            before, whole = scan.exclusive(both)
            low = b.constant("i32", (1 << HALF) - 1)
            high = b.constant("i32", HALF)
            rank = b.add(loop.carried[0], b.and_(before, low))
            equal_rank = b.add(loop.carried[1], b.lshr(before, high))
            wanted = b.or_(flags[0], b.and_(flags[1], b.icmp("slt", equal_rank, bound.equal)))
            target = b.select(flags[0], rank, b.add(first_equal, equal_rank))

            def write() -> None:
                for value, base in zip(values, bases):
                    self._store(value, base, self._found_place(b.zext(target, "i64")))

            b.when(wanted, write)
            b.end_loop(loop, [b.add(loop.carried[0], b.and_(whole, low)), b.add(loop.carried[1], b.lshr(whole, high))])
        return self.frame.phase(symbol, plan.blocks, ROUND_NANOSECONDS * 2 * plan.items)

    def _before(self, scan: BlockScan) -> list[Val]:
        """How many elements are below the bound, and equal to it, in the tiles before the block's."""
        b = self.b
        zero = b.constant("i32", 0)
        loop = b.begin_loop(b.zext(b.thread, "i64"), self.number, b.threads, [zero, zero])
        found = [b.load("i32", place) for place in self._tile_counts(loop.index)]
        sums = b.end_loop(loop, [b.add(known, more) for known, more in zip(loop.carried, found)])
        return [scan.exclusive(each)[1] for each in sums]

    def _sort(self, symbol: str) -> Phase:
        """A block a line: sort what was found and write the elements."""
        b, plan, own = self.b, self.plan, self.selection
        with self.frame.kernel(symbol, own.threads, workspace_bytes=own.workspace_bytes) as workspace:
            self.workspace, self.line = workspace[0], b.zext(b.block, "i64")
            count = b.constant("i32", plan.count)
            sorter = DigitOrder(b, plan.kinds, own.items, DIGIT)
            bases = self._found()

            def read(position: Val) -> None:
                place = self._found_place(b.zext(position, "i64"))
                sorter.store([self._load(base, kind, place) for base, kind in zip(bases, plan.kinds)], position)

            self._each_place(own.items, count, read)
            b.barrier()
            for digit in plan.digits:
                sorter.order(partial(self._digit, digit, None), digit.bits, count)
            self._each_place(
                own.items,
                count,
                lambda position: self._write(sorter.load(position), self.line, b.zext(position, "i64")),
            )
        rounds = own.items * len(plan.digits) * (own.threads // b.dialect.warp)
        return self.frame.phase(symbol, plan.lines, ROUND_NANOSECONDS * rounds)

    def _each_place(self, items: int, count: Val, body: Callable[[Val], None]) -> None:
        b = self.b
        for number in range(items):
            position = b.add(b.thread, b.constant("i32", number * b.threads))
            b.when(b.icmp("ult", position, count), partial(body, position))

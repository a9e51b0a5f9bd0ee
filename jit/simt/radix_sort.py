"""sort by keys on a machine with threads: a stable radix sort, digit by digit (``hlojit.lowering.radix_plan``).

Elements are moved as they stand in memory, so that every bit of them arrives; the comparator is evaluated for one side at
a time, to make the key of an element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

from hlojit.llvm.text import Val
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.radix_plan import DIGIT, THREADS
from hlojit.simt.digit_order import BlockScan, DigitOrder
from hlojit.simt.radix_elements import RadixKernels

ROUND_NANOSECONDS: Final = 20.0
"""Of a warp that ranks one round of elements."""


@final
class RadixSort(RadixKernels):
    """The kernels of one sort."""

    def emit(self, symbol: str) -> KernelCode:
        """The kernel of lines that blocks sort by themselves, or three launches for every digit."""
        if self.plan.rows:
            return self.frame.code([self._whole_lines(symbol)])
        phases: list[Phase] = []
        for number in range(len(self.plan.digits)):
            phases.append(self._count(f"{symbol}_count_{number}" if number else symbol, number))
            phases.append(self._sum(f"{symbol}_sum_{number}", number))
            phases.append(self._move(f"{symbol}_move_{number}", number))
        return self.frame.code(phases, self.plan.workspace_bytes)

    # ---------------------------------------------------------- whole lines in a block

    def _whole_lines(self, symbol: str) -> Phase:
        """Sort ``rows`` lines: by their keys, then by the line."""
        plan, b = self.plan, self.b
        with self.frame.kernel(symbol, plan.threads):
            kinds = [*plan.kinds, "i8"] if plan.rows > 1 else list(plan.kinds)
            bits = max([digit.bits for digit in plan.digits] + [(plan.rows - 1).bit_length()])
            self.first_line = b.mul(b.zext(b.block, "i64"), b.constant("i64", plan.rows))
            left = b.sub(b.constant("i64", plan.lines), self.first_line)
            some = b.icmp("slt", left, b.constant("i64", plan.rows))
            self.own_lines = b.trunc(b.select(some, left, b.constant("i64", plan.rows)), "i32")
            count = b.mul(self.own_lines, b.constant("i32", plan.length))
            sorter = DigitOrder(b, kinds, plan.items, bits)
            self._read_lines(sorter, count)
            b.barrier()
            for number in reversed(range(len(plan.codes) if plan.digits else 0)):
                self._order_by(sorter, number, count)
            if plan.rows > 1 and plan.digits:
                row_bits = (plan.rows - 1).bit_length()
                sorter.order(lambda values: b.zext(values[-1], "i32"), row_bits, count)
            self._write_lines(sorter, count)
        rounds = plan.items * (len(plan.digits) + 1) * (plan.threads // b.dialect.warp)
        return self.frame.phase(symbol, plan.blocks, ROUND_NANOSECONDS * rounds)

    def _order_by(self, sorter: DigitOrder, number: int, count: Val) -> None:
        """Order by all digits of a key."""
        b, digits = self.b, self.plan.digits_of(number)
        if len(digits) == 1:
            sorter.order(partial(self._digit, digits[0], None), digits[0].bits, count)
            return
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", len(digits)))
        shift = b.mul(b.trunc(loop.index, "i32"), b.constant("i32", DIGIT))
        sorter.order(partial(self._digit, digits[0], shift), digits[0].bits, count)
        b.end_loop(loop)

    def _read_lines(self, sorter: DigitOrder, count: Val) -> None:
        plan, b = self.plan, self.b
        if plan.inner == 1 and not plan.by_number:
            self._copy(sorter, count, self._operands(), to_shared=True)

            def note(position: Val, lanes: int) -> None:
                self._note_row(sorter, position)

            if plan.rows > 1:
                self._pieces(count, 1, note)
            return

        def place_of(position: Val) -> tuple[Val, Val]:
            row, number = self._own_place(position, plan.length)
            line = b.add(self.first_line, b.zext(row, "i64"))
            return self.lines.place(line, b.zext(number, "i64")), number

        def store(position: Val, values: Sequence[Val]) -> None:
            place = b.zext(self._note_row(sorter, position), "i64")
            for value, base in zip(values, sorter.arrays):
                self._store(value, base, place)

        if plan.inner == 1:
            self._each_taken(count, place_of, store)
            return

        def read_own(position: Val, lanes: int) -> None:
            row, _ = self._own_place(position, plan.length)
            b.when(b.icmp("ult", row, self.own_lines), lambda: store(position, self._taken(*place_of(position))))

        self._pieces(b.constant("i32", plan.tile), 1, read_own)

    def _note_row(self, sorter: DigitOrder, position: Val) -> Val:
        """Where an element lies in the block (i32), beside which the number of its line is kept if there are several."""
        plan, b = self.plan, self.b
        row, number = self._own_place(position, plan.length)
        place = b.add(b.mul(row, b.constant("i32", plan.length)), number)
        if plan.rows > 1:
            self._store(b.trunc(row, "i8"), sorter.arrays[-1], b.zext(place, "i64"))
        return place

    def _own_place(self, position: Val, extent: int) -> tuple[Val, Val]:
        """The line, counted from the block's first one, and the place in it of one of ``extent`` elements of each line.

        Neighbours in memory are read by neighbouring threads.
        """
        b, plan = self.b, self.plan
        if plan.inner == 1:
            length = b.constant("i32", extent)
            return b.udiv(position, length), b.urem(position, length)
        rows = b.constant("i32", plan.rows)
        return b.urem(position, rows), b.udiv(position, rows)

    def _copy(self, sorter: DigitOrder, count: Val, bases: Sequence[Val], *, to_shared: bool) -> None:
        """Between the block's elements and contiguous lines, in pieces of up to 16 bytes."""
        b = self.b
        first = b.mul(self.first_line, b.constant("i64", self.plan.length))
        for base, array, kind in zip(bases, sorter.arrays, self.plan.kinds):

            def move(position: Val, lanes: int, base: Val = base, array: Val = array, kind: str = kind) -> None:
                here = b.zext(position, "i64")
                outside = b.add(first, here)
                source, target = ((base, outside), (array, here)) if to_shared else ((array, here), (base, outside))
                self._store_piece(self._load_piece(source[0], kind, source[1], lanes), *target)

            self._pieces(count, self._lanes([kind]), move)

    def _write_lines(self, sorter: DigitOrder, count: Val) -> None:
        plan, b = self.plan, self.b
        if plan.inner == 1 and not plan.by_number:
            self._copy(sorter, count, self._results(), to_shared=False)
            return

        def write(position: Val, _: int) -> None:
            row, number = self._own_place(position, plan.count)
            here = b.add(b.mul(row, b.constant("i32", plan.length)), number)
            line = b.add(self.first_line, b.zext(row, "i64"))
            values = sorter.load(here)[: len(plan.kinds)]
            self._write(values, line, b.zext(number, "i64"))

        def write_own(position: Val, lanes: int) -> None:
            row, _ = self._own_place(position, plan.count)
            b.when(b.icmp("ult", row, self.own_lines), lambda: write(position, lanes))

        self._pieces(b.constant("i32", plan.rows * plan.count), 1, write_own)

    # --------------------------------------------------- lines of several tiles

    def _source(self, number: int) -> list[Val] | None:
        """Where a pass finds what is moved, in contiguous lines; None: in operands that have to be looked at first."""
        if number == 0:
            return self._operands() if self.plan.goes_through_results else None
        area = self.plan.target(number - 1)
        return self._results() if area is None else self._area(area)

    def _counts(self, digit: Val, tile: Val) -> Val:
        """Address of how often a tile of the block's line has a digit (i32)."""
        b, plan = self.b, self.plan
        line = b.add(b.mul(self.line, b.constant("i64", 1 << DIGIT)), b.zext(digit, "i64"))
        place = b.add(b.mul(line, b.constant("i64", plan.tiles)), tile)
        return b.element_pointer(self._in_workspace(plan.counts_offset), "i32", place)

    def _count(self, symbol: str, number: int) -> Phase:
        """How often each tile has each digit."""
        plan, b = self.plan, self.b
        digit = plan.digits[number]
        with self._tile(symbol) as count:
            counter = DigitOrder(b, (), 0, digit.bits)
            counter.clear(digit.bits)

            def add(values: Sequence[Val]) -> None:
                counter.add(self._digit(digit, None, values), digit.bits)

            self._each(number, count, add)
            b.barrier()
            total = b.constant("i32", 0)
            for found in counter.counted(digit.bits):
                total = b.add(total, found)
            has_digit = counter.has_digit(digit.bits)
            b.when(has_digit, lambda: b.store(total, self._counts(b.thread, self.number)))
        return self.frame.phase(symbol, plan.blocks, ROUND_NANOSECONDS * plan.items)

    def _each(self, number: int, count: Val, body: Callable[[Sequence[Val]], None]) -> None:
        """``body`` for every element that a pass finds in the tile, in any order: what is needed for its digit."""
        b, plan, source = self.b, self.plan, self._source(number)
        code = plan.codes[plan.digits[number].code]
        if source is None:
            self._each_taken(count, self._tile_place, lambda _, values: body(values))
            return
        parts = (plan.digits[number].code,) if plan.by_number else code.operands
        kinds = [plan.kinds[part] for part in parts]

        def take_piece(position: Val, lanes: int) -> None:
            place = self.lines.row_place(self.line, b.add(self.first, b.zext(position, "i64")))
            pieces = [self._load_piece(source[part], kind, place, lanes) for part, kind in zip(parts, kinds)]
            for lane in range(lanes):
                values = [b.constant(kind, 0) for kind in plan.kinds]
                for part, piece in zip(parts, pieces):
                    values[part] = b.extract(piece, lane) if lanes > 1 else piece
                body(values)

        self._pieces(count, self._lanes(kinds), take_piece)

    def _sum(self, symbol: str, number: int) -> Phase:
        """A block a line and digit: how often the tiles before each have the digit, and all of them."""
        plan, b = self.plan, self.b
        digits = 1 << plan.digits[number].bits
        with self.frame.kernel(symbol, THREADS, workspace_bytes=plan.workspace_bytes) as workspace:
            self.workspace = workspace[0]
            scan = BlockScan(b)
            by = b.constant("i32", digits)
            self.line, digit = b.zext(b.udiv(b.block, by), "i64"), b.urem(b.block, by)
            loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", plan.tiles), THREADS, [b.constant("i32", 0)])
            mine = b.add(loop.index, b.zext(b.thread, "i64"))
            exists = b.icmp("slt", mine, b.constant("i64", plan.tiles))
            (value,) = b.either(exists, lambda: [b.load("i32", self._counts(digit, mine))], [b.constant("i32", 0)])
            before, whole = scan.exclusive(value)
            running = b.add(loop.carried[0], before)
            b.when(exists, lambda: b.store(running, self._counts(digit, mine)))
            (total,) = b.end_loop(loop, [b.add(loop.carried[0], whole)])
            is_first = b.icmp("eq", b.thread, b.constant("i32", 0))
            b.when(is_first, lambda: b.store(total, self._total(self.line, digit)))
        return self.frame.phase(symbol, plan.lines * digits, ROUND_NANOSECONDS * -(-plan.tiles // THREADS))

    def _move(self, symbol: str, number: int) -> Phase:
        """Order each tile by the digit and write it where it goes."""
        plan, b = self.plan, self.b
        digit = plan.digits[number]
        with self._tile(symbol) as count:
            sorter = DigitOrder(b, plan.kinds, plan.items, digit.bits)
            offsets = b.shared("i32", 1 << digit.bits)
            self._read_tile(sorter, number, count)
            b.barrier()
            digit_of = partial(self._digit, digit, None)
            start = sorter.order(digit_of, digit.bits, count)
            has_digit = sorter.has_digit(digit.bits)
            nothing = [b.constant("i32", 0)] * 2

            def counted() -> list[Val]:
                return [
                    b.load("i32", self._total(self.line, b.thread)),
                    b.load("i32", self._counts(b.thread, self.number)),
                ]

            total, before = b.either(has_digit, counted, nothing)
            first, _ = sorter.scan.exclusive(total)
            offset = b.sub(b.add(first, before), start)
            b.when(has_digit, lambda: self._store(offset, offsets, b.zext(b.thread, "i64")))
            b.barrier()

            def write(position: Val, _: int) -> None:
                values = sorter.load(position)
                by = self._load(offsets, "i32", b.zext(digit_of(values), "i64"))
                self._write_to(plan.target(number), values, b.zext(b.add(position, by), "i64"))

            self._pieces(count, 1, write)
        rounds = plan.items * 2 * (plan.threads // b.dialect.warp)
        return self.frame.phase(symbol, plan.blocks, ROUND_NANOSECONDS * rounds)

    def _read_tile(self, sorter: DigitOrder, number: int, count: Val) -> None:
        b, plan, source = self.b, self.plan, self._source(number)
        if source is None:
            self._each_taken(count, self._tile_place, lambda position, values: sorter.store(values, position))
            return
        for base, array, kind in zip(source, sorter.arrays, plan.kinds):

            def move(position: Val, lanes: int, base: Val = base, array: Val = array, kind: str = kind) -> None:
                here = b.zext(position, "i64")
                place = self.lines.row_place(self.line, b.add(self.first, here))
                self._store_piece(self._load_piece(base, kind, place, lanes), array, here)

            self._pieces(count, self._lanes([kind]), move)

    def _write_to(self, area: int | None, values: Sequence[Val], number: Val) -> None:
        """Write what was moved of an element into an area of the workspace, or the element into the results."""
        if area is None:
            if self.plan.goes_through_results:
                place = self.lines.row_place(self.line, number)
                for value, base in zip(values, self._results(), strict=True):
                    self._store(value, base, place)
                return
            self._write(values, self.line, number)
            return
        place = self.lines.row_place(self.line, number)
        for value, base in zip(values, self._area(area), strict=True):
            self._store(value, base, place)

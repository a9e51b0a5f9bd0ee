"""sort by keys on a machine with threads: a stable radix sort, digit by digit (``hlojit.lowering.radix_plan``).

Elements are moved as they stand in memory, so that every bit of them arrives; the comparator is evaluated for one side at
a time, to make the key of an element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, cast, final

from hlojit.ir.graph import Instruction
from hlojit.llvm.builder import scalars
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.elements import memory_kind
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.radix_plan import DIGIT, INDEX, THREADS, Digit, RadixPlan
from hlojit.lowering.sort_keys import KeyCode, stored_operands
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.digit_order import BlockScan, DigitOrder, kind_bytes
from hlojit.simt.frame import GridFrame

ROUND_NANOSECONDS: Final = 20.0
"""Of a warp that ranks one round of elements."""


@final
class _Lines:
    """Places of lines' elements: ``length`` of each, ``inner`` apart."""

    def __init__(self, frame: GridFrame, plan: RadixPlan):
        self.b, self.plan = frame.builder, plan
        self.total = plan.lines * plan.length

    def divided(self, number: Val, divisor: int) -> tuple[Val, Val]:
        """Quotient and remainder of a number of a line or element, in 32 bits where these are enough."""
        b = self.b
        if divisor == 1:
            return number, b.constant("i64", 0)
        if self.total >= 1 << 31:
            by = b.constant("i64", divisor)
            return b.udiv(number, by), b.urem(number, by)
        narrow, by = b.trunc(number, "i32"), b.constant("i32", divisor)
        return b.zext(b.udiv(narrow, by), "i64"), b.zext(b.urem(narrow, by), "i64")

    def place(self, line: Val, number: Val) -> Val:
        """Where an element lies in operands and results."""
        b, plan = self.b, self.plan
        if plan.inner == 1:
            return self.row_place(line, number)
        outer, column = self.divided(line, plan.inner)
        start = b.add(b.mul(outer, b.constant("i64", plan.inner * plan.length)), column)
        return b.add(start, b.mul(number, b.constant("i64", plan.inner)))

    def row_place(self, line: Val, number: Val) -> Val:
        """Where an element lies in the workspace."""
        return self.b.add(self.b.mul(line, self.b.constant("i64", self.plan.length)), number)


@final
class RadixSort:
    """The kernels of one sort."""

    def __init__(self, instruction: Instruction, plan: RadixPlan, target: Target, dialect: Dialect):
        self.plan = plan
        self.frame = GridFrame(target, Body.of(instruction), dialect)
        self.b = self.frame.builder
        self.lines = _Lines(self.frame, plan)
        self.memory_kinds = [memory_kind(element) for element in plan.elements]
        self.bits = [f"i{8 * kind_bytes(kind)}" for kind in self.memory_kinds]
        """Kinds of operands' elements as integers."""
        self.workspace: Val | None = None

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

    # -------------------------------------------------------------------- elements

    def _operands(self) -> list[Val]:
        return self.frame.access.bases[: len(self.bits)]

    def _results(self) -> list[Val]:
        return self.frame.access.bases[len(self.bits) : 2 * len(self.bits)]

    def _area(self, area: int) -> list[Val]:
        return [self._in_workspace(self.plan.area_offset(area, part)) for part in range(len(self.plan.kinds))]

    def _in_workspace(self, offset: int) -> Val:
        assert self.workspace is not None
        return self.b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {self.workspace.text}, i64 {offset}")

    def _load(self, base: Val, kind: str, place: Val) -> Val:
        return self.b.load(kind, self.b.element_pointer(base, kind, place))

    def _store(self, value: Val, base: Val, place: Val) -> None:
        self.b.store(value, self.b.element_pointer(base, value.kind, place))

    def _stored(self, number: int, bits: Val) -> Val:
        """An operand's element as its decoding wants it, from its bits."""
        kind = self.memory_kinds[number]
        if kind == "i1":
            return self.b.icmp("ne", bits, self.b.constant(bits.kind, 0))
        return self.b.bitcast(bits, kind) if kind in ("f32", "f64") else bits

    def _key(self, code: KeyCode, bits: Mapping[int, Val]) -> Val:
        """A key as an integer, from the bits of the operands that it is made of."""
        stored = {number: self._stored(number, bits[number]) for number in code.operands}
        return cast(Val, code.compute(scalars(self.b), stored))

    def _digit(self, digit: Digit, shift: Val | None, values: Sequence[Val]) -> Val:
        """A digit (i32) of an element that is moved as ``values``; ``shift`` (i32) instead of the digit's."""
        b, code = self.b, self.plan.codes[digit.code]
        key = values[digit.code] if self.plan.by_number else self._key(code, dict(enumerate(values)))
        amount = b.constant(key.kind, digit.shift)
        if shift is not None:
            amount = _resized(b.zext, b.trunc, shift, key.kind)
        if shift is not None or digit.shift:
            key = b.lshr(key, amount)
        narrow = _resized(b.zext, b.trunc, key, "i32")
        return b.and_(narrow, b.constant("i32", (1 << digit.bits) - 1))

    # ------------------------------------------------------------ pieces of a tile

    def _lanes(self, kinds: Sequence[str], step: int) -> int:
        """Elements of a piece of contiguous lines; tiles begin at multiples of ``step`` elements of a line or all."""
        lanes = 16 // max(kind_bytes(kind) for kind in kinds)
        while lanes > 1 and (step % lanes or (not self.plan.rows and self.plan.lines > 1 and self.plan.length % lanes)):
            lanes //= 2
        return lanes

    @contextmanager
    def _wide(self, lanes: int) -> Iterator[None]:
        outer, self.b.lanes = self.b.lanes, lanes
        try:
            yield
        finally:
            self.b.lanes = outer

    def _load_piece(self, base: Val, kind: str, place: Val, lanes: int) -> Val:
        with self._wide(lanes):
            pointer = self.b.element_pointer(base, kind, place)
            return self.b.load(kind, pointer, vector=lanes > 1, align=lanes * kind_bytes(kind))

    def _store_piece(self, value: Val, base: Val, place: Val) -> None:
        pointer = self.b.element_pointer(base, value.kind, place)
        self.b.store(value, pointer, align=value.lanes * kind_bytes(value.kind))

    def _pieces(self, count: Val, lanes: int, body: Callable[[Val, int], None]) -> None:
        """``body(position, lanes)`` for the first ``count`` (i32) elements of the tile: whole pieces, then the rest."""
        b, tile, threads = self.b, self.plan.tile, self.b.threads
        for first in range(0, tile // lanes, threads):
            position = b.mul(b.add(b.thread, b.constant("i32", first)), b.constant("i32", lanes))
            end = b.add(position, b.constant("i32", lanes - 1))
            b.when(b.icmp("ult", end, count), partial(body, position, lanes))
        if lanes > 1:
            rest = b.and_(count, b.constant("i32", -lanes))
            position = b.add(rest, b.thread)
            b.when(b.icmp("ult", position, count), partial(body, position, 1))

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
        is_plain = plan.inner == 1 and not plan.by_number
        if is_plain:
            self._copy(sorter, count, self._operands(), to_shared=True)
        if is_plain and plan.rows == 1:
            return

        def read(position: Val, _: int) -> None:
            row, number = self._own_place(position)
            place = b.zext(b.add(b.mul(row, b.constant("i32", plan.length)), number), "i64")
            if plan.rows > 1:
                self._store(b.trunc(row, "i8"), sorter.arrays[-1], place)
            if is_plain:
                return
            line = b.add(self.first_line, b.zext(row, "i64"))
            values = self._taken(self.lines.place(line, b.zext(number, "i64")), number)
            for value, base in zip(values, sorter.arrays):
                self._store(value, base, place)

        def read_own(position: Val, lanes: int) -> None:
            row, _ = self._own_place(position)
            b.when(b.icmp("ult", row, self.own_lines), lambda: read(position, lanes))

        self._pieces(b.constant("i32", plan.tile), 1, read_own)

    def _own_place(self, position: Val) -> tuple[Val, Val]:
        """The line, counted from the block's first one, and the place in it of the element that is read as one of many.

        Neighbours in memory are read by neighbouring threads.
        """
        b, plan = self.b, self.plan
        if plan.inner == 1:
            length = b.constant("i32", plan.length)
            return b.udiv(position, length), b.urem(position, length)
        rows = b.constant("i32", plan.rows)
        return b.urem(position, rows), b.udiv(position, rows)

    def _taken(self, place: Val, number: Val) -> list[Val]:
        """What is moved of an operand's element."""
        operands = self._operands()
        if not self.plan.by_number:
            return [self._load(base, kind, place) for base, kind in zip(operands, self.bits)]
        bits = {n: self._load(operands[n], self.bits[n], place) for n in stored_operands(self.plan.codes)}
        return [*(self._key(code, bits) for code in self.plan.codes), number]

    def _copy(self, sorter: DigitOrder, count: Val, bases: Sequence[Val], *, to_shared: bool) -> None:
        """Between the block's elements and contiguous lines, in pieces of up to 16 bytes."""
        b = self.b
        first = b.mul(self.first_line, b.constant("i64", self.plan.length))
        step = self.plan.tile if self.plan.blocks > 1 else 16
        for base, array, kind in zip(bases, sorter.arrays, self.plan.kinds):

            def move(position: Val, lanes: int, base: Val = base, array: Val = array, kind: str = kind) -> None:
                here = b.zext(position, "i64")
                outside = b.add(first, here)
                source, target = ((base, outside), (array, here)) if to_shared else ((array, here), (base, outside))
                self._store_piece(self._load_piece(source[0], kind, source[1], lanes), *target)

            self._pieces(count, self._lanes([kind], step), move)

    def _write_lines(self, sorter: DigitOrder, count: Val) -> None:
        plan, b = self.plan, self.b
        if plan.inner == 1 and not plan.by_number:
            self._copy(sorter, count, self._results(), to_shared=False)
            return

        def write(position: Val, _: int) -> None:
            row, number = self._own_place(position)
            here = b.add(b.mul(row, b.constant("i32", plan.length)), number)
            line = b.add(self.first_line, b.zext(row, "i64"))
            values = sorter.load(here)[: len(plan.kinds)]
            self._write(values, line, b.zext(number, "i64"))

        def write_own(position: Val, lanes: int) -> None:
            row, _ = self._own_place(position)
            b.when(b.icmp("ult", row, self.own_lines), lambda: write(position, lanes))

        self._pieces(b.constant("i32", plan.tile), 1, write_own)

    def _write(self, values: Sequence[Val], line: Val, number: Val) -> None:
        """Write an element of the results from what was moved of it."""
        place = self.lines.place(line, number)
        bits = list(values)
        if self.plan.by_number:
            source = self.lines.place(line, self.b.zext(values[-1], "i64"))
            bits = [self._load(base, kind, source) for base, kind in zip(self._operands(), self.bits)]
        for value, base in zip(bits, self._results(), strict=True):
            self._store(value, base, place)

    # --------------------------------------------------- lines of several tiles

    @contextmanager
    def _tile(self, symbol: str) -> Iterator[Val]:
        """A kernel whose blocks have a tile each; gives how many elements (i32)."""
        plan, b = self.plan, self.b
        with self.frame.kernel(symbol, plan.threads, workspace_bytes=plan.workspace_bytes) as workspace:
            self.workspace = workspace[0]
            tiles = b.constant("i32", plan.tiles)
            self.line, self.number = b.zext(b.udiv(b.block, tiles), "i64"), b.zext(b.urem(b.block, tiles), "i64")
            self.first = b.mul(self.number, b.constant("i64", plan.tile))
            left = b.sub(b.constant("i64", plan.length), self.first)
            whole = b.constant("i64", plan.tile)
            yield b.trunc(b.select(b.icmp("slt", left, whole), left, whole), "i32")

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

    def _total(self, line: Val, digit: Val) -> Val:
        """Address of how often a line has a digit (i32)."""
        b = self.b
        place = b.add(b.mul(line, b.constant("i64", 1 << DIGIT)), b.zext(digit, "i64"))
        return b.element_pointer(self._in_workspace(self.plan.totals_offset), "i32", place)

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

            def take(position: Val, _: int) -> None:
                own = b.add(self.first, b.zext(position, "i64"))
                body(self._taken(self.lines.place(self.line, own), b.trunc(own, INDEX)))

            self._pieces(count, 1, take)
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

        self._pieces(count, self._lanes(kinds, plan.tile), take_piece)

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

            def take(position: Val, _: int) -> None:
                own = b.add(self.first, b.zext(position, "i64"))
                sorter.store(self._taken(self.lines.place(self.line, own), b.trunc(own, INDEX)), position)

            self._pieces(count, 1, take)
            return
        for base, array, kind in zip(source, sorter.arrays, plan.kinds):

            def move(position: Val, lanes: int, base: Val = base, array: Val = array, kind: str = kind) -> None:
                here = b.zext(position, "i64")
                place = self.lines.row_place(self.line, b.add(self.first, here))
                self._store_piece(self._load_piece(base, kind, place, lanes), array, here)

            self._pieces(count, self._lanes([kind], plan.tile), move)

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


def _resized(widen: Callable[[Val, str], Val], narrow: Callable[[Val, str], Val], value: Val, kind: str) -> Val:
    """An unsigned integer in another kind."""
    size, wanted = kind_bytes(value.kind), kind_bytes(kind)
    if size == wanted:
        return value
    return widen(value, kind) if size < wanted else narrow(value, kind)

"""What the kernels of a sort by keys share: elements as they stand in memory, their keys, pieces of a tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import cast

from hlojit.llvm.builder import scalars
from hlojit.llvm.text import Val
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.radix_plan import DIGIT, INDEX, Digit, RadixPlan
from hlojit.lowering.sort_keys import KeyCode, stored_operands
from hlojit.simt.digit_order import kind_bytes
from hlojit.simt.frame import GridFrame

PlaceOf = Callable[[Val], tuple[Val, Val]]
"""From an element's position in the tile (i32) to its place in the operands and its number in its line (i32)."""


class Lines:
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

    def result_place(self, line: Val, number: Val) -> Val:
        """Where an element lies in results, which have the first ``count`` elements of each line."""
        b, plan = self.b, self.plan
        if plan.count == plan.length:
            return self.place(line, number)
        outer, column = self.divided(line, plan.inner)
        start = b.add(b.mul(outer, b.constant("i64", plan.inner * plan.count)), column)
        return b.add(start, b.mul(number, b.constant("i64", plan.inner)))

    def row_place(self, line: Val, number: Val) -> Val:
        """Where an element lies in the workspace."""
        return self.b.add(self.b.mul(line, self.b.constant("i64", self.plan.length)), number)


class RadixKernels:
    """Kernels over lines of elements that have keys; a base class."""

    def __init__(self, plan: RadixPlan, frame: GridFrame, sources: Sequence[int | None], outputs: Sequence[int]):
        """``sources`` are the buffers of the sort's operands (None: elements' numbers), ``outputs`` the operands that
        the results are of.
        """
        self.plan, self.frame = plan, frame
        self.sources, self.outputs = tuple(sources), tuple(outputs)
        self.b = frame.builder
        self.lines = Lines(frame, plan)
        self.memory_kinds = [memory_kind(element) for element in plan.elements]
        self.bits = [f"i{8 * kind_bytes(kind)}" for kind in self.memory_kinds]
        """Kinds of operands' elements as integers."""
        self.workspace: Val | None = None
        self.workspace_bytes = plan.workspace_bytes
        self.line: Val
        """The line that a block works on."""

    # -------------------------------------------------------------------- elements

    def _operands(self) -> list[Val]:
        """Where the sort's operands lie, none of which is elements' numbers."""
        bases = [self.frame.access.bases[source] for source in self.sources if source is not None]
        assert len(bases) == len(self.sources)
        return bases

    def _results(self) -> list[Val]:
        count = len(self.frame.body.operand_types)
        return self.frame.access.bases[count : count + len(self.outputs)]

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

    def _lanes(self, kinds: Sequence[str]) -> int:
        """Elements of a piece of contiguous lines, such that blocks and lines begin with whole pieces."""
        plan = self.plan
        lanes = 16 // max(kind_bytes(kind) for kind in kinds)
        step = plan.tile if plan.blocks > 1 else lanes
        if not plan.rows and plan.lines > 1:
            step = math.gcd(step, plan.length)
        return math.gcd(lanes, step)

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

    # ------------------------------------------------------------------------ moving

    def _operand(self, operand: int, place: Val, number: Val) -> Val:
        """The bits of an operand's element, whose number in its line is ``number`` (i32)."""
        source = self.sources[operand]
        if source is None:
            return _resized(self.b.zext, self.b.trunc, number, self.bits[operand])
        return self._load(self.frame.access.bases[source], self.bits[operand], place)

    def _taken(self, place: Val, number: Val) -> list[Val]:
        """What is moved of an operand's element."""
        if not self.plan.by_number:
            return [self._operand(n, place, number) for n in range(len(self.bits))]
        bits = {n: self._operand(n, place, number) for n in stored_operands(self.plan.codes)}
        return [*(self._key(code, bits) for code in self.plan.codes), number]

    def _each_taken(self, count: Val, place_of: PlaceOf, body: Callable[[Val, list[Val]], None]) -> None:
        """``body(position, values)`` with what is moved of each of the tile's first ``count`` elements, in any order."""
        b = self.b
        parts = stored_operands(self.plan.codes)
        sources = [self.sources[part] for part in parts]
        kinds = [self.bits[part] for part in parts]
        is_wide = self.plan.by_number and self.plan.inner == 1 and None not in sources

        def take(position: Val, lanes: int) -> None:
            place, number = place_of(position)
            if lanes == 1:
                body(position, self._taken(place, number))
                return
            bases = [self.frame.access.bases[source] for source in sources if source is not None]
            pieces = [self._load_piece(base, kind, place, lanes) for base, kind in zip(bases, kinds)]
            for lane in range(lanes):
                bits = {part: b.extract(piece, lane) for part, piece in zip(parts, pieces)}
                at = b.add(position, b.constant("i32", lane))
                body(at, [*(self._key(code, bits) for code in self.plan.codes), place_of(at)[1]])

        self._pieces(count, self._lanes(kinds) if is_wide else 1, take)

    def _write(self, values: Sequence[Val], line: Val, number: Val) -> None:
        """Write an element of the results from what was moved of it."""
        place = self.lines.result_place(line, number)
        bits = list(values)
        if self.plan.by_number:
            source = self.lines.place(line, self.b.zext(values[-1], "i64"))
            bits = [self._operand(operand, source, values[-1]) for operand in self.outputs]
        for value, base in zip(bits, self._results(), strict=True):
            self._store(value, base, place)

    # ------------------------------------------------------ lines of several tiles

    def _tile_place(self, position: Val) -> tuple[Val, Val]:
        """Where an element of the tile lies in the operands, and its number in its line."""
        own = self.b.add(self.first, self.b.zext(position, "i64"))
        return self.lines.place(self.line, own), self.b.trunc(own, INDEX)

    @contextmanager
    def _tile(self, symbol: str) -> Iterator[Val]:
        """A kernel whose blocks have a tile each; gives how many elements (i32)."""
        plan, b = self.plan, self.b
        with self.frame.kernel(symbol, plan.threads, workspace_bytes=self.workspace_bytes) as workspace:
            self.workspace = workspace[0]
            tiles = b.constant("i32", plan.tiles)
            self.line, self.number = b.zext(b.udiv(b.block, tiles), "i64"), b.zext(b.urem(b.block, tiles), "i64")
            self.first = b.mul(self.number, b.constant("i64", plan.tile))
            left = b.sub(b.constant("i64", plan.length), self.first)
            whole = b.constant("i64", plan.tile)
            yield b.trunc(b.select(b.icmp("slt", left, whole), left, whole), "i32")

    def _total(self, line: Val, digit: Val) -> Val:
        """Address of how often a line has a digit (i32)."""
        b = self.b
        place = b.add(b.mul(line, b.constant("i64", 1 << DIGIT)), b.zext(digit, "i64"))
        return b.element_pointer(self._in_workspace(self.plan.totals_offset), "i32", place)


def _resized(widen: Callable[[Val, str], Val], narrow: Callable[[Val, str], Val], value: Val, kind: str) -> Val:
    """An unsigned integer in another kind."""
    size, wanted = kind_bytes(value.kind), kind_bytes(kind)
    if size == wanted:
        return value
    return widen(value, kind) if size < wanted else narrow(value, kind)

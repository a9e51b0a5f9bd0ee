"""A team of threads and its row: the pieces that each thread takes, and what all of them have found, brought together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import final

from hlojit.llvm.combiners import Combiners
from hlojit.llvm.text import Val
from hlojit.lowering.grid_reduction_plan import RowGrid
from hlojit.lowering.index import Index, variable
from hlojit.lowering.row_plan import COLUMN
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.frame import GridFrame
from hlojit.simt.ragged import Edge, rotated

SHIFT = "shift"
"""How far the first piece of a row begins before the row."""


@dataclass(frozen=True)
class Piece:
    """Neighbouring elements of a row that one thread takes, under variables of their own."""

    column: str
    lanes: int
    mapping: Mapping[str, Index]
    active: Val | None
    """Whether the thread has this piece; None means that it has."""
    place: Index
    """The column as the position in a scratch row, where pieces are aligned."""

    def at(self, index: Sequence[Index]) -> tuple[Index, ...]:
        """An index in terms of the plan's variables, in terms of the piece's."""
        return tuple(position.substitute(self.mapping) for position in index)


Take = Callable[[Sequence[Piece], list[Val]], list[Val]]
"""What is done with pieces: takes and gives carried values."""


@final
class Team:
    """The way of one thread through its team's row.  ``open`` it at the beginning of the kernel."""

    def __init__(self, frame: GridFrame, grid: RowGrid, warp: int, *, reverse: bool = False):
        """``reverse``: the first piece is the last one of the row, whose pieces must be whole."""
        self.reverse = reverse
        self.frame = frame
        self.builder = frame.builder
        self.grid = grid
        self.warp = warp
        self.row_active: Val | None = None
        self.pieces: list[Piece] = []
        """All of the thread, where they are written out."""
        self.tail: Piece | None = None
        """The element of the thread behind the whole pieces of the only row."""

    def open(self, block: Val | None = None) -> None:
        """Find out which row and which pieces are the thread's; ``block``: it does the work of that block."""
        b, grid = self.builder, self.grid
        thread = b.zext(b.thread, "i64")
        block, self.low = b.zext(b.block, "i64") if block is None else block, b.constant("i64", 0)
        if grid.chunks > 1:
            chunks = b.constant("i32", grid.chunks)
            self.chunk = b.zext(b.urem(b.block, chunks), "i64")
            block = b.zext(b.udiv(b.block, chunks), "i64")
            self.low = b.mul(self.chunk, b.constant("i64", grid.chunk))
        self.position = b.and_(thread, b.constant("i64", grid.team - 1)) if grid.teams > 1 else thread
        self.number = b.lshr(thread, b.constant("i64", _log2(grid.team)))
        row = block
        if grid.teams > 1:
            row = b.add(b.mul(block, b.constant("i64", grid.teams)), self.number)
        self.frame.access.variables["row"] = row
        if grid.rows % grid.teams:
            self.row_active = b.icmp("slt", row, b.constant("i64", grid.rows))
        self.is_first = self._both(b.icmp("eq", self.position, b.constant("i64", 0)), self.row_active)
        if grid.reference is not None:
            self._find_shift(grid.reference)
        if grid.resident:
            make = self._whole_piece if grid.reference is None else self._piece_of_round
            self.pieces = [make(n) for n in range(grid.rounds)]
        if grid.tail:
            self.tail = self._last(grid.extent - grid.tail)

    def _whole_piece(self, number: int) -> Piece:
        return self.piece(self.builder.constant("i64", number), number, self._has(number))

    def _find_shift(self, reference: Index) -> None:
        """Where the row lies between aligned addresses, and what of it is the block's."""
        b, grid, access = self.builder, self.grid, self.frame.access
        start = access.uniform(reference.substitute({COLUMN: Index(0)}))
        self.shift = access.variables[SHIFT] = b.and_(start, b.constant("i64", grid.lanes - 1))
        self.first = scaled(b, self.low, grid.lanes)
        self.end = b.constant("i64", grid.extent)
        if grid.chunks > 1:
            end = b.add(self.first, b.constant("i64", grid.chunk * grid.lanes))
            self.end = b.select(b.icmp("slt", end, self.end), end, self.end)

    def _piece_of_round(self, number: int) -> Piece:
        """Where pieces are written out, and the row is no whole ones."""
        round_ = self.builder.constant("i64", number)
        is_whole = number > 0 and (number + 1) * self.grid.team <= self.grid.extent // self.grid.lanes
        return self.piece(round_, number, self.row_active) if is_whole else self._edge(round_, number)

    def _edge(self, round_: Val, number: int) -> Piece:
        """The thread's piece of a round in which some reach over the ends of the row, or lie behind it."""
        b, lanes, access = self.builder, self.grid.lanes, self.frame.access
        piece = self.piece(round_, number, None)
        column = access.variables[piece.column]
        behind = b.add(b.add(column, self.shift), b.constant("i64", lanes))
        inside = b.and_(b.icmp("sle", self.first, column), b.icmp("sle", behind, self.end))
        active = self._both(b.icmp("slt", column, self.end), self.row_active)
        kind = "i32" if self.grid.extent < 1 << 30 else "i64"
        low, high, place = (
            b.trunc(value, kind) if kind == "i32" else value for value in (self.first, self.end, column)
        )
        access.edges[piece.column] = Edge(low, high, place, inside)
        return replace(piece, active=active)

    def taken(self, piece: Piece) -> Val | None:
        """Where elements of a piece are the thread's (None: all): a condition, or one for each lane."""
        edge = self.frame.access.edges.get(piece.column)
        if edge is None:
            return piece.active
        mask = edge.mask(self.builder)
        return mask if self.row_active is None else self.builder.and_(mask, self.builder.splat(self.row_active))

    def _both(self, condition: Val, other: Val | None) -> Val:
        return condition if other is None else self.builder.and_(condition, other)

    def _has(self, number: int) -> Val | None:
        """Whether the thread has a piece in a round that is written out."""
        b, grid = self.builder, self.grid
        found = self.row_active
        first = number * grid.team
        ragged = grid.chunks > 1 and grid.pieces % grid.chunk
        if first + grid.team > grid.span:
            place = b.add(self.position, b.constant("i64", first))
            found = self._both(b.icmp("slt", place, b.constant("i64", grid.span)), found)
        if ragged:
            place = b.add(self.low, b.add(self.position, b.constant("i64", first)))
            found = self._both(b.icmp("slt", place, b.constant("i64", grid.pieces)), found)
        return found

    def piece(self, round_: Val, number: int, active: Val | None) -> Piece:
        """The thread's piece of a round; ``number`` tells it from others that are alive."""
        b, grid, access = self.builder, self.grid, self.frame.access
        piece = b.add(b.mul(round_, b.constant("i64", grid.team)), self.position)
        if grid.chunks > 1:
            piece = b.add(self.low, piece)
        column, outer = f"{COLUMN}.{number}", f"outer.{number}"
        if grid.outer > 1:
            narrow = b.trunc(piece, "i32") if grid.pieces < 1 << 31 else piece
            stretch = b.constant(narrow.kind, grid.extent // grid.lanes)
            access.variables[outer] = b.zext(b.udiv(narrow, stretch), "i64")
            piece = b.zext(b.urem(narrow, stretch), "i64")
        first = b.mul(piece, b.constant("i64", grid.lanes))
        place = variable(column, 0, grid.extent - 1)
        mapping = {COLUMN: place, "outer": variable(outer, 0, grid.outer - 1)}
        access.edges.pop(column, None)
        if grid.reference is not None:
            access.variables[column] = b.sub(first, self.shift)
            place = place + variable(SHIFT, 0, grid.lanes - 1)
            access.references[column] = (grid.reference.substitute(mapping), place)
            return Piece(column, grid.lanes, mapping, active, place)
        access.variables[column] = b.sub(b.constant("i64", grid.extent - grid.lanes), first) if self.reverse else first
        access.multiples[column] = grid.lanes
        return Piece(column, grid.lanes, mapping, active, place)

    def _last(self, start: int) -> Piece:
        b, column = self.builder, f"{COLUMN}.tail"
        place = b.add(self.position, b.constant("i64", start))
        self.frame.access.variables[column] = place
        active = b.icmp("slt", place, b.constant("i64", self.grid.extent))
        if self.grid.chunks > 1:
            active = b.and_(active, b.icmp("eq", self.chunk, b.constant("i64", 0)))
        mapping = {COLUMN: variable(column, 0, self.grid.extent - 1)}
        active = self._both(active, self.row_active)
        return Piece(column, 1, mapping, active, mapping[COLUMN])

    def has(self, round_: Val) -> Val:
        """Whether the thread has a piece in a round; after the last one of a row or a chunk nobody has."""
        b, grid = self.builder, self.grid
        place = b.add(b.mul(round_, b.constant("i64", grid.team)), self.position)
        found = self._both(b.icmp("slt", place, b.constant("i64", grid.span)), self.row_active)
        if grid.chunks == 1:
            return found
        return b.and_(found, b.icmp("slt", b.add(self.low, place), b.constant("i64", grid.pieces)))

    @contextmanager
    def on(self, piece: Piece) -> Iterator[None]:
        """Inside, code is for a piece's lanes."""
        access = self.frame.access
        with access.lanes(piece.lanes, piece.column), access.guarded(piece.active):
            yield

    def through(self, carried: Sequence[Val], take: Take) -> list[Val]:
        """Go through the whole pieces of the thread, some at a time."""
        b, grid = self.builder, self.grid
        if grid.resident:
            return take(self.pieces, list(carried))
        if grid.reference is None:
            return self._rounds_from(b.constant("i64", 0), self._rounds(), carried, take)
        return self._ragged(carried, take)

    def _rounds_from(self, first: Val, rounds: Val, carried: Sequence[Val], take: Take) -> list[Val]:
        """Rounds of which every thread has a piece, or the last ones of its own."""
        b, unroll = self.builder, self.grid.unroll
        groups = b.constant("i64", 0)
        if unroll > 1:
            groups = divided(b, rounds, unroll)
            carried = self._loop(b.constant("i64", 0), groups, carried, unroll, take, first)
        start = scaled(b, groups, unroll)
        if not (start.is_literal and rounds.is_literal and start.text == rounds.text):
            carried = self._loop(start, rounds, carried, 1, take, first)
        return list(carried)

    def _ragged(self, carried: Sequence[Val], take: Take) -> list[Val]:
        """The first round, those in which every piece is whole, and the last ones."""
        b, grid = self.builder, self.grid
        one, zero = b.constant("i64", 1), b.constant("i64", 0)
        carried = self._alone(zero, carried, take)
        whole = divided(b, b.sub(self.end, self.first), grid.lanes * grid.team)
        last = b.select(b.icmp("sgt", whole, one), whole, one)
        between = b.sub(last, one)
        if self.row_active is not None:
            between = b.select(self.row_active, between, zero)
        carried = self._rounds_from(one, between, carried, take)
        carried = self._alone(last, carried, take)
        # The row may reach into one piece more than it has whole ones.
        if grid.chunks > 1 or (grid.extent // grid.lanes + 1) % grid.team == 0:
            carried = self._alone(b.add(last, one), carried, take)
        return list(carried)

    def _alone(self, round_: Val, carried: Sequence[Val], take: Take) -> list[Val]:
        with self.frame.scope():
            return take([self._edge(round_, 0)], list(carried))

    def _loop(self, start: Val, end: Val, carried: Sequence[Val], unroll: int, take: Take, begin: Val) -> list[Val]:
        b = self.builder
        loop = b.begin_loop(start, end, 1, carried)
        with self.frame.scope():
            first = b.add(scaled(b, loop.index, unroll), begin)
            rounds = [b.add(first, b.constant("i64", n)) if n else first for n in range(unroll)]
            pieces = [self.piece(one, number, None) for number, one in enumerate(rounds)]
            values = take(pieces, list(loop.carried))
        return list(b.end_loop(loop, values))

    def _rounds(self) -> Val:
        """How many pieces the thread has."""
        b, grid = self.builder, self.grid
        if grid.chunks == 1 and grid.pieces % grid.team == 0 and self.row_active is None:
            return b.constant("i64", grid.pieces // grid.team)
        count = b.constant("i64", grid.span)
        if grid.chunks > 1:
            left = b.sub(b.constant("i64", grid.pieces), self.low)
            count = b.select(b.icmp("slt", left, count), left, count)
        above = b.add(b.sub(count, self.position), b.constant("i64", grid.team - 1))
        rounds = b.lshr(above, b.constant("i64", _log2(grid.team)))
        if self.row_active is not None:
            rounds = b.select(self.row_active, rounds, b.constant("i64", 0))
        return rounds

    def turned(self, combiners: Combiners, flat: Sequence[Val]) -> list[Val]:
        """Every lane of the team gets what lanes hold that are as many further as the row begins behind an aligned address."""
        b, grid = self.builder, self.grid
        result: list[Val] = []
        for combiner, group in zip(combiners.combiners, combiners.grouped(flat)):
            assert combiner.recognized is not None
            if combiner.recognized.is_idempotent or all(kind[0] == "i" for kind in combiner.kinds):
                # Any order gives the same.
                result += group
                continue
            for value in group:
                lanes = self._turned([b.extract(value, lane) for lane in range(grid.lanes)])
                turned = Val("poison", value.kind, grid.lanes)
                for lane, element in enumerate(lanes):
                    turned = b.insert(turned, lane, element)
                result.append(turned)
        return result

    def _turned(self, own: Sequence[Val]) -> list[Val]:
        """A thread's lanes first, among themselves: what goes over their end is then the next thread's."""
        b, grid, access = self.builder, self.grid, self.frame.access
        amount, count = b.trunc(self.shift, "i32"), len(own)
        own = rotated(b, own, amount)
        is_own = [b.icmp("slt", amount, b.constant("i32", count - number)) for number in range(count)]
        width = min(grid.team, self.warp)
        lane = b.and_(b.thread, b.constant("i32", self.warp - 1))
        following = b.and_(b.add(lane, b.constant("i32", 1)), b.constant("i32", width - 1))
        source = b.or_(b.and_(lane, b.constant("i32", self.warp - width)), following)
        warps = grid.team // self.warp
        if warps <= 1:
            return self._shuffled(own, is_own, lane, source)
        array = access.add_shared(own[0].kind, grid.threads // self.warp * count)
        warp = b.lshr(b.zext(b.thread, "i64"), b.constant("i64", _log2(self.warp)))

        def place(warp: Val, number: int) -> Val:
            return b.add(scaled(b, warp, count), b.constant("i64", number))

        def publish() -> None:
            for number, value in enumerate(own):
                access.store_at(value, array, place(warp, number))

        b.when(b.icmp("eq", lane, b.constant("i32", 0)), publish)
        found = self._shuffled(own, is_own, lane, source)
        b.barrier()
        of_team = b.and_(b.add(warp, b.constant("i64", 1)), b.constant("i64", warps - 1))
        other = b.or_(b.and_(warp, b.constant("i64", -warps)), of_team)

        def fetched() -> list[Val]:
            values = [access.load_at(array, own[0].kind, place(other, number)) for number in range(count)]
            return [b.select(*each) for each in zip(is_own, found, values)]

        return b.either(b.icmp("eq", lane, b.constant("i32", self.warp - 1)), fetched, found)

    def _shuffled(self, values: Sequence[Val], is_own: Sequence[Val], lane: Val, other: Val) -> list[Val]:
        b = self.builder
        return [b.shuffle_from(value, b.select(own, lane, other)) for value, own in zip(values, is_own)]

    # ---------------------------------------------------------------- together

    def together(self, combiners: Combiners, flat: Sequence[Val]) -> list[Val]:
        """Combine what the threads of the team hold; every thread gets the whole."""
        grid = self.grid
        values = self._butterfly(combiners, list(flat), min(grid.team, self.warp))
        if grid.team > self.warp:
            values = self._between_warps(combiners, values)
        return values

    def _butterfly(self, combiners: Combiners, values: list[Val], width: int) -> list[Val]:
        distance = width // 2
        while distance:
            others = [self.builder.shuffle_xor(value, distance) for value in values]
            values = combiners.merge(values, others)
            distance //= 2
        return values

    def _between_warps(self, combiners: Combiners, values: list[Val]) -> list[Val]:
        b, grid, access = self.builder, self.grid, self.frame.access
        warps = grid.team // self.warp
        arrays = [access.add_shared(value.kind, grid.threads // self.warp) for value in values]
        thread = b.zext(b.thread, "i64")
        lane = b.and_(thread, b.constant("i64", self.warp - 1))
        slot = b.lshr(thread, b.constant("i64", _log2(self.warp)))

        def publish() -> None:
            for array, value in zip(arrays, values):
                access.store_at(value, array, slot)

        b.when(b.icmp("eq", lane, b.constant("i64", 0)), publish)
        b.barrier()
        other = b.and_(lane, b.constant("i64", warps - 1))
        if grid.teams > 1:
            other = b.add(other, b.mul(self.number, b.constant("i64", warps)))
        found = [access.load_at(array, value.kind, other) for array, value in zip(arrays, values)]
        return self._butterfly(combiners, found, warps)


def _log2(power: int) -> int:
    return power.bit_length() - 1


def scaled(b: SimtBuilder, value: Val, factor: int) -> Val:
    """A number times a constant."""
    if value.is_literal:
        return b.constant("i64", int(value.text) * factor)
    return b.mul(value, b.constant("i64", factor)) if factor > 1 else value


def divided(b: SimtBuilder, value: Val, divisor: int) -> Val:
    """A number that is not negative by a power of two, rounded down."""
    if value.is_literal:
        return b.constant("i64", int(value.text) // divisor)
    return b.lshr(value, b.constant("i64", _log2(divisor)))

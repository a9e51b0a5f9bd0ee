"""A block's elements in shared memory, put into the order of one digit, equal ones as they were.

A warp takes neighbouring elements, round after round.  Votes say which lanes have the same digit; the lanes below among
them, and what the warp has counted before, are an element's rank.  Summed up over digits and warps, the counts say where
each element goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import final

from hlojit.llvm.text import Val
from hlojit.lowering.target import KIND_BITS
from hlojit.simt.builder import SimtBuilder

DigitOf = Callable[[Sequence[Val]], Val]
"""From what is known of an element to its digit (i32)."""


@final
class BlockScan:
    """Sums over the threads of a block, those before a thread and all."""

    def __init__(self, b: SimtBuilder):
        self.b = b
        self.warps = b.threads // b.dialect.warp
        self.sums = b.shared("i32", self.warps)
        self.lane = b.and_(b.thread, b.constant("i32", b.dialect.warp - 1))
        self.warp = b.lshr(b.thread, b.constant("i32", b.dialect.warp.bit_length() - 1))

    def exclusive(self, value: Val) -> tuple[Val, Val]:
        """The sum of what the threads before this one give (i32), and of all; all threads take part."""
        b, lane = self.b, self.lane
        found, distance = value, 1
        while distance < b.dialect.warp:
            has_below = b.icmp("sge", lane, b.constant("i32", distance))
            below = b.shuffle_from(found, b.select(has_below, b.sub(lane, b.constant("i32", distance)), lane))
            found = b.add(found, b.select(has_below, below, b.constant("i32", 0)))
            distance *= 2
        is_last = b.icmp("eq", lane, b.constant("i32", b.dialect.warp - 1))
        b.when(is_last, lambda: b.store(found, self._sum(self.warp)))
        b.barrier()
        before, whole = b.sub(found, value), b.constant("i32", 0)
        for number in range(self.warps):
            other = b.load("i32", self._sum(b.constant("i32", number)))
            is_below = b.icmp("sgt", self.warp, b.constant("i32", number))
            before = b.add(before, b.select(is_below, other, b.constant("i32", 0)))
            whole = b.add(whole, other)
        # The next sum is written where this one was read.
        b.barrier()
        return before, whole

    def _sum(self, warp: Val) -> Val:
        return self.b.element_pointer(self.sums, "i32", self.b.zext(warp, "i64"))


@final
class DigitOrder:
    """Elements of several kinds in shared memory, ``items`` for each thread of the block."""

    def __init__(self, b: SimtBuilder, kinds: Sequence[str], items: int, bits: int):
        """``bits`` of the widest digit; there are at least as many threads as values of a digit."""
        assert 1 << bits <= b.threads
        self.b, self.kinds, self.items = b, tuple(kinds), items
        self.arrays = [b.shared(kind, b.threads * items) for kind in kinds]
        self.scan = BlockScan(b)
        self.warps = self.scan.warps
        self.counters = b.shared("i32", self.warps << bits)

    # ------------------------------------------------------------------ elements

    def load(self, position: Val) -> list[Val]:
        """An element of the block (i32)."""
        return [self.b.load(kind, self._place(base, kind, position)) for kind, base in zip(self.kinds, self.arrays)]

    def store(self, values: Sequence[Val], position: Val) -> None:
        """Put an element into the block."""
        for value, base in zip(values, self.arrays, strict=True):
            self.b.store(value, self._place(base, value.kind, position))

    def _place(self, base: Val, kind: str, position: Val) -> Val:
        return self.b.element_pointer(base, kind, self.b.zext(position, "i64"))

    # -------------------------------------------------------------------- counting

    def clear(self, bits: int) -> None:
        """Begin to count digits of so many bits."""
        b, count = self.b, self.warps << bits
        for first in range(0, count, b.threads):
            place = b.add(b.thread, b.constant("i32", first))
            zero = partial(b.store, b.constant("i32", 0), self._place(self.counters, "i32", place))
            self._where(first + b.threads <= count, place, count, zero)
        b.barrier()

    def _where(self, always: bool, place: Val, end: int, body: Callable[[], None]) -> None:
        if always:
            body()
        else:
            self.b.when(self.b.icmp("ult", place, self.b.constant("i32", end)), body)

    def add(self, digit: Val, bits: int) -> None:
        """Count one more of a digit, in the thread's warp."""
        self.b.atomic("add", self._place(self.counters, "i32", self._slot(digit, bits)), self.b.constant("i32", 1))

    def _slot(self, digit: Val, bits: int) -> Val:
        b = self.b
        return b.add(b.mul(self.scan.warp, b.constant("i32", 1 << bits)), digit)

    def counted(self, bits: int) -> list[Val]:
        """How often each warp has counted the digit that is the thread's number; behind the last digit never."""
        b = self.b

        def read() -> list[Val]:
            places = [b.add(b.thread, b.constant("i32", warp << bits)) for warp in range(self.warps)]
            return [b.load("i32", self._place(self.counters, "i32", place)) for place in places]

        if 1 << bits == b.threads:
            return read()
        return b.either(self.has_digit(bits), read, [b.constant("i32", 0)] * self.warps)

    def has_digit(self, bits: int) -> Val:
        """Whether the thread's number is a digit."""
        return self.b.icmp("ult", self.b.thread, self.b.constant("i32", 1 << bits))

    # -------------------------------------------------------------------- ordering

    def order(self, digit_of: DigitOf, bits: int, count: Val) -> Val:
        """Put the first ``count`` (i32) elements into the order of a digit.

        Returns where the digit that is the thread's number begins.  Everything that was stored before is seen.
        """
        b = self.b
        self.clear(bits)
        ranked = [self._rank(number, digit_of, bits, count) for number in range(self.items)]
        b.barrier()
        counts = self.counted(bits)
        total = counts[0]
        for more in counts[1:]:
            total = b.add(total, more)
        start, _ = self.scan.exclusive(total)

        def write_starts() -> None:
            running = start
            for warp, found in enumerate(counts):
                place = b.add(b.thread, b.constant("i32", warp << bits))
                b.store(running, self._place(self.counters, "i32", place))
                running = b.add(running, found)

        self._where(1 << bits == b.threads, b.thread, 1 << bits, write_starts)
        b.barrier()
        for valid, values, slot, rank in ranked:

            def move(values: Sequence[Val] = values, slot: Val = slot, rank: Val = rank) -> None:
                first = b.load("i32", self._place(self.counters, "i32", slot))
                self.store(values, b.add(first, rank))

            b.when(valid, move)
        b.barrier()
        return start

    def _rank(self, number: int, digit_of: DigitOf, bits: int, count: Val) -> tuple[Val, list[Val], Val, Val]:
        """Of the thread's element of a round: whether there is one, itself, its digit's counter, its rank by that."""
        b = self.b
        first = b.mul(self.scan.warp, b.constant("i32", self.items * b.dialect.warp))
        position = b.add(b.add(first, b.constant("i32", number * b.dialect.warp)), self.scan.lane)
        valid = b.icmp("ult", position, count)
        nothing = [b.constant(kind, 0) for kind in (*self.kinds, "i32")]

        def found() -> list[Val]:
            element = self.load(position)
            return [*element, digit_of(element)]

        *values, digit = b.either(valid, found, nothing)
        peers = self._peers(digit, bits, valid)
        word = peers.kind
        lane = b.zext(self.scan.lane, word) if word != "i32" else self.scan.lane
        below = b.sub(b.shl(b.constant(word, 1), lane), b.constant(word, 1))
        rank = self._ones(b.and_(peers, below))
        slot = self._slot(digit, bits)
        place = self._place(self.counters, "i32", slot)
        before = b.load("i32", place)
        b.sync_warp()
        is_first = b.and_(valid, b.icmp("eq", rank, b.constant("i32", 0)))
        b.when(is_first, lambda: b.store(b.add(before, self._ones(peers)), place))
        b.sync_warp()
        return valid, values, slot, b.add(before, rank)

    def _peers(self, digit: Val, bits: int, valid: Val) -> Val:
        """The lanes of the warp that have the same digit."""
        b = self.b
        peers = b.ballot(valid)
        for bit in range(bits):
            mask = b.and_(digit, b.constant("i32", 1 << bit))
            is_set = b.icmp("ne", mask, b.constant("i32", 0))
            votes = b.ballot(is_set)
            others = b.xor(votes, b.constant(votes.kind, -1))
            peers = b.and_(peers, b.select(is_set, votes, others))
        return peers

    def _ones(self, word: Val) -> Val:
        count = self.b.population_count(word)
        return count if count.kind == "i32" else self.b.trunc(count, "i32")


def kind_bytes(kind: str) -> int:
    """Bytes of an element in memory."""
    return max(8, KIND_BITS[kind]) // 8

"""A run of few different numbers: each is counted, then written as often as it was there.

    sample of a run   3 3 5 5 5 7 7 7        values 3, 5, 7
    run               5 3 7 7 5 3            counts 2, 2, 2: all of it      =>   3 3 5 5 7 7

What the values are is guessed from a sorted sample.  A block of the run in which there are others ends the attempt, and nothing
was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from hlojit.cpu.kernels.addresses import ZERO, literal, minimum
from hlojit.cpu.kernels.partitioning import load_vector
from hlojit.cpu.kernels.sort_words import reduced
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.region import Variable, while_loop

ONE: Final = literal(1)
MOST_VALUES: Final = 8
"""That are counted: with more, partitions are as fast."""
BLOCK: Final = 64
"""Vectors that are counted for every value before the next ones; a multiple of ``GROUP``."""
GROUP: Final = 4
"""Vectors that are counted apart."""
NEAR: Final = 4
"""How far apart numbers in the middle of a sample are looked at."""


@final
@dataclass(frozen=True)
class Few:
    """Addresses of different numbers, how often each is there (i64), and how many numbers there are (i64)."""

    values: Val
    counts: Val
    found: Val


@final
@dataclass(frozen=True)
class FewValues:
    """Two functions for integers, or floats as integers, in vectors of ``lanes``; ``room`` makes what they work on.

    ``count(source, n, sample, few)`` writes to ``few`` which numbers there are, and how often, or that there are others;
    ``fill(target, n, few)`` writes them, in the order of the sample.
    """

    b: LlvmBuilder
    kind: str
    lanes: int
    samples: int
    """Of a sample."""
    symbol: str

    def may_be_few(self, sample: Val) -> Val:
        """Whether a sorted sample has equal numbers in its middle."""
        b, middle = self.b, self.samples // 2
        below, here, above = (
            b.load(self.kind, b.element_pointer(sample, self.kind, literal(place)))
            for place in (middle - NEAR, middle, middle + NEAR)
        )
        return b.or_(b.icmp("eq", below, here), b.icmp("eq", here, above))

    def room(self) -> Few:
        """Where to count."""
        b = self.b
        return Few(b.array(self.kind, MOST_VALUES + 1), b.array("i64", MOST_VALUES), b.array("i64", 1))

    def count(self, source: Val, n: Val, sample: Val, few: Few) -> Val:
        """Count a run; returns how many different numbers it has, 0 where there are others than in the sample."""
        parameters = f"ptr {source.text}, i64 {n.text}, ptr {sample.text}, "
        self.b.line(f"call void @{self.symbol}_count({parameters}{self._arguments(few)})")
        return self.b.load("i64", few.found)

    def fill(self, target: Val, n: Val, few: Few) -> None:
        """Write what was counted, ``n`` numbers in all."""
        self.b.line(f"call void @{self.symbol}_fill(ptr {target.text}, i64 {n.text}, {self._arguments(few)})")

    def _arguments(self, few: Few) -> str:
        return f"ptr {few.values.text}, ptr {few.counts.text}, ptr {few.found.text}"

    def declare(self) -> None:
        """For modules other than that of the functions."""
        for name, parameters in (("count", "ptr, i64, ptr, ptr, ptr, ptr"), ("fill", "ptr, i64, ptr, ptr, ptr")):
            self.b.declare(f"{self.symbol}_{name}", f"declare void @{self.symbol}_{name}({parameters})")

    def emit(self) -> None:
        """The functions."""
        b = self.b
        few = [("ptr", "values"), ("ptr", "counts"), ("ptr", "found")]
        parameters = [("ptr", "source"), ("i64", "n"), ("ptr", "sample"), *few]
        with b.function(f"{self.symbol}_count", parameters) as (source, n, sample, values, counts, found):
            different = self._find_values(sample, values)
            count, leave = b.fresh_label("count"), b.fresh_label("leave")
            b.store(ZERO, found)
            b.branch_if(b.icmp("sgt", different, literal(MOST_VALUES)), leave, count)
            b.begin_block(count)
            is_all = self._count_all(source, n, values, counts, different)
            b.store(b.select(is_all, different, ZERO), found)
            b.branch(leave)
            b.begin_block(leave)
        with b.function(f"{self.symbol}_fill", [("ptr", "target"), ("i64", "n"), *few]) as (target, n, *rest):
            self._fill(target, n, Few(*rest))

    def _value(self, values: Val, number: Val) -> Val:
        return self.b.load(self.kind, self.b.element_pointer(values, self.kind, number))

    def _find_values(self, sample: Val, values: Val) -> Val:
        """The different numbers of a sorted sample, one more than are counted at most; returns how many they are."""
        b, kind = self.b, self.kind
        b.store(b.load(kind, sample), values)
        place, found = Variable(b, "i64", ONE), Variable(b, "i64", ONE)

        def look() -> None:
            value = self._value(sample, place.get())
            is_new = b.icmp("ne", value, self._value(values, b.sub(found.get(), ONE)))
            found.set(b.add(found.get(), b.zext(is_new, "i64")))
            b.store(value, b.element_pointer(values, kind, b.sub(found.get(), ONE)))
            place.set(b.add(place.get(), ONE))

        while_loop(
            b,
            lambda: b.and_(
                b.icmp("slt", place.get(), literal(self.samples)), b.icmp("sle", found.get(), literal(MOST_VALUES))
            ),
            look,
        )
        return found.get()

    def _count_all(self, source: Val, n: Val, values: Val, counts: Val, found: Val) -> Val:
        """How often each value is there; returns whether nothing else is."""
        b = self.b
        loop = b.begin_loop(ZERO, literal(MOST_VALUES))
        b.store(ZERO, b.element_pointer(counts, "i64", loop.index))
        b.end_loop(loop)
        place, is_all = Variable(b, "i64", ZERO), Variable(b, "i1", Val("true", "i1"))

        def count_block() -> None:
            first = place.get()
            limit = minimum(b, n, b.add(first, literal(BLOCK * self.lanes)))
            loop = b.begin_loop(ZERO, found, carried=(ZERO,), guarded=False)
            count = self._count(source, first, limit, self._value(values, loop.index))
            here = b.element_pointer(counts, "i64", loop.index)
            b.store(b.add(b.load("i64", here), count), here)
            (total,) = b.end_loop(loop, (b.add(loop.carried[0], count),))
            is_all.set(b.icmp("eq", total, b.sub(limit, first)))
            place.set(limit)

        while_loop(b, lambda: b.and_(is_all.get(), b.icmp("slt", place.get(), n)), count_block)
        return is_all.get()

    def _count(self, source: Val, first: Val, limit: Val, value: Val) -> Val:
        """How often a number is in a block: a lane's count is no larger than ``BLOCK``."""
        b, kind, lanes = self.b, self.kind, self.lanes
        wanted = b.splat(value, lanes)
        group = literal(GROUP * lanes)
        whole = b.sub(limit, b.urem(b.sub(limit, first), group))
        zeros = [b.splat(b.constant(kind, 0), lanes)] * GROUP
        loop = b.begin_loop(first, whole, step=GROUP * lanes, carried=zeros)
        sums = []
        for number, total in enumerate(loop.carried):
            place = b.element_pointer(source, kind, b.add(loop.index, literal(number * lanes)))
            same = b.icmp("eq", load_vector(b, place, kind, lanes), wanted)
            sums.append(b.add(total, b.zext(same, kind)))
        total, *others = b.end_loop(loop, sums)
        for other in others:
            total = b.add(total, other)
        counted = reduced(b, "add", total)
        counted = counted if kind == "i64" else b.zext(counted, "i64")
        loop = b.begin_loop(whole, limit, carried=(counted,))
        same = b.icmp("eq", self._value(source, loop.index), value)
        (counted,) = b.end_loop(loop, (b.add(loop.carried[0], b.zext(same, "i64")),))
        return counted

    def _fill(self, target: Val, n: Val, few: Few) -> None:
        """Every value as often as it was counted: vectors as far as there is room, over what comes next."""
        b, kind, lanes = self.b, self.kind, self.lanes
        last = b.sub(n, literal(lanes - 1))
        loop = b.begin_loop(ZERO, b.load("i64", few.found), carried=(ZERO,))
        (first,) = loop.carried
        value = self._value(few.values, loop.index)
        limit = b.add(first, b.load("i64", b.element_pointer(few.counts, "i64", loop.index)))
        vectors = b.begin_loop(first, minimum(b, limit, last), step=lanes)
        b.store(b.splat(value, lanes), b.element_pointer(target, kind, vectors.index))
        b.end_loop(vectors)
        # What is left is behind the last place from which a vector has room.
        rest = b.begin_loop(b.intrinsic("smax", first, last), limit)
        b.store(value, b.element_pointer(target, kind, rest.index))
        b.end_loop(rest)
        b.end_loop(loop, (limit,))

"""A stable order of keys in memory that leave no room in a word for the elements' numbers.

Words hold what is highest of the keys' range, and numbers.  Where bits were lost, words that are equal but for their numbers
are sorted once more, by these bits:

    keys 0x..01 0x..07 0x..00    words by the highest bits: numbers 0 1 2    runs of equal ones by the lost bits: 2 0 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from hlojit.cpu.kernels.addresses import ZERO, literal
from hlojit.cpu.kernels.quicksort import ONE, Sorter
from hlojit.cpu.kernels.sort_words import Values, each_vector, load_lanes, numbers_from, reduced
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.region import Variable, while_loop


@final
@dataclass(frozen=True)
class KeyOrder:
    """Emits the order of ``length`` unsigned keys (i64) as words whose lowest ``number_bits`` are elements' numbers."""

    b: LlvmBuilder
    sorter: Sorter
    length: int
    number_bits: int
    native: int
    """Lanes of a vector of words."""

    @property
    def lanes(self) -> int:
        """Of the vectors in which keys are read."""
        lanes = self.native
        while lanes > self.length:
            lanes //= 2
        return lanes

    def bounds(self, keys: Val) -> tuple[Val, Val]:
        """The smallest and the largest key."""
        b = self.b

        def body(index: Val, carried: Values) -> Values:
            key = load_lanes(b, "i64", keys, index, self.lanes)
            return b.intrinsic("umin", carried[0], key), b.intrinsic("umax", carried[1], key)

        start = (b.constant("i64", -1), b.constant("i64", 0))
        low, high = each_vector(b, self.length, self.lanes, start, body)
        return reduced(b, "umin", low), reduced(b, "umax", high)

    def emit(
        self, context: Val, keys: Val, low: Val, high: Val, x: Val, y: Val, wanted: tuple[Val, Val] | None = None
    ) -> None:
        """Sorted words in ``x``, of keys between two bounds; ``wanted`` are the places of it that are looked at."""
        b, length = self.b, literal(self.length)
        lost = self._words(keys, low, high, y)
        has_lost = b.icmp("ne", lost, ZERO)
        if wanted is not None:
            # What is equal so far may have to change places with what is not wanted.
            wanted = b.select(has_lost, ZERO, wanted[0]), b.select(has_lost, length, wanted[1])
        self.sorter.call(b, context, x, y, length, self.sorter.smallest, self.sorter.largest, wanted)
        more, done = b.fresh_label("more"), b.fresh_label("done")
        b.branch_if(has_lost, more, done)
        b.begin_block(more)
        self._sort_equal_runs(context, x, y, keys, low, lost)
        b.branch(done)
        b.begin_block(done)

    def _words(self, keys: Val, low: Val, high: Val, y: Val) -> Val:
        """Words of the highest bits of keys and numbers; returns how many bits were lost."""
        b = self.b
        used = b.sub(literal(64), b.intrinsic("ctlz", b.sub(high, low), extra="i1 false", extra_type="i1"))
        lost = b.intrinsic("smax", b.sub(used, literal(64 - self.number_bits)), ZERO)

        def make(index: Val, carried: Values) -> Values:
            key = load_lanes(b, "i64", keys, index, self.lanes)
            shortened = b.shl(b.lshr(b.sub(key, low), lost), b.constant("i64", self.number_bits))
            word = b.or_(shortened, numbers_from(b, index, "i64", key.lanes))
            b.store(b.xor(word, b.constant("i64", 1 << 63)), b.element_pointer(y, "i64", index))
            return carried

        each_vector(b, self.length, self.lanes, (), make)
        return lost

    def _sort_equal_runs(self, context: Val, x: Val, y: Val, keys: Val, base: Val, lost: Val) -> None:
        """Sort words of equal keys, as far as these are in them, by the rest of the keys."""
        b = self.b
        shift = literal(self.number_bits)
        place = Variable(b, "i64", ZERO)
        end = Variable(b, "i64", ZERO)

        def is_same() -> Val:
            inside = b.icmp("slt", end.get(), literal(self.length))
            # Beyond the end the first word is looked at: it is not used.
            other = b.select(inside, end.get(), ZERO)
            x_key, y_key = (
                b.lshr(b.load("i64", b.element_pointer(x, "i64", at)), shift) for at in (place.get(), other)
            )
            return b.and_(inside, b.icmp("eq", x_key, y_key))

        def advance() -> None:
            end.set(b.add(end.get(), ONE))

        def run() -> None:
            end.set(b.add(place.get(), ONE))
            while_loop(b, is_same, advance)
            first, count = place.get(), b.sub(end.get(), place.get())
            single, several = b.fresh_label("single"), b.fresh_label("several")
            b.branch_if(b.icmp("eq", count, ONE), single, several)
            b.begin_block(several)
            here, there = b.element_pointer(x, "i64", first), b.element_pointer(y, "i64", first)
            self._by_lost_bits(here, there, count, keys, base, lost)
            self.sorter.call(b, context, here, there, count, self.sorter.smallest, self.sorter.largest)
            b.branch(single)
            b.begin_block(single)
            place.set(end.get())

        while_loop(b, lambda: b.icmp("slt", place.get(), literal(self.length)), run)

    def _by_lost_bits(self, words: Val, target: Val, count: Val, keys: Val, base: Val, lost: Val) -> None:
        """Words of the lost bits of keys, and the numbers that are in other words."""
        b = self.b
        numbers = literal((1 << self.number_bits) - 1)
        mask = b.sub(b.shl(literal(1), lost), literal(1))
        loop = b.begin_loop(ZERO, count)
        number = b.and_(b.load("i64", b.element_pointer(words, "i64", loop.index)), numbers)
        key = b.sub(b.load("i64", b.element_pointer(keys, "i64", number)), base)
        word = b.or_(b.shl(b.and_(key, mask), literal(self.number_bits)), number)
        b.store(word, b.element_pointer(target, "i64", loop.index))
        b.end_loop(loop)

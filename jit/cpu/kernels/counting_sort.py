"""Long lines whose keys have at most 16 bits: keys are counted, and elements put where their key's turn is.

    keys 2 0 2 1      counts 1 1 2      places 0 1 2      elements, one after the other, to 2, 0, 3, 1

It is stable, and moves each element once.  Keys of more than eight bits take two passes, by their lower and by their higher
digit: the first one moves words of higher digit and element's number.

A line may be cut into parts, which are counted apart: elements of a part come behind those of equal digits in the parts before
it, so that every part can be moved by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from hlojit.cpu.kernels.addresses import ZERO, literal
from hlojit.cpu.kernels.sort_words import key_at
from hlojit.cpu.kernels.sorted_lines import Lines, write_element
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.lowering.line_sort_plan import DIGIT_BITS, LineSortPlan
from hlojit.lowering.sorted_arrays import SortedArrays

ONE: Final = literal(1)
TABLES: Final = 4
"""Neighbours are counted apart: an equal digit would wait for the count before it."""
DIGITS: Final = 1 << DIGIT_BITS
COUNTS_BYTES: Final = 4 * DIGITS
"""Of the counts of a part."""


@final
@dataclass(frozen=True)
class CountingSort:
    """Emits the passes over a line; ``words`` is room for a word of each element where there are two passes."""

    b: LlvmBuilder
    plan: LineSortPlan
    arrays: SortedArrays

    def emit(self, operands: Lines, results: list[Val], words: Val | None) -> None:
        """Sort a line."""
        b, whole = self.b, (ZERO, literal(self.plan.length))
        counts, places = b.array("i32", DIGITS), b.array("i32", DIGITS)
        for number in range(self.plan.passes):
            self.count(number, operands, words, counts, whole)
            self.find_places(counts, 1, ZERO, places)
            self.move(number, operands, words, results, places, whole)

    # ------------------------------------------------------------- of a part

    def count(self, number: int, operands: Lines, words: Val | None, counts: Val, part: tuple[Val, Val]) -> None:
        """How often each digit of a pass is in a part, from ``part[0]`` to ``part[1]``."""
        b = self.b
        tables = b.array("i32", TABLES * DIGITS)
        clear = b.begin_loop(ZERO, literal(TABLES * DIGITS))
        b.store(Val("0", "i32"), b.element_pointer(tables, "i32", clear.index))
        b.end_loop(clear)
        first, limit = part
        whole = b.sub(limit, b.urem(b.sub(limit, first), literal(TABLES)))
        for start, end, step in ((first, whole, TABLES), (whole, limit, 1)):
            loop = b.begin_loop(start, end, step=step)
            for table in range(step):
                digit = self._digit(number, operands, words, b.add(loop.index, literal(table)))
                counter = b.element_pointer(tables, "i32", b.add(digit, literal(table * DIGITS)))
                b.store(b.add(b.load("i32", counter), Val("1", "i32")), counter)
            b.end_loop(loop)
        loop = b.begin_loop(ZERO, literal(DIGITS))
        total = b.load("i32", b.element_pointer(tables, "i32", loop.index))
        for table in range(1, TABLES):
            place = b.add(loop.index, literal(table * DIGITS))
            total = b.add(total, b.load("i32", b.element_pointer(tables, "i32", place)))
        b.store(total, b.element_pointer(counts, "i32", loop.index))
        b.end_loop(loop)

    def find_places(self, counts: Val, parts: int, part: Val, places: Val) -> None:
        """Where the elements of a part go, by digit, from the counts of all parts."""
        b = self.b
        zero = Val("0", "i32")
        digits = b.begin_loop(ZERO, literal(DIGITS), carried=(zero,))
        (before,) = digits.carried
        loop = b.begin_loop(ZERO, literal(parts), carried=(before, before))
        here, end = loop.carried
        place = b.add(b.mul(loop.index, literal(DIGITS)), digits.index)
        count = b.load("i32", b.element_pointer(counts, "i32", place))
        here = b.add(here, b.select(b.icmp("slt", loop.index, part), count, zero))
        here, end = b.end_loop(loop, (here, b.add(end, count)))
        b.store(here, b.element_pointer(places, "i32", digits.index))
        b.end_loop(digits, (end,))

    def move(
        self,
        number: int,
        operands: Lines,
        words: Val | None,
        results: list[Val],
        places: Val,
        part: tuple[Val, Val],
    ) -> None:
        """Elements of a part to where they go: words of them in all passes but the last one."""
        b, plan = self.b, self.plan
        loop = b.begin_loop(*part)
        if number + 1 < plan.passes:
            assert words is not None
            key = self._key(operands, loop.index)
            there = self._take(places, b.and_(key, literal(DIGITS - 1)))
            higher = b.shl(b.lshr(key, literal(DIGIT_BITS)), literal(plan.number_bits))
            word = b.or_(higher, loop.index)
            word = word if plan.word == "i64" else b.trunc(word, plan.word)
            b.store(word, b.element_pointer(words, plan.word, there))
        elif number:
            assert words is not None
            word = self._word(words, loop.index)
            there = self._take(places, b.lshr(word, literal(plan.number_bits)))
            element = b.and_(word, literal((1 << plan.number_bits) - 1))
            write_element(b, self.arrays, element, operands, results, there)
        else:
            there = self._take(places, self._key(operands, loop.index))
            write_element(b, self.arrays, loop.index, operands, results, there)
        b.end_loop(loop)

    # ---------------------------------------------------------- of an element

    def _key(self, operands: Lines, index: Val) -> Val:
        kind = "i8" if self.plan.key_bits <= DIGIT_BITS else "i16"
        return self.b.zext(key_at(self.b, self.plan.codes, kind, self.arrays.kinds, operands, index, 1), "i64")

    def _word(self, words: Val, index: Val) -> Val:
        b, kind = self.b, self.plan.word
        word = b.load(kind, b.element_pointer(words, kind, index))
        return word if kind == "i64" else b.zext(word, "i64")

    def _digit(self, number: int, operands: Lines, words: Val | None, index: Val) -> Val:
        b, plan = self.b, self.plan
        if number:
            assert words is not None
            return b.lshr(self._word(words, index), literal(plan.number_bits))
        key = self._key(operands, index)
        return key if plan.passes == 1 else b.and_(key, literal(DIGITS - 1))

    def _take(self, places: Val, digit: Val) -> Val:
        """The place of an element; the next one of the digit goes behind it."""
        b = self.b
        counter = b.element_pointer(places, "i32", digit)
        place = b.load("i32", counter)
        b.store(b.add(place, Val("1", "i32")), counter)
        return b.zext(place, "i64")

"""A stable merge sort of a line of elements in several arrays: blocks by insertion, then merged back and forth.

What comes before what is the caller's to say, and where in an array an element of the line lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from hlojit.ir.formats import ElementType
from hlojit.ir.scalar import formats
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.region import Variable, while_loop

INSERTION_BLOCK: Final = 12
"""Elements that are sorted by insertion before merging begins."""

Bases = Sequence[Val]
"""Addresses of arrays, one for each operand."""


@final
@dataclass(frozen=True)
class LineMerger:
    """Emits the sorting of one line of ``length`` elements of each of ``elements``.

    ``before(left, i, right, j)``: whether element i of ``left`` comes before element j of ``right``.
    ``held(bits, arrays, j)``: the same of an element that is given as it stands in memory.
    """

    b: LlvmBuilder
    elements: Sequence[ElementType]
    length: Val
    before: Callable[[Bases, Val, Bases, Val], Val]
    held: Callable[[Sequence[Val]], Callable[[Bases, Val], Val]]
    place: Callable[[Val], Val] = lambda index: index

    def sort(self, first: Bases, second: Bases) -> Val:
        """Sort ``first``, with ``second`` for what is in between; returns (i1) whether the result is in ``first``."""
        b, length = self.b, self.length
        self._insertion_sort(first)
        in_first = Variable(b, "i1", b.constant("i1", 1))
        width = Variable(b, "i64", b.constant("i64", INSERTION_BLOCK))

        def merge_all() -> None:
            step = width.get()
            flag = in_first.get()
            source = [b.select(flag, x, y) for x, y in zip(first, second)]
            target = [b.select(flag, y, x) for x, y in zip(first, second)]
            start = Variable(b, "i64", b.constant("i64", 0))

            def merge_pair() -> None:
                low = start.get()
                middle = self._minimum(b.add(low, step), length)
                high = self._minimum(b.add(middle, step), length)
                self._merge(source, target, low, middle, high)
                start.set(high)

            while_loop(b, lambda: b.icmp("slt", start.get(), length), merge_pair)
            in_first.set(b.xor(flag, b.constant("i1", 1)))
            width.set(b.add(step, step))

        while_loop(b, lambda: b.icmp("slt", width.get(), length), merge_all)
        return in_first.get()

    def _minimum(self, x: Val, y: Val) -> Val:
        return self.b.select(self.b.icmp("slt", x, y), x, y)

    def _pointer(self, element: ElementType, base: Val, index: Val) -> Val:
        return self.b.element_pointer(base, formats.storage_kind(element), self.place(index))

    def load(self, element: ElementType, base: Val, index: Val) -> Val:
        """An element as it stands in memory."""
        return self.b.load(formats.storage_kind(element), self._pointer(element, base, index))

    def move(self, source: Bases, here: Val, target: Bases, there: Val) -> None:
        """Copy the bits of one element of every operand."""
        for element, source_base, target_base in zip(self.elements, source, target):
            value = self.load(element, source_base, here)
            self.b.store(value, self._pointer(element, target_base, there))

    def _insertion_sort(self, base: Bases) -> None:
        """Sort blocks of ``INSERTION_BLOCK`` elements in place."""
        b = self.b
        outer = b.begin_loop(b.constant("i64", 0), self.length)
        position = outer.index
        lowest = b.sub(position, b.urem(position, b.constant("i64", INSERTION_BLOCK)))
        bits = [self.load(element, line, position) for element, line in zip(self.elements, base)]
        is_before = self.held(bits)
        hole = Variable(b, "i64", position)
        moving = Variable(b, "i1", b.icmp("sgt", position, lowest))

        def shift() -> None:
            place = hole.get()
            previous = b.sub(place, b.constant("i64", 1))
            smaller = is_before(base, previous)
            inside, after = b.fresh_label("shift"), b.fresh_label("stay")
            moving.set(b.constant("i1", 0))
            b.branch_if(smaller, inside, after)
            b.begin_block(inside)
            self.move(base, previous, base, place)
            hole.set(previous)
            moving.set(b.icmp("sgt", previous, lowest))
            b.branch(after)
            b.begin_block(after)

        while_loop(b, moving.get, shift)
        place = hole.get()
        for element, line, each in zip(self.elements, base, bits):
            b.store(each, self._pointer(element, line, place))
        b.end_loop(outer)

    def _merge(self, source: Bases, target: Bases, low: Val, middle: Val, high: Val) -> None:
        """Merge source[low:middle] and source[middle:high] into target[low:high], keeping equal elements in order."""
        b = self.b
        left, right, place = (Variable(b, "i64", value) for value in (low, middle, low))
        one = b.constant("i64", 1)

        def both_left() -> Val:
            return b.and_(b.icmp("slt", left.get(), middle), b.icmp("slt", right.get(), high))

        def take_smaller() -> None:
            i, j, k = left.get(), right.get(), place.get()
            take_right = self.before(source, j, source, i)
            self.move(source, b.select(take_right, j, i), target, k)
            step = b.zext(take_right, "i64")
            right.set(b.add(j, step))
            left.set(b.add(i, b.sub(one, step)))
            place.set(b.add(k, one))

        while_loop(b, both_left, take_smaller)
        for side, limit in ((left, middle), (right, high)):

            def take_rest(side: Variable = side) -> None:
                here, there = side.get(), place.get()
                self.move(source, here, target, there)
                side.set(b.add(here, one))
                place.set(b.add(there, one))

            def is_left(side: Variable = side, limit: Val = limit) -> Val:
                return b.icmp("slt", side.get(), limit)

            while_loop(b, is_left, take_rest)

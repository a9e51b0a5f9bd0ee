"""Pieces of rows that are no whole pieces: they begin at aligned addresses, wherever the row itself begins.

    row 1 of 7 elements, pieces of 4:     . . . 7 | 8 9 10 11 | 12 13 . .

The first and the last pieces reach over the row's ends (``Edge``): all others are read and written like those of whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlojit.llvm.text import Val
from hlojit.simt.builder import SimtBuilder


@dataclass(frozen=True)
class Edge:
    """A piece that may reach over the ends of its row."""

    low: Val
    """The first column that belongs to it."""
    high: Val
    """The one behind the last."""
    column: Val
    """That of the first lane, of the same kind (i32, i64 in rows that are longer), as one below zero, too."""
    inside: Val
    """Whether all of it belongs to the row, and the aligned pieces as far from the beginning of a row, too."""

    # Made again where they are wanted, which is rarely: to keep them would cost a register a lane.

    def nearest(self, b: SimtBuilder) -> Val:
        """The columns of the lanes; beyond the row's ends the one at the end."""
        columns, low = self._columns(b), b.splat(self.low)
        last = b.splat(b.sub(self.high, b.constant(self.high.kind, 1)))
        columns = b.select(b.icmp("slt", columns, low), low, columns)
        return b.select(b.icmp("sgt", columns, last), last, columns)

    def mask(self, b: SimtBuilder) -> Val:
        """Which lanes belong to the row."""
        columns = self._columns(b)
        return b.and_(b.icmp("sge", columns, b.splat(self.low)), b.icmp("slt", columns, b.splat(self.high)))

    def _columns(self, b: SimtBuilder) -> Val:
        return b.add(b.splat(self.column), b.lane_indices(self.column.kind))


def neighbours(b: SimtBuilder, values: Sequence[Val], place: Val, count: int, smallest: int = 1) -> list[Val]:
    """``count`` (a power of two) scalars of twice as many, from ``place`` on: an i32 below ``count``, a multiple of ``smallest``.

    As many of those that follow as there are beyond are given as well.
    """
    found, step = list(values), count // 2
    while step >= smallest:
        is_further = b.icmp("ne", b.and_(place, b.constant("i32", step)), b.constant("i32", 0))
        # One more than later steps can reach.
        reach = min(count + step, len(found) - step)
        found = [b.select(is_further, found[n + step], found[n]) for n in range(reach)]
        step //= 2
    return found


def rotated(b: SimtBuilder, values: Sequence[Val], place: Val) -> list[Val]:
    """A power of two of scalars from ``place`` (i32) on, those before it behind the last."""
    found, count = list(values), len(values)
    for step in (1 << number for number in range(count.bit_length() - 1)):
        is_further = b.icmp("ne", b.and_(place, b.constant("i32", step)), b.constant("i32", 0))
        found = [b.select(is_further, found[(n + step) % count], found[n]) for n in range(count)]
    return found


def shifted_words(b: SimtBuilder, words: Sequence[Val], nbytes: Val, smallest: int) -> list[Val]:
    """Half of an even number of 32-bit words, from a byte on: an i32, a multiple of ``smallest``."""
    count = len(words) // 2
    found = neighbours(b, words, b.lshr(nbytes, b.constant("i32", 2)), count, max(1, smallest // 4))
    if smallest >= 4:
        return found[:count]
    bits = b.zext(b.shl(b.and_(nbytes, b.constant("i32", 3)), b.constant("i32", 3)), "i64")
    wide = [b.zext(word, "i64") for word in found]
    pairs = [b.or_(wide[n], b.shl(wide[n + 1], b.constant("i64", 32))) for n in range(count)]
    return [b.trunc(b.lshr(pair, bits), "i32") for pair in pairs]

"""Offsets of temporaries in one arena: memory of a buffer that is dead is given to the next one that fits."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from hlojit.ir.sizes import Size, add, round_up
from hlojit.lowering.program import Buffer

ALIGNMENT = 64
"""Bytes of a cache line of the host."""


class _FreeList:
    """Free ranges of the arena, best fit first, neighbours merged."""

    def __init__(self) -> None:
        self.top = 0
        self._by_size: list[tuple[int, int]] = []
        self._start: dict[int, int] = {}
        self._end: dict[int, int] = {}

    def take(self, size: int) -> int:
        """Return the offset of ``size`` bytes."""
        position = bisect.bisect_left(self._by_size, (size, -1))
        if position < len(self._by_size):
            available, offset = self._by_size.pop(position)
            del self._start[offset], self._end[offset + available]
            if available > size:
                self._add(offset + size, available - size)
            return offset
        tail = self.top - self._end.get(self.top, self.top)
        offset = self.top - tail
        if tail:
            self._remove(offset, tail)
        self.top = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Return a range."""
        following = self._start.get(offset + size)
        if following is not None:
            self._remove(offset + size, following)
            size += following
        preceding = self._end.get(offset)
        if preceding is not None:
            self._remove(preceding, offset - preceding)
            size += offset - preceding
            offset = preceding
        self._add(offset, size)

    def _add(self, offset: int, size: int) -> None:
        bisect.insort(self._by_size, (size, offset))
        self._start[offset] = size
        self._end[offset + size] = offset

    def _remove(self, offset: int, size: int) -> None:
        del self._by_size[bisect.bisect_left(self._by_size, (size, offset))]
        del self._start[offset], self._end[offset + size]


def assign_offsets(buffers: Sequence[Buffer], alignment: int = ALIGNMENT) -> Size:
    """Give every temporary its ``offset`` from its ``start`` and ``end``; return the arena's size in bytes.

    Offsets are multiples of ``alignment``.  Temporaries whose size is known only when the program is called come last, each
    in a place of its own.
    """
    free = _FreeList()
    active: list[tuple[int, int, int]] = []
    later = []
    for buffer in sorted(buffers, key=lambda each: each.start):
        nbytes = buffer.nbytes
        if not isinstance(nbytes, int):
            later.append(buffer)
            continue
        while active and active[0][0] < buffer.start:
            _, offset, size = active.pop(0)
            free.give(offset, size)
        size = max(alignment, -(-nbytes // alignment) * alignment)
        offset = free.take(size)
        buffer.offset = offset
        bisect.insort(active, (buffer.end, offset, size))
    top: Size = free.top
    for buffer in later:
        buffer.offset = top
        top = add(top, round_up(buffer.nbytes, alignment))
    return top

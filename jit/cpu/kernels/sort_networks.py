"""Sorting networks over vectors: no branches, and every element of a block is compared in registers.

``rows`` vectors of ``lanes`` signed integers are sorted as one sequence, row after row: first every column by Batcher's
odd-even merge network, then columns are merged, two, four, ... lanes at a time.  A merge compares what is as far from the
beginning as its partner is from the end (so one of both is reversed), in halves, quarters, ... of the rows and then of the lanes.

    rows = sort_block(b, rows)          # of 16 rows of 16 lanes: 256 numbers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlojit.llvm.builder import LlvmBuilder, Val


def sort_block(b: LlvmBuilder, rows: Sequence[Val], sign: str = "s") -> list[Val]:
    """The same numbers in ascending order, row by row; the number of rows, and that of lanes, are powers of two.

    ``sign``: ``u`` for unsigned integers.
    """
    block = list(rows)
    for low, high in odd_even_merge_network(len(block)):
        block[low], block[high] = exchange(b, block[low], block[high], sign)
    width = 2
    while width <= block[0].lanes:
        _merge_columns(b, block, width, sign)
        width *= 2
    return block


def odd_even_merge_network(size: int) -> Iterator[tuple[int, int]]:
    """The comparisons (lower place, higher place) of Batcher's network for a power of two of numbers."""
    part = 1
    while part < size:
        distance = part
        while distance:
            for start in range(distance % part, size - distance, 2 * distance):
                for place in range(start, min(start + distance, size - distance)):
                    if place // (2 * part) == (place + distance) // (2 * part):
                        yield place, place + distance
            distance //= 2
        part *= 2


def finish_block(b: LlvmBuilder, rows: Sequence[Val], sign: str = "s") -> list[Val]:
    """In ascending order what rises and falls, or falls and rises, at most once."""
    block, distance = list(rows), len(rows) // 2
    while distance:
        for row in range(len(block)):
            if not row & distance:
                block[row], block[row + distance] = exchange(b, block[row], block[row + distance], sign)
        distance //= 2
    distance = block[0].lanes // 2
    while distance:
        block = [_exchange_lanes(b, vector, distance, distance, sign) for vector in block]
        distance //= 2
    return block


def _merge_columns(b: LlvmBuilder, block: list[Val], width: int, sign: str) -> None:
    """Groups of ``width / 2`` lanes are sorted; make groups of ``width`` lanes sorted."""
    span = len(block)
    while span > 1:
        for start in range(0, len(block), span):
            for place in range(span // 2):
                low, high = start + place, start + span - 1 - place
                block[low], block[high] = exchange(b, block[low], partners(b, block[high], width - 1), sign)
        span //= 2
    for row, vector in enumerate(block):
        block[row] = _exchange_lanes(b, vector, width - 1, width // 2, sign)
    distance = width // 4
    while distance:
        for row, vector in enumerate(block):
            block[row] = _exchange_lanes(b, vector, distance, distance, sign)
        distance //= 2


def exchange(b: LlvmBuilder, x: Val, y: Val, sign: str) -> tuple[Val, Val]:
    """The smaller and the larger numbers, lane by lane."""
    return b.intrinsic(f"{sign}min", x, y), b.intrinsic(f"{sign}max", x, y)


def _exchange_lanes(b: LlvmBuilder, vector: Val, flip: int, bit: int, sign: str) -> Val:
    """Compare each lane with the one whose number differs in the bits of ``flip``; lanes without ``bit`` get the smaller."""
    low, high = exchange(b, vector, partners(b, vector, flip), sign)
    larger = ", ".join(f"i1 {'true' if lane & bit else 'false'}" for lane in range(vector.lanes))
    return b.select(Val(f"<{larger}>", "i1", vector.lanes), high, low)


def partners(b: LlvmBuilder, vector: Val, flip: int) -> Val:
    """Each lane from the one whose number differs in the bits of ``flip``; all of them: the lanes reversed."""
    places = ", ".join(f"i32 {lane ^ flip}" for lane in range(vector.lanes))
    type = b.type_of(vector)
    text = f"shufflevector {type} {vector.text}, {type} poison, <{vector.lanes} x i32> <{places}>"
    return b.emit(vector.kind, vector.lanes, text)

"""Steps in shared memory: every element has a place of its own, and what lanes access together lies in different banks."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hlojit.lowering.matrix_layout import BANK_BYTES, PIECE, MatrixLayout

STEP_BYTES, FRAGMENT_BYTES, ROWS = 64, 32, 16
LAYOUTS = [
    MatrixLayout(rows, STEP_BYTES // size, size, along_terms)
    for rows, size, along_terms in itertools.product((32, 64, 128), (1, 2, 4), (True, False))
]
EACH = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda it: f"{it.rows}x{it.terms}x{it.size}-{it.along_terms}")


@EACH
def test_elements_have_places_of_their_own(layout: MatrixLayout) -> None:
    places = {
        layout.place(row, term) + byte
        for row in range(layout.rows)
        for term in range(layout.terms)
        for byte in range(layout.size)
    }
    assert places == set(range(layout.nbytes)) and layout.nbytes == layout.rows * STEP_BYTES


@EACH
def test_pieces_are_whole(layout: MatrixLayout) -> None:
    """Sixteen bytes of a line are neighbours, beginning at a multiple of 16."""
    lanes = PIECE // layout.size
    for line in range(layout.lines):
        for first in range(0, layout.line_bytes // layout.size, lanes):
            insides = range(first, first + lanes)
            places = [layout.place(*((line, inside) if layout.along_terms else (inside, line))) for inside in insides]
            assert places[0] % PIECE == 0
            assert places == list(range(places[0], places[0] + PIECE, layout.size))


def matrices(layout: MatrixLayout, row: int, term: int) -> list[list[int]]:
    """Places that eight lanes (of words: all lanes) read together of a fragment."""
    words = PIECE // layout.size
    if layout.along_terms:
        lower = itertools.product((0, 8), (0, words))
        return [[layout.place(row + rows + line, term + terms) for line in range(8)] for rows, terms in lower]
    if layout.size == 4:
        lower = itertools.product((0, 8), (0, 4))
        return [
            [layout.place(row + rows + lane // 4, term + terms + lane % 4) for lane in range(32)]
            for rows, terms in lower
        ]
    if layout.size == 2:
        lower = itertools.product((0, 8), (0, 8))
        return [[layout.place(row + rows, term + terms + line) for line in range(8)] for rows, terms in lower]
    # Terms 4t and 4t + 1 of every t, or the two that follow.
    lower = itertools.product((0, 16), (0, 2))
    return [
        [layout.place(row, term + half + pair + 4 * (line // 2) + line % 2) for line in range(8)]
        for half, pair in lower
    ]


@EACH
def test_fragments_are_read_without_conflicts(layout: MatrixLayout) -> None:
    unit = 4 if layout.size == 4 and not layout.along_terms else PIECE
    for row in range(0, layout.rows, ROWS):
        for term in range(0, layout.terms, FRAGMENT_BYTES // layout.size):
            for places in matrices(layout, row, term):
                assert len({place % BANK_BYTES // unit for place in places}) == len(places)


@EACH
def test_pieces_are_written_without_conflicts(layout: MatrixLayout) -> None:
    """Eight lanes write neighbouring pieces; lines of 32 bytes of bytes are the one exception, two lanes to a bank."""
    lanes = PIECE // layout.size
    across = layout.line_bytes // PIECE
    worst = 0
    for first in range(0, layout.nbytes // PIECE, 8):
        banks: Counter[int] = Counter()
        for piece in range(first, first + 8):
            line, inside = piece // across, piece % across * lanes
            banks[layout.place(*((line, inside) if layout.along_terms else (inside, line))) % BANK_BYTES // PIECE] += 1
        worst = max(worst, *banks.values())
    assert worst == (2 if layout.paired and layout.rows == 32 else 1)


@EACH
@pytest.mark.parametrize("warp_rows", [16, 32, 64])
def test_whole_fragments_further(layout: MatrixLayout, warp_rows: int) -> None:
    """A pattern and a distance lead from a fragment's places to those of another one of the warp."""
    for first in range(0, layout.rows, warp_rows):
        for rows in range(0, min(warp_rows, layout.rows), ROWS):
            for terms in range(0, layout.terms, FRAGMENT_BYTES // layout.size):
                pattern, distance = layout.moved(rows, terms)
                for row, term in itertools.product(range(ROWS), range(FRAGMENT_BYTES // layout.size)):
                    found = layout.place(first + row + rows, term + terms)
                    assert found == (layout.place(first + row, term) ^ pattern) + distance

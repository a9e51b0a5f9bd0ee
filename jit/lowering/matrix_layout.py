"""Where a step of an operand lies in shared memory: no two lanes that read or write together meet in a bank.

A step is lines - a row's terms, or a term's rows, whichever are neighbours in memory - of pieces of 16 bytes.  Eight pieces
are all banks, and eight lanes access 16 bytes each at a time: neighbours of one line when it is written, one piece of eight
lines when fragments are read.  So a line's pieces change places, by an exclusive or with some bits of the line's number:

    line 0   0 1 2 3 4 5 6 7
    line 1   1 0 3 2 5 4 7 6
    line 2   2 3 0 1 6 7 4 5  ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

PIECE: Final = 16
"""Bytes that a lane accesses at most."""
BANK_BYTES: Final = 128
"""Of all banks together."""


@final
@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """``rows`` x ``terms`` elements of ``size`` bytes; a line is a row (``along_terms``), or a term."""

    rows: int
    terms: int
    size: int
    along_terms: bool

    @property
    def lines(self) -> int:
        """How many there are."""
        return self.rows if self.along_terms else self.terms

    @property
    def line_bytes(self) -> int:
        """Of one line."""
        return (self.terms if self.along_terms else self.rows) * self.size

    @property
    def nbytes(self) -> int:
        """Of a step."""
        return self.lines * self.line_bytes

    @property
    def paired(self) -> bool:
        """Whether fragments take rows 2g and 2g + 1 for g and g + 8: bytes are transposed in pairs."""
        return not self.along_terms and self.size == 1

    @property
    def exchange(self) -> tuple[int, int, int]:
        """``shift, mask, up``: of a line's place, ``(place >> shift & mask) << up`` is the pattern for its pieces' numbers."""
        pieces = self.line_bytes // PIECE
        if not self.along_terms and self.size == 4:
            # Words are read one by one: of four lines two neighbouring pieces.
            return 0, 3, 1
        shift = max(0, 3 - (pieces.bit_length() - 1))
        return shift, min(pieces, 8) - 1, 0

    def line_place(self, line: int) -> int:
        """Where a line lies among the lines: bytes of four terms are read of lines 0, 1, 4, 5, 8, 9 ... together."""
        return line & ~14 | line >> 1 & 6 | (line & 2) << 2 if self.paired else line

    def place(self, row: int, term: int) -> int:
        """The first byte of an element."""
        line, inside = (row, term) if self.along_terms else (term, row)
        place = self.line_place(line)
        shift, mask, up = self.exchange
        return place * self.line_bytes + (inside * self.size ^ (place >> shift & mask) << up + 4)

    def moved(self, rows: int, terms: int) -> tuple[int, int]:
        """``(pattern, distance)``: ``place(row + rows, term + terms) == (place(row, term) ^ pattern) + distance``.

        For offsets that are whole fragments, from a place whose lower bits they do not touch.
        """
        across, inside = (rows, terms * self.size) if self.along_terms else (terms, rows * self.size)
        pattern = inside % min(BANK_BYTES, self.line_bytes)
        return pattern, self.line_place(across) * self.line_bytes + inside - pattern

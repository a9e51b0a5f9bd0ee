"""Fragments of operands by ``ldmatrix``: a lane says where one of 32 pieces of 16 bytes lies, and gets a word of four matrices.

Where a lane's piece lies is computed once for each pattern that changes it; what is left are constants in the instruction.
Rows of terms are read as they are.  Lines of rows are transposed on the way: 16-bit elements one by one, bytes in pairs, of
which those of one row are joined afterwards.  Words are read one by one.
"""

from __future__ import annotations

from typing import final

from hlojit.cuda.machine_instructions import machine_instruction, shared_address
from hlojit.llvm.text import Val
from hlojit.lowering.matrix_layout import MatrixLayout
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.portable_matrices import Fragments, lane_parts, place_of, shared_pointer


@final
class NvidiaFragments(Fragments):
    """See the module's docstring."""

    def __init__(self, b: SimtBuilder, layout: MatrixLayout, base: Val, first: Val, *, is_left: bool):
        super().__init__(b, layout, base, first, is_left=is_left)
        self.by_words = not layout.along_terms and layout.size == 4
        row, term = self._words_place() if self.by_words else self._piece_place()
        self.place = place_of(b, layout, b.add(first, row), term)
        self.start = base if self.by_words else shared_address(b, base)

    def _words_place(self) -> tuple[Val, Val]:
        """Row and term of the lane's first word."""
        return lane_parts(self.b)

    def _piece_place(self) -> tuple[Val, Val]:
        """Row and term where the lane's piece begins: eight lanes a matrix, four matrices in the order of the results."""
        b, layout = self.b, self.layout
        lane = b.and_(b.thread, b.constant("i32", 31))
        line, matrix = b.and_(lane, b.constant("i32", 7)), b.lshr(lane, b.constant("i32", 3))
        low, high = b.and_(matrix, b.constant("i32", 1)), b.lshr(matrix, b.constant("i32", 1))
        eight = b.constant("i32", 3)
        if layout.paired:
            # Bytes of four terms are in the same lane: terms 0, 1, 4, 5 ... of one matrix, 2, 3, 6, 7 ... of the next.
            two = b.constant("i32", 1)
            term = b.add(b.shl(b.lshr(line, two), b.constant("i32", 2)), b.and_(line, two))
            term = b.add(term, b.add(b.shl(low, two), b.shl(high, b.constant("i32", 4))))
            return b.constant("i32", 0), term
        rows, words = (low, high) if self.is_left else (high, low)
        if layout.along_terms:
            per_piece = (16 // layout.size).bit_length() - 1
            return b.add(line, b.shl(rows, eight)), b.shl(words, b.constant("i32", per_piece))
        return b.shl(rows, eight), b.add(line, b.shl(words, eight))

    def read(self, step: Val, row: int, term: int) -> list[Val]:
        if self.by_words:
            places = [(rows, terms) for terms in (0, 4) for rows in (0, 8)]
            if not self.is_left:
                places.sort()
            return [self._word(step, row + rows, term + terms) for rows, terms in places]
        b, layout = self.b, self.layout
        pattern, distance = layout.moved(row, term)
        address = b.add(b.add(self.start, self._patterned(pattern)), step)
        trans = "" if layout.along_terms else ".trans"
        text = f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{$0, $1, $2, $3}}, [$4+{distance}];"
        words = machine_instruction(b, text, ["i32"] * 4, [address], memory=True)
        return self._unpaired(words) if layout.paired else words

    def _patterned(self, pattern: int) -> Val:
        b = self.b
        return b.xor(self.place, b.constant("i32", pattern)) if pattern else self.place

    def _word(self, step: Val, row: int, term: int) -> Val:
        b = self.b
        pattern, distance = self.layout.moved(row, term)
        place = b.add(b.add(self._patterned(pattern), step), b.constant("i32", distance))
        return b.load("i32", shared_pointer(b, self.base, place))

    def _unpaired(self, words: list[Val]) -> list[Val]:
        """Of words with two terms of rows 2g and 2g + 1 those with four terms of one row."""
        first, second = ([self._joined(words[n], words[n + 1], odd) for odd in (False, True)] for n in (0, 2))
        return [*first, *second] if self.is_left else [first[0], second[0], first[1], second[1]]

    def _joined(self, low: Val, high: Val, odd: bool) -> Val:
        selected = "0x7531" if odd else "0x6420"
        text = f'call i32 asm "prmt.b32 $0, $1, $2, {selected};", "=r,r,r"(i32 {low.text}, i32 {high.text})'
        return self.b.emit("i32", 1, text)

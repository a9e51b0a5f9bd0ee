"""Matrix instructions in terms of what every machine with threads has: the same fragments, in the same lanes.

Of 16 rows by 8 words (of 32 bits) of the left operand, lane ``4 g + t`` of a warp has words t and t + 4 of rows g and g + 8;
of 8 columns of the right one, words t and t + 4 of column g; of the sums, columns 2t and 2t + 1 of rows g and g + 8.  A sum
takes in its terms in their order, each rounded (a machine's own instruction may add the terms of one instruction otherwise).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast, final

from hlojit.ir.formats import FloatFormat, element_type
from hlojit.ir.scalar import formats
from hlojit.llvm.builder import scalars
from hlojit.llvm.text import Val
from hlojit.lowering.grid_matrix_plan import WORDS, MatrixInput, MatrixInputs
from hlojit.lowering.matrix_layout import MatrixLayout

if TYPE_CHECKING:
    from hlojit.simt.builder import SimtBuilder

EXCHANGED_WORDS: Final = 6
"""Of a lane: its words of both operands."""
_FORMATS: Final = {"e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}


class Fragments(ABC):
    """What the lanes of a warp read of an operand's steps in shared memory.

    ``first`` is the warp's first row; a multiple of the rows that the warp multiplies.
    """

    def __init__(self, b: SimtBuilder, layout: MatrixLayout, base: Val, first: Val, *, is_left: bool):
        self.b = b
        self.layout = layout
        self.base = base
        self.first = first
        self.is_left = is_left

    @abstractmethod
    def read(self, step: Val, row: int, term: int) -> list[Val]:
        """The lane's words of 16 rows and 8 words of terms, from a row of the warp and a term on; ``step`` is a place (i32).

        Of the left operand (row g, word t), (g + 8, t), (g, t + 4), (g + 8, t + 4); of the right one, which is two operands
        of an instruction, (g, t), (g, t + 4), (g + 8, t), (g + 8, t + 4).  Where the layout is paired, rows 2g and 2g + 1
        stand for g and g + 8.
        """


@final
class PortableFragments(Fragments):
    """Element by element, from where the layout says that each lies."""

    def read(self, step: Val, row: int, term: int) -> list[Val]:
        b, layout = self.b, self.layout
        group, member = lane_parts(b)
        apart, near = (1, b.add(group, group)) if layout.paired else (8, group)
        places = [(rows, words) for words in (0, 4) for rows in (0, 1)]
        if not self.is_left:
            places.sort()
        found = []
        for rows, words in places:
            at_row = b.add(b.add(self.first, near), b.constant("i32", row + rows * apart))
            first = b.mul(b.add(member, b.constant("i32", words)), b.constant("i32", 4 // layout.size))
            found.append(self._word(step, at_row, b.add(first, b.constant("i32", term))))
        return found

    def _word(self, step: Val, row: Val, term: Val) -> Val:
        b, layout = self.b, self.layout
        if layout.along_terms or layout.size == 4:
            return load_shared(b, "i32", self.base, b.add(step, place_of(b, layout, row, term)))
        word = b.constant("i32", 0)
        for number in range(4 // layout.size):
            place = place_of(b, layout, row, b.add(term, b.constant("i32", number)))
            part = b.zext(load_shared(b, f"i{8 * layout.size}", self.base, b.add(step, place)), "i32")
            word = b.or_(word, b.shl(part, b.constant("i32", 8 * layout.size * number)))
        return word


def place_of(b: SimtBuilder, layout: MatrixLayout, row: Val, term: Val) -> Val:
    """``MatrixLayout.place`` of two numbers (i32)."""
    line, inside = (row, term) if layout.along_terms else (term, row)
    place = line
    if layout.paired:
        lower = b.and_(b.lshr(line, b.constant("i32", 1)), b.constant("i32", 6))
        upper = b.shl(b.and_(line, b.constant("i32", 2)), b.constant("i32", 2))
        place = b.or_(b.and_(line, b.constant("i32", ~14)), b.or_(lower, upper))
    shift, mask, up = layout.exchange
    pattern = b.and_(b.lshr(place, b.constant("i32", shift)) if shift else place, b.constant("i32", mask))
    pattern = b.shl(pattern, b.constant("i32", up + 4))
    moved = b.xor(b.mul(inside, b.constant("i32", layout.size)), pattern)
    return b.add(b.mul(place, b.constant("i32", layout.line_bytes)), moved)


def shared_pointer(b: SimtBuilder, base: Val, place: Val) -> Val:
    """The address so many bytes (i32) behind another one in shared memory."""
    return b.element_pointer(base, "i8", b.zext(place, "i64"))


def load_shared(b: SimtBuilder, kind: str, base: Val, place: Val) -> Val:
    """What lies so many bytes (i32) behind an address in shared memory."""
    return b.load(kind, shared_pointer(b, base, place))


def lane_parts(b: SimtBuilder) -> tuple[Val, Val]:
    """The lane's number in a warp of 32 as four times the first plus the second (i32)."""
    lane = b.and_(b.thread, b.constant("i32", 31))
    return b.lshr(lane, b.constant("i32", 2)), b.and_(lane, b.constant("i32", 3))


def multiply(
    b: SimtBuilder, inputs: MatrixInputs, left: Sequence[Val], right: Sequence[Val], sums: Sequence[Val], exchange: Val
) -> list[Val]:
    """The lane's four sums after one instruction; ``exchange`` has six words of shared memory for every thread."""
    group, member = (b.zext(part, "i64") for part in lane_parts(b))
    own = b.mul(b.zext(b.thread, "i64"), b.constant("i64", EXCHANGED_WORDS))
    for number, word in enumerate([*left, *right]):
        b.store(word, b.element_pointer(exchange, "i32", b.add(own, b.constant("i64", number))))
    b.sync_warp()
    warp = b.zext(b.and_(b.thread, b.constant("i32", ~31)), "i64")

    def word_of(line: Val, place: Val, number: Val) -> Val:
        lane = b.add(warp, b.add(b.mul(line, b.constant("i64", 4)), place))
        offset = b.add(b.mul(lane, b.constant("i64", EXCHANGED_WORDS)), number)
        return b.load("i32", b.element_pointer(exchange, "i32", offset))

    loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", WORDS), 1, list(sums))
    half, place = b.lshr(loop.index, b.constant("i64", 2)), b.and_(loop.index, b.constant("i64", 3))
    upper = b.add(half, half)
    rows = [word_of(group, place, b.add(upper, b.constant("i64", number))) for number in range(2)]
    column = b.add(member, member)
    columns = [
        word_of(b.add(column, b.constant("i64", number)), place, b.add(half, b.constant("i64", 4)))
        for number in range(2)
    ]
    found = list(loop.carried)
    elements = [_elements(b, inputs.lhs, word) for word in rows], [_elements(b, inputs.rhs, word) for word in columns]
    for term in range(4 // inputs.size):
        for number in range(4):
            x, y = elements[0][number // 2][term], elements[1][number % 2][term]
            found[number] = b.fma(x, y, found[number]) if inputs.sums == "f32" else b.add(b.mul(x, y), found[number])
    totals = list(b.end_loop(loop, found))
    b.sync_warp()
    return totals


def _elements(b: SimtBuilder, input: MatrixInput, word: Val) -> list[Val]:
    """The elements of a word, as numbers of the sums' kind."""
    bits = 8 * input.size
    parts = [b.lshr(word, b.constant("i32", shift)) if shift else word for shift in range(0, 32, bits)]
    return [_number(b, input, part) for part in parts]


def _number(b: SimtBuilder, input: MatrixInput, part: Val) -> Val:
    """The element in the lowest bits of a word."""
    if input.name == "tf32":
        return b.bitcast(b.and_(part, b.constant("i32", -1 << 13)), "f32")
    if input.name == "bf16":
        return b.bitcast(b.shl(part, b.constant("i32", 16)), "f32")
    if input.name == "f16":
        return b.half_to_float(b.trunc(part, "i16"))
    narrow = b.trunc(part, "i8")
    if input.name in ("s8", "u8"):
        return b.sext(narrow, "i32") if input.name == "s8" else b.zext(narrow, "i32")
    format = element_type(_FORMATS[input.name])
    assert isinstance(format, FloatFormat)
    return cast(Val, formats.decode(scalars(b), narrow, format))

"""Matrix instructions in terms of what every machine with threads has: the same fragments, in the same lanes.

Of 16 rows by 8 words (of 32 bits) of the left operand, lane ``4 g + t`` of a warp has words t and t + 4 of rows g and g + 8;
of 8 columns of the right one, words t and t + 4 of column g; of the sums, columns 2t and 2t + 1 of rows g and g + 8.  A sum
takes in its terms in their order, each rounded (a machine's own instruction may add the terms of one instruction otherwise).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, final

from hlojit.ir.formats import FloatFormat, element_type
from hlojit.ir.scalar import formats
from hlojit.llvm.builder import scalars
from hlojit.llvm.text import Val
from hlojit.lowering.grid_matrix_plan import WORDS, MatrixInput, MatrixInputs
from hlojit.lowering.target import KIND_BITS

if TYPE_CHECKING:
    from hlojit.simt.builder import SimtBuilder

EXCHANGED_WORDS: Final = 6
"""Of a lane: its words of both operands."""
_FORMATS: Final = {"e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}


@final
@dataclass(frozen=True, slots=True)
class SharedMatrix:
    """16 rows of 8 words in shared memory, from element ``first`` on; a row (``transposed``: a term) has ``pitch`` elements."""

    base: Val
    kind: str
    first: Val
    pitch: int
    transposed: bool

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return KIND_BITS[self.kind] // 8


def lane_parts(b: SimtBuilder) -> tuple[Val, Val]:
    """The lane's number in a warp of 32 as four times the first plus the second (i64)."""
    lane = b.and_(b.thread, b.constant("i32", 31))
    return b.zext(b.lshr(lane, b.constant("i32", 2)), "i64"), b.zext(b.and_(lane, b.constant("i32", 3)), "i64")


def fragment(b: SimtBuilder, matrix: SharedMatrix) -> list[Val]:
    """The lane's words: (row g, word t), (g + 8, t), (g, t + 4), (g + 8, t + 4)."""
    group, member = lane_parts(b)
    load = _transposed_word if matrix.transposed else _word
    return [load(b, matrix, group, member, rows, words) for words in (0, 4) for rows in (0, 8)]


def _word(b: SimtBuilder, matrix: SharedMatrix, group: Val, member: Val, rows: int, words: int) -> Val:
    row = b.mul(b.add(group, b.constant("i64", rows)), b.constant("i64", matrix.pitch))
    term = b.mul(b.add(member, b.constant("i64", words)), b.constant("i64", 4 // matrix.size))
    offset = b.add(matrix.first, b.add(row, term))
    return b.load("i32", b.element_pointer(matrix.base, matrix.kind, offset))


def _transposed_word(b: SimtBuilder, matrix: SharedMatrix, group: Val, member: Val, rows: int, words: int) -> Val:
    assert matrix.size == 2
    row = b.add(matrix.first, b.add(group, b.constant("i64", rows)))
    halves = []
    for half in range(2):
        term = b.add(b.add(member, member), b.constant("i64", 2 * words + half))
        offset = b.add(row, b.mul(term, b.constant("i64", matrix.pitch)))
        halves.append(b.zext(b.load("i16", b.element_pointer(matrix.base, matrix.kind, offset)), "i32"))
    return b.or_(halves[0], b.shl(halves[1], b.constant("i32", 16)))


def multiply(
    b: SimtBuilder, inputs: MatrixInputs, left: Sequence[Val], right: Sequence[Val], sums: Sequence[Val], exchange: Val
) -> list[Val]:
    """The lane's four sums after one instruction; ``exchange`` has six words of shared memory for every thread."""
    group, member = lane_parts(b)
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

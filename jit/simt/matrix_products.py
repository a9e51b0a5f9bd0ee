"""Products by matrix instructions of warps (``grid_matrix_plan.MatrixPlan``).

A step lies in shared memory as the instructions' input type: rows of 64 bytes of terms, or, where neighbours in memory are rows
and elements have 16 bits, lines of rows, which are transposed when fragments are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from hlojit.ir.formats import ElementType, FloatFormat, IntegerType
from hlojit.llvm.product_elements import Elements
from hlojit.llvm.text import Val
from hlojit.lowering.grid_dot_plan import Fill
from hlojit.lowering.grid_matrix_plan import (
    COLUMNS,
    PADDING_WORDS,
    ROWS,
    STEP_WORDS,
    WORDS,
    MatrixInput,
    MatrixPlan,
)
from hlojit.lowering.index import Index
from hlojit.lowering.kernel import Phase
from hlojit.simt.block_products import BlockProduct, Side
from hlojit.simt.frame import GridFrame
from hlojit.simt.portable_matrices import EXCHANGED_WORDS, SharedMatrix, lane_parts
from hlojit.simt.product_operands import Piece, Reader, Writer, spread, store_vector, vector_part, write_inside

_KINDS: Final = {1: "i8", 2: "i16", 4: "i32"}
_OWN: Final = {"bf16": "bf16", "f16": "f16", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}
"""Whose elements are in memory what instructions take."""
MULTIPLY_ADDS: Final = 1024.0
"""That a multiprocessor does in a cycle, of 16-bit elements; for estimates."""


def is_own(element: ElementType, input: MatrixInput) -> bool:
    """Whether elements lie in memory as instructions take them."""
    if isinstance(element, IntegerType):
        return element.bits == 8 and input.name == ("s8" if element.signed else "u8")
    return isinstance(element, FloatFormat) and _OWN.get(input.name) == element.name


def input_bits(reader: Reader, piece: Piece, input: MatrixInput) -> Val:
    """A piece as elements of the input type; what is not valid is zero."""
    b, elements = reader.b, reader.elements
    if piece.minus is None and elements.rounded_to is None and is_own(elements.element, input):
        bits = piece.stored
        if piece.valid is not None:
            bits = b.select(piece.valid, bits, spread(b, b.constant(bits.kind, 0), bits.lanes))
        return bits
    value = reader.decoded(piece)
    if input.size == 1:
        return b.trunc(value, "i8")
    if input.name == "f16":
        return b.float_to_half(value)
    bits = b.bitcast(value, "i32")
    # Every number of the operand is in the input type: the bits that go are zero.
    return bits if input.name == "tf32" else b.trunc(b.lshr(bits, b.constant("i32", 16)), "i16")


@final
class _Rows(Side):
    """Rows of terms, or lines of rows that are transposed when they are read."""

    def __init__(
        self, kernel: MatrixProduct, reader: Reader, fill: Fill, shape: tuple[int, int], input: MatrixInput, name: str
    ):
        rows, extent = shape
        super().__init__(kernel, reader, fill, rows, extent, name)
        self.input = input
        self.transposed = not fill.along_terms and input.size == 2
        padding = 4 * PADDING_WORDS // input.size
        self.pitch = rows + padding if self.transposed else 4 * STEP_WORDS // input.size + padding
        self.size = (self.terms if self.transposed else rows) * self.pitch
        self.kind = _KINDS[input.size]
        self.base = self.b.shared(self.kind, 2 * self.size)

    def _offset(self, row: Val, term: Val) -> Val:
        b = self.b
        outer, inner = (term, row) if self.transposed else (row, term)
        return b.add(b.mul(outer, b.constant("i64", self.pitch)), inner)

    def write(self, pieces: Sequence[Piece], stage: Val) -> None:
        b = self.b
        start = b.mul(stage, b.constant("i64", self.size))
        for piece, (row, term) in zip(pieces, self.places):
            bits = input_bits(self.reader, piece, self.input)
            place = b.add(start, self._offset(row, term))
            if self.fill.along_terms or self.transposed:
                store_vector(b, bits, self.base, place)
                continue
            for lane in range(bits.lanes):
                there = b.add(place, b.constant("i64", lane * self.pitch))
                store_vector(b, vector_part(b, bits, lane, 1), self.base, there)

    def fragment(self, stage: Val, row: Val, term: int) -> list[Val]:
        """The lane's words of 16 rows."""
        b = self.b
        first = b.add(b.mul(stage, b.constant("i64", self.size)), self._offset(row, b.constant("i64", term)))
        return b.matrix_fragment(SharedMatrix(self.base, self.kind, first, self.pitch, self.transposed))


@final
class MatrixProduct(BlockProduct):
    """One launch of a plan."""

    def __init__(self, frame: GridFrame, plan: MatrixPlan, elements: tuple[Elements, Elements, Elements]):
        super().__init__(frame, plan, elements)
        self.matrices = plan
        self.down = plan.tile.warp_rows // ROWS
        self.across = plan.tile.warp_columns // COLUMNS
        self.lhs: _Rows
        self.rhs: _Rows

    def emit(self, symbol: str) -> Phase:
        """Emit the launch."""
        plan = self.matrices
        self.emit_kernel(symbol)
        assert self.frame.target.grid is not None
        rate = self.frame.target.grid.gigahertz * MULTIPLY_ADDS * 2 / plan.inputs.size
        return self.frame.phase(symbol, plan.blocks, plan.parts.length * plan.rows * plan.columns / rate)

    def prepare(self) -> None:
        plan, b = self.matrices, self.b
        tile, product, inputs = plan.tile, plan.product, plan.inputs
        left, right = self.readers()
        self.lhs = _Rows(self, left, plan.lhs, (tile.rows, product.m), inputs.lhs, "row")
        self.rhs = _Rows(self, right, plan.rhs, (tile.columns, product.n), inputs.rhs, "column")
        self.exchange: Val | None = None
        if b.dialect.exchanges_matrices:
            self.exchange = b.shared("i32", plan.threads * EXCHANGED_WORDS)
        warp = b.udiv(b.thread, b.constant("i32", 32))
        beside = b.constant("i32", tile.columns // tile.warp_columns)
        self.warp_row = b.zext(b.mul(b.udiv(warp, beside), b.constant("i32", tile.warp_rows)), "i64")
        self.warp_column = b.zext(b.mul(b.urem(warp, beside), b.constant("i32", tile.warp_columns)), "i64")

    def zeros(self) -> list[Val]:
        return [self.b.constant(self.kind, 0)] * (4 * self.down * self.across)

    def add_step(self, stage: Val, sums: list[Val]) -> list[Val]:
        b, plan = self.b, self.matrices
        for step in range(STEP_WORDS // WORDS):
            term = step * plan.terms * WORDS // STEP_WORDS
            left = [
                self.lhs.fragment(stage, b.add(self.warp_row, b.constant("i64", number * ROWS)), term)
                for number in range(self.down)
            ]
            right = []
            for number in range(0, self.across, 2):
                column = b.add(self.warp_column, b.constant("i64", number * COLUMNS))
                words = self.rhs.fragment(stage, column, term)
                right += [(words[0], words[2]), (words[1], words[3])]
            for number in range(self.down * self.across):
                row, column_group = divmod(number, self.across)
                found = b.matrix_multiply(
                    plan.inputs, left[row], right[column_group], sums[4 * number : 4 * number + 4], self.exchange
                )
                sums[4 * number : 4 * number + 4] = found
        return sums

    def write(self, writer: Writer, part: Index, first_row: Val, first_column: Val, sums: Sequence[Val]) -> None:
        b, product = self.b, self.matrices.product
        lanes = writer.lanes(2)
        group, member = lane_parts(b)
        first_row = b.add(b.add(first_row, self.warp_row), group)
        first_column = b.add(b.add(first_column, self.warp_column), b.add(member, member))
        for number in range(self.down * self.across):
            row, column = divmod(number, self.across)
            for half in range(2):
                values = sums[4 * number + 2 * half : 4 * number + 2 * half + 2]
                at_row = b.add(first_row, b.constant("i64", row * ROWS + 8 * half))
                at_column = b.add(first_column, b.constant("i64", column * COLUMNS))
                self._write_pair(writer, part, (at_row, product.m), (at_column, product.n), values, lanes)

    def _write_pair(
        self,
        writer: Writer,
        part: Index,
        row: tuple[Val, int],
        column: tuple[Val, int],
        values: Sequence[Val],
        lanes: int,
    ) -> None:
        b = self.b
        if lanes == 2:
            pair = Val("poison", self.kind, 2)
            for lane, value in enumerate(values):
                pair = b.insert(pair, lane, value)
            write_inside(self.frame, writer, (part, self.batch), row, column, pair, whole=self.whole)
            return
        for lane, value in enumerate(values):
            at = b.add(column[0], b.constant("i64", lane))
            write_inside(self.frame, writer, (part, self.batch), row, (at, column[1]), value, whole=self.whole)

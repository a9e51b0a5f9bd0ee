"""Products by matrix instructions of warps (``grid_matrix_plan.MatrixPlan``).

A step lies in shared memory as the instructions' input type, in the direction of memory: rows of 64 bytes of terms, or lines of
rows, which are transposed when fragments are read (``matrix_layout``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from hlojit.ir.formats import ElementType, FloatFormat, IntegerType
from hlojit.ir.ops.dot_algorithms import TF32
from hlojit.llvm.product_elements import Elements
from hlojit.llvm.text import Val
from hlojit.lowering.grid_dot_plan import Fill
from hlojit.lowering.grid_matrix_plan import (
    COLUMNS,
    ROWS,
    STEP_WORDS,
    WORDS,
    InMemory,
    MatrixInput,
    MatrixPlan,
)
from hlojit.lowering.index import Index
from hlojit.lowering.kernel import Phase
from hlojit.lowering.matrix_layout import MatrixLayout
from hlojit.simt.block_products import BlockProduct, CopiedSide
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.frame import GridFrame
from hlojit.simt.portable_matrices import EXCHANGED_WORDS, lane_parts, place_of, shared_pointer
from hlojit.simt.product_operands import Piece, Reader, spread, vector_part
from hlojit.simt.product_results import Outputs, Writer
from hlojit.simt.staged_results import Leaving, StagedResults

_KINDS: Final = {1: "i8", 2: "i16", 4: "i32"}
_OWN: Final = {"bf16": "bf16", "f16": "f16", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}
"""Whose elements are in memory what instructions take."""
MULTIPLY_ADDS: Final = 1024.0
"""That a multiprocessor does in a cycle, of 16-bit elements; for estimates."""


def in_memory(elements: Elements, input: MatrixInput) -> InMemory:
    """What a plan asks of an operand's elements."""
    element = elements.element
    zero = not isinstance(element, FloatFormat) or (element.has_zero and element.decode is None)
    return InMemory(elements.size, elements.rounded_to is None and _is_own(element, input), zero)


def _is_own(element: ElementType, input: MatrixInput) -> bool:
    """Whether elements lie in memory as instructions take them."""
    if isinstance(element, IntegerType):
        return element.bits == 8 and input.name == ("s8" if element.signed else "u8")
    return isinstance(element, FloatFormat) and _OWN.get(input.name) == element.name


def input_bits(reader: Reader, piece: Piece, input: MatrixInput) -> Val:
    """A piece as elements of the input type; what is not valid is zero."""
    b, elements = reader.b, reader.elements
    bits: Val | None = None
    if piece.minus is None and in_memory(elements, input).is_own:
        bits = piece.stored
    elif piece.minus is None and isinstance(elements.element, FloatFormat):
        if elements.rounded_to is None:
            bits = b.matrix_elements(piece.stored, elements.element, input)
        elif elements.rounded_to == TF32 and elements.element.name == "f32" and input.name == "tf32":
            bits = _rounded_to_tf32(b, piece.stored)
    if bits is None:
        return _narrowed(b, reader.decoded(piece), input)
    if piece.valid is not None:
        bits = b.select(piece.valid, bits, spread(b, b.constant(bits.kind, 0), bits.lanes))
    return bits


def _rounded_to_tf32(b: SimtBuilder, value: Val) -> Val:
    """f32 without its last 13 bits, rounded to nearest even (into the exponent, and to infinity)."""
    bits = b.bitcast(value, "i32")
    is_odd = b.and_(b.lshr(bits, b.constant("i32", 13)), b.constant("i32", 1))
    rounded = b.add(b.add(bits, b.constant("i32", (1 << 12) - 1)), is_odd)
    # A NaN could be carried to infinity or to zero.
    rounded = b.select(b.fcmp("uno", value, value), b.constant("i32", 0x7FC00000), rounded)
    return b.and_(rounded, b.constant("i32", -1 << 13))


def _narrowed(b: SimtBuilder, value: Val, input: MatrixInput) -> Val:
    """Numbers that are in an input type as its elements."""
    if input.size == 1:
        return b.trunc(value, "i8")
    if input.name == "f16":
        return b.float_to_half(value)
    bits = b.bitcast(value, "i32")
    # Every number of the operand is in the input type: the bits that go are zero.
    return bits if input.name == "tf32" else b.trunc(b.lshr(bits, b.constant("i32", 16)), "i16")


@final
class _Rows(CopiedSide):
    """Rows of terms, or terms of rows, as ``MatrixLayout`` says."""

    def __init__(
        self, kernel: MatrixProduct, reader: Reader, fill: Fill, shape: tuple[int, int], input: MatrixInput, name: str
    ):
        rows, extent = shape
        super().__init__(kernel, reader, fill, rows, extent, name)
        self.input = input
        self.layout = MatrixLayout(rows, self.terms, input.size, fill.along_terms)
        self.base = self.b.shared(_KINDS[input.size], self.slots * self.layout.nbytes // input.size)
        self.parts: list[list[Val]] = []
        """Where the parts of 16 bytes, or less, of each of the thread's pieces lie."""

    def place_piece(self, row: Val, term: Val) -> None:
        b, lanes = self.b, max(1, 16 // self.input.size)
        parts = []
        for first in range(0, self.fill.lanes, lanes):
            further = b.constant("i32", first)
            at = (row, b.add(term, further)) if self.fill.along_terms else (b.add(row, further), term)
            parts.append(place_of(b, self.layout, *at))
        self.parts.append(parts)

    def step_place(self, index: Val) -> Val:
        """Where a step lies, in bytes (i32)."""
        return self.b.mul(self.slot(index), self.b.constant("i32", self.layout.nbytes))

    def piece_address(self, number: int, index: Val) -> Val:
        (part,) = self.parts[number]
        return shared_pointer(self.b, self.base, self.b.add(self.step_place(index), part))

    def write(self, pieces: Sequence[Piece], index: Val) -> None:
        b, lanes = self.b, 16 // self.input.size
        start = self.step_place(index)
        for piece, parts in zip(pieces, self.parts):
            bits = input_bits(self.reader, piece, self.input)
            for number, part in enumerate(parts):
                value = vector_part(b, bits, number * lanes, min(lanes, bits.lanes))
                nbytes = value.lanes * self.input.size
                b.store(value, shared_pointer(b, self.base, b.add(start, part)), align=nbytes)


@final
class MatrixProduct(BlockProduct):
    """One launch of a plan."""

    def __init__(self, frame: GridFrame, plan: MatrixPlan, elements: tuple[Elements, Elements], outputs: Outputs):
        super().__init__(frame, plan, elements, outputs)
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
        self.band = b.udiv(warp, beside)
        row = b.mul(self.band, b.constant("i32", tile.warp_rows))
        self.warp_column = b.mul(b.urem(warp, beside), b.constant("i32", tile.warp_columns))
        self.left = b.matrix_fragments(self.lhs.layout, self.lhs.base, row, is_left=True)
        self.right = b.matrix_fragments(self.rhs.layout, self.rhs.base, self.warp_column, is_left=False)

    def zeros(self) -> list[Val]:
        return [self.b.constant(self.kind, 0)] * (4 * self.down * self.across)

    def add_step(self, index: Val, sums: list[Val]) -> list[Val]:
        b, plan = self.b, self.matrices
        left_step, right_step = self.lhs.step_place(index), self.rhs.step_place(index)
        for step in range(STEP_WORDS // WORDS):
            term = step * plan.terms * WORDS // STEP_WORDS
            left = [self.left.read(left_step, number * ROWS, term) for number in range(self.down)]
            right = []
            for number in range(0, self.across, 2):
                words = self.right.read(right_step, number * COLUMNS, term)
                right += [words[:2], words[2:]]
            for number in range(self.down * self.across):
                row, column_group = divmod(number, self.across)
                found = b.matrix_multiply(
                    plan.inputs, left[row], right[column_group], sums[4 * number : 4 * number + 4], self.exchange
                )
                sums[4 * number : 4 * number + 4] = found
        return sums

    def write(self, writer: Writer, part: Index, first_row: Val, first_column: Val, sums: Sequence[Val]) -> None:
        b, plan = self.b, self.matrices
        product, tile = plan.product, plan.tile
        block, first = (part, self.batch), (first_row, first_column)
        left = 4 if self.rhs.layout.paired else 2, 2 if self.lhs.layout.paired else 1
        leaving = Leaving(tile.rows // tile.warp_rows, tile.warp_rows, ROWS, *left)
        staged = StagedResults(self.frame, writer, block, (product.m, product.n), first, tile.columns, leaving)
        band, group = b.zext(self.band, "i64"), b.zext(lane_parts(b)[0], "i64")
        apart = 1 if self.lhs.layout.paired else 8
        near = b.add(group, group) if self.lhs.layout.paired else group
        for round in range(staged.rounds):
            if round:
                b.barrier()
            for step in range(round * staged.together, (round + 1) * staged.together):
                for half in range(2):
                    numbers = range(4 * step * self.across, 4 * (step + 1) * self.across, 4)
                    values = [sums[number + 2 * half : number + 2 * half + 2] for number in numbers]
                    inside = b.add(near, b.constant("i64", apart * half))
                    staged.leave(band, inside, step, self._neighbours(values))
            b.barrier()
            staged.write(round, plan.threads)

    def _neighbours(self, values: Sequence[Sequence[Val]]) -> list[tuple[Val, int, Val]]:
        """A lane's sums of one row, two an instruction, as neighbours: a column of the lane, how much further, a vector."""
        b = self.b
        member = lane_parts(b)[1]
        each = 4 if self.rhs.layout.paired else 2
        column = b.zext(b.add(self.warp_column, b.mul(member, b.constant("i32", each))), "i64")
        if not self.rhs.layout.paired:
            return [(column, number * COLUMNS, _vector(b, pair)) for number, pair in enumerate(values)]
        return [
            (
                column,
                number * COLUMNS,
                _vector(b, [pair[lane] for lane in range(2) for pair in values[number : number + 2]]),
            )
            for number in range(0, len(values), 2)
        ]


def _vector(b: SimtBuilder, values: Sequence[Val]) -> Val:
    result = Val("poison", values[0].kind, len(values))
    for lane, value in enumerate(values):
        result = b.insert(result, lane, value)
    return result

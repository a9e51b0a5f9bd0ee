"""Copies that bring operands of a product into the order (and the kind) in which its micro-kernel reads them.

* ``CopyKernel``: a launch that copies any strided operand into dense workspace, decoding it on the way;
* ``PanelPack``: a helper function that packs ``k`` x ``width`` elements of the right operand into one dense panel, by
  vectors where columns are neighbours in memory, by square transpositions in registers where the k are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, buffer, dot_product, literal, minimum, unflatten
from hlojit.cpu.kernels.tiles import Segment
from hlojit.cpu.kernels.transposing import Squares, shuffle, transpose_square
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.product_elements import Elements, at, constant_mask, passed, scaled, store_kind
from hlojit.lowering.copy_plan import SINGLE_CYCLES, SQUARE_CYCLES, VECTOR_CYCLES, divide_rows
from hlojit.lowering.dot_problem import Axis, Copy, merge_axes
from hlojit.lowering.kernel import Phase
from hlojit.lowering.target import KIND_BITS, Target

MINIMUM_EXTENT = 4
"""Shortest dimension for which squares are worth while."""


def transposed_axis(axes: list[Axis]) -> int | None:
    """The dimension along which the source is dense, if squares of it and of the last dimension are worth while."""
    if not axes or axes[-1].strides[0] == 1 or axes[-1].extent < MINIMUM_EXTENT:
        return None
    for number, axis in enumerate(axes[:-1]):
        if axis.strides[0] == 1 and axis.extent >= MINIMUM_EXTENT:
            return number
    return None


@dataclass(frozen=True, slots=True)
class CopyKernel:
    """Copy an operand into dense memory of the compute kind (see the module's docstring)."""

    symbol: str
    copy: Copy
    elements: Elements
    source: int
    """Number of the buffer that is read."""
    destination: int
    offset: int = 0
    """Where the copy begins in the destination buffer, in bytes."""
    stored: Elements | None = None
    """What is written: dense values of the compute kind unless given."""
    source_offset: int = 0
    padding: int = 0
    """Bytes that are left free behind every run of the last dimension."""

    def emit(self, b: LlvmBuilder, target: Target) -> Phase:
        """Emit the kernel and return its launch."""
        axes = list(self.copy.axes) if self.padding else merge_axes(self.copy.axes)
        if transposed_axis(axes) is not None and not self.padding:
            return self._by_squares(b, axes, target)
        outer, inner, step = axes[:-1], 1, 1
        if axes:
            inner, step = axes[-1].extent, axes[-1].strides[0]
        rows = math.prod(axis.extent for axis in outer)
        strides = [axis.strides[0] * self.elements.size for axis in outer]

        def copy_row(source: Val, destination: Val, index: Val) -> None:
            coordinates = unflatten(b, index, [axis.extent for axis in outer])
            row = at(b, source, dot_product(b, coordinates, strides))
            step_out = inner * self._size + self.padding
            self._row(b, row, at(b, destination, scaled(b, index, step_out)), inner, step, target)

        return self._launch(b, rows, inner, VECTOR_CYCLES if step == 1 else SINGLE_CYCLES, target, copy_row)

    def _by_squares(self, b: LlvmBuilder, axes: list[Axis], target: Target) -> Phase:
        dense = transposed_axis(axes)
        assert dense is not None
        lanes = target.native_lanes(self.elements.compute)
        squares = Squares(tuple(axes), dense, self.elements, self._size, lanes, self._write)
        strip = lanes * axes[-1].extent
        return self._launch(b, squares.rows, strip, SQUARE_CYCLES, target, lambda *places: squares.emit(b, *places))

    def _launch(
        self,
        b: LlvmBuilder,
        rows: int,
        inner: int,
        cycles: float,
        target: Target,
        copy_row: Callable[[Val, Val, Val], None],
    ) -> Phase:
        """The kernel around ``copy_row(source, destination, index)``."""
        work = divide_rows(rows, inner, cycles, self.elements.size + self._size, target.machine)
        with b.function(self.symbol, PARAMETERS) as (_, buffers, begin, end):
            source = at(b, buffer(b, buffers, self.source), self.source_offset)
            destination = at(b, buffer(b, buffers, self.destination), self.offset)
            last = minimum(b, scaled(b, end, work.per_task), literal(rows))
            loop = b.begin_loop(scaled(b, begin, work.per_task), last)
            copy_row(source, destination, loop.index)
            b.end_loop(loop)
        return Phase(self.symbol, work.tasks, work.cost)

    @property
    def _size(self) -> int:
        return self.stored.size if self.stored else KIND_BITS[self.elements.compute] // 8

    def _write(self, b: LlvmBuilder, value: Val, pointer: Val, mask: Val | None = None) -> None:
        if self.stored:
            self.stored.store(b, value, pointer, mask)
        else:
            store_kind(b, value, pointer, mask)

    def _row(self, b: LlvmBuilder, row: Val, destination: Val, count: int, step: int, target: Target) -> None:
        size = self.elements.size
        lanes = target.native_lanes(self.elements.compute) if step == 1 else 1
        whole = count - count % lanes
        if whole:
            loop = b.begin_loop(ZERO, literal(whole), lanes)
            value = self.elements.load(b, at(b, row, scaled(b, loop.index, step * size)), lanes)
            self._write(b, value, at(b, destination, scaled(b, loop.index, self._size)))
            b.end_loop(loop)
        rest = count - whole
        if rest:
            narrow = 1 << (rest - 1).bit_length()
            mask = constant_mask(rest, narrow)
            value = self.elements.load(b, at(b, row, whole * step * size), narrow, mask)
            self._write(b, value, at(b, destination, whole * self._size), mask)


@dataclass(frozen=True, slots=True)
class PanelPack:
    """``void symbol(ptr source, ptr panel, i64 k, ...)``: packs k rows of the given segments; padding lanes become 0."""

    symbol: str
    elements: Elements
    segments: tuple[Segment, ...]
    step_k: int
    step_column: int
    lanes: int

    @property
    def width(self) -> int:
        """Columns of the panel, padding included."""
        return self.segments[-1].offset + self.segments[-1].lanes

    @property
    def row_bytes(self) -> int:
        """Bytes between the rows of the panel."""
        return self.width * KIND_BITS[self.elements.compute] // 8

    def emit(self, b: LlvmBuilder) -> None:
        """Emit the function."""
        parameters = [("ptr", "source"), ("ptr", "panel"), ("i64", "k"), *self.elements.parameters]
        with b.function(self.symbol, parameters, attributes="nounwind noinline", linkage="internal") as values:
            source, panel, k, *sources = values
            self.elements.begin(b, sources)
            if self.step_column == self.elements.size:
                self._by_rows(b, source, panel, k)
            elif self.step_k == self.elements.size:
                whole = b.and_(k, literal(-self.lanes))
                self._by_squares(b, source, panel, whole)
                self._by_elements(b, source, panel, whole, k)
            else:
                self._by_elements(b, source, panel, ZERO, k)

    def call(self, b: LlvmBuilder, source: Val, panel: Val, k: Val, sources: Sequence[Val] = ()) -> None:
        """Emit a call."""
        b.line(f"call void @{self.symbol}(ptr {source.text}, ptr {panel.text}, i64 {k.text}{passed(sources)})")

    @property
    def _size(self) -> int:
        return KIND_BITS[self.elements.compute] // 8

    def _by_rows(self, b: LlvmBuilder, source: Val, panel: Val, k: Val) -> None:
        loop = b.begin_loop(ZERO, k, carried=[source, panel])
        row, out = loop.carried
        for part in self.segments:
            value = self.elements.load(b, at(b, row, part.offset * self.elements.size), part.lanes, part.mask)
            store_kind(b, value, at(b, out, part.offset * self._size))
        b.end_loop(loop, [at(b, row, self.step_k), at(b, out, self.row_bytes)])

    def _by_squares(self, b: LlvmBuilder, source: Val, panel: Val, whole: Val) -> None:
        """Squares of ``lanes`` columns x k: a loop over the whole vectors of columns, and the edge."""
        lanes = self.lanes
        full = [part for part in self.segments if part.count == lanes]
        loop = b.begin_loop(ZERO, whole, lanes, carried=[source, panel])
        column, out = loop.carried
        if full:
            inner = b.begin_loop(ZERO, literal(len(full) * lanes), lanes)
            place = at(b, column, scaled(b, inner.index, self.step_column))
            self._square(b, place, at(b, out, scaled(b, inner.index, self._size)), full[0])
            b.end_loop(inner)
        for part in self.segments[len(full) :]:
            self._square(b, at(b, column, part.offset * self.step_column), at(b, out, part.offset * self._size), part)
        b.end_loop(loop, [at(b, column, self.step_k * lanes), at(b, out, self.row_bytes * lanes)])

    def _square(self, b: LlvmBuilder, source: Val, out: Val, part: Segment) -> None:
        lanes = self.lanes
        zero = b.splat(b.constant(self.elements.compute, 0), lanes)
        rows = [
            self.elements.load(b, at(b, source, lane * self.step_column), lanes) if lane < part.count else zero
            for lane in range(lanes)
        ]
        for position, vector in enumerate(transpose_square(b, rows)):
            low = shuffle(b, vector, vector, range(part.lanes)) if part.lanes < lanes else vector
            store_kind(b, low, at(b, out, position * self.row_bytes))

    def _by_elements(self, b: LlvmBuilder, source: Val, panel: Val, start: Val, end: Val) -> None:
        loop = b.begin_loop(start, end)
        row = at(b, source, scaled(b, loop.index, self.step_k))
        out = at(b, panel, scaled(b, loop.index, self.row_bytes))
        count = self.segments[-1].offset + self.segments[-1].count
        inner = b.begin_loop(ZERO, literal(count))
        value = self.elements.load(b, at(b, row, scaled(b, inner.index, self.step_column)))
        store_kind(b, value, at(b, out, scaled(b, inner.index, self._size)))
        b.end_loop(inner)
        zero = b.constant(self.elements.compute, 0)
        for column in range(count, self.width):
            store_kind(b, zero, at(b, out, column * self._size))
        b.end_loop(loop)

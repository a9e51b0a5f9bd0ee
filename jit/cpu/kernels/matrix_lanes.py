"""Small matrices of a batch in the lanes of vectors: element (i, j) of as many neighbours as a vector has lanes is one vector.

    memory, matrix by matrix   a00 a10 a01 a11 | b00 b10 b01 b11 | ...
    lanes                      <a00 b00 ...> <a10 b10 ...> <a01 b01 ...> <a11 b11 ...>

An algorithm for one matrix, written with ``get`` and ``set``, then does all of them at once.  Lanes lie on the stack, where
LLVM finds that those with constant indices are registers.  Squares of elements are transposed on the way in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlojit.cpu.kernels.addresses import literal, minimum
from hlojit.cpu.kernels.transposing import transpose_square
from hlojit.cpu.kernels.update import byte_pointer
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.product_elements import constant_mask
from hlojit.lowering.target import KIND_BITS

Number = int | Val
"""Of a row or a column: known when the code is written, or an i64."""


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring matrices: lane 0 has number ``first``, the first ``active`` lanes have matrices of their own."""

    b: LlvmBuilder
    lanes: int
    first: Val
    active: Val
    written_out: bool
    """Whether loops over rows and columns are: the code of small matrices is."""

    def walk(self, start: Number, stop: Number, body: Callable[[Number], None]) -> None:
        """``for index in range(start, stop): body(index)``."""
        if isinstance(start, int) and isinstance(stop, int) and (self.written_out or stop - start < 2):
            for index in range(start, stop):
                body(index)
            return
        loop = self.b.begin_loop(as_value(start), as_value(stop))
        body(loop.index)
        self.b.end_loop(loop)

    def after(self, index: Number) -> Number:
        """The number behind."""
        return index + 1 if isinstance(index, int) else self.b.add(index, literal(1))

    def before(self, count: int, index: Number) -> Number:
        """``count - 1 - index``: rows or columns from the last one on."""
        return count - 1 - index if isinstance(index, int) else self.b.sub(literal(count - 1), index)

    def start(self, buffer: Val, nbytes: int, lane: int) -> Val:
        """Where a lane's matrix begins; lanes without one repeat the last."""
        last = self.b.sub(self.active, literal(1))
        number = self.b.add(self.first, minimum(self.b, literal(lane), last))
        return byte_pointer(self.b, buffer, self.b.mul(number, literal(nbytes)))

    def write_numbers(self, numbers: Val, buffer: Val) -> None:
        """Put one number of each matrix into a buffer."""
        b = self.b
        lanes = Val(f"<{', '.join(f'i64 {lane}' for lane in range(self.lanes))}>", "i64", self.lanes)
        pointer = b.element_pointer(buffer, numbers.kind, self.first)
        b.masked_store(numbers, pointer, b.icmp("slt", lanes, b.splat(self.active, self.lanes)))

    def where_active(self, lane: int, body: Callable[[], None]) -> None:
        """Do what the lane's matrix wants, if it has one."""
        b = self.b
        inside, done = b.fresh_label("inside"), b.fresh_label("done")
        b.branch_if(b.icmp("slt", literal(lane), self.active), inside, done)
        b.begin_block(inside)
        body()
        b.branch(done)
        b.begin_block(done)


class MatrixLanes:
    """One matrix a lane, of a kind of numbers and a shape; in memory by columns, or by rows."""

    def __init__(
        self, group: Group, kind: str, rows: int, columns: int, *, by_columns: bool = True, memory: Val | None = None
    ):
        self.group, self.kind, self.rows, self.columns, self.by_columns = group, kind, rows, columns, by_columns
        self.count = rows * columns
        self._memory = group.b.array(kind, self.count * group.lanes) if memory is None else memory

    def transposed(self) -> MatrixLanes:
        """The transposes, in the same memory."""
        turned = not self.by_columns
        return MatrixLanes(self.group, self.kind, self.columns, self.rows, by_columns=turned, memory=self._memory)

    def get(self, row: Number, column: Number) -> Val:
        """An element of every lane."""
        return self._load(self._number(row, column))

    def set(self, row: Number, column: Number, value: Val) -> None:
        """Put an element into every lane."""
        self._store(self._number(row, column), value)

    def read(self, buffer: Val) -> None:
        """Take the matrices from a buffer."""
        self._squares(buffer, self._read_square)

    def write(self, buffer: Val) -> None:
        """Put the matrices into a buffer."""
        self._squares(buffer, self._write_square)

    # ---------------------------------------------------------------------------------------------- elements by number

    def _number(self, row: Number, column: Number) -> Number:
        slow, fast, extent = (column, row, self.rows) if self.by_columns else (row, column, self.columns)
        if isinstance(slow, int) and isinstance(fast, int):
            return slow * extent + fast
        b = self.group.b
        return b.add(b.mul(as_value(slow), literal(extent)), as_value(fast))

    def _address(self, number: Number) -> Val:
        b = self.group.b
        nbytes = self.group.lanes * self._itemsize
        offset = literal(number * nbytes) if isinstance(number, int) else b.mul(number, literal(nbytes))
        return byte_pointer(b, self._memory, offset)

    def _load(self, number: Number) -> Val:
        b, lanes = self.group.b, self.group.lanes
        nbytes = lanes * self._itemsize
        text = f"load {b.type(self.kind, lanes)}, ptr {self._address(number).text}, align {nbytes}"
        return b.emit(self.kind, lanes, text)

    def _store(self, number: Number, value: Val) -> None:
        group = self.group
        group.b.store(group.b.splat(value, group.lanes), self._address(number), align=group.lanes * self._itemsize)

    @property
    def _itemsize(self) -> int:
        return KIND_BITS[self.kind] // 8

    # ------------------------------------------------------------------------------------------------------- in and out

    def _squares(self, buffer: Val, each: Callable[[Sequence[Val], Number, int], None]) -> None:
        """Walk pieces of as many neighbouring elements as there are lanes."""
        group, lanes = self.group, self.group.lanes
        starts = [group.start(buffer, self.count * self._itemsize, lane) for lane in range(lanes)]
        whole = self.count // lanes

        def piece(number: Number) -> None:
            first = number * lanes if isinstance(number, int) else group.b.mul(number, literal(lanes))
            each(starts, first, lanes)

        group.walk(0, whole, piece)
        rest = self.count - whole * lanes
        if rest and whole:
            # Some of the last piece once more, which is cheaper than masks.
            each(starts, self.count - lanes, lanes)
        elif rest:
            each(starts, 0, rest)

    def _read_square(self, starts: Sequence[Val], first: Number, count: int) -> None:
        group, b = self.group, self.group.b
        mask = constant_mask(count, group.lanes)
        loaded = []
        for start in starts:
            pointer = b.element_pointer(start, self.kind, as_value(first))
            if mask is None:
                text = f"load {b.type(self.kind, group.lanes)}, ptr {pointer.text}, align {self._itemsize}"
                loaded.append(b.emit(self.kind, group.lanes, text))
            else:
                loaded.append(b.masked_load(self.kind, pointer, mask))
        for offset, vector in enumerate(transpose_square(b, loaded)[:count]):
            self._store(_behind(b, first, offset), vector)

    def _write_square(self, starts: Sequence[Val], first: Number, count: int) -> None:
        group, b = self.group, self.group.b
        mask = constant_mask(count, group.lanes)
        vectors = [self._load(_behind(b, first, offset)) for offset in range(count)]
        vectors += [vectors[-1]] * (group.lanes - count)
        for lane, (start, vector) in enumerate(zip(starts, transpose_square(b, vectors), strict=True)):

            def store(start: Val = start, vector: Val = vector) -> None:
                pointer = b.element_pointer(start, self.kind, as_value(first))
                if mask is None:
                    b.store(vector, pointer)
                else:
                    b.masked_store(vector, pointer, mask)

            group.where_active(lane, store)


def as_value(number: Number) -> Val:
    """A number as an i64."""
    return literal(number) if isinstance(number, int) else number


def _behind(b: LlvmBuilder, first: Number, offset: int) -> Number:
    return first + offset if isinstance(first, int) else b.add(first, literal(offset))

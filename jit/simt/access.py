"""A thread's ``Access``: loads and stores of up to 16 bytes where the index says that they are aligned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import final

from hlojit.ir.scalar.builder import Pair
from hlojit.llvm.text import Val
from hlojit.llvm.vector_access import VectorAccess
from hlojit.lowering.index import Atom, Index, Quotient, Remainder
from hlojit.lowering.target import KIND_BITS, Target
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.ragged import Edge, shifted_words

BUFFER_ALIGNMENT = 256
"""What a buffer's address is a multiple of; the runtime sees to it."""

SHARED_ALIGNMENT = 16
"""What the addresses of arrays in shared memory are multiples of."""


@final
class SimtAccess(VectorAccess):
    """``VectorAccess`` of a thread: buffers begin at multiples of 256 bytes, quotients are taken in 32 bits."""

    builder: SimtBuilder
    pair_alignment = 16

    def __init__(self, builder: SimtBuilder, target: Target, bases: Sequence[Val], sizes: Sequence[int]):
        super().__init__(builder, target, bases, sizes)
        self.multiples: dict[str, int] = {}
        """What the value of a variable is known to be a multiple of."""
        self.references: dict[str, tuple[Index, ...]] = {}
        """Indices of pieces along a variable that are multiples of the piece's lanes, although the variable is not."""
        self.edges: dict[str, Edge] = {}
        """What reaches over the ends of a row, by the variable of its lanes."""
        self.shared: set[int] = set()
        """Buffers that are arrays in shared memory."""
        self.guard: Val | None = None
        """Whether the thread has an element here at all (None: it has): nothing is read where it has not."""

    @contextmanager
    def guarded(self, active: Val | None) -> Iterator[None]:
        """Inside, elements are read only where a condition of the whole thread holds; elsewhere they are zero."""
        outer, self.guard = self.guard, active
        try:
            yield
        finally:
            self.guard = outer

    def load(self, buffer: int, kind: str, linear: Index, condition: Val | None) -> Val:
        if self.guard is None or not linear.terms:
            return self._read(buffer, kind, linear, condition)

        def read() -> list[Val]:
            with self.scope():
                return [self._read(buffer, kind, linear, condition)]

        return self.builder.either(self.guard, read, [self.builder.constant(kind, 0)])[0]

    def _read(self, buffer: int, kind: str, linear: Index, condition: Val | None) -> Val:
        b = self.builder
        buffer, linear = self.staged.get((buffer, linear), (buffer, linear))
        size = self.sizes[buffer]
        if not size:
            # Guards let nothing of it through.
            return b.splat(b.constant(kind, 0)) if self.vectorized else b.constant(kind, 0)
        safe = linear.low >= 0 and linear.high < size
        if not any(self.varies(atom) for atom, _ in linear.terms):
            offset = self.uniform(linear)
            if condition is not None and not safe:
                inside = b.icmp("ult", offset, b.constant("i64", size))
                offset = b.select(inside, offset, b.constant("i64", 0))
            return self._load(buffer, kind, offset, 1)
        if not self._is_contiguous(linear):
            divisor = self._row_of(linear) if safe or condition is None else None
            if divisor is not None:
                return self._load_across(buffer, kind, linear, divisor)
            return self._load_lanes(buffer, kind, linear, None if safe else condition)
        guard = None if safe else condition
        edge = self._edge(buffer)
        if edge is None:
            return self._load_contiguous(buffer, kind, linear, guard)
        return self.branch(
            edge.inside,
            lambda: self._load_contiguous(buffer, kind, linear, guard),
            lambda: (
                self._load_some(buffer, kind, linear, edge)
                if guard is None
                else self._load_lanes(buffer, kind, linear, guard)
            ),
        )

    def load_pair(self, buffer: int, kind: str, linear: Index, condition: Val | None) -> Pair:
        if kind == "f32" or self.vectorized or self.guard is not None or condition is not None:
            return super().load_pair(buffer, kind, linear, condition)
        b = self.builder
        offset = b.mul(self.uniform(linear), b.constant("i64", 2))
        with b.of_lanes(2):
            pair = b.load(kind, self.pointer(buffer, kind, offset), vector=True, align=self.pair_alignment)
        return Pair(b.extract(pair, 0), b.extract(pair, 1))

    def _is_whole_piece(self, linear: Index) -> bool:
        """No piece of wide pairs is: rows have edges, and threads may have no element."""
        return False

    def _load_some(self, buffer: int, kind: str, linear: Index, edge: Edge) -> Val:
        """The elements of a contiguous piece that belong to its row; zeros beside them."""
        b = self.builder
        mask, start, zero = edge.mask(b), self.uniform(linear), b.constant(kind, 0)
        result = Val("poison", kind, b.lanes)
        for lane in range(b.lanes):
            place = b.add(start, b.constant("i64", lane))
            load = partial(self._load, buffer, kind, place, 1)
            (element,) = b.either(b.extract(mask, lane), lambda load=load: [load()], [zero])  # type: ignore[misc]
            result = b.insert(result, lane, element)
        return result

    def _row_of(self, linear: Index) -> Remainder | None:
        """The column, where lanes go along rows and an index is one of the column, contiguous, and perhaps the row."""
        moving = [(atom, coefficient) for atom, coefficient in linear.terms if self.varies(atom)]
        columns = [atom for atom, coefficient in moving if isinstance(atom, Remainder) and coefficient == 1]
        if len(columns) != 1 or not self._is_contiguous(columns[0].numerator):
            return None
        (column,) = columns
        others = [atom for atom, _ in moving if atom is not column]
        same_row = all(
            isinstance(atom, Quotient) and atom.numerator == column.numerator and atom.divisor == column.divisor
            for atom in others
        )
        return column if same_row else None

    def _load_across(self, buffer: int, kind: str, linear: Index, column: Remainder) -> Val:
        """A piece that mostly lies in one row."""
        b = self.builder
        lanes, nbytes = b.lanes, b.lanes * max(8, KIND_BITS[kind]) // 8
        if nbytes % 8 or kind == "i1":
            return self._load_lanes(buffer, kind, linear, None)
        place = self.uniform(column.numerator % column.divisor)
        in_row = b.icmp("sle", place, b.constant("i64", column.divisor - lanes))
        in_buffer = b.icmp("sle", self.uniform(linear), b.constant("i64", self.sizes[buffer] - 2 * lanes))
        return self.branch(
            b.and_(in_row, in_buffer),
            lambda: self._load_shifted(buffer, kind, linear),
            lambda: self._load_lanes(buffer, kind, linear, None),
        )

    def _edge(self, buffer: int) -> Edge | None:
        """What a piece of a buffer has to look out for: shared memory is the thread's own beyond the row, too."""
        return None if buffer in self.shared else self.edges.get(self.vectorized)

    def _load_contiguous(self, buffer: int, kind: str, linear: Index, condition: Val | None) -> Val:
        if condition is None:
            return self._load_piece(buffer, kind, linear)
        return self._load_guarded(buffer, kind, linear, self.builder.splat(condition))

    def _load_piece(self, buffer: int, kind: str, linear: Index) -> Val:
        lanes, align = self.builder.lanes, self.alignment(buffer, linear, kind)
        nbytes = lanes * max(8, KIND_BITS[kind]) // 8
        if nbytes % 8 == 0 and kind != "i1" and align < min(nbytes, SHARED_ALIGNMENT) and self._follows_row(linear):
            return self._load_shifted(buffer, kind, linear)
        return self._load(buffer, kind, self.uniform(linear), lanes, align)

    def _follows_row(self, linear: Index) -> bool:
        """Whether rows of a buffer begin at multiples of the lanes, while the pieces do not."""
        if self.vectorized not in self.references:
            return False
        others = Index(linear.constant, tuple(term for term in linear.terms if term[0].key != self.vectorized))
        return self._multiple(others) % self.builder.lanes == 0

    def _load_shifted(self, buffer: int, kind: str, linear: Index) -> Val:
        """A piece that begins anywhere, out of the two aligned ones (or the one) that hold it."""
        b, itemsize = self.builder, max(8, KIND_BITS[kind]) // 8
        lanes, count = b.lanes, b.lanes * itemsize // 4
        start = self.uniform(linear)
        before = b.and_(start, b.constant("i64", lanes - 1))
        first = b.sub(start, before)
        is_one = b.icmp("eq", before, b.constant("i64", 0))
        second = b.select(is_one, first, b.add(first, b.constant("i64", lanes)))
        words: list[Val] = []
        with b.of_lanes(count):
            for offset in (first, second):
                pointer = self.pointer(buffer, kind, offset)
                piece = b.load("i32", pointer, vector=True, align=lanes * itemsize)
                words += [b.extract(piece, number) for number in range(count)]
        nbytes = b.trunc(b.mul(before, b.constant("i64", itemsize)), "i32")
        result = Val("poison", "i32", count)
        for number, word in enumerate(shifted_words(b, words, nbytes, itemsize)):
            result = b.insert(result, number, word)
        return b.emit(kind, lanes, f"bitcast {b.type_of(result)} {result.text} to {b.type(kind, lanes)}")

    def _vector_atom(self, atom: Atom, kind: str) -> Val:
        """Lanes beyond the ends of a row have the index of the element at the end."""
        edge = self.edges.get(atom.key) if atom.key == self.vectorized else None
        if edge is None:
            return super()._vector_atom(atom, kind)
        return self._resized(edge.nearest(self.builder), kind)

    def _load_guarded(self, buffer: int, kind: str, linear: Index, condition: Val) -> Val:
        """A piece of which any elements may be guarded off: mostly all of them are, or none."""
        b = self.builder
        lanes = [b.extract(condition, lane) for lane in range(b.lanes)]
        every, some = reduce(b.and_, lanes), reduce(b.or_, lanes)

        def nothing() -> Val:
            return b.splat(b.constant(kind, 0))

        def some_of_it() -> Val:
            return self.branch(some, lambda: self._load_lanes(buffer, kind, linear, condition), nothing)

        return self.branch(every, lambda: self._load_piece(buffer, kind, linear), some_of_it)

    def _is_contiguous(self, linear: Index) -> bool:
        moving = [atom for atom, _ in linear.terms if self.varies(atom)]
        return len(moving) == 1 and moving[0].key == self.vectorized and linear.coefficient(self.vectorized) == 1

    def _load(self, buffer: int, kind: str, offset: Val, lanes: int, align: int = 0) -> Val:
        b = self.builder
        return b.load(kind, self.pointer(buffer, kind, offset), vector=lanes > 1, align=align)

    def _load_lanes(self, buffer: int, kind: str, linear: Index, condition: Val | None) -> Val:
        """One access a lane; where the condition is false the first element is read."""
        b = self.builder
        result = Val("poison", kind, b.lanes)
        offsets = self._vector(linear, "i64")
        for lane in range(b.lanes):
            offset = b.extract(offsets, lane)
            if condition is not None:
                offset = b.select(b.extract(condition, lane), offset, b.constant("i64", 0))
            result = b.insert(result, lane, self._load(buffer, kind, offset, 1))
        return result

    def store(self, value: Val, buffer: int, linear: Index) -> None:
        b = self.builder
        if not self.vectorized:
            self._store(value, buffer, self.uniform(linear))
            return
        vector, edge = b.splat(value), self._edge(buffer)
        if edge is None:
            self._store_piece(vector, buffer, linear)
            return

        def whole() -> None:
            with self.scope():
                self._store_piece(vector, buffer, linear)

        def lanes() -> None:
            with self.scope():
                self._store_some(vector, buffer, linear, edge)

        b.choose(edge.inside, whole, lanes)

    def _store_piece(self, vector: Val, buffer: int, linear: Index) -> None:
        if self._is_contiguous(linear):
            self._store(vector, buffer, self.uniform(linear), self.alignment(buffer, linear, vector.kind))
        else:
            self._store_lanes(vector, buffer, linear)

    def _store_lanes(self, vector: Val, buffer: int, linear: Index) -> None:
        """One access a lane."""
        b = self.builder
        offsets = b.splat(self._vector(linear, "i64"))
        for lane in range(b.lanes):
            self._store(b.extract(vector, lane), buffer, b.extract(offsets, lane))

    def _store_some(self, vector: Val, buffer: int, linear: Index, edge: Edge) -> None:
        """The elements of a piece that belong to its row."""
        b = self.builder
        mask, start = edge.mask(b), self.uniform(linear)
        offsets = None if self._is_contiguous(linear) else b.splat(self._vector(linear, "i64"))
        for lane in range(b.lanes):
            place = b.add(start, b.constant("i64", lane)) if offsets is None else b.extract(offsets, lane)
            b.when(b.extract(mask, lane), partial(self._store, b.extract(vector, lane), buffer, place))

    def _store(self, value: Val, buffer: int, offset: Val, align: int = 0) -> None:
        b = self.builder
        b.store(value, self.pointer(buffer, value.kind, offset), align=align)

    def load_at(self, buffer: int, kind: str, offset: Val, lanes: int = 1) -> Val:
        """One element, or ``lanes`` (the builder's) that begin at an address that their bytes divide."""
        return self._load(buffer, kind, offset, lanes, _whole_bytes(kind, lanes))

    def store_at(self, value: Val, buffer: int, offset: Val) -> None:
        """One element, or as many as the value has lanes, as ``load_at`` reads them."""
        self._store(value, buffer, offset, _whole_bytes(value.kind, value.lanes))

    def add_shared(self, kind: str, count: int) -> int:
        """An array in the block's shared memory, as one more buffer."""
        self.bases.append(self.builder.shared(kind, count))
        self.sizes.append(count)
        self.shared.add(len(self.bases) - 1)
        return len(self.bases) - 1

    def add_workspace(self, address: Val, offset: int, count: int) -> int:
        """An array in the kernel's workspace, as one more buffer."""
        self.bases.append(self.builder.emit("ptr", 1, f"getelementptr inbounds i8, ptr {address.text}, i64 {offset}"))
        self.sizes.append(count)
        return len(self.bases) - 1

    def alignment(self, buffer: int, linear: Index, kind: str) -> int:
        """Bytes that the address of a piece is a multiple of, as far as an access can use it."""
        known = self._multiple(linear)
        for reference in self.references.get(self.vectorized, ()):
            known = max(known, math.gcd(self._multiple(linear - reference), self.builder.lanes))
        return math.gcd(
            known * max(8, KIND_BITS[kind]) // 8, SHARED_ALIGNMENT if buffer in self.shared else BUFFER_ALIGNMENT
        )

    def _multiple(self, linear: Index) -> int:
        """A power of two that an index is a multiple of, or more."""
        known = math.gcd(linear.constant, BUFFER_ALIGNMENT)
        for atom, coefficient in linear.terms:
            multiple = 1 if isinstance(atom, (Quotient, Remainder)) else self.multiples.get(atom.key, 1)
            known = math.gcd(known, coefficient * multiple)
        return known

    def _divided(self, atom: Quotient | Remainder, evaluate: Callable[[Index], Val], kind: str) -> Val:
        """In 32 bits where the numerator fits: 64-bit division is a routine of some hundred instructions."""
        b = self.builder
        numerator = atom.numerator
        if kind == "i64" and numerator.low >= 0 and numerator.high < 1 << 31:
            value = b.trunc(evaluate(numerator), "i32")
            divisor = b.constant("i32", atom.divisor)
            divided = b.urem(value, divisor) if isinstance(atom, Remainder) else b.udiv(value, divisor)
            return b.zext(divided, "i64")
        return super()._divided(atom, evaluate, kind)


def _whole_bytes(kind: str, lanes: int) -> int:
    return min(lanes * max(8, KIND_BITS[kind]) // 8, SHARED_ALIGNMENT)

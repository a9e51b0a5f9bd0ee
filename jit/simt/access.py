"""A thread's ``Access``: loads and stores of up to 16 bytes where the index says that they are aligned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import final

from hlojit.llvm.text import Val
from hlojit.llvm.vector_access import VectorAccess
from hlojit.lowering.index import Index, Quotient, Remainder
from hlojit.lowering.target import KIND_BITS, Target
from hlojit.simt.builder import SimtBuilder

BUFFER_ALIGNMENT = 256
"""What a buffer's address is a multiple of; the runtime sees to it."""

SHARED_ALIGNMENT = 16
"""What the addresses of arrays in shared memory are multiples of."""


@final
class SimtAccess(VectorAccess):
    """``VectorAccess`` of a thread: buffers begin at multiples of 256 bytes, quotients are taken in 32 bits."""

    builder: SimtBuilder

    def __init__(self, builder: SimtBuilder, target: Target, bases: Sequence[Val], sizes: Sequence[int]):
        super().__init__(builder, target, bases, sizes)
        self.multiples: dict[str, int] = {}
        """What the value of a variable is known to be a multiple of."""
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
            return self._load_lanes(buffer, kind, linear, None if safe else condition)
        if condition is None or safe:
            return self._load_piece(buffer, kind, linear)
        return self._load_guarded(buffer, kind, linear, b.splat(condition))

    def _load_piece(self, buffer: int, kind: str, linear: Index) -> Val:
        return self._load(buffer, kind, self.uniform(linear), self.builder.lanes, self.alignment(buffer, linear, kind))

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
        if not self.vectorized or self._is_contiguous(linear):
            align = self.alignment(buffer, linear, value.kind) if self.vectorized else 0
            self._store(b.splat(value) if self.vectorized else value, buffer, self.uniform(linear), align)
            return
        vector, offsets = b.splat(value), b.splat(self._vector(linear, "i64"))
        for lane in range(b.lanes):
            self._store(b.extract(vector, lane), buffer, b.extract(offsets, lane))

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
        known = math.gcd(linear.constant, BUFFER_ALIGNMENT)
        for atom, coefficient in linear.terms:
            multiple = 1 if isinstance(atom, (Quotient, Remainder)) else self.multiples.get(atom.key, 1)
            known = math.gcd(known, coefficient * multiple)
        return math.gcd(
            known * max(8, KIND_BITS[kind]) // 8, SHARED_ALIGNMENT if buffer in self.shared else BUFFER_ALIGNMENT
        )

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

"""A thread's ``Access``: loads and stores of up to 16 bytes where the index says that they are aligned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

from hlojit.llvm.text import Val
from hlojit.llvm.vector_access import VectorAccess
from hlojit.lowering.index import Index, Quotient, Remainder
from hlojit.lowering.target import KIND_BITS, Target
from hlojit.simt.builder import SimtBuilder

BUFFER_ALIGNMENT = 256
"""What a buffer's address is a multiple of; the runtime sees to it."""


@final
class SimtAccess(VectorAccess):
    """``VectorAccess`` of a thread: buffers begin at multiples of 256 bytes, quotients are taken in 32 bits."""

    builder: SimtBuilder

    def __init__(self, builder: SimtBuilder, target: Target, bases: Sequence[Val], sizes: Sequence[int]):
        super().__init__(builder, target, bases, sizes)
        self.multiples: dict[str, int] = {}
        """What the value of a variable is known to be a multiple of."""

    def load(self, buffer: int, kind: str, linear: Index, condition: Val | None) -> Val:
        b = self.builder
        moving = [atom for atom, _ in linear.terms if self.varies(atom)]
        contiguous = len(moving) == 1 and moving[0].key == self.vectorized and linear.coefficient(self.vectorized) == 1
        plain = self.mask is None and (condition is None or (linear.low >= 0 and linear.high < self.sizes[buffer]))
        if not (contiguous and plain):
            return super().load(buffer, kind, linear, condition)
        offset = self.uniform(linear)
        b.dialect.check(b, buffer, offset, b.lanes, kind, None, is_store=False)
        return b.load(kind, self.pointer(buffer, kind, offset), vector=True, align=self.alignment(linear, kind))

    def store(self, value: Val, buffer: int, linear: Index) -> None:
        b = self.builder
        if self.mask is not None or not self.vectorized or linear.coefficient(self.vectorized) != 1:
            super().store(value, buffer, linear)
            return
        offset = self.uniform(linear)
        b.dialect.check(b, buffer, offset, b.lanes, value.kind, None, is_store=True)
        pointer = self.pointer(buffer, value.kind, offset)
        b.store(b.splat(value), pointer, align=self.alignment(linear, value.kind))

    def alignment(self, linear: Index, kind: str) -> int:
        """Bytes that the address of a piece is a multiple of, as far as an access can use it."""
        known = math.gcd(linear.constant, BUFFER_ALIGNMENT)
        for atom, coefficient in linear.terms:
            multiple = 1 if isinstance(atom, (Quotient, Remainder)) else self.multiples.get(atom.key, 1)
            known = math.gcd(known, coefficient * multiple)
        return math.gcd(known * max(8, KIND_BITS[kind]) // 8, BUFFER_ALIGNMENT)

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

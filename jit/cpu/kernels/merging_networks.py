"""Blocks that networks have sorted, merged in memory: networks of twice, four times, ... as many vectors in little code.

Two sorted blocks of as many rows become one: what is as far from the beginning as its partner is from the end is compared,
which leaves the smaller half in the first block and the larger one in the second, both rising and falling at most once.  Rows
at half the distance are compared next, and so on; the last rows, and their lanes, in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from hlojit.cpu.kernels.addresses import ZERO, literal
from hlojit.cpu.kernels.partitioning import load_vector
from hlojit.cpu.kernels.sort_networks import exchange, finish_block, partners
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.region import Variable, while_loop

ONE = literal(1)


@final
@dataclass(frozen=True)
class MergingNetwork:
    """Emits ``merge(data, rows)``: both halves of ``rows`` vectors are sorted; ``block`` of them are finished in registers."""

    b: LlvmBuilder
    kind: str
    lanes: int
    block: int
    symbol: str
    sign: str = "s"

    def call(self, data: Val, rows: Val) -> None:
        """Merge two blocks of ``rows / 2`` rows, at least ``block`` each."""
        self.b.line(f"call void @{self.symbol}(ptr {data.text}, i64 {rows.text})")

    def emit(self) -> None:
        """The function."""
        b = self.b
        with b.function(self.symbol, [("ptr", "data"), ("i64", "rows")], linkage="internal") as (data, rows):
            half = b.lshr(rows, ONE)
            self._flip(data, half)
            distance = Variable(b, "i64", b.lshr(half, ONE))

            def halve() -> None:
                self._compare(data, rows, distance.get())
                distance.set(b.lshr(distance.get(), ONE))

            while_loop(b, lambda: b.icmp("sge", distance.get(), literal(self.block)), halve)
            loop = b.begin_loop(ZERO, rows, step=self.block, guarded=False)
            block = [self._load(data, b.add(loop.index, literal(row))) for row in range(self.block)]
            for row, vector in enumerate(finish_block(b, block, self.sign)):
                self._store(vector, data, b.add(loop.index, literal(row)))
            b.end_loop(loop)

    def _load(self, data: Val, row: Val) -> Val:
        place = self.b.element_pointer(data, self.kind, self.b.mul(row, literal(self.lanes)))
        return load_vector(self.b, place, self.kind, self.lanes)

    def _store(self, vector: Val, data: Val, row: Val) -> None:
        self.b.store(vector, self.b.element_pointer(data, self.kind, self.b.mul(row, literal(self.lanes))))

    def _flip(self, data: Val, half: Val) -> None:
        """The smaller numbers to the first block; two rows of each at a time, whose partners are each other's places."""
        b = self.b
        loop = b.begin_loop(ZERO, b.lshr(half, ONE), guarded=False)
        first, last = loop.index, b.sub(b.sub(half, ONE), loop.index)
        rows = [(self._load(data, row), self._load(data, b.add(half, row))) for row in (first, last)]
        for (own, _), (_, other), row in zip(rows, rows[::-1], (first, last)):
            low, high = exchange(b, own, partners(b, other, self.lanes - 1), self.sign)
            self._store(low, data, row)
            self._store(high, data, b.add(half, row))
        b.end_loop(loop)

    def _compare(self, data: Val, rows: Val, distance: Val) -> None:
        """Rows with those at a distance, in groups of twice as many."""
        b = self.b
        loop = b.begin_loop(ZERO, b.lshr(rows, ONE), guarded=False)
        # Rows whose number lacks the bit of the distance: it is pushed in between.
        below = b.and_(loop.index, b.sub(distance, ONE))
        row = b.add(b.shl(b.sub(loop.index, below), ONE), below)
        low, high = exchange(b, self._load(data, row), self._load(data, b.add(row, distance)), self.sign)
        self._store(low, data, row)
        self._store(high, data, b.add(row, distance))
        b.end_loop(loop)

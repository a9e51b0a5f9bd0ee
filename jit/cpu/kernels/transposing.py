"""The copy of a strided operand whose neighbours lie along another dimension than the result's: by squares.

A square of ``lanes`` x ``lanes`` elements is read as vectors along the source's innermost dimension, transposed in
registers, and written as vectors along the destination's.  Edges are masked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlojit.cpu.kernels.addresses import ZERO, dot_product, literal, unflatten
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.product_elements import Elements, at, constant_mask, scaled
from hlojit.lowering.dot_problem import Axis, ceil_divide, dense_steps

Write = Callable[[LlvmBuilder, Val, Val, Val | None], None]


@dataclass(frozen=True, slots=True)
class Squares:
    """The loops of such a copy: ``rows`` strips, each one block of the dense dimension by the whole last one."""

    axes: tuple[Axis, ...]
    dense: int
    elements: Elements
    unit: int
    """Bytes of one element written."""
    lanes: int
    write: Write

    @property
    def blocks(self) -> int:
        """Blocks of the dense dimension."""
        return ceil_divide(self.axes[self.dense].extent, self.lanes)

    @property
    def outer(self) -> list[int]:
        """Extents of the strips: all dimensions but the last, the dense one in blocks."""
        return [self.blocks if i == self.dense else axis.extent for i, axis in enumerate(self.axes[:-1])]

    @property
    def rows(self) -> int:
        """Number of strips."""
        return math.prod(self.outer)

    def emit(self, b: LlvmBuilder, source: Val, destination: Val, index: Val) -> None:
        """Copy strip number ``index``."""
        coordinates = unflatten(b, index, self.outer)
        size = self.elements.size
        steps = [axis.strides[0] for axis in self.axes[:-1]]
        places = dense_steps([axis.extent for axis in self.axes])[:-1]
        factors = [self.lanes if i == self.dense else 1 for i in range(len(steps))]
        row = at(b, source, dot_product(b, coordinates, [s * f * size for s, f in zip(steps, factors)]))
        out = at(b, destination, dot_product(b, coordinates, [p * f * self.unit for p, f in zip(places, factors)]))
        rest = self.axes[self.dense].extent % self.lanes
        if not rest:
            self._strip(b, row, out, self.lanes, places[self.dense])
            return
        if self.blocks == 1:
            self._strip(b, row, out, rest, places[self.dense])
            return
        edge, whole, done = b.fresh_label("edge"), b.fresh_label("whole"), b.fresh_label("next")
        b.branch_if(b.icmp("eq", coordinates[self.dense], literal(self.blocks - 1)), edge, whole)
        b.begin_block(edge)
        self._strip(b, row, out, rest, places[self.dense])
        b.branch(done)
        b.begin_block(whole)
        self._strip(b, row, out, self.lanes, places[self.dense])
        b.branch(done)
        b.begin_block(done)

    def _strip(self, b: LlvmBuilder, row: Val, out: Val, count: int, place: int) -> None:
        last = self.axes[-1]
        whole = last.extent // self.lanes * self.lanes
        step = last.strides[0] * self.elements.size
        if whole:
            loop = b.begin_loop(ZERO, literal(whole), self.lanes)
            source, target = at(b, row, scaled(b, loop.index, step)), at(b, out, scaled(b, loop.index, self.unit))
            self._square(b, source, target, count, self.lanes, place)
            b.end_loop(loop)
        if last.extent > whole:
            source, target = at(b, row, whole * step), at(b, out, whole * self.unit)
            self._square(b, source, target, count, last.extent - whole, place)

    def _square(self, b: LlvmBuilder, source: Val, target: Val, dense: int, last: int, place: int) -> None:
        """``dense`` elements of each of ``last`` vectors."""
        step = self.axes[-1].strides[0] * self.elements.size
        zero = b.splat(b.constant(self.elements.compute, 0), self.lanes)
        mask = constant_mask(dense, self.lanes)
        vectors = [
            self.elements.load(b, at(b, source, i * step), self.lanes, mask) if i < last else zero
            for i in range(self.lanes)
        ]
        mask = constant_mask(last, self.lanes)
        for i, vector in enumerate(transpose_square(b, vectors)[:dense]):
            self.write(b, vector, at(b, target, i * place * self.unit), mask)


def transpose_square(b: LlvmBuilder, rows: Sequence[Val]) -> list[Val]:
    """Transpose ``n`` vectors of ``n`` lanes (a power of two) by log2(n) rounds of shuffles."""
    rows = list(rows)
    count = len(rows)
    stride = count // 2
    while stride:
        low = [j if not j & stride else count + j - stride for j in range(count)]
        high = [j + stride if not j & stride else count + j for j in range(count)]
        for i in range(count):
            if not i & stride:
                x, y = rows[i], rows[i + stride]
                rows[i] = shuffle(b, x, y, low)
                rows[i + stride] = shuffle(b, x, y, high)
        stride //= 2
    return rows


def shuffle(b: LlvmBuilder, x: Val, y: Val, lanes: Sequence[int]) -> Val:
    """Pick lanes of the concatenation of two vectors."""
    if len(lanes) == 1:
        return b.extract(x, lanes[0])
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    kind = b.type_of(x)
    return b.emit(x.kind, len(lanes), f"shufflevector {kind} {x.text}, {kind} {y.text}, <{len(lanes)} x i32> <{mask}>")

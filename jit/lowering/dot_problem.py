"""A product in canonical form: batch x M x N x K with one stride for each of them in both operands.

``canonical_dot`` groups the dimensions of a ``dot_general`` into batch, M (free in lhs), N (free in rhs) and K
(contracted), and merges neighbours whose strides allow it, so that a transposed operand is read where it lies.  What
cannot be merged into one dimension is copied first (``Copy``).

    [B, S, H, D] . [B, T, H, D] over D with batch B, H:  batch (B, H), M = S and N = T of stride H*D, K = D of 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension: its extent and its stride (in elements) in each of some buffers."""

    extent: int
    strides: tuple[int, ...]


def merge_axes(axes: Sequence[Axis]) -> list[Axis]:
    """Drop axes of extent 1 and merge neighbours (outer first) that every buffer walks as one."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if merged and all(o == i * axis.extent for o, i in zip(merged[-1].strides, axis.strides)):
            merged[-1] = Axis(merged[-1].extent * axis.extent, axis.strides)
        else:
            merged.append(axis)
    return merged


@dataclass(frozen=True, slots=True)
class Matrix:
    """One operand as the kernel reads it: strides in elements."""

    batch: tuple[int, ...]
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of an operand into dense order: extents and source strides, outermost first."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(axis.extent for axis in self.axes)


@dataclass(frozen=True, slots=True)
class DotProblem:
    """``result[batch, m, n] = sum over k of lhs[batch, m, k] * rhs[batch, k, n]``; the result is dense.

    ``operands`` says which operand of the instruction plays lhs and which rhs.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    lhs: Matrix
    rhs: Matrix
    lhs_copy: Copy | None = None
    rhs_copy: Copy | None = None
    operands: tuple[int, int] = (0, 1)

    @property
    def batch_size(self) -> int:
        """Number of independent matrix products."""
        return math.prod(self.batch)

    @property
    def macs(self) -> int:
        """Multiplications in all."""
        return self.batch_size * self.m * self.n * self.k

    def exchanged(self) -> DotProblem:
        """The same product with the operands' roles exchanged; right only where M or N is 1."""
        assert self.m == 1 or self.n == 1
        lhs, rhs = self.rhs, self.lhs
        return replace(
            self,
            m=self.n,
            n=self.m,
            lhs=Matrix(lhs.batch, lhs.column, lhs.row),
            rhs=Matrix(rhs.batch, rhs.column, rhs.row),
            lhs_copy=self.rhs_copy,
            rhs_copy=self.lhs_copy,
            operands=self.operands[::-1],
        )


def ceil_divide(number: int, divisor: int) -> int:
    """``number / divisor`` rounded up."""
    return (number + divisor - 1) // divisor


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple that is not less than ``number``."""
    return ceil_divide(number, multiple) * multiple


def without_terms(count: int) -> DotProblem:
    """The product whose ``count`` results are sums of nothing; what is a sum of products and is empty is this one."""
    nothing = Matrix((), 0, 0)
    return DotProblem((), 1, count, 0, nothing, nothing)


def dense_steps(extents: Sequence[int], inner: int = 1) -> list[int]:
    """Row-major steps of a box whose elements are ``inner`` apart."""
    steps = []
    for extent in reversed(extents):
        steps.append(inner)
        inner *= extent
    return steps[::-1]


def _axes(shape: Sequence[int], strides: Sequence[int], dimensions: Sequence[int]) -> list[Axis]:
    return [Axis(shape[dimension], (strides[dimension],)) for dimension in dimensions]


def _contracted_order(pairs: Sequence[Axis], side: int) -> list[Axis]:
    return sorted(pairs, key=lambda axis: axis.strides[side], reverse=True)


def _one(axes: Sequence[Axis]) -> Axis | None:
    """The only axis that is left after merging (extent 1 for none), or None if there are several."""
    merged = merge_axes(axes)
    if not merged:
        return Axis(1, (0,) * (len(axes[0].strides) if axes else 2))
    return merged[0] if len(merged) == 1 else None


def canonical_dot(lhs: TensorType, rhs: TensorType, numbers: DotDimensionNumbers) -> DotProblem:
    """Group, order and merge the dimensions of a dot_general."""
    batch = [
        Axis(lhs.shape[left], (lhs.strides[left], rhs.strides[right]))
        for left, right in zip(numbers.lhs_batching, numbers.rhs_batching)
    ]
    contracted = [
        Axis(lhs.shape[left], (lhs.strides[left], rhs.strides[right]))
        for left, right in zip(numbers.lhs_contracting, numbers.rhs_contracting)
    ]
    taken = {*numbers.lhs_batching, *numbers.lhs_contracting}
    rows = _axes(lhs.shape, lhs.strides, [d for d in range(lhs.rank) if d not in taken])
    taken = {*numbers.rhs_batching, *numbers.rhs_contracting}
    columns = _axes(rhs.shape, rhs.strides, [d for d in range(rhs.rank) if d not in taken])

    order, copies = _choose_order(contracted, rows, columns, lhs.size, rhs.size)
    m, n, k = (math.prod(axis.extent for axis in group) for group in (rows, columns, contracted))
    batch = merge_axes(batch) if not any(copies) else [axis for axis in batch if axis.extent != 1]
    extents = tuple(axis.extent for axis in batch)
    matrices: list[Matrix] = []
    plans: list[Copy | None] = []
    for side, free in enumerate((rows, columns)):
        if not copies[side]:
            free_stride = (_one(free) or Axis(1, (0,))).strides[0]
            reduced = _one(order)
            if reduced is None:
                reduced = _one([Axis(axis.extent, (axis.strides[side],)) for axis in order])
                assert reduced is not None
                reduced = Axis(reduced.extent, (reduced.strides[0],) * 2)
            parts = (free_stride, reduced.strides[side])
            strides = tuple(axis.strides[side] for axis in batch)
            plans.append(None)
        else:
            free_first = [*free, *(Axis(axis.extent, (axis.strides[side],)) for axis in order)]
            if side == 1:
                free_first = [*free_first[len(free) :], *free]
            outer = [Axis(axis.extent, (axis.strides[side],)) for axis in batch]
            plans.append(Copy((*outer, *merge_axes(free_first))))
            parts = (k, 1) if side == 0 else (1, n)
            steps = [math.prod(extents[i + 1 :]) * (m if side == 0 else n) * k for i in range(len(extents))]
            strides = tuple(steps)
        matrices.append(Matrix(strides, *(parts if side == 0 else (parts[1], parts[0]))))
    return DotProblem(extents, m, n, k, matrices[0], matrices[1], plans[0], plans[1])


def _choose_order(
    contracted: Sequence[Axis], rows: Sequence[Axis], columns: Sequence[Axis], lhs_size: int, rhs_size: int
) -> tuple[list[Axis], tuple[bool, bool]]:
    """The order of the contracted pairs that needs the least copying, and which operand must be copied."""
    forced = (_one(rows) is None, _one(columns) is None)
    best: tuple[int, list[Axis], tuple[bool, bool]] | None = None
    for side in (1, 0):
        order = _contracted_order(contracted, side)
        copies = [*forced]
        if _one(order) is None:
            for which in (0, 1):
                alone = _one([Axis(axis.extent, (axis.strides[which],)) for axis in order])
                copies[which] = copies[which] or alone is None
        cost = copies[0] * lhs_size + copies[1] * rhs_size
        if best is None or cost < best[0]:
            best = (cost, order, (copies[0], copies[1]))
    assert best is not None
    return best[1], best[2]

"""The padded copy of a convolution's input: zeros around and between the elements, decoded, in dense order.

The copy keeps the input's own order of dimensions, so that its rows are copied as they lie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, buffer, dot_product, literal, minimum, unflatten
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.product_elements import Elements, at, constant_mask, scaled, store_kind
from hlojit.lowering.copy_plan import VECTOR_CYCLES, divide_rows
from hlojit.lowering.dot_problem import ceil_divide
from hlojit.lowering.kernel import Phase
from hlojit.lowering.target import KIND_BITS, Target


@dataclass(frozen=True, slots=True)
class PaddedAxis:
    """One dimension: ``destination[i] = source[(i - low) / dilation]`` where that is an index, otherwise zero."""

    source: int
    destination: int
    step: int
    low: int = 0
    dilation: int = 1

    @property
    def is_copied(self) -> bool:
        """Whether every element comes from the source unchanged in place."""
        return self.low == 0 and self.dilation == 1 and self.destination <= self.source


def _merge(axes: list[PaddedAxis]) -> list[PaddedAxis]:
    """Merge a padded dimension with the whole dense one inside of it."""
    merged: list[PaddedAxis] = []
    for axis in axes:
        outer = merged[-1] if merged else None
        whole = axis.is_copied and axis.destination == axis.source
        if outer and whole and outer.dilation == 1 and outer.step == axis.source * axis.step:
            merged[-1] = PaddedAxis(
                outer.source * axis.source, outer.destination * axis.source, axis.step, outer.low * axis.source
            )
        else:
            merged.append(axis)
    return merged


@dataclass(frozen=True, slots=True)
class PaddedCopy:
    """The launch; axes are outermost first, the destination is dense."""

    symbol: str
    axes: tuple[PaddedAxis, ...]
    elements: Elements
    source: int
    source_offset: int
    destination: int
    offset: int

    @property
    def size(self) -> int:
        """Elements of the destination."""
        return math.prod(axis.destination for axis in self.axes)

    @property
    def line(self) -> int | None:
        """Neighbours of the source that are copied by vectors from their first on; None where rows are copied otherwise."""
        inner = _merge(list(self.axes))[-1]
        return inner.source if inner.step == 1 and inner.dilation == 1 and inner.low >= 0 else None

    def emit(self, b: LlvmBuilder, target: Target) -> Phase:
        """Emit the kernel and return its launch."""
        axes = _merge(list(self.axes))
        outer, inner = axes[:-1], axes[-1]
        rows = math.prod(axis.destination for axis in outer)
        unit = KIND_BITS[self.elements.compute] // 8
        cycles = VECTOR_CYCLES + self.elements.nanoseconds * target.machine.gigahertz
        work = divide_rows(rows, inner.destination, cycles, self.elements.size + unit, target.machine)
        with b.function(self.symbol, PARAMETERS) as (_, buffers, begin, end):
            self.elements.begin(b, self.elements.arguments(b, buffers))
            source = at(b, buffer(b, buffers, self.source), self.source_offset)
            destination = at(b, buffer(b, buffers, self.destination), self.offset)
            last = minimum(b, scaled(b, end, work.per_task), literal(rows))
            loop = b.begin_loop(scaled(b, begin, work.per_task), last)
            out = at(b, destination, scaled(b, loop.index, inner.destination * unit))
            positions, valid = self._source_coordinates(
                b, outer, unflatten(b, loop.index, [a.destination for a in outer])
            )
            steps = [axis.step * self.elements.size for axis in outer]
            copy, clear, done = b.fresh_label("copy"), b.fresh_label("clear"), b.fresh_label("next")
            if valid is None:
                b.branch(copy)
            else:
                b.branch_if(valid, copy, clear)
            b.begin_block(copy)
            self._row(b, at(b, source, dot_product(b, positions, steps)), out, inner, target)
            b.branch(done)
            if valid is not None:
                b.begin_block(clear)
                self._fill(b, out, 0, inner.destination, target)
                b.branch(done)
            b.begin_block(done)
            b.end_loop(loop)
        return Phase(self.symbol, work.tasks, work.cost)

    @staticmethod
    def _source_coordinates(
        b: LlvmBuilder, axes: list[PaddedAxis], coordinates: list[Val]
    ) -> tuple[list[Val], Val | None]:
        positions: list[Val] = []
        valid: Val | None = None
        for axis, coordinate in zip(axes, coordinates):
            conditions = []
            position = b.sub(coordinate, literal(axis.low)) if axis.low else coordinate
            if axis.dilation > 1:
                conditions.append(b.icmp("eq", b.srem(position, literal(axis.dilation)), ZERO))
                position = b.sdiv(position, literal(axis.dilation))
            if not axis.is_copied:
                conditions.append(b.icmp("ult", position, literal(axis.source)))
            for condition in conditions:
                valid = condition if valid is None else b.and_(valid, condition)
            positions.append(position)
        return positions, valid

    def _row(self, b: LlvmBuilder, row: Val, out: Val, axis: PaddedAxis, target: Target) -> None:
        unit = KIND_BITS[self.elements.compute] // 8
        size = axis.step * self.elements.size
        if axis.dilation == 1:
            start = min(axis.destination, max(0, axis.low))
            end = max(start, min(axis.destination, axis.low + axis.source))
            self._fill(b, out, 0, start, target)
            self._fill(b, out, end, axis.destination, target)
            vector = axis.step == 1
            self._copy(
                b, at(b, row, (start - axis.low) * size), at(b, out, start * unit), end - start, size, vector, target
            )
            return
        self._fill(b, out, 0, axis.destination, target)
        first = max(0, -(axis.low // axis.dilation)) if axis.low < 0 else 0
        last = max(first, min(axis.source, ceil_divide(axis.destination - axis.low, axis.dilation)))
        if last > first:
            loop = b.begin_loop(literal(first), literal(last))
            place = b.add(scaled(b, loop.index, axis.dilation), literal(axis.low))
            value = self.elements.load(b, at(b, row, scaled(b, loop.index, size)))
            store_kind(b, value, at(b, out, scaled(b, place, unit)))
            b.end_loop(loop)

    def _copy(self, b: LlvmBuilder, row: Val, out: Val, count: int, size: int, vector: bool, target: Target) -> None:
        unit = KIND_BITS[self.elements.compute] // 8
        lanes = target.native_lanes(self.elements.compute) if vector else 1
        whole = count - count % lanes
        if whole:
            loop = b.begin_loop(ZERO, literal(whole), lanes)
            value = self.elements.load(b, at(b, row, scaled(b, loop.index, size)), lanes)
            store_kind(b, value, at(b, out, scaled(b, loop.index, unit)))
            b.end_loop(loop)
        if count > whole:
            narrow = 1 << (count - whole - 1).bit_length()
            mask = constant_mask(count - whole, narrow)
            value = self.elements.load(b, at(b, row, whole * size), narrow, mask)
            store_kind(b, value, at(b, out, whole * unit), mask)

    def _fill(self, b: LlvmBuilder, out: Val, start: int, end: int, target: Target) -> None:
        kind = self.elements.compute
        unit = KIND_BITS[kind] // 8
        lanes = target.native_lanes(kind)
        whole = start + (end - start) // lanes * lanes
        if whole > start:
            loop = b.begin_loop(literal(start), literal(whole), lanes)
            store_kind(b, b.splat(b.constant(kind, 0), lanes), at(b, out, scaled(b, loop.index, unit)))
            b.end_loop(loop)
        if end > whole:
            narrow = 1 << (end - whole - 1).bit_length()
            zero = b.splat(b.constant(kind, 0), narrow)
            store_kind(b, zero, at(b, out, whole * unit), constant_mask(end - whole, narrow))

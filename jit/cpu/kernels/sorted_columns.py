"""Lines that are not contiguous, some neighbours at a time: copied to where they are, sorted, and copied back.

A row of neighbouring lines' elements lies in one or two cache lines, which a walk along each line alone would read again and
again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from hlojit.cpu.kernels.addresses import ZERO, literal, minimum
from hlojit.cpu.kernels.sorted_lines import Lines
from hlojit.cpu.kernels.update import byte_pointer, load_buffer
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.lowering.line_sort_plan import COLUMNS, LineSortPlan
from hlojit.lowering.sorted_arrays import SortedArrays
from hlojit.lowering.target import KIND_BITS


def _memory(kind: str) -> str:
    return "i8" if kind == "i1" else kind


@final
@dataclass(frozen=True)
class SortedColumns:
    """Emits the copies around ``sort(operands, results)`` of one line."""

    b: LlvmBuilder
    plan: LineSortPlan
    arrays: SortedArrays

    @property
    def operands(self) -> list[int]:
        """Operands of the sort that lie in memory."""
        return [number for number, source in enumerate(self.arrays.sources) if source is not None]

    def _line_bytes(self, operand: int, length: int) -> int:
        # An odd number of cache lines: elements of a row must not all fall into the same set.
        return (-(-length * KIND_BITS[_memory(self.arrays.kinds[operand])] // 512) | 1) * 64

    @property
    def copies(self) -> list[tuple[int, int]]:
        """Operand and length of every copied line: operands, then results."""
        inputs = [(number, self.plan.length) for number in self.operands]
        return inputs + [(number, self.arrays.count) for number in self.arrays.outputs]

    @property
    def workspace_bytes(self) -> int:
        """Of a task."""
        return self.plan.columns * sum(self._line_bytes(*copy) for copy in self.copies)

    def emit(self, buffers: Val, base: Val, group: Val, sort: Callable[[Lines, list[Val]], None]) -> None:
        """Sort the lines of a group; ``base`` is the task's workspace."""
        b, plan, arrays = self.b, self.plan, self.arrays
        per_outer = literal(-(-plan.inner // COLUMNS))
        outer, first = b.udiv(group, per_outer), b.mul(b.urem(group, per_outer), literal(COLUMNS))
        count = minimum(b, literal(COLUMNS), b.sub(literal(plan.inner), first))
        areas, offset = [], 0
        for copy in self.copies:
            areas.append(byte_pointer(b, base, literal(offset)))
            offset += plan.columns * self._line_bytes(*copy)
        sources = [arrays.sources[number] for number in self.operands]
        places = [source for source in sources if source is not None]
        places += [arrays.buffers + number for number in range(len(arrays.outputs))]
        columns = [
            (*copy, area, self._start(load_buffer(b, buffers, place), outer, first, *copy))
            for copy, area, place in zip(self.copies, areas, places)
        ]
        inputs, outputs = columns[: len(self.operands)], columns[len(self.operands) :]
        for column in inputs:
            self._copy(*column, count, gather=True)
        loop = b.begin_loop(ZERO, count, guarded=False)
        lines = [
            byte_pointer(b, area, b.mul(loop.index, literal(self._line_bytes(operand, length))))
            for operand, length, area, _ in columns
        ]
        operands: Lines = [None] * len(arrays.sources)
        for number, line in zip(self.operands, lines):
            operands[number] = line
        sort(operands, lines[len(self.operands) :])
        b.end_loop(loop)
        for column in outputs:
            self._copy(*column, count, gather=False)

    def _start(self, array: Val, outer: Val, first: Val, operand: int, length: int) -> Val:
        b = self.b
        place = b.add(b.mul(outer, literal(length * self.plan.inner)), first)
        return b.element_pointer(array, _memory(self.arrays.kinds[operand]), place)

    def _copy(self, operand: int, length: int, area: Val, array: Val, count: Val, *, gather: bool) -> None:
        """Neighbouring lines of an array, row by row, to lines one behind the other, or back."""
        b, memory = self.b, _memory(self.arrays.kinds[operand])
        step = self._line_bytes(operand, length) * 8 // KIND_BITS[memory]
        rows = b.begin_loop(ZERO, literal(length), guarded=False)
        row = b.mul(rows.index, literal(self.plan.inner))
        columns = b.begin_loop(ZERO, count, guarded=False)
        there = b.element_pointer(array, memory, b.add(row, columns.index))
        here = b.element_pointer(area, memory, b.add(b.mul(columns.index, literal(step)), rows.index))
        source, target = (there, here) if gather else (here, there)
        b.store(b.load(memory, source), target)
        b.end_loop(columns)
        b.end_loop(rows)

"""sort: a stable merge sort of each line, with the comparator inlined.

A line's operands are copied into the result (lines along another dimension are gathered into workspace first), sorted in
blocks by insertion, and merged back and forth between two buffers.  One task sorts one line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from hlojit.cpu.kernels.update import byte_pointer, copy_bytes, load_buffer
from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.views import SortView
from hlojit.ir.scalar import formats
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.merging import LineMerger
from hlojit.llvm.region import inline_region, load_element
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target

STEP_CYCLES = 6.0
"""Of a comparison, and of moving each operand's element: branches that nobody can foresee."""


def emit_merge_sort(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Sort all operands along ``dimension`` in the order that the comparator region gives."""
    return _Sort(instruction, target, symbol).emit()


@dataclass(frozen=True)
class _Line:
    """One operand's line: its element type and the two buffers between which it is merged."""

    element: ElementType
    first: Val
    second: Val


class _Sort:
    def __init__(self, instruction: Instruction, target: Target, symbol: str):
        self.instruction = instruction
        self.machine = target.machine
        self.symbol = symbol
        type = instruction.operands[0].tensor_type
        self.dimension = SortView.of(instruction).position(type.rank)
        self.shape = type.shape
        self.length = type.shape[self.dimension]
        self.inner = math.prod(type.shape[self.dimension + 1 :])
        self.lines = math.prod(type.shape) // self.length
        self.elements = [operand.tensor_type.element_type for operand in instruction.operands]
        self.comparator: Block = instruction.regions[0]
        self.b = LlvmBuilder()

    @property
    def _buffers_in_workspace(self) -> int:
        """Results hold one of a line's two buffers where lines are contiguous."""
        return 1 if self.inner == 1 else 2

    def emit(self) -> KernelCode:
        b = self.b
        with b.function(self.symbol, [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]) as p:
            _, buffers, begin, end = p
            loop = b.begin_loop(begin, end)
            self._emit_line(buffers, loop.index)
            b.end_loop(loop)
        steps = self.length * max(1.0, math.log2(max(2, self.length)))
        cost = self.machine.nanoseconds(steps * STEP_CYCLES * (1 + len(self.elements)))
        workspace = (
            sum(self._line_bytes(element) for element in self.elements) * self.lines * self._buffers_in_workspace
        )
        return kernel_code(b, (Phase(self.symbol, self.lines, cost),), workspace_bytes=workspace)

    def _line_bytes(self, element: ElementType) -> int:
        return -(-self.length * element.itemsize // 64) * 64

    # ------------------------------------------------------------- one line

    def _emit_line(self, buffers: Val, task: Val) -> None:
        b = self.b
        lines = self._line_buffers(buffers, task)
        start = self._start(task)
        count = len(self.elements)
        for number, line in enumerate(lines):
            source = load_buffer(b, buffers, number)
            self._move(line.element, source, start, line.first, gather=True)
        sorted_in_first = self._sort_line(lines)
        for number, line in enumerate(lines):
            target = load_buffer(b, buffers, count + number)
            result = b.select(sorted_in_first, line.first, line.second)
            if self.inner > 1:
                self._move(line.element, result, start, target, gather=False)
            else:
                done = b.fresh_label("done")
                copy = b.fresh_label("copy")
                b.branch_if(sorted_in_first, done, copy)
                b.begin_block(copy)
                copy_bytes(b, line.first, line.second, self.length * line.element.itemsize)
                b.branch(done)
                b.begin_block(done)

    def _line_buffers(self, buffers: Val, task: Val) -> list[_Line]:
        b = self.b
        count = len(self.elements)
        workspace = load_buffer(b, buffers, 2 * count)
        offset = 0
        lines = []
        for number, element in enumerate(self.elements):
            size = self._line_bytes(element)
            places = []
            for _ in range(self._buffers_in_workspace):
                place = b.add(b.mul(task, b.constant("i64", size)), b.constant("i64", offset))
                places.append(byte_pointer(b, workspace, place))
                offset += size * self.lines
            if self.inner == 1:
                result = load_buffer(b, buffers, count + number)
                row = b.mul(task, b.constant("i64", self.length * element.itemsize))
                places.insert(0, byte_pointer(b, result, row))
            lines.append(_Line(element, places[0], places[1]))
        return lines

    def _start(self, task: Val) -> Val:
        """Linear index of the line's first element in operands and results."""
        b = self.b
        if self.inner == 1:
            return b.mul(task, b.constant("i64", self.length))
        inner = b.constant("i64", self.inner)
        outer = b.mul(b.udiv(task, inner), b.constant("i64", self.inner * self.length))
        return b.add(outer, b.urem(task, inner))

    def _move(self, element: ElementType, source: Val, start: Val, target: Val, *, gather: bool) -> None:
        """Copy a line from its place in an array to a buffer, or back."""
        b = self.b
        kind = formats.storage_kind(element)
        if self.inner == 1:
            copy_bytes(b, target, b.element_pointer(source, kind, start), self.length * element.itemsize)
            return
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", self.length))
        strided = b.add(start, b.mul(loop.index, b.constant("i64", self.inner)))
        here, there = (strided, loop.index) if gather else (loop.index, strided)
        b.store(b.load(kind, b.element_pointer(source, kind, here)), b.element_pointer(target, kind, there))
        b.end_loop(loop)

    # ------------------------------------------------------------ the sorting

    def _load(self, base: Sequence[Val], index: Val) -> list[Val]:
        return [load_element(self.b, element, line, index) for element, line in zip(self.elements, base)]

    def _before(self, lhs: Sequence[Val], rhs: Sequence[Val]) -> Val:
        """The comparator: whether ``lhs`` comes before ``rhs``."""
        arguments = [value for pair in zip(lhs, rhs) for value in pair]
        return inline_region(self.b, self.comparator, arguments)[0]

    def _held(self, bits: Sequence[Val]) -> Callable[[Sequence[Val], Val], Val]:
        key = [cast(Val, formats.decode(scalars(self.b), each, element)) for each, element in zip(bits, self.elements)]
        return lambda base, index: self._before(key, self._load(base, index))

    def _sort_line(self, lines: Sequence[_Line]) -> Val:
        """Sort; returns (i1) whether the result is in the first buffers."""
        merger = LineMerger(
            self.b,
            self.elements,
            self.b.constant("i64", self.length),
            lambda left, i, right, j: self._before(self._load(left, i), self._load(right, j)),
            self._held,
        )
        return merger.sort([line.first for line in lines], [line.second for line in lines])

"""sort: a stable merge sort of each line, with the comparator inlined.

A line's operands are copied into the result (lines along another dimension are gathered into workspace first), sorted in
blocks by insertion, and merged back and forth between two buffers.  One task sorts one line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from hlojit.cpu.kernels.update import byte_pointer, copy_bytes, load_buffer
from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.views import SortView
from hlojit.ir.scalar import formats
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.region import Variable, inline_region, load_element, while_loop
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target

INSERTION_BLOCK = 12
"""Elements that are sorted by insertion before merging begins."""
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

    def _move_element(self, source: Sequence[Val], here: Val, target: Sequence[Val], there: Val) -> None:
        """Copy the bits of one element of every operand."""
        b = self.b
        for element, source_base, target_base in zip(self.elements, source, target):
            kind = formats.storage_kind(element)
            value = b.load(kind, b.element_pointer(source_base, kind, here))
            b.store(value, b.element_pointer(target_base, kind, there))

    def _before(self, lhs: Sequence[Val], rhs: Sequence[Val]) -> Val:
        """The comparator: whether ``lhs`` comes before ``rhs``."""
        arguments = [value for pair in zip(lhs, rhs) for value in pair]
        return inline_region(self.b, self.comparator, arguments)[0]

    def _sort_line(self, lines: Sequence[_Line]) -> Val:
        """Sort; returns (i1) whether the result is in the first buffers."""
        b = self.b
        first, second = [line.first for line in lines], [line.second for line in lines]
        length = b.constant("i64", self.length)
        self._insertion_sort(first, length)
        in_first = Variable(b, "i1", b.constant("i1", 1))
        width = Variable(b, "i64", b.constant("i64", INSERTION_BLOCK))

        def merge_all() -> None:
            step = width.get()
            flag = in_first.get()
            source = [b.select(flag, x, y) for x, y in zip(first, second)]
            target = [b.select(flag, y, x) for x, y in zip(first, second)]
            start = Variable(b, "i64", b.constant("i64", 0))

            def merge_pair() -> None:
                low = start.get()
                middle = self._minimum(b.add(low, step), length)
                high = self._minimum(b.add(middle, step), length)
                self._merge(source, target, low, middle, high)
                start.set(high)

            while_loop(b, lambda: b.icmp("slt", start.get(), length), merge_pair)
            in_first.set(b.xor(flag, b.constant("i1", 1)))
            width.set(b.add(step, step))

        while_loop(b, lambda: b.icmp("slt", width.get(), length), merge_all)
        return in_first.get()

    def _minimum(self, x: Val, y: Val) -> Val:
        return self.b.select(self.b.icmp("slt", x, y), x, y)

    def _insertion_sort(self, base: Sequence[Val], length: Val) -> None:
        """Sort blocks of ``INSERTION_BLOCK`` elements in place."""
        b = self.b
        outer = b.begin_loop(b.constant("i64", 0), length)
        position = outer.index
        lowest = b.sub(position, b.urem(position, b.constant("i64", INSERTION_BLOCK)))
        held = [self._load_bits(element, line, position) for element, line in zip(self.elements, base)]
        key = [cast(Val, formats.decode(scalars(b), bits, element)) for bits, element in zip(held, self.elements)]
        hole = Variable(b, "i64", position)
        moving = Variable(b, "i1", b.icmp("sgt", position, lowest))

        def shift() -> None:
            place = hole.get()
            previous = b.sub(place, b.constant("i64", 1))
            smaller = self._before(key, self._load(base, previous))
            inside, after = b.fresh_label("shift"), b.fresh_label("stay")
            moving.set(b.constant("i1", 0))
            b.branch_if(smaller, inside, after)
            b.begin_block(inside)
            self._move_element(base, previous, base, place)
            hole.set(previous)
            moving.set(b.icmp("sgt", previous, lowest))
            b.branch(after)
            b.begin_block(after)

        while_loop(b, moving.get, shift)
        place = hole.get()
        for element, line, bits in zip(self.elements, base, held):
            b.store(bits, b.element_pointer(line, formats.storage_kind(element), place))
        b.end_loop(outer)

    def _load_bits(self, element: ElementType, base: Val, index: Val) -> Val:
        kind = formats.storage_kind(element)
        return self.b.load(kind, self.b.element_pointer(base, kind, index))

    def _merge(self, source: Sequence[Val], target: Sequence[Val], low: Val, middle: Val, high: Val) -> None:
        """Merge source[low:middle] and source[middle:high] into target[low:high], keeping equal elements in order."""
        b = self.b
        left, right, place = (Variable(b, "i64", value) for value in (low, middle, low))
        one = b.constant("i64", 1)

        def both_left() -> Val:
            return b.and_(b.icmp("slt", left.get(), middle), b.icmp("slt", right.get(), high))

        def take_smaller() -> None:
            i, j, k = left.get(), right.get(), place.get()
            take_right = self._before(self._load(source, j), self._load(source, i))
            self._move_element(source, b.select(take_right, j, i), target, k)
            step = b.zext(take_right, "i64")
            right.set(b.add(j, step))
            left.set(b.add(i, b.sub(one, step)))
            place.set(b.add(k, one))

        while_loop(b, both_left, take_smaller)
        for side, limit in ((left, middle), (right, high)):

            def take_rest(side: Variable = side) -> None:
                here, there = side.get(), place.get()
                self._move_element(source, here, target, there)
                side.set(b.add(here, one))
                place.set(b.add(there, one))

            def is_left(side: Variable = side, limit: Val = limit) -> Val:
                return b.icmp("slt", side.get(), limit)

            while_loop(b, is_left, take_rest)

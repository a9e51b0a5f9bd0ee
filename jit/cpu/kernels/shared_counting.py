"""A long line of narrow keys that several cores sort: its parts are counted, then moved, each by a task.

    keys of 2 parts     2 0 2 1 | 0 2 0 1
    counts              1 1 2   | 2 1 1          a task a part
    places              0 3 5   | 1 4 7          of the first 0, 1 and 2 of every part: what is before it in the line
    moved                                        a task a part

Keys of two digits take this twice.  How many parts there are follows from the machine, and not from how many threads a call
has.  A line that is in order is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, literal
from hlojit.cpu.kernels.counting_sort import COUNTS_BYTES, DIGITS, ONE, CountingSort
from hlojit.cpu.kernels.partitioning import VectorForm
from hlojit.cpu.kernels.sort_words import WordMaker
from hlojit.cpu.kernels.sorted_lines import Lines, line_start, operand_lines, result_lines, write_element
from hlojit.cpu.kernels.update import byte_pointer, load_buffer
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.line_sort_plan import LineSortPlan
from hlojit.lowering.sorted_arrays import SortedArrays
from hlojit.lowering.target import Target

SMALLEST_PART = 1 << 17
"""Elements of a part, at least: of shorter ones waiting for each other costs what was gained."""
MOST_PARTS = 64
COUNT_CYCLES = 1.0
"""Of counting an element, or looking at it."""


@final
@dataclass(frozen=True)
class SharedCountingPlan:
    """``parts`` of every line."""

    line: LineSortPlan
    parts: int

    @staticmethod
    def of(line: LineSortPlan, target: Target) -> SharedCountingPlan | None:
        """The plan where lines are counted and long, lie in one piece, and are fewer than cores."""
        if not line.counts or line.inner > 1 or line.lines >= target.machine.cores:
            return None
        parts = min(target.machine.cores, MOST_PARTS, line.length // SMALLEST_PART)
        return SharedCountingPlan(line, parts) if parts > 1 else None

    @property
    def tasks(self) -> int:
        """Parts of all lines."""
        return self.line.lines * self.parts

    @property
    def counts_offset(self) -> int:
        """Where counts of all parts begin in the workspace, behind words."""
        return self.line.lines * self.line.task_bytes

    @property
    def notes_offset(self) -> int:
        """Where parts say whether they are in order (i64)."""
        return self.counts_offset + self.tasks * COUNTS_BYTES

    @property
    def workspace_bytes(self) -> int:
        """Everything."""
        return self.notes_offset + self.tasks * 8


def emit_shared_counting(plan: SharedCountingPlan, arrays: SortedArrays, target: Target, symbol: str) -> KernelCode:
    """The kernel of a sort of few long lines by narrow keys."""
    return _SharedCounting(plan, arrays, target, symbol).emit()


@dataclass(frozen=True)
class _Task:
    """A part of a line, and where things lie."""

    place: Val
    """Of the part among those of all lines."""
    line: Val
    part: Val
    limits: tuple[Val, Val]
    operands: Lines
    results: list[Val]
    words: Val
    counts: Val
    """Of all parts of the line."""


class _SharedCounting:
    def __init__(self, plan: SharedCountingPlan, arrays: SortedArrays, target: Target, symbol: str):
        self.plan = plan
        self.line = plan.line
        self.arrays = arrays
        self.machine = target.machine
        self.symbol = symbol
        lanes = VectorForm.of(plan.line.word, target).lanes
        self.b = LlvmBuilder(lanes)
        self.words = WordMaker(self.b, plan.line, arrays.kinds, lanes)
        self.sort = CountingSort(self.b, plan.line, arrays)

    def emit(self) -> KernelCode:
        elements = self.line.length / self.plan.parts
        moving = self.line.cycles(len(self.arrays.outputs)) / self.plan.parts / self.line.passes
        phases = [self._phase("", self._look, elements * COUNT_CYCLES)]
        for number in range(self.line.passes):
            phases.append(self._phase(f"_count{number}", self._count(number), elements * COUNT_CYCLES))
            phases.append(self._phase(f"_move{number}", self._move(number), moving))
        return kernel_code(self.b, phases, workspace_bytes=self.plan.workspace_bytes)

    def _phase(self, suffix: str, emit: Callable[[_Task, Val], None], cycles: float) -> Phase:
        b, name = self.b, f"{self.symbol}{suffix}"
        with b.function(name, PARAMETERS) as (_, buffers, begin, end):
            loop = b.begin_loop(begin, end)
            emit(self._task(buffers, loop.index), buffers)
            b.end_loop(loop)
        return Phase(name, self.plan.tasks, self.machine.nanoseconds(cycles))

    def _task(self, buffers: Val, place: Val) -> _Task:
        b, plan, length = self.b, self.plan, self.line.length
        parts = literal(plan.parts)
        line, part = b.udiv(place, parts), b.urem(place, parts)
        first, limit = (b.udiv(b.mul(each, literal(length)), parts) for each in (part, b.add(part, ONE)))
        start = line_start(b, line, length)
        workspace = load_buffer(b, buffers, self.arrays.workspace)
        counts = b.add(literal(plan.counts_offset), b.mul(line, literal(plan.parts * COUNTS_BYTES)))
        return _Task(
            place,
            line,
            part,
            (first, limit),
            operand_lines(b, self.arrays, buffers, start),
            result_lines(b, self.arrays, buffers, start),
            byte_pointer(b, workspace, b.mul(line, literal(self.line.task_bytes))),
            byte_pointer(b, workspace, counts),
        )

    def _note(self, buffers: Val, place: Val) -> Val:
        """Address of what a part says of its order."""
        workspace = load_buffer(self.b, buffers, self.arrays.workspace)
        return self.b.element_pointer(byte_pointer(self.b, workspace, literal(self.plan.notes_offset)), "i64", place)

    # --------------------------------------------------------------- phases

    def _look(self, task: _Task, buffers: Val) -> None:
        in_order = replace(self.words, part=task.limits).are_sorted(task.operands)
        self.b.store(self.b.zext(in_order, "i64"), self._note(buffers, task.place))

    def _count(self, number: int) -> Callable[[_Task, Val], None]:
        def emit(task: _Task, buffers: Val) -> None:
            counts = self.b.element_pointer(task.counts, "i32", self.b.mul(task.part, literal(DIGITS)))
            self._if_in_order(
                task,
                buffers,
                lambda: None,
                lambda: self.sort.count(number, task.operands, task.words, counts, task.limits),
            )

        return emit

    def _move(self, number: int) -> Callable[[_Task, Val], None]:
        def move(task: _Task) -> None:
            places = self.b.array("i32", DIGITS)
            self.sort.find_places(task.counts, self.plan.parts, task.part, places)
            self.sort.move(number, task.operands, task.words, task.results, places, task.limits)

        def emit(task: _Task, buffers: Val) -> None:
            is_last = number + 1 == self.line.passes
            self._if_in_order(task, buffers, lambda: self._copy_part(task) if is_last else None, lambda: move(task))

        return emit

    def _if_in_order(self, task: _Task, buffers: Val, ordered: Callable[[], None], other: Callable[[], None]) -> None:
        """Do one thing of a line whose parts are all in order, another one of other lines."""
        b = self.b
        first = b.mul(task.line, literal(self.plan.parts))
        loop = b.begin_loop(ZERO, literal(self.plan.parts), carried=(ONE,))
        note = b.load("i64", self._note(buffers, b.add(first, loop.index)))
        (all_ordered,) = b.end_loop(loop, (b.and_(loop.carried[0], note),))
        here, there, end = b.fresh_label("ordered"), b.fresh_label("other"), b.fresh_label("end")
        b.branch_if(b.icmp("ne", all_ordered, ZERO), here, there)
        b.begin_block(here)
        ordered()
        b.branch(end)
        b.begin_block(there)
        other()
        b.branch(end)
        b.begin_block(end)

    def _copy_part(self, task: _Task) -> None:
        b = self.b
        loop = b.begin_loop(*task.limits)
        write_element(b, self.arrays, loop.index, task.operands, task.results, loop.index)
        b.end_loop(loop)

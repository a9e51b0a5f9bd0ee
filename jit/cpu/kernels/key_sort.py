"""sort by keys: words of a line, as the plan says, sorted by vectors, and from words to elements again.

One task sorts some lines, one after the other: it makes words of a line (``sort_words.py``), sorts them (``quicksort.py``) and
writes results.  Codes with one key are put into the order in which they were.
"""

from __future__ import annotations

from collections.abc import Callable

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, literal
from hlojit.cpu.kernels.counting_sort import CountingSort
from hlojit.cpu.kernels.few_elements import FewElements
from hlojit.cpu.kernels.joined_codes import JoinedCodes
from hlojit.cpu.kernels.key_order import KeyOrder
from hlojit.cpu.kernels.partitioning import VectorForm
from hlojit.cpu.kernels.quicksort import ONE, UnsignedNetworks, sorter_of, unsigned_networks_of
from hlojit.cpu.kernels.sort_words import WordMaker
from hlojit.cpu.kernels.sorted_columns import SortedColumns
from hlojit.cpu.kernels.sorted_lines import Lines, copy_lines, gather_lines, line_start, operand_lines, result_lines
from hlojit.cpu.kernels.update import byte_pointer, load_buffer
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.line_sort_plan import LineSortPlan
from hlojit.lowering.sorted_arrays import SortedArrays
from hlojit.lowering.target import Target


def emit_key_sort(plan: LineSortPlan, arrays: SortedArrays, target: Target, symbol: str) -> KernelCode:
    """The kernel of a sort by keys."""
    return _KeySort(plan, arrays, target, symbol).emit()


class _KeySort:
    def __init__(self, plan: LineSortPlan, arrays: SortedArrays, target: Target, symbol: str):
        self.plan = plan
        self.arrays = arrays
        self.machine = target.machine
        self.symbol = symbol
        form = VectorForm.of(plan.word, target)
        self.b = LlvmBuilder(form.lanes)
        self.sorter = sorter_of(plan.word, target)
        self.networks = self._unsigned_networks(target)
        self.words = WordMaker(self.b, plan, arrays.kinds, form.lanes)
        self.joined = JoinedCodes(self.b, plan, symbol, form.lanes)
        self.columns = SortedColumns(self.b, plan, arrays) if plan.inner > 1 else None

    def _unsigned_networks(self, target: Target) -> UnsignedNetworks | None:
        """What sorts short lines of unsigned elements as they are."""
        plan = self.plan
        if plan.order is None or not plan.order.is_unsigned or not plan.sorts_in_result:
            return None
        if plan.length > self.sorter.base or FewElements.are_looked_for(plan):
            return None
        return unsigned_networks_of(plan.word, target)

    def emit(self) -> KernelCode:
        b, plan = self.b, self.plan
        if self.joined.keys:
            self.joined.emit()
        with b.function(self.symbol, PARAMETERS) as (context, buffers, begin, end):
            tasks = b.begin_loop(begin, end)
            first, limit = (
                b.udiv(b.mul(task, literal(plan.groups)), literal(plan.tasks))
                for task in (tasks.index, b.add(tasks.index, ONE))
            )
            groups = b.begin_loop(first, limit, guarded=False)
            self._emit_group(context, buffers, tasks.index, groups.index)
            b.end_loop(groups)
            b.end_loop(tasks)
        lines_of_task = -(-plan.lines // plan.tasks)
        cost = self.machine.nanoseconds(plan.cycles(len(self.arrays.outputs)) * lines_of_task)
        return kernel_code(
            b,
            (Phase(self.symbol, plan.tasks, cost),),
            workspace_bytes=self._task_bytes * plan.tasks,
            parts=(self.sorter.code if self.networks is None else self.networks.code,),
        )

    # ------------------------------------------------------------- one line

    @property
    def _task_bytes(self) -> int:
        return self.plan.task_bytes + (self.columns.workspace_bytes if self.columns is not None else 0)

    def _emit_group(self, context: Val, buffers: Val, task: Val, group: Val) -> None:
        b, plan = self.b, self.plan
        workspace = load_buffer(b, buffers, self.arrays.workspace)
        base = byte_pointer(b, workspace, b.mul(task, literal(self._task_bytes)))
        areas = [byte_pointer(b, base, literal(number * plan.area_bytes)) for number in range(plan.areas)]

        def sort(operands: Lines, results: list[Val]) -> None:
            self._emit_line(context, operands, results, areas)

        if self.columns is not None:
            self.columns.emit(buffers, byte_pointer(b, base, literal(plan.task_bytes)), group, sort)
            return
        operands = operand_lines(b, self.arrays, buffers, line_start(b, group, plan.length))
        sort(operands, result_lines(b, self.arrays, buffers, line_start(b, group, self.arrays.count)))

    def _emit_line(self, context: Val, operands: Lines, results: list[Val], areas: list[Val]) -> None:
        b, plan = self.b, self.plan
        if plan.order is not None and not plan.counts:
            (operand,) = operands
            assert operand is not None
            x = results[0] if plan.sorts_in_result else areas[1]
            if FewElements.are_looked_for(plan):
                self._unless_few(context, operand, results[0], areas[0])
                return
            self._unless_in_order(
                self.words.are_same(operand),
                lambda: self._sort_keys(context, operand, results[0], x, areas[0]),
                operands,
                results,
            )
            return
        in_order = self.words.are_sorted(operands) if plan.length > 1 else None
        self._unless_in_order(
            in_order,
            lambda: (
                CountingSort(b, plan, self.arrays).emit(operands, results, areas[0] if areas else None)
                if plan.counts
                else self._sort_numbered(context, operands, results, areas)
            ),
            operands,
            results,
        )

    def _unless_in_order(
        self, in_order: Val | None, sort: Callable[[], None], operands: Lines, results: list[Val]
    ) -> None:
        """Sort a line, or copy one that is known to be in order."""
        b = self.b
        if in_order is None:
            sort()
            return
        copied, sorted_, end = b.fresh_label("copied"), b.fresh_label("sorted"), b.fresh_label("end")
        b.branch_if(in_order, copied, sorted_)
        b.begin_block(copied)
        copy_lines(b, self.arrays, operands, results)
        b.branch(end)
        b.begin_block(sorted_)
        sort()
        b.branch(end)
        b.begin_block(end)

    def _unless_few(self, context: Val, operand: Val, result: Val, y: Val) -> None:
        """Sort a long line, or count its elements if few of them are different."""
        b, length = self.b, literal(self.plan.length)
        elements = FewElements(b, self.plan, self.sorter, self.words)
        few, many, end = b.fresh_label("few"), b.fresh_label("many"), b.fresh_label("end")
        found = elements.count(context, operand, ZERO, length)
        b.branch_if(b.icmp("ne", found, ZERO), few, many)
        b.begin_block(few)
        elements.functions.fill(result, length, elements.room)
        b.branch(end)
        b.begin_block(many)
        self._sort_keys(context, operand, result, result, y)
        b.branch(end)
        b.begin_block(end)

    def _sort_keys(self, context: Val, operand: Val, result: Val, x: Val, y: Val) -> None:
        b, plan = self.b, self.plan
        assert plan.order is not None
        if plan.sorts_in_result and plan.order.is_signed and plan.length <= self.sorter.base:
            # Elements are words, and are read once.
            smallest, largest = self.sorter.smallest, self.sorter.largest
            self.sorter.call(b, context, x, operand, literal(plan.length), smallest, largest)
            return
        if self.networks is not None:
            self.networks.call(b, operand, x, literal(plan.length))
            return
        low, high, lossy = self.words.keys(operand, y)
        self.sorter.call(b, context, x, y, literal(plan.length), low, high, self._wanted)
        self.words.turn_back(b.element_pointer(x, plan.word, literal(plan.first)) if plan.first else x, result)
        if self.joined.keys:
            mend, done = b.fresh_label("mend"), b.fresh_label("done")
            b.branch_if(lossy, mend, done)
            b.begin_block(mend)
            self.joined.call(operand, result)
            b.branch(done)
            b.begin_block(done)

    @property
    def _wanted(self) -> tuple[Val, Val] | None:
        plan = self.plan
        return (literal(plan.first), literal(plan.first + plan.count)) if plan.is_part else None

    # ------------------------------------------------------ keys with numbers

    def _sort_numbered(self, context: Val, operands: Lines, results: list[Val], areas: list[Val]) -> None:
        b, plan = self.b, self.plan
        y, x = areas[:2]
        length = literal(plan.length)
        if plan.is_shortened:
            keys = areas[2]
            low, high = self.words.stored_keys(operands, keys)
            order = KeyOrder(b, self.sorter, plan.length, plan.number_bits, self.words.native)
            order.emit(context, keys, low, high, x, y, self._wanted)
        else:
            self.words.numbered(operands, y)
            self.sorter.call(b, context, x, y, length, self.sorter.smallest, self.sorter.largest, self._wanted)
        first = b.element_pointer(x, plan.word, literal(plan.first)) if plan.first else x
        gather_lines(b, plan, self.arrays, first, operands, results)

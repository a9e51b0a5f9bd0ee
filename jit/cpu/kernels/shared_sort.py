"""A long line that several cores sort: its parts are cut at the same numbers, then what lies between two of these is sorted.

    words of 2 parts    5 1 7 3 | 8 2 6 4        a task a part; samples of every part say where to cut: at 4
    cut                 1 3 5 7 | 2 4 8 6        a task a part
    gathered            1 3 2 4 | 5 7 8 6        a task a range of numbers
    sorted              1 2 3 4 | 5 6 7 8        a task a range of numbers, which writes its results as well

Words that are not told apart have equal bits, so the result is that of one core's sort.  How many parts there are follows
from the machine, and not from how many threads a call has.  A line that is in order is copied; one of few different elements
is counted instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast, final

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, literal
from hlojit.cpu.kernels.few_elements import FewElements
from hlojit.cpu.kernels.few_values import MOST_VALUES
from hlojit.cpu.kernels.joined_codes import JoinedCodes
from hlojit.cpu.kernels.partitioning import VectorForm, partition
from hlojit.cpu.kernels.quicksort import ONE, sorter_of
from hlojit.cpu.kernels.sort_words import WordMaker
from hlojit.cpu.kernels.sorted_lines import Lines, line_start, operand_lines, result_lines, write_element, write_word
from hlojit.cpu.kernels.update import byte_pointer, load_buffer
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.region import Variable
from hlojit.llvm.text import LLVM_TYPE
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.line_sort_plan import LineSortPlan
from hlojit.lowering.sorted_arrays import SortedArrays
from hlojit.lowering.target import KIND_BITS, Target

SMALLEST_PART = 1 << 19
"""Elements of a part, at least: of shorter ones waiting for each other costs what was gained."""
MOST_PARTS = 64
SAMPLES = 64
"""Numbers of a part that are looked at to find out where to cut."""
LOW, HIGH, LOSSY, IN_ORDER, COUNTS = range(5)
CUTS = COUNTS + MOST_VALUES
"""What parts leave for each other, as numbers (i64); several counts of few values, several cuts, places and lengths of ranges."""
CUT_CYCLES = 1.0
"""Of a word for every cut, and of a copy."""


@final
@dataclass(frozen=True)
class SharedSortPlan:
    """``parts`` of every line, and as many ranges of numbers: a power of two."""

    line: LineSortPlan
    parts: int

    @staticmethod
    def of(line: LineSortPlan, target: Target) -> SharedSortPlan | None:
        """The plan where lines are long, lie in one piece, and are fewer than cores."""
        if line.inner > 1 or line.counts or line.is_part or line.is_shortened or line.lines >= target.machine.cores:
            return None
        most = min(target.machine.cores, MOST_PARTS, line.length // SMALLEST_PART)
        return SharedSortPlan(line, 1 << (most.bit_length() - 1)) if most > 1 else None

    @property
    def tasks(self) -> int:
        """Parts of all lines."""
        return self.line.lines * self.parts

    @property
    def areas(self) -> int:
        """Of words in the workspace: what is gathered may lie in the result."""
        return 2 if self.line.sorts_in_result else 3

    @property
    def note_words(self) -> int:
        """Numbers (i64) that a part leaves: those with names, cuts, and where its ranges lie."""
        return CUTS + 3 * self.parts

    @property
    def ranges(self) -> int:
        """The first note that says where ranges lie."""
        return CUTS + self.parts

    @property
    def samples_bytes(self) -> int:
        """Of the samples of a line."""
        return self.parts * SAMPLES * self.line.word_bytes

    @property
    def notes_offset(self) -> int:
        """Where the notes of all parts begin in the workspace."""
        return self.line.lines * self.areas * self.line.area_bytes

    @property
    def samples_offset(self) -> int:
        """Where the samples of all lines begin."""
        return self.notes_offset + -(-self.tasks * self.note_words * 8 // 64) * 64

    @property
    def scratch_offset(self) -> int:
        """Where parts sort samples, each for itself."""
        return self.samples_offset + self.line.lines * self.samples_bytes

    @property
    def workspace_bytes(self) -> int:
        """Everything."""
        return self.scratch_offset + self.tasks * 2 * self.samples_bytes


def emit_shared_sort(plan: SharedSortPlan, arrays: SortedArrays, target: Target, symbol: str) -> KernelCode:
    """The kernel of a sort of few long lines by keys."""
    return _SharedSort(plan, arrays, target, symbol).emit()


@dataclass(frozen=True)
class _Task:
    """A part, or a range, of a line, and where things lie."""

    line: Val
    number: Val
    """Of the part or range."""
    place: Val
    """Of the part among those of all lines."""
    x: Val
    y: Val
    gathered: Val
    operands: Lines
    results: list[Val]


class _SharedSort:
    def __init__(self, plan: SharedSortPlan, arrays: SortedArrays, target: Target, symbol: str):
        self.plan = plan
        self.line = plan.line
        self.arrays = arrays
        self.machine = target.machine
        self.symbol = symbol
        self.form = VectorForm.of(plan.line.word, target)
        self.b = LlvmBuilder(self.form.lanes)
        self.sorter = sorter_of(plan.line.word, target)
        self.words = WordMaker(self.b, plan.line, arrays.kinds, self.form.lanes)
        self.joined = JoinedCodes(self.b, plan.line, symbol, self.form.lanes)

    def emit(self) -> KernelCode:
        b, plan = self.b, self.plan
        cuts = plan.parts.bit_length() - 1
        self._emit_cut()
        sorting = self.line.cycles(len(self.arrays.outputs)) / plan.parts
        copying = self.line.length / plan.parts * CUT_CYCLES
        phases = [
            self._phase("", self._look, copying),
            self._phase("_make", self._make_words, copying),
            self._phase("_cut_all", self._cut_part, copying * cuts),
            self._phase("_gather", self._gather_range, copying),
            self._phase("_sort", self._sort_range, sorting),
        ]
        if self.joined.keys:
            self.joined.emit()
            phases.append(self._phase("_join", self._mend_line, 0.0, wants_lines=True))
        parts = (self.sorter.code,)
        return kernel_code(b, phases, workspace_bytes=plan.workspace_bytes, parts=parts)

    def _phase(
        self, suffix: str, emit: Callable[[Val, _Task, Val], None], cycles: float, wants_lines: bool = False
    ) -> Phase:
        """A launch for all parts, or all lines; lines that are known to be in order are left alone, or copied at last."""
        b, name = self.b, f"{self.symbol}{suffix}"
        with b.function(name, PARAMETERS) as (context, buffers, begin, end):
            loop = b.begin_loop(begin, end)
            task = self._task(buffers, b.mul(loop.index, literal(self.plan.parts)) if wants_lines else loop.index)
            if not suffix:
                emit(context, task, buffers)
            else:
                in_order = b.icmp("ne", self._of_all_parts(buffers, task, IN_ORDER, "smin", 1), ZERO)
                ordered, other, end_ = b.fresh_label("ordered"), b.fresh_label("other"), b.fresh_label("end")
                b.branch_if(in_order, ordered, other)
                b.begin_block(other)
                emit(context, task, buffers)
                b.branch(end_)
                b.begin_block(ordered)
                if suffix == "_sort":
                    self._copy_part(context, task, buffers)
                b.branch(end_)
                b.begin_block(end_)
            b.end_loop(loop)
        tasks = self.line.lines if wants_lines else self.plan.tasks
        return Phase(name, tasks, self.machine.nanoseconds(cycles))

    def _task(self, buffers: Val, task: Val) -> _Task:
        b, plan, line = self.b, self.plan, self.line
        number, part = b.udiv(task, literal(plan.parts)), b.urem(task, literal(plan.parts))
        start = line_start(b, number, line.length)
        operands = operand_lines(b, self.arrays, buffers, start)
        results = result_lines(b, self.arrays, buffers, start)
        areas = b.mul(number, literal(plan.areas * line.area_bytes))
        x, y = (self._workspace(buffers, b.add(areas, literal(area * line.area_bytes))) for area in range(2))
        gathered = results[0] if plan.areas == 2 else byte_pointer(b, y, literal(line.area_bytes))
        return _Task(number, part, task, x, y, gathered, operands, results)

    def _workspace(self, buffers: Val, offset: Val) -> Val:
        return byte_pointer(self.b, load_buffer(self.b, buffers, self.arrays.workspace), offset)

    def _limits(self, task: _Task) -> tuple[Val, Val]:
        """The elements of a part."""
        b, plan = self.b, self.plan
        first, limit = (
            b.udiv(b.mul(each, literal(self.line.length)), literal(plan.parts))
            for each in (task.number, b.add(task.number, ONE))
        )
        return first, limit

    def _at(self, area: Val, place: Val) -> Val:
        return self.b.element_pointer(area, self.line.word, place)

    # ---------------------------------------------------------------- notes

    def _note(self, buffers: Val, place: Val, number: Val) -> Val:
        """Address of a number that a part leaves."""
        b, plan = self.b, self.plan
        word = b.add(b.mul(place, literal(plan.note_words)), number)
        return self._workspace(buffers, b.add(literal(plan.notes_offset), b.shl(word, literal(3))))

    def _leave(self, buffers: Val, place: Val, number: int, value: Val) -> None:
        b = self.b
        wide = value if value.kind == "i64" else b.zext(value, "i64") if value.kind == "i1" else b.sext(value, "i64")
        b.store(wide, self._note(buffers, place, literal(number)))

    def _of_all_parts(self, buffers: Val, task: _Task, number: int, combine: str, start: int) -> Val:
        """A note of all parts of a line."""
        b = self.b
        first = b.mul(task.line, literal(self.plan.parts))
        loop = b.begin_loop(ZERO, literal(self.plan.parts), carried=(b.constant("i64", start),), guarded=False)
        value = b.load("i64", self._note(buffers, b.add(first, loop.index), literal(number)))
        (total,) = loop.carried
        operations = {"or": b.or_, "add": b.add}
        combined = operations[combine](total, value) if combine in operations else b.intrinsic(combine, total, value)
        (found,) = b.end_loop(loop, (combined,))
        return found

    # --------------------------------------------------------------- phases

    def _look(self, context: Val, task: _Task, buffers: Val) -> None:
        """Whether a part is in order, as far as that is easily seen."""
        if self.line.sorts_in_result:
            self._count_few(context, task, buffers)
            return
        words = replace(self.words, part=self._limits(task))
        in_order = words.are_same(cast(Val, task.operands[0])) if self.line.order else words.are_sorted(task.operands)
        self._leave(buffers, task.place, IN_ORDER, in_order)

    def _count_few(self, context: Val, task: _Task, buffers: Val) -> None:
        """Whether a part has few different elements, those of the line's sample, and how often."""
        b = self.b
        first, limit = self._limits(task)
        elements = FewElements(b, self.line, self.sorter, self.words)
        found = elements.count(context, cast(Val, task.operands[0]), first, b.sub(limit, first))
        self._leave(buffers, task.place, IN_ORDER, b.icmp("ne", found, ZERO))
        for number in range(MOST_VALUES):
            count = b.load("i64", b.element_pointer(elements.room.counts, "i64", literal(number)))
            self._leave(buffers, task.place, COUNTS + number, count)

    def _write_few(self, context: Val, task: _Task, buffers: Val) -> None:
        """A part of a sorted line of few different elements, from the counts of all parts."""
        b = self.b
        first, limit = self._limits(task)
        elements = FewElements(b, self.line, self.sorter, self.words)
        elements.count(context, cast(Val, task.operands[0]), ZERO, ZERO)
        for number in range(MOST_VALUES):
            count = self._of_all_parts(buffers, task, COUNTS + number, "add", 0)
            b.store(count, b.element_pointer(elements.room.counts, "i64", literal(number)))
        elements.keep_part(first, limit)
        result = b.element_pointer(task.results[0], self.line.word, first)
        elements.functions.fill(result, b.sub(limit, first), elements.room)

    def _copy_part(self, context: Val, task: _Task, buffers: Val) -> None:
        b = self.b
        if self.line.sorts_in_result:
            self._write_few(context, task, buffers)
            return
        first, limit = self._limits(task)
        if self.line.order is not None:
            source, result = cast(Val, task.operands[0]), task.results[0]
            kind = self.line.order.kind
            here, there = (b.element_pointer(area, kind, first) for area in (source, result))
            self._copy(here, there, b.sub(limit, first), kind)
            return
        loop = b.begin_loop(first, limit)
        write_element(b, self.arrays, loop.index, task.operands, task.results, loop.index)
        b.end_loop(loop)

    def _make_words(self, context: Val, task: _Task, buffers: Val) -> None:
        """Words of a part, their bounds, and samples."""
        b, plan, line = self.b, self.plan, self.line
        first, limit = self._limits(task)
        words = replace(self.words, part=(first, limit))
        if line.order is not None:
            (operand,) = task.operands
            assert operand is not None
            low, high, lossy = words.keys(operand, task.y)
        else:
            words.numbered(task.operands, task.y)
            low, high, lossy = self.sorter.smallest, self.sorter.largest, Val("false", "i1")
        for number, value in ((LOW, low), (HIGH, high), (LOSSY, lossy)):
            self._leave(buffers, task.place, number, value)
        stride = b.udiv(b.sub(limit, first), literal(SAMPLES))
        offset = b.mul(task.place, literal(SAMPLES * line.word_bytes))
        samples = self._workspace(buffers, b.add(literal(plan.samples_offset), offset))
        loop = b.begin_loop(ZERO, literal(SAMPLES), guarded=False)
        place = b.add(b.add(first, b.lshr(stride, ONE)), b.mul(loop.index, stride))
        b.store(b.load(line.word, self._at(task.y, place)), self._at(samples, loop.index))
        b.end_loop(loop)

    def _cut_part(self, context: Val, task: _Task, buffers: Val) -> None:
        """A part as ranges of numbers: every other one in the first area, the rest in the second."""
        b, plan, line = self.b, self.plan, self.line
        scratch = self._workspace(
            buffers, b.add(literal(plan.scratch_offset), b.mul(task.place, literal(2 * plan.samples_bytes)))
        )
        samples = byte_pointer(b, scratch, literal(plan.samples_bytes))
        offset = b.mul(task.line, literal(plan.samples_bytes))
        source = self._workspace(buffers, b.add(literal(plan.samples_offset), offset))
        self._copy(source, samples, literal(plan.parts * SAMPLES))
        smallest, largest = self.sorter.smallest, self.sorter.largest
        self.sorter.call(b, context, scratch, samples, literal(plan.parts * SAMPLES), smallest, largest)
        cuts = [b.load(line.word, self._at(scratch, literal(number * SAMPLES))) for number in range(plan.parts)]
        for number, cut in enumerate(cuts):
            self._leave(buffers, task.place, CUTS + number, cut)
        first, limit = self._limits(task)
        # The range of numbers, where it lies in both areas, how long it is, and in which area.
        runs = [(0, plan.parts, first, first, b.sub(limit, first), True)]
        while runs:
            low, high, x, y, n, in_y = runs.pop()
            if high - low == 1:
                self._leave(buffers, task.place, plan.ranges + 2 * low, y if in_y else x)
                self._leave(buffers, task.place, plan.ranges + 2 * low + 1, n)
                continue
            middle = (low + high) // 2
            here = task.y if in_y else task.x
            below = self._cut(
                self._at(here, y if in_y else x), self._at(task.x, x), self._at(task.y, y), n, cuts[middle]
            )
            above = b.sub(n, below)
            runs.append((low, middle, x, b.add(y, above), below, False))
            runs.append((middle, high, b.add(x, below), y, above, True))

    def _emit_cut(self) -> None:
        b, kind = self.b, self.line.word
        parameters = [("ptr", "source"), ("ptr", "x"), ("ptr", "y"), ("i64", "n"), (kind, "pivot"), ("ptr", "count")]
        with b.function(f"{self.symbol}_cut", parameters, linkage="internal") as (source, x, y, n, pivot, count):
            b.store(partition(b, self.form, source, x, y, n, pivot), count)

    def _cut(self, source: Val, x: Val, y: Val, n: Val, pivot: Val) -> Val:
        b = self.b
        count = b.array("i64", 1)
        kind = LLVM_TYPE[self.line.word]
        b.line(
            f"call void @{self.symbol}_cut(ptr {source.text}, ptr {x.text}, ptr {y.text}, i64 {n.text}, "
            f"{kind} {pivot.text}, ptr {count.text})"
        )
        return b.load("i64", count)

    def _range(self, buffers: Val, task: _Task) -> tuple[Val, Val]:
        """Where the numbers of a range begin in the sorted line, and how many they are."""
        b, plan = self.b, self.plan
        first = b.mul(task.line, literal(plan.parts))
        before, count = Variable(b, "i64", ZERO), Variable(b, "i64", ZERO)
        parts = b.begin_loop(ZERO, literal(plan.parts), guarded=False)
        ranges = b.begin_loop(ZERO, literal(plan.parts), guarded=False)
        slot = b.add(literal(plan.ranges + 1), b.shl(ranges.index, ONE))
        n = b.load("i64", self._note(buffers, b.add(first, parts.index), slot))
        before.set(b.add(before.get(), b.select(b.icmp("slt", ranges.index, task.number), n, ZERO)))
        count.set(b.add(count.get(), b.select(b.icmp("eq", ranges.index, task.number), n, ZERO)))
        b.end_loop(ranges)
        b.end_loop(parts)
        return before.get(), count.get()

    def _gather_range(self, context: Val, task: _Task, buffers: Val) -> None:
        """The numbers of a range, those of the first part first."""
        b, plan = self.b, self.plan
        before, _ = self._range(buffers, task)
        first = b.mul(task.line, literal(plan.parts))
        # A range lies where its number's last bit says.
        is_odd = b.icmp("ne", b.and_(task.number, ONE), ZERO)
        area = b.select(is_odd, task.y, task.x)
        slot = b.add(literal(plan.ranges), b.shl(task.number, ONE))
        loop = b.begin_loop(ZERO, literal(plan.parts), carried=(before,), guarded=False)
        part = b.add(first, loop.index)
        place, n = (b.load("i64", self._note(buffers, part, each)) for each in (slot, b.add(slot, ONE)))
        self._copy(self._at(area, place), self._at(task.gathered, loop.carried[0]), n)
        b.end_loop(loop, (b.add(loop.carried[0], n),))

    def _sort_range(self, context: Val, task: _Task, buffers: Val) -> None:
        """The numbers of a range in order, and results made of them."""
        b, plan, line = self.b, self.plan, self.line
        before, count = self._range(buffers, task)
        lowest = self._of_all_parts(buffers, task, LOW, "smin", (1 << 63) - 1)
        highest = self._of_all_parts(buffers, task, HIGH, "smax", -(1 << 63))
        slot = b.add(literal(CUTS), task.number)
        is_last = b.icmp("eq", task.number, literal(plan.parts - 1))
        cut = b.load("i64", self._note(buffers, task.place, slot))
        # Behind the cuts other notes follow: what the last part would read is not used.
        next_cut = b.load("i64", self._note(buffers, task.place, b.add(slot, ONE)))
        low = b.select(b.icmp("eq", task.number, ZERO), lowest, b.intrinsic("smax", lowest, cut))
        high = b.select(is_last, highest, b.intrinsic("smin", highest, next_cut))
        low, high = (value if line.word == "i64" else b.trunc(value, line.word) for value in (low, high))
        here = self._at(task.x, before)
        self.sorter.call(b, context, here, self._at(task.gathered, before), count, low, high)
        if line.order is not None:
            self._turn_back(here, task.results[0], before, count)
            return
        loop = b.begin_loop(ZERO, count)
        word = b.load(line.word, self._at(here, loop.index))
        write_word(b, line, self.arrays, word, task.operands, task.results, b.add(before, loop.index))
        b.end_loop(loop)

    def _turn_back(self, words: Val, result: Val, before: Val, count: Val) -> None:
        b, lanes = self.b, self.form.lanes
        assert self.line.order is not None
        whole = b.sub(count, b.urem(count, literal(lanes)))
        for first, limit, step in ((ZERO, whole, lanes), (whole, count, 1)):
            loop = b.begin_loop(first, limit, step=step)
            self.words.turn_back_some(words, loop.index, result, b.add(before, loop.index), step)
            b.end_loop(loop)

    def _mend_line(self, context: Val, task: _Task, buffers: Val) -> None:
        """Codes of one key into their order."""
        b = self.b
        lossy = self._of_all_parts(buffers, task, LOSSY, "or", 0)
        mend, done = b.fresh_label("mend"), b.fresh_label("done")
        b.branch_if(b.icmp("ne", lossy, ZERO), mend, done)
        b.begin_block(mend)
        self.joined.call(cast(Val, task.operands[0]), task.results[0])
        b.branch(done)
        b.begin_block(done)

    def _copy(self, source: Val, target: Val, count: Val, kind: str = "") -> None:
        b = self.b
        b.declare("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        nbytes = b.mul(count, literal(KIND_BITS[kind or self.line.word] // 8))
        b.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target.text}, ptr {source.text}, i64 {nbytes.text}, i1 false)")

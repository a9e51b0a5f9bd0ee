"""The first elements of sorted lines, without a sort of what is not wanted.

A line is read once.  Elements whose key is not above that of the last one wanted so far are put aside, with their numbers;
when there are enough of them they are sorted together with the best ones so far.  Later elements of an equal key come behind
those, so the bound is one less than that key.  Long lines of which there are few are cut into parts, whose best elements are
sorted once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, literal, minimum
from hlojit.cpu.kernels.partitioning import Form, VectorForm, mask_count
from hlojit.cpu.kernels.quicksort import ONE, sorter_of
from hlojit.cpu.kernels.sort_words import key_at, numbers_from
from hlojit.cpu.kernels.sorted_lines import Lines, gather_lines, line_start, operand_lines, result_lines
from hlojit.cpu.kernels.update import byte_pointer, load_buffer
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.region import Variable, while_loop
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.line_sort_plan import LineSortPlan
from hlojit.lowering.sorted_arrays import SortedArrays
from hlojit.lowering.target import KIND_BITS, Target

GROUP = 4
"""Vectors that are looked at together."""
LEAST_ASIDE = 256
"""Elements that are put aside before they are sorted, at least."""
SMALLEST_PART = 1 << 15
"""Elements of a part of a line, at least."""
LOOK_CYCLES = 0.6
"""Of looking at an element."""


@final
@dataclass(frozen=True)
class TopKPlan:
    """Lines whose first ``count`` elements are wanted."""

    line: LineSortPlan
    count: int
    parts: int
    """Of a line: each is a task."""
    key: str
    """The kind of a key as a signed integer."""

    @staticmethod
    def pays(line: LineSortPlan, count: int) -> bool:
        """Whether a line is long enough, lies in one piece, and keys leave room for numbers."""
        return not line.is_shortened and line.inner == 1 and 4 * count <= line.length

    @staticmethod
    def of(line: LineSortPlan, count: int, target: Target) -> TopKPlan:
        """The plan where it pays."""
        parts = 1
        if line.lines < target.machine.cores:
            parts = max(1, min(2 * target.machine.cores, line.length // max(SMALLEST_PART, 4 * count)))
        key = "i64" if line.key_bits > 32 else "i32"
        return TopKPlan(line, count, parts, key)

    @property
    def tasks(self) -> int:
        """Parts of lines where there are few, else groups of lines."""
        return self.line.lines * self.parts if self.parts > 1 else self.line.tasks

    @property
    def aside(self) -> int:
        """Elements that are put aside before they are sorted."""
        return max(LEAST_ASIDE, -(-self.count // 64) * 64)

    @property
    def room(self) -> int:
        """Elements that are put aside at most: some vectors may come at once."""
        return self.aside + 64 * (GROUP + 1)

    @property
    def words(self) -> int:
        """That are sorted together, at most."""
        return self.count + self.room

    @property
    def word_area(self) -> int:
        """Bytes of an area of words."""
        return -(-self.words * self.line.word_bytes // 64) * 64

    @property
    def aside_area(self) -> int:
        """Bytes of keys that are put aside, or of their numbers."""
        return self.room * KIND_BITS[self.key] // 8

    @property
    def task_bytes(self) -> int:
        """Words before and after, keys and numbers."""
        return 2 * self.word_area + 2 * self.aside_area

    @property
    def found_bytes(self) -> int:
        """Words of all parts of a line, before and after they are sorted."""
        return 2 * self.parts * self.count * self.line.word_bytes if self.parts > 1 else 0

    @property
    def workspace_bytes(self) -> int:
        """Found words of all lines first."""
        return self.found_offset + self.tasks * self.task_bytes

    @property
    def found_offset(self) -> int:
        """Where tasks' own areas begin."""
        return -(-self.line.lines * self.found_bytes // 64) * 64


def emit_top_k(plan: TopKPlan, arrays: SortedArrays, target: Target, symbol: str) -> KernelCode:
    """The kernel of a selection."""
    return _TopK(plan, arrays, target, symbol).emit()


@dataclass
class _State:
    """The best words so far, what is put aside, and the bound; areas of a task."""

    best: Variable
    aside: Variable
    bound: Variable
    words: Val
    after: Val
    keys: Val
    numbers: Val


class _TopK:
    def __init__(self, plan: TopKPlan, arrays: SortedArrays, target: Target, symbol: str):
        self.plan = plan
        self.line = plan.line
        self.arrays = arrays
        self.machine = target.machine
        self.symbol = symbol
        self.form = VectorForm.of(plan.key, target)
        self.lanes = 1 if self.form.form is Form.SCALAR else self.form.lanes
        self.b = LlvmBuilder(self.lanes)
        self.sorter = sorter_of(self.line.word, target)

    def emit(self) -> KernelCode:
        b, plan = self.b, self.plan
        phases = [self._phase(self.symbol, plan.tasks, self.line.length * self.line.lines * LOOK_CYCLES)]
        with b.function(self.symbol, PARAMETERS) as (context, buffers, begin, end):
            loop = b.begin_loop(begin, end)
            if plan.parts > 1:
                self._emit_part(context, buffers, loop.index)
            else:
                self._emit_lines(context, buffers, loop.index)
            b.end_loop(loop)
        if plan.parts > 1:
            name = f"{self.symbol}_join"
            found = plan.parts * plan.count
            phases.append(self._phase(name, self.line.lines, found * math.log2(found) * self.line.lines))
            with b.function(name, PARAMETERS) as (context, buffers, begin, end):
                loop = b.begin_loop(begin, end)
                self._emit_join(context, buffers, loop.index)
                b.end_loop(loop)
        return kernel_code(b, phases, workspace_bytes=plan.workspace_bytes, parts=(self.sorter.code,))

    def _phase(self, name: str, tasks: int, cycles: float) -> Phase:
        return Phase(name, tasks, self.machine.nanoseconds(cycles) / tasks)

    # ---------------------------------------------------------------- tasks

    def _emit_lines(self, context: Val, buffers: Val, task: Val) -> None:
        b, line = self.b, self.line
        first, limit = (
            b.udiv(b.mul(place, literal(line.lines)), literal(line.tasks)) for place in (task, b.add(task, ONE))
        )
        loop = b.begin_loop(first, limit, guarded=False)
        operands = operand_lines(b, self.arrays, buffers, line_start(b, loop.index, line.length))
        state = self._select(context, buffers, operands, task, ZERO, literal(line.length))
        self._write(buffers, loop.index, state.words, operands)
        b.end_loop(loop)

    def _emit_part(self, context: Val, buffers: Val, task: Val) -> None:
        b, plan, line = self.b, self.plan, self.line
        parts = literal(plan.parts)
        number, part = b.udiv(task, parts), b.urem(task, parts)
        first, limit = (b.udiv(b.mul(each, literal(line.length)), parts) for each in (part, b.add(part, ONE)))
        operands = operand_lines(b, self.arrays, buffers, line_start(b, number, line.length))
        state = self._select(context, buffers, operands, task, first, limit)
        place = b.mul(part, literal(plan.count * line.word_bytes))
        self._copy(state.words, byte_pointer(b, self._found(buffers, number), place), literal(plan.count))

    def _emit_join(self, context: Val, buffers: Val, number: Val) -> None:
        b, plan, line = self.b, self.plan, self.line
        found, total = self._found(buffers, number), plan.parts * plan.count
        after = byte_pointer(b, found, literal(total * line.word_bytes))
        self.sorter.call(b, context, after, found, literal(total), self.sorter.smallest, self.sorter.largest)
        operands = operand_lines(b, self.arrays, buffers, line_start(b, number, line.length))
        self._write(buffers, number, after, operands)

    def _found(self, buffers: Val, number: Val) -> Val:
        workspace = load_buffer(self.b, buffers, self.arrays.workspace)
        return byte_pointer(self.b, workspace, self.b.mul(number, literal(self.plan.found_bytes)))

    def _write(self, buffers: Val, number: Val, words: Val, operands: Lines) -> None:
        b = self.b
        results = result_lines(b, self.arrays, buffers, line_start(b, number, self.plan.count))
        gather_lines(b, self.line, self.arrays, words, operands, results)

    def _copy(self, source: Val, target: Val, count: Val) -> None:
        b = self.b
        b.declare("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        nbytes = b.mul(count, literal(self.line.word_bytes))
        b.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target.text}, ptr {source.text}, i64 {nbytes.text}, i1 false)")

    # ------------------------------------------------------------- selecting

    def _select(self, context: Val, buffers: Val, operands: Lines, task: Val, first: Val, limit: Val) -> _State:
        """The best elements of a part of a line, sorted, as words."""
        b, plan = self.b, self.plan
        workspace = load_buffer(b, buffers, self.arrays.workspace)
        base = byte_pointer(b, workspace, b.add(b.mul(task, literal(plan.task_bytes)), literal(plan.found_offset)))
        offsets = (0, plan.word_area, 2 * plan.word_area, 2 * plan.word_area + plan.aside_area)
        areas = [byte_pointer(b, base, literal(offset)) for offset in offsets]
        largest = b.constant(plan.key, (1 << (KIND_BITS[plan.key] - 1)) - 1)
        state = _State(Variable(b, "i64", ZERO), Variable(b, "i64", ZERO), Variable(b, plan.key, largest), *areas)
        index = Variable(b, "i64", first)
        for step in (GROUP * self.lanes, self.lanes, 1)[0 if self.lanes > 1 else 2 :]:

            def look(step: int = step) -> None:
                self._look(context, state, operands, index.get(), min(step, self.lanes), max(1, step // self.lanes))
                index.set(b.add(index.get(), literal(step)))

            def fits(step: int = step) -> Val:
                return b.icmp("sle", b.add(index.get(), literal(step)), limit)

            while_loop(b, fits, look)
        self._sort_aside(context, state)
        return state

    def _look(self, context: Val, state: _State, operands: Lines, index: Val, lanes: int, vectors: int) -> None:
        """Put aside what is not above the bound."""
        b, plan, line = self.b, self.plan, self.line
        bound = state.bound.get()
        places = [b.add(index, literal(n * lanes)) if n else index for n in range(vectors)]
        keys = [
            self._signed(key_at(b, line.codes, plan.key, self.arrays.kinds, operands, place, lanes)) for place in places
        ]
        masks = [b.icmp("sle", key, bound) for key in keys]
        some = masks[0]
        for mask in masks[1:]:
            some = b.or_(some, mask)
        here, done = b.fresh_label("here"), b.fresh_label("done")
        b.branch_if(self._any(some), here, done)
        b.begin_block(here)
        for key, mask, place in zip(keys, masks, places):
            self._put_aside(state, key, mask, numbers_from(b, place, plan.key, lanes))
        full = b.fresh_label("full")
        b.branch_if(b.icmp("sge", state.aside.get(), literal(plan.aside)), full, done)
        b.begin_block(full)
        self._sort_aside(context, state)
        b.branch(done)
        b.begin_block(done)

    def _any(self, mask: Val) -> Val:
        b = self.b
        if mask.lanes == 1:
            return mask
        bits = b.emit(f"i{mask.lanes}", 1, f"bitcast {b.type_of(mask)} {mask.text} to i{mask.lanes}")
        return b.emit("i1", 1, f"icmp ne i{mask.lanes} {bits.text}, 0")

    def _put_aside(self, state: _State, key: Val, mask: Val, numbers: Val) -> None:
        b, kind = self.b, self.plan.key
        place = state.aside.get()
        for values, area in ((key, state.keys), (numbers, state.numbers)):
            chosen = values if key.lanes == 1 else self.form.compress(b, values, mask)
            b.store(chosen, b.element_pointer(area, kind, place))
        taken = b.zext(mask, "i64") if key.lanes == 1 else mask_count(b, mask)
        state.aside.set(b.add(place, taken))

    def _sort_aside(self, context: Val, state: _State) -> None:
        """The best words of those so far and of what was put aside; the bound is below the last of them."""
        b, plan, line = self.b, self.plan, self.line
        best, aside = state.best.get(), state.aside.get()
        loop = b.begin_loop(ZERO, aside)
        key, number = (
            b.zext(b.load(plan.key, b.element_pointer(area, plan.key, loop.index)), line.word)
            for area in (state.keys, state.numbers)
        )
        if line.key_bits == KIND_BITS[plan.key]:
            key = b.xor(key, b.constant(line.word, 1 << (line.key_bits - 1)))
        word = b.or_(b.shl(key, b.constant(line.word, line.number_bits)), number)
        b.store(self._turned(word), b.element_pointer(state.words, line.word, b.add(best, loop.index)))
        b.end_loop(loop)
        total = b.add(best, aside)
        self.sorter.call(b, context, state.after, state.words, total, self.sorter.smallest, self.sorter.largest)
        kept = minimum(b, total, literal(plan.count))
        self._copy(state.after, state.words, kept)
        state.best.set(kept)
        state.aside.set(ZERO)
        self._lower_bound(state, kept)

    def _lower_bound(self, state: _State, kept: Val) -> None:
        b, plan, line = self.b, self.plan, self.line
        last = b.load(line.word, b.element_pointer(state.after, line.word, literal(plan.count - 1)))
        key = b.lshr(self._turned(last), b.constant(line.word, line.number_bits))
        signed = self._signed(b.trunc(key, plan.key))
        lowest = b.constant(plan.key, -1 << (KIND_BITS[plan.key] - 1))
        below = b.select(b.icmp("eq", signed, lowest), signed, b.sub(signed, b.constant(plan.key, 1)))
        # Until there are as many as are wanted everything is put aside.
        state.bound.set(b.select(b.icmp("eq", kept, literal(plan.count)), below, state.bound.get()))

    def _signed(self, key: Val) -> Val:
        b, bits = self.b, KIND_BITS[self.plan.key]
        return b.xor(key, b.constant(key.kind, 1 << (bits - 1))) if self.line.key_bits == bits else key

    def _turned(self, word: Val) -> Val:
        """From an unsigned word to a signed one, and back."""
        b, line = self.b, self.line
        bits = KIND_BITS[line.word]
        return b.xor(word, b.constant(line.word, 1 << (bits - 1))) if line.key_bits + line.number_bits == bits else word

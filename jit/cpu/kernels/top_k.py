"""The first elements of sorted lines, without a sort of what is not wanted.

A line is read once.  Elements whose key is not above that of the last one wanted so far are put aside, with their numbers,
behind the best ones so far; when there are enough of them, the key of the last one wanted is looked for and what is above it
goes.  Later elements of an equal key come behind those, so the bound is one less than that key.  At the end keys alone are
sorted, and every element finds its place by its key and by how many of the same key were before it.  Long lines of which
there are few are cut into parts, whose best elements are looked through once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, literal
from hlojit.cpu.kernels.partitioning import Form, VectorForm, first_lanes, mask_count
from hlojit.cpu.kernels.quicksort import ONE, sorter_of
from hlojit.cpu.kernels.sort_words import key_at, load_lanes, numbers_from
from hlojit.cpu.kernels.sorted_lines import Lines, line_start, operand_lines, result_lines, write_element
from hlojit.cpu.kernels.update import byte_pointer, load_buffer
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.region import Variable, while_loop
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.line_sort_plan import WORD_CYCLES, LineSortPlan
from hlojit.lowering.sorted_arrays import SortedArrays
from hlojit.lowering.target import KIND_BITS, Target

GROUP = 4
"""Vectors that are looked at together."""
LEAST_ASIDE = 256
"""Elements that are put aside before some of them go, at least."""
MOST_WANTED = 1024
"""Elements that find their places one by one."""
SMALLEST_PART = 1 << 15
"""Elements of a part of a line, at least."""
LOOK_CYCLES = 0.6
"""Of looking at an element."""
PLACE_CYCLES = 4.0
"""Of a step of the search for an element's place."""


@final
@dataclass(frozen=True)
class TopKPlan:
    """Lines whose first ``count`` elements are wanted."""

    line: LineSortPlan
    parts: int
    """Of a line: each is a task."""
    key: str
    """The kind of a key as a signed integer, and of an element's number."""

    @staticmethod
    def pays(line: LineSortPlan) -> bool:
        """Whether a line is long enough and lies in one piece, and few elements at its beginning are wanted."""
        return line.inner == 1 and not line.first and 4 * line.count <= line.length and line.count <= MOST_WANTED

    @staticmethod
    def of(line: LineSortPlan, target: Target) -> TopKPlan:
        """The plan where it pays."""
        parts = 1
        if line.lines < target.machine.cores:
            parts = max(1, min(2 * target.machine.cores, line.length // max(SMALLEST_PART, 4 * line.count)))
        return TopKPlan(line, parts, "i64" if line.key_bits > 32 else "i32")

    @property
    def count(self) -> int:
        """Elements of a line that are wanted."""
        return self.line.count

    @property
    def tasks(self) -> int:
        """Parts of lines where there are few, else groups of lines."""
        return self.line.lines * self.parts if self.parts > 1 else self.line.tasks

    @property
    def full(self) -> int:
        """Elements, the best ones among them, of which some go."""
        return self.count + max(LEAST_ASIDE, self.count)

    @property
    def room(self) -> int:
        """Elements of an area: several vectors may come at once, and whole ones are written."""
        return -(-max(self.full, self.parts * self.count) // 64) * 64 + 64 * (GROUP + 1)

    @property
    def area_bytes(self) -> int:
        """Of an area of keys or numbers."""
        return self.room * KIND_BITS[self.key] // 8

    @property
    def task_bytes(self) -> int:
        """Keys and numbers, before and after some went, and two areas for keys that are sorted."""
        return 6 * self.area_bytes

    @property
    def found_bytes(self) -> int:
        """Keys and numbers of all parts of a line."""
        return 2 * self.area_bytes if self.parts > 1 else 0

    @property
    def workspace_bytes(self) -> int:
        """Of what is found in lines first."""
        return self.found_offset + self.tasks * self.task_bytes

    @property
    def found_offset(self) -> int:
        """Where tasks' own areas begin."""
        return self.line.lines * self.found_bytes


def emit_top_k(plan: TopKPlan, arrays: SortedArrays, target: Target, symbol: str) -> KernelCode:
    """The kernel of a selection."""
    return _TopK(plan, arrays, target, symbol).emit()


@dataclass(frozen=True)
class _Found:
    """Elements by key and number."""

    keys: Val
    numbers: Val


@dataclass
class _State:
    """What was found so far, how much of it, and the bound; areas of a task."""

    found: _Found
    total: Variable
    bound: Variable
    kept: _Found
    x: Val
    y: Val


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
        self.sorter = sorter_of(plan.key, target)

    def emit(self) -> KernelCode:
        b, plan = self.b, self.plan
        placed = plan.count * (math.log2(max(2, plan.count)) * PLACE_CYCLES + WORD_CYCLES) * self.line.lines
        phases = [self._phase(self.symbol, plan.tasks, self.line.length * self.line.lines * LOOK_CYCLES + placed)]
        with b.function(self.symbol, PARAMETERS) as (context, buffers, begin, end):
            loop = b.begin_loop(begin, end)
            if plan.parts > 1:
                self._emit_part(context, buffers, loop.index)
            else:
                self._emit_lines(context, buffers, loop.index)
            b.end_loop(loop)
        if plan.parts > 1:
            name = f"{self.symbol}_join"
            phases.append(self._phase(name, self.line.lines, placed + plan.parts * plan.count * WORD_CYCLES))
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
        self._write(context, state, buffers, loop.index, operands)
        b.end_loop(loop)

    def _emit_part(self, context: Val, buffers: Val, task: Val) -> None:
        b, plan, line = self.b, self.plan, self.line
        parts = literal(plan.parts)
        number, part = b.udiv(task, parts), b.urem(task, parts)
        first, limit = (b.udiv(b.mul(each, literal(line.length)), parts) for each in (part, b.add(part, ONE)))
        operands = operand_lines(b, self.arrays, buffers, line_start(b, number, line.length))
        state = self._select(context, buffers, operands, task, first, limit)
        joined = self._joined(buffers, number)
        place = b.mul(part, literal(plan.count))
        for source, target in ((state.found.keys, joined.keys), (state.found.numbers, joined.numbers)):
            self._copy(source, b.element_pointer(target, plan.key, place), literal(plan.count))

    def _emit_join(self, context: Val, buffers: Val, number: Val) -> None:
        b, plan, line = self.b, self.plan, self.line
        state = self._state(buffers, b.mul(number, literal(plan.parts)))
        state.found = self._joined(buffers, number)
        state.total.set(literal(plan.parts * plan.count))
        self._drop(context, state)
        operands = operand_lines(b, self.arrays, buffers, line_start(b, number, line.length))
        self._write(context, state, buffers, number, operands)

    def _joined(self, buffers: Val, number: Val) -> _Found:
        """Where what parts of a line find is put, one behind the other."""
        workspace = load_buffer(self.b, buffers, self.arrays.workspace)
        base = byte_pointer(self.b, workspace, self.b.mul(number, literal(self.plan.found_bytes)))
        return _Found(base, byte_pointer(self.b, base, literal(self.plan.area_bytes)))

    def _state(self, buffers: Val, task: Val) -> _State:
        """Nothing found, in the areas of a task."""
        b, plan = self.b, self.plan
        workspace = load_buffer(b, buffers, self.arrays.workspace)
        base = byte_pointer(b, workspace, b.add(b.mul(task, literal(plan.task_bytes)), literal(plan.found_offset)))
        areas = [byte_pointer(b, base, literal(number * plan.area_bytes)) for number in range(6)]
        largest = b.constant(plan.key, (1 << (KIND_BITS[plan.key] - 1)) - 1)
        found, kept = _Found(*areas[:2]), _Found(*areas[2:4])
        return _State(found, Variable(b, "i64", ZERO), Variable(b, plan.key, largest), kept, *areas[4:])

    def _copy(self, source: Val, target: Val, count: Val) -> None:
        b = self.b
        b.declare("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        nbytes = b.mul(count, literal(KIND_BITS[self.plan.key] // 8))
        b.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target.text}, ptr {source.text}, i64 {nbytes.text}, i1 false)")

    # ------------------------------------------------------------- selecting

    def _select(self, context: Val, buffers: Val, operands: Lines, task: Val, first: Val, limit: Val) -> _State:
        """The best elements of a part of a line, in their order there: as many as are wanted."""
        b = self.b
        state = self._state(buffers, task)
        index = Variable(b, "i64", first)
        for step in (GROUP * self.lanes, self.lanes, 1)[0 if self.lanes > 1 else 2 :]:

            def look(step: int = step) -> None:
                self._look(context, state, operands, index.get(), min(step, self.lanes), max(1, step // self.lanes))
                index.set(b.add(index.get(), literal(step)))

            def fits(step: int = step) -> Val:
                return b.icmp("sle", b.add(index.get(), literal(step)), limit)

            while_loop(b, fits, look)
        self._drop(context, state)
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
            total = self._append(state.found, state.total.get(), key, numbers_from(b, place, plan.key, lanes), mask)
            state.total.set(total)
        full = b.fresh_label("full")
        b.branch_if(b.icmp("sge", state.total.get(), literal(plan.full)), full, done)
        b.begin_block(full)
        self._drop(context, state)
        b.branch(done)
        b.begin_block(done)

    def _any(self, mask: Val) -> Val:
        b = self.b
        if mask.lanes == 1:
            return mask
        bits = b.emit(f"i{mask.lanes}", 1, f"bitcast {b.type_of(mask)} {mask.text} to i{mask.lanes}")
        return b.emit("i1", 1, f"icmp ne i{mask.lanes} {bits.text}, 0")

    def _append(self, found: _Found, place: Val, keys: Val, numbers: Val, mask: Val) -> Val:
        """Elements whose mask is 1 behind others; returns the place behind them."""
        b = self.b
        for values, area in ((keys, found.keys), (numbers, found.numbers)):
            chosen = values if keys.lanes == 1 else self.form.compress(b, values, mask)
            b.store(chosen, b.element_pointer(area, self.plan.key, place))
        return b.add(place, b.zext(mask, "i64") if keys.lanes == 1 else mask_count(b, mask))

    def _drop(self, context: Val, state: _State) -> None:
        """Leave as many of those found as are wanted, and narrow the bound."""
        b, plan = self.b, self.plan
        total = state.total.get()
        self._copy(state.found.keys, state.y, total)
        last = literal(plan.count - 1)
        smallest, largest = self.sorter.smallest, self.sorter.largest
        self.sorter.call(b, context, state.x, state.y, total, smallest, largest, (last, literal(plan.count)))
        key = b.load(plan.key, b.element_pointer(state.x, plan.key, last))
        place: Val = ZERO
        for predicate in ("slt", "eq"):
            place = self._keep(state, total, predicate, key, place)
        for source, target in ((state.kept.keys, state.found.keys), (state.kept.numbers, state.found.numbers)):
            self._copy(source, target, literal(plan.count))
        state.total.set(literal(plan.count))
        lowest = b.constant(plan.key, -1 << (KIND_BITS[plan.key] - 1))
        below = b.sub(key, b.constant(plan.key, 1))
        state.bound.set(b.select(b.icmp("eq", key, lowest), key, below))

    def _keep(self, state: _State, total: Val, predicate: str, key: Val, place: Val) -> Val:
        """Elements whose keys are so, in their order, behind others that are kept."""
        b, kind, lanes = self.b, self.plan.key, self.lanes
        bound = b.splat(key, lanes) if lanes > 1 else key
        loop = b.begin_loop(ZERO, total, step=lanes, carried=(place,))
        keys, numbers = (
            load_lanes(b, kind, area, loop.index, lanes) for area in (state.found.keys, state.found.numbers)
        )
        mask = b.icmp(predicate, keys, bound)
        if lanes > 1:
            mask = b.and_(mask, first_lanes(b, b.sub(total, loop.index), lanes, kind))
        (place,) = b.end_loop(loop, (self._append(state.kept, loop.carried[0], keys, numbers, mask),))
        return place

    # --------------------------------------------------------------- placing

    def _write(self, context: Val, state: _State, buffers: Val, number: Val, operands: Lines) -> None:
        """Sort what was found, and write results of it."""
        b, plan, kind = self.b, self.plan, self.plan.key
        count = literal(plan.count)
        self._copy(state.found.keys, state.y, count)
        self.sorter.call(b, context, state.x, state.y, count, self.sorter.smallest, self.sorter.largest)
        clear = b.begin_loop(ZERO, count, guarded=False)
        b.store(b.constant(kind, 0), b.element_pointer(state.y, kind, clear.index))
        b.end_loop(clear)
        results = result_lines(b, self.arrays, buffers, line_start(b, number, plan.count))
        loop = b.begin_loop(ZERO, count, guarded=False)
        first = self._place(state.x, b.load(kind, b.element_pointer(state.found.keys, kind, loop.index)))
        # How many elements of this key have found their places.
        counter = b.element_pointer(state.y, kind, first)
        before = b.load(kind, counter)
        b.store(b.add(before, b.constant(kind, 1)), counter)
        place = b.add(first, b.zext(before, "i64") if kind != "i64" else before)
        found = b.load(kind, b.element_pointer(state.found.numbers, kind, loop.index))
        write_element(b, self.arrays, b.zext(found, "i64") if kind != "i64" else found, operands, results, place)
        b.end_loop(loop)

    def _place(self, keys: Val, key: Val) -> Val:
        """How many of the sorted keys are below one that is among them."""
        b, kind = self.b, self.plan.key
        place: Val = ZERO
        left = self.plan.count
        while left > 1:
            half = left // 2
            middle = b.add(place, literal(half))
            probed = b.load(kind, b.element_pointer(keys, kind, b.sub(middle, ONE)))
            place = b.select(b.icmp("slt", probed, key), middle, place)
            left -= half
        return place

    def _signed(self, key: Val) -> Val:
        b, bits = self.b, KIND_BITS[self.plan.key]
        return b.xor(key, b.constant(key.kind, 1 << (bits - 1))) if self.line.key_bits == bits else key

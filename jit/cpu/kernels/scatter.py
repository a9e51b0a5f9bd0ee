"""scatter: updates in ascending order of their index, in the first operands' memory, with the combiner inlined.

Elements that fall outside are skipped, one by one, as the specification says.  The order of repeated indices is left
open there; ours is ascending and does not depend on threads: tasks share the elements of every window, and each goes through
all updates; of single elements each task does those whose places are in its part of the input.  An element that is updated
several times in a row stays in a register until the next one comes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlojit.cpu.kernels.addresses import ZERO, literal, minimum
from hlojit.cpu.kernels.partitioning import Form, VectorForm, mask_count
from hlojit.cpu.kernels.sort_words import load_lanes, numbers_from
from hlojit.cpu.kernels.update import load_buffer, load_index
from hlojit.ir.formats import ElementType, IntegerType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Pointwise, Trait
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.region import Variable, delinearize, updated
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.scatter_plan import ScatterPlan
from hlojit.lowering.scatter_shares import PlaceShare, WindowShare
from hlojit.lowering.target import Target

ELEMENT_CYCLES = 6.0
"""An update reads what the one before it may have written: a store and a load that waits for it."""


WINDOW_CYCLES = 12.0
"""Of reading an index and finding its place."""
BLOCK = 512
"""Updates whose indices are looked at before they are done."""


def emit_scatter(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Operands: inputs, indices, updates; results share the inputs' memory."""
    return _Scatter(instruction, target, symbol).emit()


class _Scatter:
    def __init__(self, instruction: Instruction, target: Target, symbol: str):
        self.instruction = instruction
        self.machine = target.machine
        self.symbol = symbol
        self.plan = ScatterPlan.of(instruction)
        self.elements = [result.tensor_type.element_type for result in instruction.results]
        self.share = WindowShare.of(self.plan, max(element.itemsize for element in self.elements), self.machine)
        self.places, self.form = self._place_share(target)
        self.lanes = self._vector_lanes(target)
        self.b = LlvmBuilder(self.lanes)

    def _place_share(self, target: Target) -> tuple[PlaceShare | None, VectorForm]:
        """How tasks share single elements, if they do, and vectors of indices."""
        kind = memory_kind(self.plan.indices.element_type)
        form = VectorForm.of(kind if kind in ("i32", "i64") else "i32", target)
        filters = kind == form.kind and form.form is not Form.SCALAR
        return PlaceShare.of(self.plan, self.machine) if filters else None, form

    def _vector_lanes(self, target: Target) -> int:
        """Of vectors along a window's last dimension: 1 where its elements do not lie side by side."""
        plan, combiner = self.plan, self.instruction.regions[0]
        if not plan.window_shape or not plan.windows_are_side_by_side:
            return 1
        if not all(
            isinstance(each.op.lowering, Pointwise) or Trait.CONSTANT in each.op.traits
            for each in combiner
            if each.results
        ):
            return 1
        lanes = min(target.native_lanes(memory_kind(element)) for element in self.elements)
        return lanes if lanes <= plan.window_shape[-1] else 1

    def emit(self) -> KernelCode:
        b = self.b
        with b.function(self.symbol, [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]) as p:
            _, buffers, begin, end = p
            total = 2 * self.plan.count + 1
            self.results = [load_buffer(b, buffers, total + number) for number in range(self.plan.count)]
            self.update_bases = [
                load_buffer(b, buffers, self.plan.count + 1 + number) for number in range(self.plan.count)
            ]
            self.index_base = load_buffer(b, buffers, self.plan.count)
            tasks = b.begin_loop(begin, end)
            if self.places is None:
                self._emit_updates(tasks.index)
            else:
                self._emit_places(tasks.index, self.places)
            b.end_loop(tasks)
        count = self.places.tasks if self.places is not None else self.share.tasks
        cycles = self.plan.updates.size * ELEMENT_CYCLES / (count * self.lanes)
        cost = self.machine.nanoseconds(cycles + self.plan.windows * (WINDOW_CYCLES if self.places is None else 1.0))
        in_place = tuple((number, number) for number in range(self.plan.count))
        return kernel_code(b, (Phase(self.symbol, count, cost),), in_place=in_place, updates=True)

    def _emit_updates(self, task: Val) -> None:
        b = self.b
        outer_shape, window_shape = self.plan.scatter_shape, self.plan.window_shape
        run = None if window_shape or not self._reads_old() else _Run(b, self.elements)
        outer = b.begin_loop(ZERO, literal(math.prod(outer_shape)))
        place = delinearize(b, outer.index, outer_shape)
        starts = self._starts(place)
        rows = literal(math.prod(window_shape[:-1]))
        first, limit = self._part(task) if self.share.by_rows else (ZERO, rows)
        middle = b.begin_loop(first, limit)
        window = delinearize(b, middle.index, window_shape[:-1]) if window_shape else []
        valid, target, source = self._row(starts, place, window)
        self._emit_row(task, valid, target, source, starts, run)
        b.end_loop(middle)
        b.end_loop(outer)

    def _part(self, task: Val) -> tuple[Val, Val]:
        """Of the rows, or the places, that are shared, those of a task."""
        b, share = self.b, self.share
        if share.tasks == 1:
            return ZERO, literal(share.extent)
        first, limit = (
            minimum(b, b.mul(each, literal(share.size)), literal(share.extent))
            for each in (task, b.add(task, literal(1)))
        )
        return first, limit

    def _emit_places(self, task: Val, share: PlaceShare) -> None:
        """Updates of single elements in a part of the input: first their numbers, then the updates, a block at a time."""
        b, kind, lanes = self.b, self.form.kind, self.form.lanes
        run = _Run(b, self.elements) if self._reads_old() else None
        low = b.mul(task, literal(share.size))
        room = b.intrinsic("smax", b.sub(minimum(b, literal(share.extent), b.add(low, literal(share.size))), low), ZERO)
        first, extent = (b.splat(b.trunc(value, kind), lanes) for value in (low, room))
        chosen = b.array(kind, BLOCK + lanes)
        total = self.plan.updates.size
        blocks = b.begin_loop(ZERO, literal(total), step=BLOCK)
        limit = minimum(b, b.add(blocks.index, literal(BLOCK)), literal(total))
        whole = b.sub(limit, b.urem(b.sub(limit, blocks.index), literal(lanes)))
        loop = b.begin_loop(blocks.index, whole, step=lanes, carried=(ZERO,))
        indices = load_lanes(b, kind, self.index_base, loop.index, lanes)
        mask = b.icmp("ult", b.sub(indices, first), extent)
        numbers = numbers_from(b, loop.index, kind, lanes)
        b.store(self.form.compress(b, numbers, mask), b.element_pointer(chosen, kind, loop.carried[0]))
        (count,) = b.end_loop(loop, (b.add(loop.carried[0], mask_count(b, mask)),))
        loop = b.begin_loop(whole, limit, carried=(count,))
        b.store(b.trunc(loop.index, kind), b.element_pointer(chosen, kind, loop.carried[0]))
        index = b.load(kind, b.element_pointer(self.index_base, kind, loop.index))
        inside = b.icmp("ult", b.sub(index, b.trunc(low, kind)), b.trunc(room, kind))
        (count,) = b.end_loop(loop, (b.add(loop.carried[0], b.zext(inside, "i64")),))
        loop = b.begin_loop(ZERO, count)
        number = b.zext(b.load(kind, b.element_pointer(chosen, kind, loop.index)), "i64")
        target = b.zext(b.load(kind, b.element_pointer(self.index_base, kind, number)), "i64")
        self._combine_one(target, number, run)
        b.end_loop(loop)
        b.end_loop(blocks)

    def _reads_old(self) -> bool:
        """Whether the combiner looks at what was there."""
        return any(argument.users for argument in self.instruction.regions[0].arguments[: self.plan.count])

    def _starts(self, place: list[Val]) -> list[Val]:
        """Where the window begins, in every dimension of the inputs."""
        b = self.b
        starts = [b.constant("i64", 0)] * self.plan.input.rank
        element = self.plan.indices.element_type
        assert isinstance(element, IntegerType)
        kind = f"i{element.itemsize * 8}"
        for component, dimension in enumerate(self.plan.numbers.scatter_dims_to_operand_dims):
            offset = b.constant("i64", component * self.plan.component_stride)
            for position, stride in zip(place, self.plan.index_strides, strict=True):
                offset = b.add(offset, b.mul(position, b.constant("i64", stride)))
            starts[dimension] = load_index(b, element, b.element_pointer(self.index_base, kind, offset))
        for dimension, number in self.plan.batch_positions.items():
            starts[dimension] = b.add(starts[dimension], place[number])
        return starts

    def _row(self, starts: list[Val], place: list[Val], window: list[Val]) -> tuple[Val, Val, Val]:
        """For one row of a window: whether it is inside in all but the last window dimension, and linear offsets."""
        b = self.b
        position = list(starts)
        for dimension, part in zip(self.plan.operand_window_dims, window):
            position[dimension] = b.add(position[dimension], part)
        valid = b.constant("i1", 1)
        target = b.constant("i64", 0)
        last = self.plan.operand_window_dims[-1] if self.plan.operand_window_dims else -1
        for dimension, (extent, stride) in enumerate(zip(self.plan.input.shape, self.plan.input.strides)):
            if dimension != last:
                inside = b.icmp("ult", position[dimension], b.constant("i64", extent))
                valid = b.and_(valid, inside)
                target = b.add(target, b.mul(position[dimension], b.constant("i64", stride)))
        source = b.constant("i64", 0)
        for dimensions, parts in ((self.plan.scatter_dims, place), (self.plan.window_dims[:-1], window)):
            for dimension, part in zip(dimensions, parts):
                source = b.add(source, b.mul(part, b.constant("i64", self.plan.updates.strides[dimension])))
        return valid, target, source

    def _emit_row(self, task: Val, valid: Val, target: Val, source: Val, starts: list[Val], run: _Run | None) -> None:
        """Combine along the last window dimension, limited to what is inside."""
        b = self.b
        inside, after = b.fresh_label("row"), b.fresh_label("next")
        b.branch_if(valid, inside, after)
        b.begin_block(inside)
        if not self.plan.operand_window_dims:
            self._combine_one(target, source, run)
            b.branch(after)
            b.begin_block(after)
            return
        last = self.plan.operand_window_dims[-1]
        start = starts[last]
        first = b.select(b.icmp("slt", start, ZERO), b.sub(ZERO, start), ZERO)
        room = b.sub(literal(self.plan.input.shape[last]), start)
        # A start near the ends of the integers: no element is inside, and the differences must not wrap.
        absurd = b.or_(b.icmp("sgt", start, literal(1 << 62)), b.icmp("slt", start, literal(-(1 << 62))))
        limit = b.intrinsic("smin", room, literal(self.plan.window_shape[-1]))
        if not self.share.by_rows and self.share.tasks > 1:
            from_place, to_place = self._part(task)
            first = b.intrinsic("smax", first, b.sub(from_place, start))
            limit = b.intrinsic("smin", limit, b.sub(to_place, start))
        first, limit = b.select(absurd, ZERO, first), b.select(absurd, ZERO, limit)
        whole = first
        if self.lanes > 1:
            count = b.intrinsic("smax", b.sub(limit, first), ZERO)
            whole = b.add(first, b.sub(count, b.urem(count, literal(self.lanes))))
            self._combine_all(first, whole, target, source, start, self.lanes)
        self._combine_all(whole, limit, target, source, start, 1)
        b.branch(after)
        b.begin_block(after)

    def _combine_all(self, first: Val, limit: Val, target: Val, source: Val, start: Val, lanes: int) -> None:
        b = self.b
        loop = b.begin_loop(first, limit, step=lanes)
        last = self.plan.operand_window_dims[-1]
        stride, step = self.plan.input.strides[last], self.plan.updates.strides[self.plan.window_dims[-1]]
        moved = b.mul(b.add(start, loop.index), literal(stride))
        there, here = b.add(target, moved), b.add(source, b.mul(loop.index, literal(step)))
        old, new = self._load(self.results, there, lanes), self._load(self.update_bases, here, lanes)
        self._store(there, updated(b, self.instruction.regions[0], old, new), lanes)
        b.end_loop(loop)

    def _combine_one(self, target: Val, source: Val, run: _Run | None) -> None:
        """results[target] = combiner(results[target], updates[source])."""
        b, combiner = self.b, self.instruction.regions[0]
        new = self._load(self.update_bases, source, 1)
        if run is None:
            self._store(target, updated(b, combiner, self._load(self.results, target, 1), new), 1)
            return
        other, same = b.fresh_label("other"), b.fresh_label("same")
        b.branch_if(b.icmp("eq", target, run.target.get()), same, other)
        b.begin_block(other)
        for held, value in zip(run.held, self._load(self.results, target, 1)):
            held.set(value)
        run.target.set(target)
        b.branch(same)
        b.begin_block(same)
        values = updated(b, combiner, [held.get() for held in run.held], new)
        for held, value in zip(run.held, values, strict=True):
            held.set(value)
        self._store(target, values, 1)

    def _load(self, bases: list[Val], index: Val, lanes: int) -> list[Val]:
        return [
            load_lanes(self.b, memory_kind(element), base, index, lanes)
            for element, base in zip(self.elements, bases, strict=True)
        ]

    def _store(self, index: Val, values: Sequence[Val], lanes: int) -> None:
        for base, value in zip(self.results, values, strict=True):
            stored = self.b.splat(value, lanes) if lanes > 1 else value
            self.b.store(stored, self.b.element_pointer(base, value.kind, index))


class _Run:
    """The element that was updated last, in registers."""

    def __init__(self, b: LlvmBuilder, elements: Sequence[ElementType]):
        kinds = [memory_kind(element) for element in elements]
        self.target = Variable(b, "i64", literal(-1))
        self.held = [Variable(b, kind, b.constant(kind, 0)) for kind in kinds]

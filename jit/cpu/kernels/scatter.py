"""scatter: updates in ascending order of their index, in the first operands' memory, with the combiner inlined.

Elements that fall outside are skipped, one by one, as the specification says.  The order of repeated indices is left
open there; ours is ascending and does not depend on threads.
"""

from __future__ import annotations

import math

from hlojit.cpu.kernels.update import load_buffer, load_index
from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Instruction
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.region import delinearize, load_stored, store_stored, updated
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.scatter_plan import ScatterPlan
from hlojit.lowering.target import Target

ELEMENT_CYCLES = 6.0
"""An update reads what the one before it may have written: a store and a load that waits for it."""


def emit_scatter(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Operands: inputs, indices, updates; results share the inputs' memory.  One task: the order is part of the result."""
    return _Scatter(instruction, target, symbol).emit()


class _Scatter:
    def __init__(self, instruction: Instruction, target: Target, symbol: str):
        self.instruction = instruction
        self.machine = target.machine
        self.symbol = symbol
        self.plan = ScatterPlan.of(instruction)
        self.b = LlvmBuilder()

    def emit(self) -> KernelCode:
        b = self.b
        with b.function(self.symbol, [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]) as p:
            buffers = p[1]
            total = 2 * self.plan.count + 1
            self.results = [load_buffer(b, buffers, total + number) for number in range(self.plan.count)]
            self.update_bases = [
                load_buffer(b, buffers, self.plan.count + 1 + number) for number in range(self.plan.count)
            ]
            self.index_base = load_buffer(b, buffers, self.plan.count)
            self._emit_updates()
        cost = self.machine.nanoseconds(self.plan.updates.size * ELEMENT_CYCLES)
        in_place = tuple((number, number) for number in range(self.plan.count))
        return kernel_code(b, (Phase(self.symbol, 1, cost),), in_place=in_place, updates=True)

    def _emit_updates(self) -> None:
        b = self.b
        outer_shape, window_shape = self.plan.scatter_shape, self.plan.window_shape
        zero = b.constant("i64", 0)
        outer = b.begin_loop(zero, b.constant("i64", math.prod(outer_shape)))
        place = delinearize(b, outer.index, outer_shape)
        starts = self._starts(place)
        inner_extent = window_shape[-1] if window_shape else 1
        rows = math.prod(window_shape[:-1]) if window_shape else 1
        middle = b.begin_loop(zero, b.constant("i64", rows))
        window = delinearize(b, middle.index, window_shape[:-1]) if window_shape else []
        valid, target, source = self._row(starts, place, window)
        self._emit_row(valid, target, source, starts, inner_extent)
        b.end_loop(middle)
        b.end_loop(outer)

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

    def _emit_row(self, valid: Val, target: Val, source: Val, starts: list[Val], extent: int) -> None:
        """Combine along the last window dimension, limited to what is inside."""
        b = self.b
        inside, after = b.fresh_label("row"), b.fresh_label("next")
        b.branch_if(valid, inside, after)
        b.begin_block(inside)
        zero = b.constant("i64", 0)
        if not self.plan.operand_window_dims:
            self._combine(target, source)
            b.branch(after)
            b.begin_block(after)
            return
        last = self.plan.operand_window_dims[-1]
        start = starts[last]
        first = b.select(b.icmp("slt", start, zero), b.sub(zero, start), zero)
        room = b.sub(b.constant("i64", self.plan.input.shape[last]), start)
        # A start near the ends of the integers: no element is inside, and the differences must not wrap.
        absurd = b.or_(
            b.icmp("sgt", start, b.constant("i64", 1 << 62)), b.icmp("slt", start, b.constant("i64", -(1 << 62)))
        )
        limit = b.select(b.icmp("slt", room, b.constant("i64", extent)), room, b.constant("i64", extent))
        limit = b.select(absurd, zero, limit)
        first = b.select(absurd, zero, first)
        loop = b.begin_loop(first, limit)
        stride, step = self.plan.input.strides[last], self.plan.updates.strides[self.plan.window_dims[-1]]
        moved = b.mul(b.add(start, loop.index), b.constant("i64", stride))
        self._combine(b.add(target, moved), b.add(source, b.mul(loop.index, b.constant("i64", step))))
        b.end_loop(loop)
        b.branch(after)
        b.begin_block(after)

    def _combine(self, target: Val, source: Val) -> None:
        """results[target] = combiner(results[target], updates[source])."""
        b = self.b
        elements = [result.tensor_type.element_type for result in self.instruction.results]
        old = [load_stored(b, element, base, target) for element, base in zip(elements, self.results)]
        new = [load_stored(b, element, base, source) for element, base in zip(elements, self.update_bases)]
        for base, value in zip(self.results, updated(b, self.instruction.regions[0], old, new), strict=True):
            store_stored(b, base, target, value)

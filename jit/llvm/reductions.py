"""Kernels whose roots are reductions: rows, columns, everything, of one or several operands.

The order of combination depends on the shape, the types and the instruction set, never on threads or on what is fused
in.  Element ``e`` of a row goes to accumulator lane ``e % lanes``; the lanes come together as a balanced tree.  A lane
takes at most ``LONGEST_CHAIN`` elements in a row before its sum is added to a sum of sums.  Few, long reductions are
cut into chunks by shape, whose partial results a second phase combines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

from hlojit.llvm.accumulators import AccumulatorLoops
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.combiners import Combiner
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.loops import KernelFrame, lane_mask, minimum, walk_lanes, walk_units
from hlojit.lowering.body import Body
from hlojit.lowering.index import Index, delinearized, linear_index, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.loop_plan import CALL_CYCLES, Units, choose_lanes, divide, element_nanoseconds, fitted_lanes
from hlojit.lowering.reduction_plan import (
    LONGEST_CHAIN,
    ROWS_AT_ONCE,
    Plan,
    accumulator_kinds,
    choose_chunks,
    column_units,
    empty_plan,
    is_free,
    make_plan,
    reduced_space,
    reductions_of,
    stretch_width,
)
from hlojit.lowering.target import KIND_BITS, Target


def emit_reduction_kernel(body: Body, target: Target, symbol: str) -> KernelCode:
    """A kernel with reductions among its roots; other roots must have the shape of the reductions' inputs."""
    instructions = reductions_of(body)
    if math.prod(reduced_space(instructions[0])[0]) == 0:
        return ReductionKernel(body, target, symbol, empty_plan(instructions)).emit_inits()
    plan = make_plan(body, instructions)
    choose_chunks(plan)
    return ReductionKernel(body, target, symbol, plan).emit()


@final
class ReductionKernel:
    """Emits the loops of one plan, as a kernel of its own or (``reduce_row``) as a part of another one's frame."""

    def __init__(self, body: Body, target: Target, symbol: str, plan: Plan, frame: KernelFrame | None = None):
        self.body = body
        self.target = target
        self.symbol = symbol
        self.plan = plan
        self.frame = frame or KernelFrame(target, body, LlvmBuilder())
        self.builder = self.frame.builder
        self.loops = AccumulatorLoops(self.frame, plan)
        self.output = Index(0)
        self.body_lanes = 1
        self.workspace_bytes = 0
        self.workspace_buffers: list[int] = []

    # ------------------------------------------------------------------ parts

    def _open(self) -> None:
        self.loops.open(self.target)
        self.frame.access.mask = None

    def _open_workspace(self) -> None:
        """Give every accumulator an array of chunks times results in the workspace."""
        access, b = self.frame.access, self.builder
        address = self.frame.address(len(access.bases))
        count = self.plan.chunks * self.plan.results
        self.workspace_bytes, self.workspace_buffers = 0, []
        for combiner in self.loops.combiners:
            for kind in combiner.kinds:
                text = f"getelementptr inbounds i8, ptr {address.text}, i64 {self.workspace_bytes}"
                self.workspace_buffers.append(len(access.bases))
                access.bases.append(b.emit("ptr", 1, text))
                access.sizes.append(count)
                self.workspace_bytes += -(-count * max(8, KIND_BITS[kind]) // 8 // 64) * 64

    def _finished(self, phases: Sequence[Phase]) -> KernelCode:
        return kernel_code(self.builder, phases, self.workspace_bytes, widened=not self.plan.facts.calls_function)

    def _store_results(self, accumulators: Sequence[Sequence[Val]], linear: Index) -> None:
        """Store finished accumulators, or those of a chunk."""
        if self.plan.chunks > 1:
            values = [value for group in accumulators for value in group]
            for buffer, value in zip(self.workspace_buffers, values, strict=True):
                self.frame.access.store(value, buffer, linear)
            return
        for combiner, group in zip(self.loops.combiners, accumulators, strict=True):
            self._store_finished(combiner, combiner.finish(group), linear)

    def _store_finished(self, combiner: Combiner, values: Sequence[Val], linear: Index) -> None:
        for result, stored in zip(combiner.instruction.results, combiner.encoded(values), strict=True):
            for number, root in enumerate(self.body.roots):
                if root is result:
                    self.frame.access.store(stored, len(self.body.operand_types) + number, linear)

    def emit_inits(self) -> KernelCode:
        """Nothing to reduce: the results are the init values."""
        extent = math.prod(self.plan.space.extents)
        lanes = fitted_lanes(16, extent, self.target)
        units = divide(1, extent, lanes, self.target.machine.nanoseconds(0.2), self.target.machine)

        def block() -> None:
            for combiner in self.loops.combiners:
                self._store_finished(combiner, combiner.init(), variable("flat", 0, extent - 1))

        with self.frame.function(self.symbol):
            self._open()
            for combiner in self.loops.combiners:
                combiner.init()
            walk_units(
                self.frame,
                units,
                lambda low, high: walk_lanes(self.frame, "flat", extent, lanes, low, high, block),
            )
        return self._finished([Phase(self.symbol, units.tasks, units.cost)])

    # ------------------------------------------------------------------- main

    def emit(self) -> KernelCode:
        plan, target = self.plan, self.target
        stored = sum(self.body.roots[number].tensor_type.element_type.itemsize for number in plan.stored)
        element_cost = element_nanoseconds(plan.facts, target, stored)
        reduced_total = math.prod(plan.space.extents[position] for position in plan.reduced)
        rows, extent, lanes = self._lanes()
        cost = element_cost * reduced_total / plan.chunks
        if plan.by_rows:
            units = divide(
                max(rows * plan.chunks, 2), 1, 1, cost + target.machine.nanoseconds(CALL_CYCLES), target.machine
            )
            units = Units(rows * plan.chunks, 1, 1, 1, min(units.per_task, rows * plan.chunks), units.nanoseconds)
        else:
            units = column_units(
                rows * plan.chunks, extent, lanes, cost + target.machine.nanoseconds(2), target.machine
            )
        self._bind_rows(rows)
        with self.frame.function(self.symbol):
            self._open()
            if plan.chunks > 1:
                self._open_workspace()
            self.frame.evaluate(plan.facts, frozenset())
            for combiner in self.loops.combiners:
                combiner.start(), combiner.init()
            if plan.by_rows:
                walk_units(self.frame, units, lambda low, high: self._unit(rows, self._row))
            else:
                walk_units(
                    self.frame,
                    units,
                    lambda low, high: self._unit(rows, lambda: self._columns(extent, lanes, low, high)),
                )
        phases = [Phase(self.symbol, units.tasks, units.cost)]
        if plan.chunks > 1:
            phases.append(self._combine_chunks(f"{self.symbol}.chunks"))
        return self._finished(phases)

    def _lanes(self) -> tuple[int, int, int]:
        """(rows, extent of the vectorized variable, lanes): of accumulators by rows, of columns otherwise."""
        plan, target = self.plan, self.target
        extents = plan.space.extents
        body = choose_lanes(plan.facts, target)
        if not plan.by_rows:
            if not plan.kept:
                return 1, 1, 1
            return math.prod(plan.kept_extents[:-1]), extents[-1], fitted_lanes(body, extents[-1], target)
        if not all(is_free(one) for one in plan.instructions):
            self.body_lanes = 1
            return plan.results, extents[-1], 1
        # The accumulators' lanes depend on the types alone, so that the order does not depend on what is fused.
        bits = max(max(8, KIND_BITS[kind]) for one in plan.instructions for kind in accumulator_kinds(one))
        lanes = max(1, target.vector_bits // bits) * target.unroll
        while lanes > 1 and lanes // 2 >= extents[-1]:
            lanes //= 2
        self.body_lanes = min(body, lanes)
        return plan.results, extents[-1], lanes

    def _bind_rows(self, rows: int) -> None:
        """Express the kept variables by ``row``, chunks outermost."""
        plan = self.plan
        kept = plan.kept if plan.by_rows else plan.kept[:-1]
        row = variable("row", 0, rows * plan.chunks - 1)
        parts = delinearized(row % rows, [plan.space.extents[position] for position in kept])
        mapping = {plan.space.names[position]: part for position, part in zip(kept, parts)}
        self.loops.index = tuple(position.substitute(mapping) for position in plan.space.root_index)
        output = tuple(position.substitute(mapping) for position in plan.output_index)
        self.output = linear_index(output, plan.output_strides)
        if plan.chunks > 1:
            self.output = self.output + (row // rows) * plan.results
        plan.facts.requested = [
            (value, tuple(position.substitute(mapping) for position in at)) for value, at in plan.facts.requested
        ]

    def _unit(self, rows: int, run: Callable[[], None]) -> None:
        plan, b = self.plan, self.builder
        with self.frame.scope():
            self.frame.evaluate(plan.facts, frozenset(("row",)))
            for position in plan.reduced:
                self.loops.ranges[position] = b.constant("i64", 0), b.constant("i64", plan.space.extents[position])
            if plan.chunks > 1:
                number = b.udiv(self.frame.access.variables["row"], b.constant("i64", rows))
                low = b.mul(number, b.constant("i64", plan.chunk))
                extent = b.constant("i64", plan.space.extents[plan.reduced[0]])
                self.loops.ranges[plan.reduced[0]] = low, minimum(b, b.add(low, b.constant("i64", plan.chunk)), extent)
            run()

    # ---------------------------------------------------------------- columns

    def _columns(self, extent: int, lanes: int, low: Val, high: Val) -> None:
        name = self.plan.space.names[-1] if self.plan.space.names else "point"
        if (
            len(self.plan.reduced) == 1
            and extent > lanes
            and self.plan.space.extents[self.plan.reduced[0]] > ROWS_AT_ONCE
        ):
            width = stretch_width(extent, lanes, self.loops.combiners.kinds, self.target.machine)
            self.frame.loop(
                "stretch", low, high, width, lambda start: self._wide_columns(name, extent, lanes, width, start, high)
            )
            return

        def block() -> None:
            accumulators = self.loops.nest(self.plan.reduced, self.loops.starts(), self.loops.step)
            self._store_results(self.loops.combiners.grouped(accumulators), self.output)

        walk_lanes(self.frame, name, extent, lanes, low, high, block)

    def _wide_columns(self, name: str, extent: int, lanes: int, width: int, start: Val, high: Val) -> None:
        """A stretch of columns, rows outermost, so that memory is read in long pieces."""
        frame, b, access = self.frame, self.builder, self.frame.access
        position = self.plan.reduced[0]
        row_name = self.plan.space.names[position]
        rows_low, rows_high = self.loops.ranges[position]
        end = minimum(b, b.add(start, b.constant("i64", width)), high)
        kinds = self.loops.combiners.kinds
        local = variable(name, 0, extent - 1) - variable("stretch", 0, extent - 1)

        def arrays() -> list[int]:
            for kind in kinds:
                access.bases.append(b.array(kind, width))
                access.sizes.append(width)
            return list(range(len(access.bases) - len(kinds), len(access.bases)))

        def load(buffers: Sequence[int]) -> list[Val]:
            return [access.load(buffer, kind, local, None) for buffer, kind in zip(buffers, kinds, strict=True)]

        def store(buffers: Sequence[int], values: Sequence[Val]) -> None:
            for buffer, value in zip(buffers, values, strict=True):
                access.store(b.splat(value) if access.vectorized else value, buffer, local)

        def every_column(block: Callable[[], None]) -> None:
            walk_lanes(frame, name, extent, lanes, start, end, block)

        def take_rows(buffers: Sequence[int], low: Val, high: Val) -> None:
            every_column(lambda: store(buffers, self.loops.starts()))

            def some_rows(first: Val) -> None:
                last = minimum(b, b.add(first, b.constant("i64", ROWS_AT_ONCE)), high)

                def block() -> None:
                    self.loops.ranges[position], self.loops.spans[position] = (first, last), ROWS_AT_ONCE
                    store(buffers, self.loops.nest([position], load(buffers), self.loops.step))

                every_column(block)

            frame.loop(f"{row_name}.rows", low, high, ROWS_AT_ONCE, some_rows)

        sums = arrays()
        if self.loops.span(position) <= LONGEST_CHAIN or not self.loops.combiners.are_free:
            take_rows(sums, rows_low, rows_high)
        else:
            totals = arrays()
            every_column(lambda: store(totals, self.loops.starts()))

            def stretch_of_rows(first: Val) -> None:
                take_rows(sums, first, minimum(b, b.add(first, b.constant("i64", LONGEST_CHAIN)), rows_high))
                every_column(lambda: store(totals, self.loops.combiners.merge(load(totals), load(sums))))

            frame.loop(f"{row_name}.chain", rows_low, rows_high, LONGEST_CHAIN, stretch_of_rows)
            sums = totals
        every_column(lambda: self._store_results(self.loops.combiners.grouped(load(sums)), self.output))

    # ------------------------------------------------------------------- rows

    def reduce_row(self, index: tuple[Index, ...]) -> list[list[Val]]:
        """Inside another kernel's loop over rows: reduce the row at ``index``, return what each reduction gives."""
        b = self.builder
        self._open()
        self.loops.index = index
        for position in self.plan.reduced:
            self.loops.ranges[position] = b.constant("i64", 0), b.constant("i64", self.plan.space.extents[position])
        self._lanes()
        groups = self._row_accumulators()
        return [combiner.finish(group) for combiner, group in zip(self.loops.combiners, groups, strict=True)]

    def _row(self) -> None:
        self._store_results(self._row_accumulators(), self.output)

    def _row_accumulators(self) -> list[list[Val]]:
        """Reduce one row: lanes of accumulators over the innermost variable, then a tree."""
        if not self.plan.reduced:
            # All reduced extents are 1.
            with self.frame.scope():
                return self.loops.combiners.grouped(self.loops.step(self.loops.starts()))
        _, _, lanes = self._lanes()
        parts = lanes // self.body_lanes
        starts = [self.builder.splat(value, self.body_lanes) for value in self.loops.starts()]
        accumulators = self.loops.nest(
            self.plan.reduced[:-1], starts * parts, lambda values: self._inner(lanes, values)
        )
        width = len(starts)
        groups = [accumulators[offset : offset + width] for offset in range(0, len(accumulators), width)]
        while len(groups) > 1:
            half = len(groups) // 2
            groups = [self.loops.combiners.merge(groups[n], groups[n + half]) for n in range(half)]
        return [
            combiner.reduce_lanes(group)
            for combiner, group in zip(self.loops.combiners, self.loops.combiners.grouped(groups[0]), strict=True)
        ]

    def _inner(self, lanes: int, carried: Sequence[Val]) -> list[Val]:
        position = self.plan.reduced[-1]
        extent = self.plan.space.extents[position]
        low, high = self.loops.ranges[position]
        tail = extent % lanes
        whole = self.builder.constant("i64", extent - tail)
        values = list(carried)
        if extent > tail:
            values = self.loops.blocked(
                position,
                low,
                minimum(self.builder, high, whole),
                lanes,
                values,
                lambda inner: self._lane_blocks(position, inner, lanes),
            )
        if tail:
            values = self._tail(position, values, tail, high, extent)
        return values

    def _lane_blocks(self, position: int, carried: Sequence[Val], active: int) -> list[Val]:
        """Take in the next elements, ``body_lanes`` at a time; lanes from ``active`` on stay as they are."""
        access, b = self.frame.access, self.builder
        name = self.plan.space.names[position]
        base = access.variables[name]
        width = len(self.loops.combiners.kinds)
        result = list(carried)
        for offset in range(0, min(active, self.body_lanes * (len(carried) // width)), self.body_lanes):
            part = offset // self.body_lanes * width
            access.variables[name] = b.add(base, b.constant("i64", offset)) if offset else base
            count = min(self.body_lanes, active - offset)
            mask = lane_mask(count, self.body_lanes) if count < self.body_lanes else None
            with access.lanes(self.body_lanes, name, mask), self.frame.elements.scope():
                old = result[part : part + width]
                new = self.loops.step(old)
                if mask is not None:
                    new = [b.select(mask, value, before) for value, before in zip(new, old)]
                result[part : part + width] = new
        access.variables[name] = base
        return result

    def _tail(self, position: int, carried: list[Val], tail: int, high: Val, extent: int) -> list[Val]:
        b = self.builder
        name = self.plan.space.names[position]

        def blocks() -> list[Val]:
            self.frame.access.variables[name] = b.constant("i64", extent - tail)
            with self.frame.scope():
                return self._lane_blocks(position, carried, tail)

        if high.is_literal:
            return blocks()
        labels = b.fresh_label("tail"), b.fresh_label("done")
        before = b.label
        b.branch_if(b.icmp("eq", high, b.constant("i64", extent)), *labels)
        b.begin_block(labels[0])
        values = blocks()
        after = b.label
        b.branch(labels[1])
        b.begin_block(labels[1])
        return [
            old if old is new else b.phi(old.kind, old.lanes, [(old, before), (new, after)])
            for old, new in zip(carried, values)
        ]

    # ----------------------------------------------------------------- chunks

    def _combine_chunks(self, symbol: str) -> Phase:
        """Second phase: combine the chunks' partial results in their order."""
        plan, b = self.plan, self.builder
        lanes = fitted_lanes(16, plan.results, self.target)
        units = divide(1, plan.results, lanes, self.target.machine.nanoseconds(2 * plan.chunks), self.target.machine)
        flat = variable("flat", 0, plan.results - 1)

        def load(chunk: Index) -> list[Val]:
            kinds = self.loops.combiners.kinds
            access = self.frame.access
            return [
                access.load(buffer, kind, chunk * plan.results + flat, None)
                for buffer, kind in zip(self.workspace_buffers, kinds, strict=True)
            ]

        def block() -> None:
            first = [b.splat(value) if self.frame.access.vectorized else value for value in load(Index(0))]
            loop = b.begin_loop(b.constant("i64", 1), b.constant("i64", plan.chunks), 1, first)
            self.frame.access.variables["chunk"] = loop.index
            with self.frame.scope():
                merged = self.loops.combiners.merge(loop.carried, load(variable("chunk", 1, plan.chunks)))
            values = self.loops.combiners.grouped(b.end_loop(loop, merged))
            for combiner, group in zip(self.loops.combiners, values, strict=True):
                self._store_finished(combiner, combiner.finish(group), flat)

        with self.frame.function(symbol):
            self._open()
            self._open_workspace()
            for combiner in self.loops.combiners:
                combiner.init()
            walk_units(
                self.frame,
                units,
                lambda low, high: walk_lanes(self.frame, "flat", plan.results, lanes, low, high, block),
            )
        return Phase(symbol, units.tasks, units.cost)

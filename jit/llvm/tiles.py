"""Kernels that read across the grain: square tiles, transposed in registers, so that neither side walks memory badly.

Where the result's innermost variable ``v`` strides through an operand whose neighbours lie along another variable
``u``, the iteration space is cut into tiles of both.  A tile of the operand is transposed block by block into scratch
memory, laid out like the result, and the body then reads it as if it had never been transposed.  A fusion that only
moves elements transposes straight into its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.loops import KernelFrame, lane_mask, minimum, walk_lanes, walk_units
from hlojit.lowering.index import Index, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.loop_plan import in_place_pairs
from hlojit.lowering.probe import Load
from hlojit.lowering.target import KIND_BITS, Target
from hlojit.lowering.tile_plan import TilePlan


def emit_tiled_kernel(plan: TilePlan, target: Target, symbol: str) -> KernelCode:
    """A loop kernel over tiles."""
    return _TileKernel(plan, target, symbol).emit()


@final
class _TileKernel:
    def __init__(self, plan: TilePlan, target: Target, symbol: str):
        self.plan, self.target, self.symbol = plan, target, symbol
        self.frame = KernelFrame(target, plan.body, LlvmBuilder())

    def emit(self) -> KernelCode:
        frame, b, plan = self.frame, self.frame.builder, self.plan
        with frame.function(self.symbol):
            frame.evaluate(plan.facts, frozenset())
            scratch = [] if plan.is_copy else [self._scratch(load) for load in plan.loads]
            walk_units(frame, plan.units, lambda low, high: self._unit(scratch))
        return kernel_code(
            b,
            (Phase(self.symbol, plan.units.tasks, plan.units.cost),),
            in_place=in_place_pairs(plan.body, plan.facts, plan.stored_at, plan.mapping),
        )

    def _scratch(self, load: Load) -> int:
        """Memory for one tile; returns its buffer number."""
        access = self.frame.access
        size = self.plan.tile[0] * self.plan.tile[1]
        access.bases.append(self.frame.builder.array(load.kind, size))
        access.sizes.append(size)
        return len(access.bases) - 1

    def _unit(self, scratch: Sequence[int]) -> None:
        frame, b, access = self.frame, self.frame.builder, self.frame.access
        with frame.scope():
            low = access.uniform(self.plan.tile_rows), access.uniform(self.plan.tile_columns)
            ends = [
                minimum(b, b.add(start, b.constant("i64", size)), b.constant("i64", extent))
                for start, size, extent in zip(low, self.plan.tile, (self.plan.rows, self.plan.columns))
            ]
            u, v = variable(self.plan.u, 0, self.plan.rows - 1), variable(self.plan.v, 0, self.plan.columns - 1)
            if self.plan.is_copy:
                result = len(self.plan.body.operand_types)
                self._transpose(self.plan.loads[0], result, self.plan.stored_at, low, ends, exact=True)
                return
            local = (u - self.plan.tile_rows) * self.plan.tile[1] + (v - self.plan.tile_columns)
            for load, buffer in zip(self.plan.loads, scratch):
                self._transpose(load, buffer, local, low, ends, exact=False)
                access.staged[load.buffer, load.linear.substitute(self.plan.mapping)] = buffer, local
            frame.evaluate(self.plan.facts, frozenset(("row",)))
            frame.loop(self.plan.u, low[0], ends[0], 1, lambda _: self._row(low[1], ends[1]))

    def _row(self, low: Val, high: Val) -> None:
        frame = self.frame
        frame.evaluate(self.plan.facts, frozenset(("row", self.plan.u)))

        def block() -> None:
            values = [frame.elements.root(root, self.plan.index, rounded=False) for root in self.plan.body.roots]
            for number, scalar in enumerate(values):
                frame.store_root(number, self.plan.index, scalar, rounded=False)

        walk_lanes(frame, self.plan.v, self.plan.columns, self.plan.lanes, low, high, block)

    # ------------------------------------------------------------ transposition

    def _transpose(
        self, load: Load, buffer: int, target: Index, low: Sequence[Val], high: Sequence[Val], *, exact: bool
    ) -> None:
        """Copy a tile, block by block; ``exact`` writes nothing beyond the extents (scratch may take any)."""
        kind = "i8" if load.kind == "i1" else load.kind
        size = block_size(kind, self.target)
        source = load.linear.substitute(self.plan.mapping)

        def block(rows: int, columns: int) -> None:
            self._block(kind, size, load.buffer, source, buffer, target, rows, columns, exact=exact)

        def along_rows(columns: int) -> None:
            self._steps(self.plan.u, self.plan.rows, size, low[0], high[0], lambda rows: block(rows, columns))

        self._steps(self.plan.v, self.plan.columns, size, low[1], high[1], along_rows)

    def _prefetch(self, pointer: Val, ahead: int) -> None:
        b = self.frame.builder
        address = b.emit("ptr", 1, f"getelementptr i8, ptr {pointer.text}, i64 {ahead}")
        b.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        b.line(f"call void @llvm.prefetch.p0(ptr {address.text}, i32 0, i32 3, i32 1)")

    def _steps(self, name: str, extent: int, step: int, low: Val, high: Val, run: Callable[[int], None]) -> None:
        """Loop in whole steps, and once for what is left at the very end."""
        frame, b = self.frame, self.frame.builder
        tail = extent % step
        whole = b.constant("i64", extent - tail)
        if extent > tail:
            frame.loop(name, low, minimum(b, high, whole), step, lambda _: run(step))
        if tail:
            labels = b.fresh_label("tail"), b.fresh_label("done")
            b.branch_if(b.icmp("eq", high, b.constant("i64", extent)), *labels)
            b.begin_block(labels[0])
            frame.access.variables[name] = whole
            with frame.scope():
                run(tail)
            b.branch(labels[1])
            b.begin_block(labels[1])

    def _block(
        self,
        kind: str,
        size: int,
        source: int,
        source_index: Index,
        target: int,
        target_index: Index,
        rows: int,
        columns: int,
        *,
        exact: bool,
    ) -> None:
        """Transpose ``columns`` short vectors of ``rows`` neighbours into ``rows`` vectors of ``columns``."""
        access, b = self.frame.access, self.frame.builder
        step, row_step = source_index.coefficient(self.plan.v), target_index.coefficient(self.plan.u)
        assert step is not None and row_step is not None
        item = max(8, KIND_BITS[kind]) // 8
        # Operands much larger than the second level are prefetched a tile ahead; smaller ones lie in a cache.
        large = access.sizes[source] * item >= 4 * self.target.machine.second.size
        ahead = self.plan.tile[1] * step * item if large else 0
        with access.lanes(size, self.plan.u):
            start = access.pointer(source, kind, access.uniform(source_index))
            vectors = []
            for column in range(size):
                if column >= columns:
                    vectors.append(b.splat(b.constant(kind, 0)))
                    continue
                pointer = b.element_pointer(start, kind, b.constant("i64", column * step))
                if ahead:
                    self._prefetch(pointer, ahead)
                if rows == size:
                    vectors.append(b.load(kind, pointer, vector=True))
                else:
                    vectors.append(b.masked_load(kind, pointer, lane_mask(rows, size)))
            start = access.pointer(target, kind, access.uniform(target_index))
            for row, vector in enumerate(transposed(b, vectors)[:rows]):
                pointer = b.element_pointer(start, kind, b.constant("i64", row * row_step))
                if columns == size or not exact:
                    b.store(vector, pointer)
                else:
                    b.masked_store(vector, pointer, lane_mask(columns, size))


def block_size(kind: str, target: Target) -> int:
    """Rows and columns of a block: a native vector of wide kinds, 128 bits of narrow ones."""
    bits = max(8, KIND_BITS[kind])
    return max(2, target.vector_bits // bits) if bits >= 32 else 128 // bits


def transposed(b: LlvmBuilder, rows: Sequence[Val]) -> list[Val]:
    """Transpose a square of vectors: within 128-bit lanes by unpacking, between them by whole lanes."""
    size = len(rows)
    bits = max(8, KIND_BITS[rows[0].kind])
    lane = min(size, 128 // bits)
    groups = []
    for first in range(0, size, lane):
        group = list(rows[first : first + lane])
        for _ in range(lane.bit_length() - 1):
            half = lane // 2
            group = [
                b.shuffled(group[n], group[n + half], _unpack_mask(size, lane, part))
                for n in range(half)
                for part in (0, 1)
            ]
        groups.append(group)
    count = len(groups)
    result: list[Val | None] = [None] * size
    for column in range(lane):
        blocks = [group[column] for group in groups]
        step = 1
        while step < count:
            for first in range(count):
                if first & step:
                    continue
                a, c = blocks[first], blocks[first | step]
                blocks[first] = b.shuffled(a, c, _exchange_mask(size, lane, step, upper=False))
                blocks[first | step] = b.shuffled(a, c, _exchange_mask(size, lane, step, upper=True))
            step *= 2
        for number, vector in enumerate(blocks):
            result[number * lane + column] = vector
    return [vector for vector in result if vector is not None]


def _unpack_mask(size: int, lane: int, part: int) -> list[int]:
    """Interleave the lower (upper) halves of every 128-bit lane of two vectors."""
    mask = []
    for start in range(0, size, lane):
        for n in range(lane // 2):
            mask += [start + part * (lane // 2) + n, size + start + part * (lane // 2) + n]
    return mask


def _exchange_mask(size: int, lane: int, step: int, *, upper: bool) -> list[int]:
    """One step of transposing a square of lanes: exchange those off the diagonal."""
    mask = []
    for position in range(size // lane):
        own = position & step
        if upper:
            start = size + position * lane if own else (position + step) * lane
        else:
            start = size + (position - step) * lane if own else position * lane
        mask += list(range(start, start + lane))
    return mask

"""Row kernels: reductions over the last dimensions together with what is computed from their results, a row at a time.

Softmax is three loops over a row that stays in the first-level cache: the maximum, the sum of exponentials, the
quotients.  What one loop computes at some cost and a later one needs again (the exponentials) is kept in a scratch row.

Reductions that depend on each other run in loops of their own, independent ones share a loop; the roots that have the
rows' shape are computed in the last loop.  Every reduction combines in the same order as in a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast, final

from hlojit.ir.scalar import formats
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.loops import KernelFrame, walk_lanes, walk_units
from hlojit.llvm.reductions import ReductionKernel
from hlojit.lowering.body import Body
from hlojit.lowering.elements import Key
from hlojit.lowering.index import Index
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.loop_plan import choose_lanes, fitted_lanes
from hlojit.lowering.reduction_plan import Plan
from hlojit.lowering.row_plan import COLUMN, Loop, RowPlan, row_units
from hlojit.lowering.space import Space
from hlojit.lowering.target import Target


def emit_row_kernel(body: Body, target: Target, symbol: str) -> KernelCode:
    """A kernel that goes over rows once, with several loops in each."""
    return _RowKernel(body, target, symbol).emit()


@final
class _RowKernel:
    def __init__(self, body: Body, target: Target, symbol: str):
        self.target, self.symbol = target, symbol
        # A row's kept values take an eighth of the second-level cache.
        self.plan = RowPlan(body, target.machine.second.size // 8)
        self.frame = KernelFrame(target, body, LlvmBuilder())

    def emit(self) -> KernelCode:
        frame, b = self.frame, self.frame.builder
        units = row_units(self.plan, self.target)
        with frame.function(self.symbol):
            self._make_stash()
            if self.plan.rows > 1:  # of a single row, nothing is known before its reductions
                for loop in self.plan.loops:
                    frame.evaluate(loop.facts, frozenset())
            walk_units(frame, units, lambda low, high: self._unit())
        has_call = any(loop.facts.calls_function for loop in self.plan.loops)
        return kernel_code(
            b,
            (Phase(self.symbol, units.tasks, units.cost),),
            widened=not has_call,
            in_place=self.plan.in_place,
        )

    def _make_stash(self) -> None:
        """Memory for the kept values of one row."""
        access, b = self.frame.access, self.frame.builder
        self.stash: dict[Key, tuple[int, str, Index]] = {}
        for key in dict.fromkeys(key for loop in self.plan.loops for key in loop.kept):
            kind = formats.compute_kind(key[0].tensor_type.element_type)
            size = self.plan.extent + 256
            access.bases.append(b.array(kind, size))
            access.sizes.append(size)
            self.stash[key] = len(access.bases) - 1, kind, self.plan.index_in_row()

    def _unit(self) -> None:
        frame = self.frame
        with frame.scope():
            for loop in self.plan.loops:
                # Values of one loop's blocks are not those of the next, but what belongs to the row stays known.
                frame.elements.stash = {key: self.stash[key] for key in loop.fetched}
                frame.evaluate(loop.facts, frozenset(("row",)))
                if loop.reductions:
                    self._reduce(loop)
                else:
                    self._store(loop)
            for number in self.plan.per_row:
                value = frame.elements.root(self.plan.body.roots[number], self.plan.row_index, rounded=False)
                frame.store_root(number, self.plan.row_index, value, rounded=False)

    def _reduce(self, loop: Loop) -> None:
        frame = self.frame
        space = Space((COLUMN,), (self.plan.extent,), self.plan.index, (1,))
        if self.plan.extent == 1:
            space = Space((), (), self.plan.index, ())
        reduced = list(range(len(space.names)))
        nest = Plan(loop.reductions, [], space, loop.facts, (), (), [], reduced)
        kernel = ReductionKernel(self.plan.body, self.target, self.symbol, nest, frame)
        kernel.loops.after_step = self._keeper(loop)
        found = kernel.reduce_row(self.plan.index)
        for combiner, values in zip(kernel.loops.combiners, found, strict=True):
            for result, rounded, stored in combiner.finished(values):
                frame.elements.reduced[result] = self.plan.row, rounded
                for number, root in enumerate(self.plan.body.roots):
                    if root is result:
                        frame.access.store(stored, len(self.plan.body.operand_types) + number, self.plan.row)

    def _keeper(self, loop: Loop) -> Callable[[], None] | None:
        if not loop.kept:
            return None

        def keep() -> None:
            access = self.frame.access
            for key in loop.kept:
                buffer, kind, where = self.stash[key]
                value = cast(Val, self.frame.elements.value(*key))
                assert value.kind == kind
                access.store(value, buffer, where)

        return keep

    def _store(self, loop: Loop) -> None:
        frame = self.frame
        lanes = fitted_lanes(choose_lanes(loop.facts, self.target), self.plan.extent, self.target)

        def block() -> None:
            values = [frame.elements.root(root, self.plan.index, rounded=False) for root in self.plan.wanted(loop)]
            for number, value in zip(self.plan.stored, values, strict=True):
                frame.store_root(number, self.plan.index, value, rounded=False)

        frame.access.variables[COLUMN] = frame.builder.constant("i64", 0)
        low, high = frame.builder.constant("i64", 0), frame.builder.constant("i64", self.plan.extent)
        walk_lanes(frame, COLUMN, self.plan.extent, lanes, low, high, block)

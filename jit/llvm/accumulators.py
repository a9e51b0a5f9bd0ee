"""Loops that carry the accumulators of reductions: how elements are taken in, and how sums of parts come together.

A lane takes at most ``LONGEST_CHAIN`` elements in a row before its sum is added to a sum of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from hlojit.llvm.builder import Val
from hlojit.llvm.combiners import Combiner, Combiners
from hlojit.llvm.loops import KernelFrame, minimum
from hlojit.lowering.index import Index
from hlojit.lowering.reduction_plan import LONGEST_CHAIN, Plan
from hlojit.lowering.target import Target


@final
class AccumulatorLoops:
    """Emits nests of loops over the reduced variables of a plan, in a kernel's frame."""

    def __init__(self, frame: KernelFrame, plan: Plan):
        self.frame = frame
        self.plan = plan
        self.after_step: Callable[[], None] | None = None
        """Called in every block of lanes once its elements are computed."""
        self.combiners = Combiners()
        self.index: tuple[Index, ...] = ()
        """Where the elements are that are taken in."""
        self.ranges: dict[int, tuple[Val, Val]] = {}
        self.spans: dict[int, int] = {}
        """Where a loop covers less of a variable than its range: how much."""

    def open(self, target: Target) -> None:
        """A function begins."""
        self.combiners = Combiners(
            Combiner(one, self.frame.elements, self.frame.builder, target) for one in self.plan.instructions
        )

    def starts(self) -> list[Val]:
        """Values that change nothing, one for every accumulator."""
        return [
            self.frame.builder.splat(value) if self.frame.access.vectorized else value
            for combiner in self.combiners
            for value in combiner.start()
        ]

    def step(self, accumulators: Sequence[Val]) -> list[Val]:
        """Take in the elements at the current index."""
        frame = self.frame
        values = [combiner.at(self.index) for combiner in self.combiners]
        stored = [
            (number, frame.elements.root(self.frame.body.roots[number], self.index)) for number in self.plan.stored
        ]
        result = self.combiners.combine(accumulators, values)
        if self.after_step is not None:
            self.after_step()
        for number, scalar in stored:
            frame.store_root(number, self.index, scalar, rounded=True)
        return result

    def nest(
        self, positions: Sequence[int], carried: Sequence[Val], leaf: Callable[[Sequence[Val]], list[Val]]
    ) -> list[Val]:
        """Loops over reduced variables that carry accumulators."""
        if not positions:
            with self.frame.scope():
                return leaf(carried)
        position = positions[0]
        low, high = self.ranges[position]
        return self.blocked(position, low, high, 1, carried, lambda values: self.nest(positions[1:], values, leaf))

    def blocked(
        self,
        position: int,
        low: Val,
        high: Val,
        step: int,
        carried: Sequence[Val],
        leaf: Callable[[Sequence[Val]], list[Val]],
    ) -> list[Val]:
        """One loop; a very long one as a loop over sums of stretches."""
        extent = self.spans.get(position) or self.span(position)
        stretch = LONGEST_CHAIN * step
        if extent <= stretch or not self.combiners.are_free:
            return self._plain(position, low, high, step, carried, leaf)
        b = self.frame.builder
        outer = b.begin_loop(low, high, stretch, carried, guarded=False)
        with self.frame.scope():
            end = minimum(b, b.add(outer.index, b.constant("i64", stretch)), high)
            starts = [b.splat(start, value.lanes) for start, value in zip(self._repeated_starts(carried), carried)]
            sums = self._plain(position, outer.index, end, step, starts, leaf)
            merged = self.combiners.merge(outer.carried, sums)
        return list(b.end_loop(outer, merged))

    def span(self, position: int) -> int:
        """How far a reduced variable runs within a chunk."""
        if self.plan.chunks > 1 and position == self.plan.reduced[0]:
            return self.plan.chunk
        return self.plan.space.extents[position]

    def _repeated_starts(self, carried: Sequence[Val]) -> list[Val]:
        starts = self.combiners.starts()
        return starts * (len(carried) // len(starts))

    def _plain(
        self,
        position: int,
        low: Val,
        high: Val,
        step: int,
        carried: Sequence[Val],
        leaf: Callable[[Sequence[Val]], list[Val]],
    ) -> list[Val]:
        b = self.frame.builder
        loop = b.begin_loop(low, high, step, carried)
        self.frame.access.variables[self.plan.space.names[position]] = loop.index
        with self.frame.scope():
            values = leaf(loop.carried)
        return list(b.end_loop(loop, values))

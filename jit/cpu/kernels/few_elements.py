"""Long lines of few different elements, found out before words are made of them: elements are counted as they are.

A sample is put into order as words and turned back: what it holds are bit patterns, in the order of the sorted line.  Codes that
have one key (both zeros; NaNs) are not told apart by that, so that a line with another code than the one that a key is turned
back into counts as one of many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from hlojit.cpu.kernels.addresses import ZERO, literal
from hlojit.cpu.kernels.few_values import MOST_VALUES, Few, FewValues
from hlojit.cpu.kernels.quicksort import Sorter
from hlojit.cpu.kernels.sort_words import WordMaker
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.region import Variable
from hlojit.lowering.line_sort_plan import LineSortPlan

LEAST_LENGTH: Final = 1 << 16
"""Elements of a line that is looked at."""


@final
@dataclass(frozen=True)
class FewElements:
    """Emits the count of a line, or of a part of it; ``room`` holds what was found."""

    b: LlvmBuilder
    plan: LineSortPlan
    sorter: Sorter
    words: WordMaker
    functions: FewValues = field(init=False)
    room: Few = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", self.sorter.few(self.b))
        object.__setattr__(self, "room", self.functions.room())

    @staticmethod
    def are_looked_for(plan: LineSortPlan) -> bool:
        """Whether lines are long, and elements as wide as words."""
        return plan.sorts_in_result and plan.length >= LEAST_LENGTH

    def count(self, context: Val, operand: Val, first: Val, n: Val) -> Val:
        """Count ``n`` elements of a line; returns how many different ones are in the line's sample, 0 where there are others."""
        b = self.b
        found = Variable(b, "i64", ZERO)
        sample = self._sample(context, operand)
        count, end = b.fresh_label("count"), b.fresh_label("counted")
        b.branch_if(self.functions.may_be_few(sample), count, end)
        b.begin_block(count)
        self.words.turn_back_some(sample, ZERO, sample, ZERO, self.sorter.samples)
        part = b.element_pointer(operand, self.plan.word, first)
        found.set(self.functions.count(part, n, sample, self.room))
        b.branch(end)
        b.begin_block(end)
        return found.get()

    def keep_part(self, first: Val, limit: Val) -> None:
        """Of counts of a line those of the places of a sorted part."""
        b = self.b
        loop = b.begin_loop(ZERO, literal(MOST_VALUES), carried=(ZERO,))
        (before,) = loop.carried
        here = b.element_pointer(self.room.counts, "i64", loop.index)
        behind = b.add(before, b.load("i64", here))
        start, end = (b.intrinsic("smin", b.intrinsic("smax", place, first), limit) for place in (before, behind))
        b.store(b.sub(end, start), here)
        b.end_loop(loop, (behind,))

    def _sample(self, context: Val, operand: Val) -> Val:
        """Words of elements at equal distances, in order."""
        b, plan, sorter = self.b, self.plan, self.sorter
        drawn, sample = b.array(plan.word, sorter.samples), b.array(plan.word, sorter.samples)
        stride = plan.length // sorter.samples
        loop = b.begin_loop(ZERO, literal(sorter.samples))
        place = b.add(literal(stride // 2), b.mul(loop.index, literal(stride)))
        self.words.keep_key(operand, place, drawn, loop.index)
        b.end_loop(loop)
        sorter.call(b, context, sample, drawn, literal(sorter.samples), sorter.smallest, sorter.largest)
        return sample

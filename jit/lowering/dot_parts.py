"""How a long sum of products with few results is cut, so that many threads have a part of it.

The parts are added in their order, and follow from the shape alone: they decide the order of combination.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlojit.lowering.dot_problem import DotProblem

CUT_ABOVE = 32768
"""Length of a sum above which few results are computed in parts."""
PART = 16384
"""Shortest part."""
MAXIMUM_PARTS = 32
MOST_RESULTS = 4096
"""More results are enough work for every thread."""


@dataclass(frozen=True, slots=True)
class SumParts:
    """``parts`` sums of ``length`` terms each, and one of the ``rest``."""

    parts: int
    length: int
    rest: int

    def equal_parts(self, problem: DotProblem) -> DotProblem:
        """The product whose outermost batch dimension is the number of the part."""
        lhs, rhs = problem.lhs, problem.rhs
        return replace(
            problem,
            batch=(self.parts, *problem.batch),
            k=self.length,
            lhs=replace(lhs, batch=(self.length * lhs.column, *lhs.batch)),
            rhs=replace(rhs, batch=(self.length * rhs.row, *rhs.batch)),
        )


def cut_sum(problem: DotProblem) -> SumParts | None:
    """The parts, or None where the sum stays whole; operands that have to be copied are not cut."""
    few = problem.batch_size * problem.m * problem.n <= MOST_RESULTS
    if not few or problem.k <= CUT_ABOVE or problem.lhs_copy is not None or problem.rhs_copy is not None:
        return None
    parts = min(MAXIMUM_PARTS, problem.k // PART)
    length = problem.k // parts // 64 * 64
    return SumParts(parts, length, problem.k - parts * length)

"""How long sums are cut: by shape alone, in parts that cover every term once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hlojit.lowering.dot_parts import CUT_ABOVE, MAXIMUM_PARTS, PART, cut_sum
from hlojit.lowering.dot_problem import Axis, Copy, DotProblem, Matrix


def problem(m: int, n: int, k: int) -> DotProblem:
    return DotProblem((), m, n, k, Matrix((), k, 1), Matrix((), n, 1))


@pytest.mark.parametrize("k", [CUT_ABOVE + 1, 40_000, 65_536, 100_003, 1 << 20, 3_000_001])
def test_parts_cover_a_sum(k: int) -> None:
    cut = cut_sum(problem(3, 5, k))
    assert cut is not None
    assert cut.parts * cut.length + cut.rest == k
    assert 1 < cut.parts <= MAXIMUM_PARTS and cut.length % 64 == 0 and 0 <= cut.rest < PART
    parts = cut.equal_parts(problem(3, 5, k))
    assert (parts.batch, parts.m, parts.n, parts.k) == ((cut.parts,), 3, 5, cut.length)
    assert parts.lhs.batch == (cut.length,) and parts.rhs.batch == (5 * cut.length,)


def test_sums_that_stay_whole() -> None:
    assert cut_sum(problem(3, 5, CUT_ABOVE)) is None
    assert cut_sum(problem(64, 65, 100_000)) is None
    copied = Copy((Axis(3, (1,)), Axis(100_000, (3,))))
    assert cut_sum(replace(problem(3, 5, 100_000), lhs_copy=copied)) is None

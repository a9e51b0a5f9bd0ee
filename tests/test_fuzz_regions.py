"""Random regions of maps, scatters, sorts, reductions and windows on the CPU against the interpreter, bit for bit."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .random_programs import Type, random_arguments
from .random_regions import RandomRegion
from .test_fuzz import assert_same_bits


def check(text: str, kinds: list[Type], seed: int) -> None:
    try:
        assert_same_bits(text, random_arguments(kinds, seed))
    except Exception as error:
        raise AssertionError(f"program {seed}:\n{text}") from error


@pytest.mark.parametrize("seed", range(12))
def test_random_regions(seed: int) -> None:
    check(*RandomRegion(random.Random(seed), statements=2 + seed % 3, depth=2).build(), seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_more_random_regions(block: int) -> None:
    for seed in range(100 + 10 * block, 110 + 10 * block):
        check(*RandomRegion(random.Random(seed), statements=2 + block, depth=2).build(), seed)


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, list[Type]]:
    """A random program that Hypothesis can make smaller."""
    return RandomRegion(lambda n: draw(st.integers(0, n - 1)), statements=draw(st.integers(1, 4)), depth=1).build()


@pytest.mark.slow
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(programs(), st.integers(0, 1000))
def test_drawn_regions(program: tuple[str, list[Type]], seed: int) -> None:
    check(*program, seed)

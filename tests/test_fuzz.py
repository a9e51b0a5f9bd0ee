"""Random programs on the CPU against the interpreter of the unchanged program: exact ops, so every bit must agree.

The programs are small and full of loops, branches and updates in place: what the memory planner and the passes can get
wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir import evaluate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .random_programs import RandomProgram, Type, random_arguments


def assert_same_bits(text: str, arguments: Sequence[np.ndarray[Any, Any]]) -> None:
    """Interpreter and compiled program agree, the second call agrees with the first, arguments stay as they were."""
    before = [argument.copy() for argument in arguments]
    with np.errstate(all="ignore"):
        expected = evaluate(hlojit.parse(text), *arguments)
    executable = hlojit.compile(text)
    for _ in range(2):
        actual = executable(*arguments)
        actual = actual if isinstance(actual, tuple) else (actual,)
        assert len(actual) == len(expected)
        for ours, theirs in zip(actual, expected):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
            if theirs.dtype.kind == "f":
                number = ~np.isnan(theirs)
                np.testing.assert_array_equal(np.signbit(ours)[number], np.signbit(theirs)[number])
        # Results must be arrays of their own: what is written into them reaches nothing else.
        for array in actual:
            array.view(np.uint8 if array.ndim else array.dtype)[...] = 0
        for ours, theirs in zip(arguments, before):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("block", range(8))
def test_random_programs(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        text, kinds = RandomProgram(random.Random(seed), statements=10 + 2 * block).build()
        try:
            assert_same_bits(text, random_arguments(kinds, seed))
        except Exception as error:
            raise AssertionError(f"program {seed}:\n{text}") from error


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, list[Type]]:
    """A random program that Hypothesis can make smaller."""
    return RandomProgram(lambda n: draw(st.integers(0, n - 1)), statements=draw(st.integers(1, 6)), depth=2).build()


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(programs(), st.integers(0, 1000))
def test_drawn_programs(program: tuple[str, list[Type]], seed: int) -> None:
    text, kinds = program
    assert_same_bits(text, random_arguments(kinds, seed))

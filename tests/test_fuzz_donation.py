"""Random programs with random donations: bit for bit what the interpreter gives; nothing but donated memory is written."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir import evaluate
from hlojit.lowering.program_check import check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .random_programs import RandomProgram, Type, random_arguments


def assert_same_bits(
    text: str, arguments: Sequence[np.ndarray[Any, Any]], donated: Sequence[int], *, reuse: bool
) -> None:
    """Compile with these donations, call twice; ``reuse`` gives results of the first call as arguments of the second."""
    with np.errstate(all="ignore"):
        expected = evaluate(hlojit.parse(text), *arguments)
    executable = hlojit.compile(text, donate=donated)
    check(executable.spec.program)
    pool: list[np.ndarray[Any, Any]] = []
    for _ in range(2):
        given = [argument.copy() for argument in arguments]
        for result in pool:
            for number, each in enumerate(given):
                # Memory of the pool, and of arrays that were donated before, as arguments.
                if reuse and result.dtype == each.dtype and result.shape == each.shape and result.flags.writeable:
                    result[...] = each
                    given[number] = result
                    break
        actual = executable(*given)
        actual = actual if isinstance(actual, tuple) else (actual,)
        for ours, theirs in zip(actual, expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
            if theirs.dtype.kind == "f":
                number_ = ~np.isnan(theirs)
                np.testing.assert_array_equal(np.signbit(ours)[number_], np.signbit(theirs)[number_])
        for number, (each, before) in enumerate(zip(given, arguments)):
            if number not in donated or each.flags.writeable:
                np.testing.assert_array_equal(each, before)
        for number, one in enumerate(actual):
            assert all(not np.may_share_memory(one, other) for other in actual[:number])
        pool = list(actual)


def choose_donations(source: random.Random, kinds: Sequence[Type]) -> list[int]:
    return [number for number in range(len(kinds)) if source.randrange(3)]


@pytest.mark.parametrize("block", range(6))
def test_random_programs(block: int) -> None:
    for seed in range(5000 + block * 20, 5020 + block * 20):
        source = random.Random(seed)
        text, kinds = RandomProgram(source, statements=6 + 3 * block).build()
        donated = choose_donations(source, kinds)
        try:
            assert_same_bits(text, random_arguments(kinds, seed), donated, reuse=bool(seed % 2))
        except Exception as error:
            raise AssertionError(f"program {seed}, donated {donated}:\n{text}") from error


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, list[Type], list[int]]:
    """A random program that Hypothesis can make smaller, and what is donated."""
    text, kinds = RandomProgram(
        lambda n: draw(st.integers(0, n - 1)), statements=draw(st.integers(1, 6)), depth=2
    ).build()
    return text, kinds, [number for number in range(len(kinds)) if draw(st.booleans())]


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(programs(), st.integers(0, 1000))
def test_drawn_programs(program: tuple[str, list[Type], list[int]], seed: int) -> None:
    text, kinds, donated = program
    assert_same_bits(text, random_arguments(kinds, seed), donated, reuse=True)

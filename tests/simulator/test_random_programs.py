"""Random programs of exact ops on the simulator against the interpreter of the unchanged program: every bit must agree."""

from __future__ import annotations

import random

import hlojit
import numpy as np
import pytest
from hlojit.ir import evaluate

from ..random_programs import RandomProgram, random_arguments


@pytest.mark.parametrize("block", range(6))
def test_random_programs(block: int) -> None:
    for seed in range(1000 + block * 12, 1012 + block * 12):
        text, kinds = RandomProgram(random.Random(seed), statements=6 + 3 * block).build()
        arguments = random_arguments(kinds, seed)
        with np.errstate(all="ignore"):
            expected = evaluate(hlojit.parse(text), *arguments)
        try:
            executable = hlojit.compile(text, backend="cuda")
            for _ in range(2):
                found = executable(*arguments)
                for ours, theirs in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
                    assert ours.dtype == theirs.dtype
                    assert_same(ours, theirs)
        except Exception as error:
            raise AssertionError(f"program {seed}:\n{text}") from error


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Equal, zeros with their signs."""
    np.testing.assert_array_equal(ours, theirs)
    if theirs.dtype.kind == "f":
        number = ~np.isnan(theirs)
        np.testing.assert_array_equal(np.signbit(ours)[number], np.signbit(theirs)[number])

"""Functions with Python's own control flow on values known at run time: compiled, they do what Python does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

from .control_flow_cases import CASES


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """What a call returns, or its error; and its arguments behind it."""
    given = copy.deepcopy(arguments)
    try:
        return function(*given), given
    except (ValueError, AssertionError, UnboundLocalError, IndexError) as error:
        return error, given


@pytest.mark.parametrize(("function", "arguments"), CASES, ids=[each[0].__name__ for each in CASES])
def test_as_python(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    expected, theirs = outcome(function, arguments)
    actual, ours = outcome(hlojit.jit(function), arguments)
    if isinstance(expected, Exception):
        assert type(actual) is type(expected), actual
        assert str(expected) in str(actual)
        return
    several = isinstance(expected, tuple)
    for mine, other in zip(actual if several else [actual], expected if several else [expected], strict=True):
        assert type(mine) is type(other)
        np.testing.assert_allclose(mine, other, rtol=1e-9)
    for mine, other in zip(ours, theirs):
        np.testing.assert_allclose(mine, other, rtol=1e-9)


def test_texts_that_differ_are_refused_with_what_to_write() -> None:
    def named(x: Any) -> Any:
        if x > 0:
            return True, "above"
        return False, "below"

    with pytest.raises(
        hlojit.HlojitError, match=r"if x > 0 : the returned value.* is '\w+' on one path.*: give a number, and look up"
    ):
        hlojit.jit(named)(1.0)


def test_steps_of_ranges_that_are_arguments() -> None:
    @hlojit.jit
    def chunks(x: Any, size: int) -> Any:
        return np.array([x[i : i + size].mean() for i in range(0, len(x), size)]), sum(range(10, 0, -size))

    for length, size in ((12, 3), (10, 4)):
        x = np.arange(float(length))
        means, total = chunks(x, size)
        np.testing.assert_allclose(means, [x[i : i + size].mean() for i in range(0, length, size)])
        assert total == sum(range(10, 0, -size))

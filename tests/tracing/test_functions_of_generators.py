"""Python's ``any``, ``all``, ``min`` and ``max`` of generators, maps and views, whose elements are traced."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest


def some(x: Any) -> Any:
    return any(v > 0.5 for v in x)


def close(x: Any) -> Any:
    return all(abs(a - b) < 0.5 for a, b in zip(x, x[::-1]))


def branch(x: Any) -> Any:
    return x.sum() if any(v > 0.9 for v in x) and not all(v > 0 for v in x) else x.min()


def mapped(x: Any) -> Any:
    return all(map(np.isfinite, x)), any(map(abs, x))


def largest(x: Any) -> Any:
    table = {"a": x[0], "b": x[1] * 2}
    return max(abs(v) for v in x), min(v * 2 for v in x if True), max(table.values()), min(map(abs, x))


def known_end(x: Any) -> Any:
    return any(v > 0.5 if number < 2 else True for number, v in enumerate(x)), all(
        number < 2 for number in itertools.count()
    )


def lazily(x: Any) -> Any:
    pairs = [(v, w) for v, w in zip(x, x[1:])]
    largest = max((v if v > w else w * 2) for v, w in pairs)
    return (
        any(v > 0.5 or w > 0.5 for v, w in pairs),
        all(0 < v < w for v, w in pairs),
        largest,
        sum(1 if v > 0 else 0 for v in x),
    )


def of_tuples(x: Any) -> Any:
    low, high = tuple(v if v < 0.2 else v * 0 for v in x)[:2]
    return low, high, sorted(v and v + 1 for v in x)[0], sum(list(v if v > 0 else -v for v in x))  # noqa: C400


def nested(x: Any) -> Any:
    return all(any(v > limit for v in x) for limit in (0.1, 0.2))


@pytest.mark.parametrize("function", [some, close, branch, mapped, largest, known_end, lazily, of_tuples, nested])
@pytest.mark.parametrize("numbers", [[0.1, 0.2, 0.3], [-1.0, 0.0, 2.0], [0.6, 0.7, 0.95], [-1.0, -0.5, -3.0]])
def test_as_python(function: Callable[..., Any], numbers: list[float]) -> None:
    x = np.array(numbers)
    found, expected = hlojit.jit(function)(x), function(x)
    for one, other in zip(found, expected) if isinstance(expected, tuple) else [(found, expected)]:
        assert type(one) is (bool if isinstance(other, np.bool_) else type(other))
        assert one == other


def test_round_of_an_array_is_an_error_as_in_numpy() -> None:
    for function in (round, hlojit.jit(lambda x: round(x))):
        with pytest.raises(TypeError, match="__round__"):
            function(np.array(2.5))
    assert hlojit.jit(lambda x: round(x[0]))(np.array([2.5])) == 2


def test_without_an_end() -> None:
    with pytest.raises(hlojit.HlojitError, match="one by one"):
        hlojit.jit(lambda x: any(x[0] > number for number in itertools.count()))(np.ones(2))

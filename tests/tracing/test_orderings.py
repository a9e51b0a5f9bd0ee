"""``sorted``, ``min`` and ``max`` by keys that are traced, and with ``default``, beside Python's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import hlojit
import numpy as np
import pytest

X = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 1.0])
INTEGERS = np.array([3, -1, 1, -2, 0, -1], np.int32)


class Point(NamedTuple):
    x: float
    number: int


def score(v: Any) -> Any:
    if v > 2:
        return -v
    return v


def alike(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(alike, a, b))
    return bool(a == b)


@pytest.mark.parametrize("x", [X, INTEGERS, X[:2]], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: sorted(range(len(x)), key=lambda i: x[i]),
        lambda x: sorted(range(len(x)), key=lambda i: x[i], reverse=True),
        lambda x: sorted(range(len(x)), key=lambda i: (x[i] > 1, i), reverse=True),
        lambda x: sorted(range(len(x)), key=lambda i: (-x[i], -i)),
        lambda x: sorted(x, key=score),
        lambda x: sorted(x.tolist(), key=abs),
        lambda x: sorted([(float(v), i) for i, v in enumerate(x)], key=lambda pair: pair[0]),
        lambda x: sorted([Point(float(v), i) for i, v in enumerate(x)], key=lambda p: (p.x, -p.number)),
        lambda x: sorted({"a": x[0], "b": x[1]}.values(), key=lambda v: -v),
        lambda x: max(range(len(x)), key=lambda i: x[i]),
        lambda x: min(range(len(x)), key=lambda i: (x[i], -i)),
        lambda x: max(range(len(x)), key=x.__getitem__),
        lambda x: max(x, key=score),
        lambda x: max(zip(x, range(6)), key=lambda pair: pair[0])[1],
        lambda x: min((p for p in zip(x, x * 2)), key=lambda pair: pair[1]),
        lambda x: max(x[0], x[1], key=lambda v: -v),
        lambda x: max([v * 2 for v in x[:2]], default=5),
        lambda x: (max(x[len(x) :], default=5), min([], default=x[0], key=abs)),
        lambda x: sorted(["bb", "a"], key=len),
        lambda x: sorted([], key=lambda v: x[0]),
    ],
)
def test_as_python(function: Callable[..., Any], x: Any) -> None:
    jitted = hlojit.jit(function)
    for given in (x, x[::-1].copy()):
        assert alike(jitted(given), function(given))


def test_keys_that_are_nan() -> None:
    """``min`` and ``max`` compare as Python does; an order of NaN is none."""
    for numbers in ([1.0, np.nan, 0.0, 2.0], [np.nan, 1.0], [np.nan, np.nan]):
        x = np.array(numbers)
        for function in (
            lambda x: max(range(len(x)), key=lambda i: x[i]),
            lambda x: min(range(len(x)), key=lambda i: (x[i], i)),
        ):
            assert hlojit.jit(function)(x) == function(x)
        with pytest.raises(ValueError, match="NaN"):
            hlojit.jit(lambda x: sorted(range(len(x)), key=lambda i: x[i]))(x)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: max(["bb", "a"], key=lambda text: x[len(text)]), "numbers of one type"),
        (lambda x: max([x, 2 * x], key=lambda row: row.sum()), "numbers of one type"),
        (lambda x: max([1, x[0]], key=lambda v: -v), "numbers of one type"),
        (lambda x: sorted(range(300), key=lambda i: x[0]), "np.argsort"),
        (lambda x: sorted(x, key=lambda v: v * 1j), "complex"),
        (lambda x: sorted(range(2), key=lambda i: (x[i],) * (i + 1)), "as many numbers"),
    ],
)
def test_what_is_refused(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=words):
        hlojit.jit(function)(X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: max([], key=lambda v: x[0]),
        lambda x: max(x, other=3),
        lambda x: sorted(x, other=3),
        lambda x: max(3, x[0], default=3),
        lambda x: sorted(x, key=3),
    ],
)
def test_errors_of_python(function: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match=".") as expected:
        function(X)
    with pytest.raises(expected.type):
        hlojit.jit(function)(X)

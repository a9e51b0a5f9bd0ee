"""Slices whose bounds are known when the function runs: of a known length, inside of the array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

X = np.arange(60.0).reshape(12, 5)
LINE = np.arange(100)


def smoothed(x: Any, width: Any) -> Any:
    out = np.zeros(len(x) - width + 1)
    for i in range(len(out)):
        out[i] = x[i : i + width].mean()
    return out


def blocks(x: Any) -> Any:
    total = np.zeros(5)
    for b in range(20):
        total += x[b * 5 : (b + 1) * 5] * b
    return total


def reversed_blocks(x: Any) -> Any:
    x = x.copy()
    for b in range(10):
        x[10 * b : 10 * b + 10] = x[10 * b : 10 * b + 10][::-1]
    return x


def neighbours(x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            out[i, j] = x[i - 1 : i + 2, j - 1 : j + 2].sum()
    return out


def every_second(x: Any) -> Any:
    total = 0
    for i in range(30):
        total += x[i + 1 : i + 9 : 2].sum() - x[i : 3 + i].max()
    return total


def written_view(x: Any, i: Any) -> Any:
    v = x[int(i) : int(i) + 3]
    v += 100
    x[int(i) - 2 : int(i), 1] = -1
    return v


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (smoothed, (LINE * 0.5, 7)),
        (blocks, (LINE,)),
        (reversed_blocks, (LINE,)),
        (neighbours, (X,)),
        (every_second, (LINE,)),
        (written_view, (X, np.int64(4))),
        (written_view, (X, np.uint8(4))),
        (written_view, (X, 3.7)),
        (lambda x, i: x[-3 + i[0] : i[0] - 1], (LINE, np.array([-4]))),
        (lambda x, i: x[None, i[0] : i[0] + 2, ..., 1], (X, np.array([10]))),
        (lambda x, i: x[i[0] : i[0] + 0], (X, np.array([3]))),
        (lambda x, i: x[i[0] + 5 : i[0] + 2], (X, np.array([3]))),
        (lambda x, i: x[2 * i[0] - i[0] : i[0] + 2], (X, np.array([3]))),
        (lambda x, i: x[i[0] // 2 : i[0] // 2 + 2], (X, np.array([3]))),
        (lambda x, i: x[np.array([0, 3]), i[0] : i[0] + 2], (X, np.array([3]))),
    ],
)
def test_equal_to_numpy(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    own = [np.array(each) if isinstance(each, np.ndarray) else each for each in arguments]
    theirs = [np.array(each) if isinstance(each, np.ndarray) else each for each in arguments]
    expected = function(*own)
    np.testing.assert_array_equal(hlojit.jit(function)(*theirs), expected)
    for a, b in zip(own, theirs):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("start", [-2, 10, 1 << 40])
def test_a_slice_that_numpy_would_cut_short_raises(start: int) -> None:
    compiled = hlojit.jit(lambda x, i: x[i : i + 3])
    np.testing.assert_array_equal(compiled(X, np.int64(-4)), X[-4:-1])
    with pytest.raises(hlojit.ExecutionError, match="a slice of 3 elements reaches beyond dimension 0 of size 12"):
        compiled(X, np.int64(start))


def test_narrow_integers_that_wrap_around_are_not_taken_for_wide_ones() -> None:
    with np.errstate(over="ignore"):
        assert LINE.repeat(3)[np.uint8(254) : np.uint8(254) + np.uint8(3)].size == 0
    with pytest.raises(hlojit.HlojitError, match="number of elements of this slice is known only when"):
        hlojit.jit(lambda x, i: x[i : i + np.uint8(3)])(LINE.repeat(3), np.uint8(254))


@pytest.mark.parametrize(
    "function", [lambda x, i: x[i:], lambda x, i: x[:i], lambda x, i: x[i : 2 * i], lambda x, i: x[:4:i]]
)
def test_lengths_that_depend_on_arrays_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(hlojit.HlojitError, match="known only when the compiled function runs"):
        hlojit.jit(function)(X, np.int64(2))
    # Of a Python number, which becomes static, it is known.
    np.testing.assert_array_equal(hlojit.jit(function)(X, 2), function(X, 2))


def test_updates_by_index_arrays_beside_slices() -> None:
    def update(x: Any, rows: Any) -> Any:
        x[rows, 1:3] = 7
        x[2:9:3, rows[:2]] += 0.5
        x[None, 0, rows[:1]] = -1
        return x

    rows = np.array([3, 1, 4])
    np.testing.assert_array_equal(hlojit.jit(update)(X.copy(), rows), update(X.copy(), rows))

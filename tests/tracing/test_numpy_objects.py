"""``np.r_``, ``np.c_``, ``np.mgrid``, ``np.ogrid`` and ``np.vectorize`` with traced values, beside NumPy's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from numpy import c_, r_

X = np.array([3.0, -1.0, 2.0, 5.0, 4.0, 1.0])
INTEGERS = np.array([3, 1, 1, 2])
NARROW = np.array([1, 2, -3], np.float32)


@np.vectorize
def clipped(v: Any, low: Any = 0.0) -> Any:
    if v < low:
        return low
    return v


def in_unit(v: Any) -> Any:
    return 0.0 if v < 0 else (1.0 if v > 1 else v)


def sum_and_product(v: Any, w: Any) -> Any:
    return v + w, v * w


def as_numpy(function: Callable[..., Any], *arguments: Any) -> None:
    expected, found = function(*arguments), hlojit.jit(function)(*arguments)
    assert type(found) is type(expected)
    for one, other in zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]:
        assert type(one) is type(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("x", [X, INTEGERS, NARROW], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.r_[0, np.cumsum(x)], lambda x: np.r_[0.5, x], lambda x: np.r_[x[0], x, x[-1]], lambda x: r_[x, 1j],
        lambda x: np.r_[x, [1, 2, x[0]]], lambda x: np.r_[x[::-1], 0:3, x[0]], lambda x: np.r_[-1:1:5j, x],
        lambda x: c_[x, x * 2], lambda x: np.c_[np.ones(len(x)), x, x[:, None]], lambda x: np.r_["0,2", x, x],
        lambda x: np.r_["-1", x[:, None], x[:, None]], lambda x: np.r_["1,2,0", x, x], lambda x: np.mgrid[0:3] * x[:3],
        lambda x: np.mgrid[x[0] : x[1] : 4j],
    ],
)  # fmt: skip
def test_joined_by_brackets(function: Callable[..., Any], x: np.ndarray[Any, Any]) -> None:
    as_numpy(function, x)


def test_bounds_that_are_arguments() -> None:
    as_numpy(lambda x, n: np.r_[0:n, x], X, 3)
    as_numpy(lambda n: np.mgrid[0:n, 0:2], 3)
    as_numpy(lambda n: np.ogrid[0:n, 0:2], 3)
    as_numpy(lambda k: np.r_[k, k + 1], 3)
    as_numpy(lambda k: np.r_[k, k + 0.5], 3)


def test_what_brackets_refuse() -> None:
    with pytest.raises(hlojit.HlojitError, match="np.matrix"):
        hlojit.jit(lambda x: np.r_["r", x, x])(X)
    with pytest.raises(ValueError, match="dimension"):
        hlojit.jit(lambda x: np.r_[x, x[:, None]])(X)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (clipped, (X,)), (clipped, (X, 1.5)), (clipped, (X, X[::-1].copy())), (clipped, (X.reshape(2, 3), 1.0)),
        (np.vectorize(in_unit), (X,)), (np.vectorize(in_unit), (X[0],)),
        (np.vectorize(in_unit, otypes=[np.float32]), (NARROW,)), (np.vectorize(in_unit, otypes=[float]), (NARROW[:0],)),
        (np.vectorize(sum_and_product), (X[:, None], X)), (np.vectorize(sum_and_product), (INTEGERS, 2)),
        (np.vectorize(lambda v: v > 2), (X,)), (np.vectorize(lambda v: 1 / v), (X,)),
        (np.vectorize(lambda v: int(v) // 2), (X,)), (np.vectorize(lambda v: 0 if v < 0 else v, otypes=[float]), (X,)),
    ],
)  # fmt: skip
def test_vectorize(function: Any, arguments: Any) -> None:
    as_numpy(lambda *given: function(*given), *arguments)
    as_numpy(function, *arguments)


def test_what_vectorize_raises() -> None:
    for call in (lambda function: function, hlojit.jit):
        with pytest.raises(ZeroDivisionError):
            call(lambda x: np.vectorize(lambda v: 1 / v)(x))(np.array([1, 0]))
        with pytest.raises(ValueError, match="size 0"):
            call(lambda x: np.vectorize(in_unit)(x))(X[:0])


@pytest.mark.parametrize(
    ("function", "x", "words"),
    [
        (np.vectorize(lambda v: 0 if v < 0 else v), X, "otypes"),
        (np.vectorize(in_unit), NARROW, "otypes"),
        (np.vectorize(in_unit, otypes=[int]), X, "convert what it makes"),
        (np.vectorize(lambda v: v, otypes=[np.int8]), INTEGERS, "convert what it makes"),
        (np.vectorize(in_unit, signature="()->()"), X, "vmap"),
    ],
)
def test_what_vectorize_refuses(function: Any, x: Any, words: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=words):
        hlojit.jit(lambda x: function(x))(x)


def test_map_of_no_rows() -> None:
    assert hlojit.jit(lambda x: hlojit.map(lambda row: row.sum(), x))(np.ones((0, 3))).shape == (0,)
    state, rows = hlojit.jit(lambda x: hlojit.scan(lambda s, row: (s + row.sum(), row * 2), 1.0, x, reverse=True))(
        np.ones((0, 3), np.float32)
    )
    assert state == 1.0
    assert (rows.shape, rows.dtype) == ((0, 3), np.dtype(np.float32))

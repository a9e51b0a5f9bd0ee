"""Reads and updates by index, traced, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError

from .conftest import agree

A = np.arange(60.0).reshape(3, 4, 5)
I = np.array([2, 0, -1])
J = np.array([[1], [3]])

READS: list[Callable[..., Any]] = [
    lambda a, i: a[1], lambda a, i: a[-1, 2], lambda a, i: a[0, 1, 2], lambda a, i: a[1:3], lambda a, i: a[::-1], lambda a, i: a[:, ::2, ::-2],
    lambda a, i: a[-2:, 3:0:-1], lambda a, i: a[..., 0], lambda a, i: a[None], lambda a, i: a[:, None, 1], lambda a, i: a[..., None, 2:], lambda a, i: a[5:],
    lambda a, i: a[2:1], lambda a, i: a[10:0:-3], lambda a, i: a[()], lambda a, i: a[...], lambda a, i: a[0, ..., None], lambda a, i: a[:, -1:-4:-2],
    lambda a, i: a[i], lambda a, i: a[:, i], lambda a, i: a[..., i], lambda a, i: a[i, 1:3], lambda a, i: a[i, i], lambda a, i: a[i, :, i],
    lambda a, i: a[i, 1], lambda a, i: a[1, i], lambda a, i: a[1, :, i], lambda a, i: a[:, i, 2], lambda a, i: a[i, ..., 1], lambda a, i: a[None, i],
    lambda a, i: a[:, [1, 2]], lambda a, i: a[[0, 1], [1, 2], [3, 4]], lambda a, i: a[:, J], lambda a, i: a[J % 3, i], lambda a, i: a[i[0]],
    lambda a, i: a[i[0], i[1], i[2]], lambda a, i: a[:, i[0]], lambda a, i: a[np.int64(1)], lambda a, i: a[i[:0]], lambda a, i: a[i.astype(np.int8)],
    lambda a, i: a[i[:, None], i], lambda a, i: a[i, None], lambda a, i: a[::2, i, ::-1], lambda a, i: a.T[i], lambda a, i: [row * 2 for row in a], lambda a, i: a[1][2][3],
]  # fmt: skip


@pytest.mark.parametrize("read", READS)
def test_read_like_numpy(read: Callable[..., Any]) -> None:
    agree(read, A, I)


def _set(key: Callable[[Any], Any], value: Any) -> Callable[..., Any]:
    def update(a: Any, i: Any, v: Any) -> Any:
        a = a.copy()
        a[key(i)] = v if value is None else value
        return a

    return update


KEYS: list[tuple[Callable[[Any], Any], tuple[int, ...]]] = [
    (lambda i: 0, (4, 5)), (lambda i: (slice(None), 1), (3, 5)), (lambda i: (slice(1, 3), slice(None, None, 2)), (2, 2, 5)),
    (lambda i: slice(None, None, -1), (3, 4, 5)), (lambda i: (Ellipsis, slice(3, 0, -2)), (3, 4, 2)), (lambda i: (1, 2, 3), ()), (lambda i: slice(5, 9), (0, 4, 5)),
    (lambda i: (None, 1), (1, 4, 5)), (lambda i: i, (3, 4, 5)), (lambda i: (slice(None), i), (3, 3, 5)), (lambda i: (i, i), (3, 5)), (lambda i: (i, slice(None), i), (3, 4)),
    (lambda i: (i, i, i), (3,)), (lambda i: i[0], (4, 5)), (lambda i: (slice(None), i[1]), (3, 5)), (lambda i: ..., (3, 4, 5)), (lambda i: (), (3, 4, 5)), (lambda i: (i, 1), (3, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("key", "shape"), KEYS)
def test_update_like_numpy(key: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    value = np.random.default_rng(0).integers(100, 200, shape).astype("f8")
    agree(_set(key, None), A, I, value)
    agree(_set(key, 7), A, I, value)
    agree(_set(key, None), A.astype("i4"), I, value.astype("i4"))


def test_update_in_place_operators() -> None:
    def inside(a: Any, i: Any) -> Any:
        a = a.copy()
        a[1] += 2
        a[:, 2] *= a[:, 1]
        a[..., 0] -= 1.5
        a[a > 50] = 0
        a[::2, 1:3, ::-1] /= 4
        a[i[0], i[1]] += 10
        a += 1
        return a

    agree(inside, A, I)


def test_a_value_taken_before_an_update_keeps_its_elements() -> None:
    def inside(a: Any) -> Any:
        before = a * 1
        b = a.copy()
        b[0] = -1
        return before, a * 2, b

    agree(inside, np.arange(4.0))


def test_indices_out_of_bounds_when_running_raise_as_in_numpy() -> None:
    @hlojit.jit
    def read(a: Any, i: Any) -> Any:
        return a[i]

    @hlojit.jit
    def write(a: Any, i: Any) -> None:
        a[i] = -1.0

    x = np.arange(8.0)
    for huge in (8, 2**40, -(2**40), -(2**63), 2**63 - 1, -9):
        for function in (read, write):
            for index in (np.array([huge, 1]), np.int64(huge), huge):
                with pytest.raises(
                    IndexError, match=r"^test_indexing\.py:\d+: .* : .*out of bounds for axis 0 with size 8$"
                ):
                    function(x, index)
    np.testing.assert_array_equal(x, np.arange(8.0))
    assert read(x, np.uint64(7)) == 7.0 and read(x, -8) == 0.0


def test_indices_out_of_bounds_touch_nothing_outside_where_they_are_not_checked() -> None:
    @hlojit.jit(check_indices=False)
    def both(a: Any, i: Any) -> Any:
        read = a[i]
        a = a.copy()
        a[i] = -1.0
        return read, a

    x = np.arange(8.0)
    for huge in (8, 2**40, -(2**40), -(2**63), 2**63 - 1, -9):
        read, written = both(x, np.array([huge, 1]))
        assert read[0] in (0.0, 7.0) and read[1] == 1.0
        assert written[1] == -1 and (np.delete(written, 1) == np.delete(x, 1)).all()
        read, written = both(x, huge)
        assert read in (0.0, 7.0) and (written[1:-1] == x[1:-1]).all()


@pytest.mark.parametrize(("key", "error"), [
    (lambda a: a[7], "out of bounds"), (lambda a: a[:, [9]], "out of bounds"), (lambda a: a[0, 0, 0, 0], "too many indices"), (lambda a: a[..., ...], "ellipsis"),
    (lambda a: a[a], "integer"), (lambda a: a[: a.astype(int).sum()], "number of elements of this slice"), (lambda a: a["x"], "'x' cannot be an index"), (lambda a: a[1.5], "1.5 cannot be an index"),
])  # fmt: skip
def test_wrong_indices_are_refused(key: Callable[..., Any], error: str) -> None:
    with pytest.raises((IndexError, TracingError), match=error):
        hlojit.jit(key)(A)

"""Branches and loops over traced values, against the same in Python."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing import cond, fori_loop, map, scan, switch, while_loop
from hlojit.tracing.errors import TracingError

from .conftest import agree

X = np.arange(6.0).reshape(2, 3)


def branches(x: Any, n: Any) -> Any:
    small = cond(x.sum() > 20, lambda a: a * 2, lambda a: a - 1, x)
    number = cond(n > 2, lambda: 1, lambda: 2.5)
    pair = cond(n > 2, lambda: {"a": x[0], "b": (n, None)}, lambda: {"a": x[1], "b": (n * 2, None)})
    chosen = switch(n - 2, [lambda v: v, lambda v: v + 1, lambda v: v * v], x)
    return small, number * 1.0, pair["a"], pair["b"][0], chosen


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_branches(n: int) -> None:
    agree(branches, X, n)
    agree(branches, X + 3, n)


def writes(x: Any, n: Any) -> Any:
    row = x[0]

    def fill() -> Any:
        row[:] = 7
        local = x.copy()
        local[1] = -1
        return local

    def double() -> Any:
        nonlocal x
        x *= 2
        return x + 1

    made = cond(n > 1, fill, double)
    return made, x, row


@pytest.mark.parametrize("n", [1, 2])
def test_branches_that_write_arrays_around_them(n: int) -> None:
    agree(writes, X, n)


def euclid(a: Any, b: Any) -> Any:
    return while_loop(lambda s: s[1] != 0, lambda s: (s[1], s[0] % s[1]), (a, b))[0]


def newton(x: Any) -> Any:
    state = {"x": x, "steps": 0, "error": np.abs(x * x - 2.0).max()}

    def step(s: Any) -> Any:
        better = (s["x"] + 2.0 / s["x"]) / 2
        return {"x": better, "steps": s["steps"] + 1, "error": np.abs(better * better - 2.0).max()}

    state = while_loop(lambda s: s["error"] > 1e-9, step, state)
    return state["x"], state["steps"], state["error"] < 1e-9


def counted(x: Any, n: Any) -> Any:
    def body(i: Any, s: Any) -> Any:
        x[i % 2] += i
        return s + x[i % 2, 1]

    total = fori_loop(0, n, body, 0.0)
    return total, x, fori_loop(2, 5, lambda i, s: s * i, 1)


def prefix(x: Any) -> Any:
    final, sums = scan(lambda carry, v: (carry + v, {"sum": carry + v, "square": v * v}), np.zeros(3), x)
    _, backward = scan(lambda carry, v: (carry + v[0], carry), 0.0, x, reverse=True)
    return final, sums["sum"], sums["square"], backward, map(lambda row: (row.sum(), row[::-1]), x)[1]


def triangle(n: Any) -> Any:
    def row(i: Any, total: Any) -> Any:
        return fori_loop(0, i, lambda j, inner: inner + cond(j > 1, lambda: j, lambda: 1), total)

    return fori_loop(0, n, row, 0)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(euclid, (48, 36)), (euclid, (7, 0)), (newton, (np.array([1.0, 5.0]),)), (counted, (X, 5)), (counted, (X, 0)), (prefix, (X,)), (triangle, (6,))],
    ids=lambda each: getattr(each, "__name__", ""),
)  # fmt: skip
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_loops(function: Callable[..., Any], arguments: tuple[Any, ...], backend: str) -> None:
    ours = [np.copy(each) if isinstance(each, np.ndarray) else each for each in arguments]
    theirs = [np.copy(each) if isinstance(each, np.ndarray) else each for each in arguments]
    actual, expected = hlojit.jit(backend=backend)(function)(*ours), function(*theirs)
    pairs = zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    for mine, other in [*pairs, *zip(ours, theirs)]:
        assert np.shape(mine) == np.shape(other)
        np.testing.assert_allclose(mine, other, rtol=1e-14)


def test_checks_inside_of_loops_end_them() -> None:
    @hlojit.jit
    def inside(x: Any, n: Any) -> Any:
        return while_loop(lambda s: True, lambda s: s + x[s], 1)

    with pytest.raises(IndexError, match=r"^test_control_flow\.py:\d+: .* : .*out of bounds for axis 0 with size 3$"):
        inside(np.array([1, 2, 3]), 5)

    @hlojit.jit
    def branch(x: Any, n: Any) -> Any:
        return cond(n > 0, lambda: x[n], lambda: x[0])

    assert branch(X[0], -7) == 0 and branch(X[0], 2) == 2
    with pytest.raises(IndexError):
        branch(X[0], 3)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            lambda x: cond(x[0, 0] > 0, lambda: x, lambda: x[0]),
            r"result is f64 of shape \(2, 3\) and f64 of shape \(3,\)",
        ),
        (lambda x: cond(x[0, 0] > 0, lambda: x, lambda: x.astype("f4")), r"convert it to one type with \.astype"),
        (lambda x: cond(x[0, 0] > 0, lambda: (1, 2), lambda: [1, 2]), "give other containers"),
        (lambda x: cond(x[0, 0] > 0, lambda: "a", lambda: "b"), "give 'a' and 'b'"),
        (lambda x: cond(x > 0, lambda: 1, lambda: 2), r"must be one truth value, and has the shape \(2, 3\)"),
        (lambda x: while_loop(lambda s: s.sum() < 9, lambda s: s[0], x), "it must have one shape on all paths"),
        (lambda x: while_loop(lambda s: s["a"] < 9, lambda s: {"b": s["a"]}, {"a": x[0, 0]}), "give other containers"),
        (lambda x: switch(x[0, 0], [lambda: 1]), "the index must be one integer"),
        (lambda x: scan(lambda c, v: (c, v), 0, (x, x[0])), "one length"),
    ],
)
def test_what_does_not_fit_is_named(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(TracingError, match=said):
        hlojit.jit(function)(X)


def test_what_was_made_in_a_branch_is_not_used_outside() -> None:
    kept: list[Any] = []

    def inside(x: Any) -> Any:
        cond(x[0, 0] > 0, lambda: kept.append(x * 2) or 1, lambda: 2)
        return kept[-1] + 1

    with pytest.raises(TracingError, match="made in the body of a loop or branch is used outside of it"):
        hlojit.jit(inside)(X)


def test_views_read_inside_are_read_again_outside() -> None:
    def inside(x: Any, n: Any) -> Any:
        column = x[:, 1]
        first = cond(n > 0, lambda: column.sum(), lambda: column.max())
        return first, column * 2, fori_loop(0, n, lambda i, s: s + column[i], 0.0), column

    agree(inside, X, 2)


def test_an_array_of_outside_that_a_branch_gives_cannot_be_written_behind_it() -> None:
    def given(x: Any, flag: Any) -> Any:
        v = x[1:]
        row = cond(flag, lambda: v, lambda: x[:1])
        row[0] = 9
        return x

    def source(x: Any, flag: Any) -> Any:
        row = cond(flag, lambda: x, lambda: x + 1)
        x[0] = 9
        return row

    def twice(x: Any, flag: Any) -> Any:
        def both() -> Any:
            made = x + 1
            return made, made[0]

        all, first = cond(flag, both, both)
        first[:] = 0
        return all

    def of_a_loop(x: Any, flag: Any) -> Any:
        pair = fori_loop(0, 3, lambda i, s: (s[1], s[1]), (x, x + 1))
        pair[0][0] = 5
        return pair

    def in_a_loop(x: Any, flag: Any) -> Any:
        def body(i: Any, pair: Any) -> Any:
            pair[0][0] += 1
            return pair[1], pair[1]

        return fori_loop(0, 3, body, (x, x + 1))

    for function in (given, source, twice, of_a_loop, in_a_loop):
        with pytest.raises(TracingError, match=r"return a copy from the branch or body"):
            hlojit.jit(function)(X.copy(), True)

    def copied(x: Any, flag: Any) -> Any:
        row = cond(flag, lambda: x[1:].copy(), lambda: x[:1].copy())
        row[0] = 9
        return x, row

    agree(copied, X, True)


def test_what_a_branch_wrote_is_in_what_it_gives() -> None:
    def written(x: Any, flag: Any) -> Any:
        def write() -> Any:
            x[0] = 9
            return x[:2]

        return cond(flag, write, lambda: x[:2]), x

    agree(written, X.copy(), True)


def test_the_rows_of_a_scan_have_the_type_of_all_its_steps() -> None:
    agree(lambda x: scan(lambda total, v: (total + v, total), 0, x), X[0] + 0.5)


def test_the_rows_of_a_scan_are_of_their_step() -> None:
    def summed(total: Any, v: Any) -> Any:
        total += v
        return total, total

    np.testing.assert_array_equal(
        scan(summed, np.zeros(3), X)[1], hlojit.jit(lambda x: scan(summed, np.zeros(3), x)[1])(X)
    )
    np.testing.assert_array_equal(scan(summed, np.zeros(3), X)[1], np.cumsum(X, 0))


def test_limits_of_a_loop_are_integers() -> None:
    agree(lambda x, n: fori_loop(np.uint8(0), n, lambda i, s: s + i, x), 1.0, np.uint8(3))
    agree(lambda x, n: fori_loop(False, n, lambda i, s: s + i, x), 1.0, True)
    for start in (2.5, np.float32(2)):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            hlojit.jit(lambda x, start=start: fori_loop(start, 4, lambda i, s: s + i, x))(1.0)
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            hlojit.jit(lambda x, start: fori_loop(start, 4, lambda i, s: s + i, x))(1.0, start)


def test_a_branch_gives_what_it_wrote() -> None:
    def chosen(x: Any, a: Any) -> Any:
        y = x.copy()
        if a > 0:
            y[0] = 7.0
            z = y
        else:
            z = y + 1
        return z, y

    def returned(x: Any, a: Any) -> Any:
        y = x.copy()
        if a > 5:
            return a, y
        y[a] += 0.25
        return a, y

    def given(x: Any, a: Any) -> Any:
        y = x.copy()

        def written() -> Any:
            y[0] = 7.0
            return y

        return cond(a > 0, written, lambda: y + 1), y

    for function in (chosen, returned, given):
        for a in (1, 2, -1, 6):
            for ours, theirs in zip(hlojit.jit(function)(np.arange(5.0), a), function(np.arange(5.0), a)):
                np.testing.assert_array_equal(ours, theirs)


def test_an_array_that_a_loop_hands_on_is_the_argument() -> None:
    """What a loop gives may be the argument, although nobody sees what it was in between."""

    def function(x: Any, a: Any) -> None:
        for _ in range(12):
            y = np.zeros(5) % 4.0
        for _ in range(15):
            x[a % 5] = x[-2] % 4.0

        def inner() -> Any:
            nonlocal x, y

    ours, theirs = np.arange(5.0), np.arange(5.0)
    function(theirs, 2)
    with suppress(hlojit.HlojitError):
        hlojit.jit(function)(ours, 2)
        np.testing.assert_array_equal(ours, theirs)


def clipped_step(state: Any, x: Any) -> Any:
    if x > 0:
        state = state + x
    return state, state


def capped(x: Any) -> Any:
    while x > 10:
        x = x / 2
    return x


def is_small(x: Any) -> Any:
    return x < 100 and x > -100


def doubled(i: Any, x: Any) -> Any:
    return x * 2 if i < 3 else x


def test_functions_that_are_given_may_branch_on_values() -> None:
    x = np.array([1.0, -2.0, 30.0])
    agree(lambda x: scan(clipped_step, np.float64(0), x), x)
    agree(lambda x: map(capped, x), x)
    agree(lambda x: cond(x[0] > 0, capped, doubled_once, x[2]), x)
    agree(lambda x: while_loop(is_small, capped_product, x[2]), x)
    agree(lambda x, n: fori_loop(0, n, doubled, x), x, 5)
    agree(lambda x, n: switch(n, [capped, doubled_once], x[2]), x, 1)


def doubled_once(x: Any) -> Any:
    return x * 2 if x > 0 else x


def capped_product(x: Any) -> Any:
    return x * 3 if x < 50 else x + 1

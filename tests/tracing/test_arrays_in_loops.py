"""Arrays that a loop updates in place (``a += ...``), whoever else sees them: a loop of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow import runtime

ROUNDS = 200


def alone(x: Any) -> Any:
    total = x * 1
    for i in range(ROUNDS):
        total += 0.5 * i
    return total


def of_rows(x: Any) -> Any:
    total = np.zeros(4)
    for n, row in enumerate(np.ones((ROUNDS, 1)) * x):
        scaled = row * n
        total += 0.1 * (scaled - total)
    return total, scaled


def nested(x: Any) -> Any:
    total = x * 1
    for _ in range(ROUNDS):
        for j in range(20):
            total += j
        total *= 0.5
    return total


def seen_by_a_name(x: Any) -> Any:
    total = x * 1
    other = total
    for i in range(ROUNDS):
        total += i
    return total, other


def seen_by_a_list(x: Any) -> Any:
    total = x * 1
    seen = [total]
    for i in range(ROUNDS):
        total += i
    return total, seen[0]


def seen_by_a_view(x: Any) -> Any:
    total = x * 1
    part = total[1:]
    for i in range(ROUNDS):
        total += i
        part = part * 0.5
    return total, part


def one_array_of_two_names(x: Any) -> Any:
    total = other = x * 1
    for i in range(ROUNDS):
        last = i * 2.0
        total += last
    return total, other, total is other


def rebound(x: Any) -> Any:
    total = x * 1
    seen = {"total": total}
    for i in range(ROUNDS):
        total += i
        total = total * 0.5
    return total, seen["total"]


def an_argument(x: Any) -> Any:
    for i in range(ROUNDS):
        x += 0.1 * i
    return x[0]


def descent(w: Any) -> Any:
    x = np.arange(12.0).reshape(3, 4)
    for _ in range(3000):
        w -= 0.01 * x.T @ (x @ w - 1) / 3
    return w.sum()


def until(x: Any) -> Any:
    rounds = 0
    while x.sum() < 100:
        x += 1
        if rounds % 3 == 0:
            x *= 1.01
        rounds += 1
    return rounds


def update_and_rebind(x: Any) -> Any:
    y = x
    for i in range(ROUNDS):
        if i % 50 == 0:
            y = y * 0.5
        y += 1
    return y


LOOPS = (
    *(alone, of_rows, nested, seen_by_a_name, seen_by_a_list, one_array_of_two_names),
    *(an_argument, descent, until),
)
SEEN = (seen_by_a_view, rebound, update_and_rebind)


@pytest.mark.parametrize("function", [*LOOPS, *SEEN], ids=lambda each: each.__name__)
def test_as_numpy(function: Callable[..., Any]) -> None:
    mine, theirs = np.arange(4.0), np.arange(4.0)
    found, expected = hlojit.jit(function)(mine), function(theirs)
    for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("function", LOOPS, ids=lambda each: each.__name__)
def test_is_a_loop(function: Callable[..., Any]) -> None:
    assert "stablehlo.while" in str(hlojit.jit(function).lower(np.arange(4.0)))


def exchanged_in_small_loops(x: Any) -> Any:
    """The variables of the outer loop exchange arrays that inner loops of few rounds write."""
    old, new, places = np.empty(12), np.empty(12), np.zeros((500, 12), np.int64)
    for j in range(12):
        old[j] = x[j]
    for t in range(1, 500):
        for j in range(12):
            best, place = old[0] + t, 0
            for i in range(1, 12):
                if old[i] * j > best:
                    best, place = old[i] * j, i
            new[j] = best
            places[t, j] = place
        old, new = new, old
    return places


def list_that_its_rounds_read(x: Any) -> Any:
    rows = [x]
    for t in range(500):
        y = np.sin(rows[-1]) * t
        if x[0] > t:
            y = y + 1
        rows.append(y + np.cos(x) / (t + 1))
    return rows[-1]


def test_a_loop_that_would_be_unrolled_to_no_end_says_why_it_is_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MOST_UNROLLED", 2_000)
    with pytest.raises(TracingError) as raised:
        hlojit.jit(list_that_its_rounds_read)(np.arange(12.0))
    message = str(raised.value)
    assert "rounds one by one are more than 2,000 instructions" in message
    assert message.count("one by one") == 1
    assert "rows has 1 element before a round" in message


def exchanged(start: Any, moves: Any, seen: Any) -> Any:
    """Viterbi's algorithm as loops: two arrays change places in each round, and a table of outside is written."""
    n, s = seen.shape
    previous, current, back = start + seen[0], np.zeros(s), np.zeros((n, s), np.int64)
    for t in range(1, n):
        for j in range(s):
            best, argument = -np.inf, 0
            for i in range(s):
                value = previous[i] + moves[i, j]
                if value > best:
                    best, argument = value, i
            current[j] = best + seen[t, j]
            back[t, j] = argument
        previous, current = current, previous
    path = np.zeros(n, np.int64)
    path[n - 1] = np.argmax(previous)
    for t in range(n - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return path, previous


def test_arrays_that_change_places() -> None:
    numbers = np.random.default_rng(3)
    given = numbers.random(12), numbers.random((12, 12)), numbers.random((60, 12))
    compiled = hlojit.jit(exchanged)
    for one, other in zip(compiled(*given), exchanged(*given)):
        np.testing.assert_array_equal(one, other)
    assert "stablehlo.while" in compiled.lower(*given).as_text()


def test_arrays_that_change_places_and_are_written_by_small_loops() -> None:
    x = np.arange(12.0)
    np.testing.assert_array_equal(hlojit.jit(exchanged_in_small_loops)(x), exchanged_in_small_loops(x))

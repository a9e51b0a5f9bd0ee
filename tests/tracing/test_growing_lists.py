"""Lists that grow in loops of known count: a loop of the program, whose rows they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError

ROUNDS = 1500


def copies(x: Any) -> Any:
    rows = []
    for i in range(ROUNDS):
        x = x * 0.99 + 0.1 * i
        rows.append(x.copy())
    return np.array(rows)


def behind_a_first_one(x: Any) -> Any:
    times, rows = [], [x]
    for i in range(ROUNDS):
        x = x + np.sin(x) * 0.1
        times.append(i * 0.1)
        rows.append(x)
    return np.array(times), np.array(rows), x, len(rows)


def tuples(x: Any) -> Any:
    steps = []
    for i in range(ROUNDS):
        x = x * 0.999
        steps.append((i, x.sum(), {"x": x * 2}))
    return steps[3], steps[-1][2]["x"], np.array([each[1] for each in steps[:10]])


def nested_loops(x: Any) -> Any:
    rows = []
    for i in range(60):
        for j in range(30):
            x = x * 0.99 + j
            rows.append(x[0] + i)
    return np.array(rows), np.mean(rows), max(rows[:4]), rows[-1]


def two_a_round(x: Any) -> Any:
    rows: list[Any] = []
    for value in np.linspace(0, 1, ROUNDS):
        rows.append(value * x)
        rows.append(value)
    return rows[0], rows[1], rows[2 * ROUNDS - 1], len(rows)


def two_a_round_of_one_type(x: Any) -> Any:
    rows: list[Any] = []
    for i in range(ROUNDS):
        rows.append(x * i)
        rows.append(x + i)
    return np.stack(rows), np.concatenate(rows)[:7], sum(rows[:5])


def written_behind(x: Any) -> Any:
    rows = []
    for i in range(ROUNDS):
        rows.append(x * i)
    rows[5][0] = -1.0
    rows[7] = rows[5] + 1
    rows.append(x)
    del rows[0]
    return np.array(rows), rows[4]


def written_in_its_round(x: Any) -> Any:
    rows = []
    for i in range(ROUNDS):
        new = x * 0.5
        rows.append(new)
        new[0] = i
    return np.array(rows)


def parts_of_the_list(x: Any) -> Any:
    rows = []
    for i in range(ROUNDS):
        rows.append(x.sum() / (i + 1))
    return np.array(rows[10:20]), np.array(rows[::300]), np.array(rows[::-1])[:3], sum(rows[-2:]), rows[2] in rows[:4]


def whole_numbers_and_truths(x: Any) -> Any:
    numbers, truths = [], []
    for i in range(ROUNDS):
        numbers.append(i * int(x[1]))
        truths.append(x[0] > i)
    return np.array(numbers), np.array(truths), numbers[9], truths[2]


def seen_by_two_names(x: Any) -> Any:
    rows: list[Any] = []
    for i in range(40):
        other = rows
        rows.append(x * i)
    return other[3], np.array(rows)


def one_array_again_and_again(x: Any) -> Any:
    rows = []
    for _ in range(200):
        x += 1
        rows.append(x)
    return rows[0], np.array(rows).sum()


def read_in_the_body(x: Any) -> Any:
    rows = [x[0]]
    for _ in range(30):
        rows.append(rows[-1] * 0.5 + 1)
    return rows[-1], len(rows)


def rows_of_an_argument(x: Any) -> Any:
    table = np.outer(np.arange(ROUNDS), x)
    rows = []
    for row in table:
        rows.append(row)
    return np.array(rows).sum(), rows[3]


FUNCTIONS = [
    value
    for value in list(globals().values())
    if callable(value) and list(getattr(value, "__annotations__", {})) == ["x", "return"]
]


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for each in tree.values() for leaf in leaves(each)]
    return [leaf for each in tree for leaf in leaves(each)] if isinstance(tree, (tuple, list)) else [tree]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_as_python(function: Callable[..., Any]) -> None:
    compiled = hlojit.jit(function)
    for x in (np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 4.0])):
        expected, found = leaves(function(x.copy())), leaves(compiled(x.copy()))
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert type(one) is type(other)
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_it_is_a_loop() -> None:
    text = hlojit.jit(copies).lower(np.ones(3)).as_text()
    assert text.count("stablehlo.while") == 1
    assert len(text.splitlines()) < 60


def test_lists_of_lists_are_stacked() -> None:
    def stacked(x: Any) -> Any:
        rows = [[x[0], x[1]], [x[1], 2.5]]
        return np.vstack(rows), np.stack(rows), np.concatenate(rows), np.block([[x[:1], x[1:]], [x[1:], x[:1]]])

    x = np.array([1.0, 2.0])
    for one, other in zip(hlojit.jit(stacked)(x), stacked(x)):
        np.testing.assert_array_equal(one, other)


def test_derivatives() -> None:
    def last(x: Any) -> Any:
        rows = []
        for _ in range(100):
            x = np.sin(x) * 1.01
            rows.append(x)
        return np.array(rows).sum()

    x, step = np.array([0.3, 0.7]), 1e-6
    exact = [(last(x + step * each) - last(x - step * each)) / (2 * step) for each in np.eye(2)]
    np.testing.assert_allclose(hlojit.grad(last)(x), exact, rtol=1e-6)


def shared_and_written(x: Any) -> Any:
    rows = []
    for _ in range(2000):
        rows.append(x)
    x[0] = 7
    return rows[5]


def shared_by_two(x: Any) -> Any:
    one, other = [], []
    for i in range(2000):
        y = x * i
        one.append(y)
        other.append(y[1:])
    return one, other


def too_many(x: Any) -> Any:
    rows = []
    for i in range(1_000_000):
        rows.append(x * i)
    return rows[3]


def read_in_a_long_body(x: Any) -> Any:
    rows = [x[0]]
    for _ in range(2000):
        rows.append(rows[-1] * 0.5 + 1)
    return rows[-1]


REFUSED = {
    shared_and_written: "holds in NumPy what is written here",
    shared_by_two: "seen elsewhere, too",
    too_many: "1000000 elements",
    read_in_a_long_body: "1 element before a round",
}


@pytest.mark.parametrize(("function", "message"), REFUSED.items(), ids=lambda each: getattr(each, "__name__", None))
def test_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(TracingError, match=message):
        hlojit.jit(function)(np.ones(3))

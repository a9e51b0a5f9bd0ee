"""``while`` on Python's own numbers: where its rounds one by one would be many instructions it is a loop of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest


def sieve(x: Any) -> Any:
    n = len(x)
    flags = np.ones(n + 1, dtype=bool)
    flags[:2] = False
    p = 2
    while p * p <= n:
        if flags[p]:
            for k in range(p * p, n + 1, p):
                flags[k] = False
        p += 1
    return flags, p


def queens(x: Any) -> Any:
    n = len(x)
    columns, count, row = np.zeros(n, np.int64), 0, 0
    columns[0] = -1
    while row >= 0:
        columns[row] += 1
        while columns[row] < n:
            free = True
            for above in range(row):
                distance = columns[row] - columns[above]
                if distance == 0 or abs(distance) == row - above:
                    free = False
                    break
            if free:
                break
            columns[row] += 1
        if columns[row] < n:
            if row == n - 1:
                count += 1
            else:
                row += 1
                columns[row] = -1
        else:
            row -= 1
    return count


def iterations(x: Any) -> Any:
    k = 0
    while k < 300:
        x = x - (np.sin(x) - 0.5) / np.cos(x)
        k += 1
    return x, k


def changes_its_shape(x: Any) -> Any:
    while len(x) > 1:
        half = len(x) // 2
        for i in range(40):
            x = x * 0.99 + i
        x = x[:half] + x[half : 2 * half]
    return x


def changes_its_type(x: Any) -> Any:
    k, total = 0, 0
    while k < 100:
        total = total + x[k % len(x)] * k
        k += 1
    return total, k


def reads_a_table(x: Any) -> Any:
    names, k, total = ["a", "b"], 0, 0.0
    while k < 100:
        total += {"a": 1.0, "b": 2.0}[names[k % 2]] * x[k % len(x)] ** 2 + np.sin(x).sum()
        k += 1
    return total


def large_numbers(x: Any) -> Any:
    k, product = 1, 1
    while k < 30:
        product *= k
        k += 1
    return x * float(product)


def called_again(x: Any) -> Any:
    def power(y: Any, n: int) -> Any:
        made, k = y, 1
        while k < n:
            made = np.tanh(made * y + np.sin(made) * np.cos(y))
            k += 1
        return made

    return power(x, 3) + power(x, 90) + power(x, 2)


def number_is_a_shape_behind(x: Any) -> Any:
    k = 0
    while k < 60:
        x = np.sin(x) * 1.5 + np.cos(x) / (k + 2) - np.tanh(x) * k
        k += 1
    return x[: k // 4] + np.zeros(k // 4)


def number_is_a_key_behind(x: Any) -> Any:
    k = 0
    while k < 60:
        x = np.sin(x) * 1.5 + np.cos(x) / (k + 2) - np.tanh(x) * k
        k += 1
    return x * {60: 2.0}[k]


FUNCTIONS = [
    value
    for value in list(globals().values())
    if callable(value) and list(getattr(value, "__annotations__", {})) == ["x", "return"]
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_as_python(function: Callable[..., Any]) -> None:
    x = np.linspace(0.1, 0.7, 6 if function is queens else 64)
    expected, found = function(x.copy()), hlojit.jit(function)(x.copy())
    for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (found, expected))):
        assert type(one) is type(other)
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("function", [sieve, iterations, called_again])
def test_it_is_a_loop(function: Callable[..., Any]) -> None:
    text = hlojit.jit(function).lower(np.linspace(0.1, 0.7, 64)).as_text()
    assert "stablehlo.while" in text
    assert len(text.splitlines()) < 1500

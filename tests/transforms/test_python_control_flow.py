"""Derivatives and batches of functions with Python's own control flow, against differences and element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

X = np.linspace(0.3, 1.4, 6)
Function = Callable[[Any], Any]


def branch(x: Any) -> Any:
    if x > 0:
        y = np.sin(x)
    else:
        y = x**2
    return y * x


def early_return(x: Any) -> Any:
    if x < 0:
        return x * 3
    if x > 4:
        return x**2
    return np.exp(x)


def ternary(x: Any) -> Any:
    return (np.sin(x) if x > 0 else x * x) + (x if 0 < x < 2 else -x)


def continued(x: Any) -> Any:
    total = 1.0
    for value in x:
        if value < 0.7:
            continue
        total *= value
    return total


def rows(x: Any) -> Any:
    y = np.outer(x, x)
    for row in y:
        row /= row.sum()  # noqa: PLW2901
    return np.sum(y**2)


def views(x: Any) -> Any:
    y = x * 2
    inner = y[1:4]
    inner[:] = inner**2
    y[::2] *= 3
    return np.sum(y * x)


def argument_written(x: Any) -> Any:
    x[1:] *= x[:-1]
    x[0] = 2
    return np.sum(x**2)


def branch_that_writes(x: Any) -> Any:
    y = np.zeros(6)
    for i in range(6):
        if x[i] > 0.8:
            y[i] = x[i] ** 3
        else:
            y[5 - i] += x[i]
    return np.sum(y**2)


def checked(x: Any) -> Any:
    if x.sum() < 0:
        raise ValueError("negative")
    return np.sum(np.log(x))


def counted(x: Any) -> Any:
    n = 0
    state = 0.0
    while n < 50:
        state = np.tanh(state + x[n % 6])
        n += 1
    return state


def grown_list(x: Any) -> Any:
    values = []
    for i in range(20):
        values.append(np.sin(x[i % 6]) * i)
    return np.sum(np.array(values) ** 2)


def broken_off(x: Any) -> Any:
    total = 0.0
    for value in x:
        total += value * value
        if total > 2:
            break
    return total


def filled(x: Any) -> Any:
    out = np.empty(30)
    state = x[0]
    for i in range(30):
        state = 0.9 * state + 0.1 * np.sin(x[i % 6] * i)
        out[i] = state
    return np.sum(out**2)


def bounded(x: Any) -> Any:
    i = 0
    state = x.sum()
    while i < 20 and state < 100:
        state = state * 1.5 + x[i % 6]
        i += 1
    return state


def newton(x: Any) -> Any:
    root = x[0]
    while abs(root * root - x[1]) > 1e-14:
        root = root - (root * root - x[1]) / (2 * root)
    return root * x[2]


def steps_of_data(x: Any) -> Any:
    state = x[0]
    for i in range(int(x[5] * 60.3)):
        state = np.sin(state) + 0.1 * x[i % 5]
    return state


def nested(x: Any) -> Any:
    total = 0.0
    for i in range(12):
        term = 1.0
        for j in range(12):
            if (i + j) % 2 == 0:
                term = term * (1 + 0.01 * x[j % 6])
            else:
                term = term + 0.01 * x[i % 6]
        total += term
    return total


CASES: list[tuple[Function, Any]] = [
    (branch, 1.3),
    (branch, -0.7),
    (early_return, 1.3),
    (early_return, 5.0),
    (early_return, -0.5),
    (ternary, 1.2),
    (ternary, -0.3),
    (continued, X),
    (rows, X),
    (views, X),
    (argument_written, X),
    (branch_that_writes, X),
    (checked, X),
    (counted, X),
    (grown_list, X),
    (broken_off, X),
    (filled, X),
    (bounded, X),
    (newton, X),
    (steps_of_data, X),
    (nested, X),
]


def differences(function: Function, x: Any) -> np.ndarray[Any, Any]:
    """The gradient, from the function as Python runs it."""
    at = np.asarray(x, float)
    made = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[place] = 1e-6
        made[place] = (function(at + step) - function(at - step)) / 2e-6
    return made


@pytest.mark.parametrize(("function", "x"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_derivatives_and_batches(function: Function, x: Any) -> None:
    gradient = hlojit.grad(function)(x)
    np.testing.assert_allclose(gradient, differences(function, x), rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(hlojit.jacfwd(function)(x), gradient, rtol=1e-9, atol=1e-12)
    batch = np.stack([x, np.asarray(x) * 1.1])
    each = np.stack([hlojit.grad(function)(element) for element in batch.copy()])
    np.testing.assert_allclose(hlojit.vmap(hlojit.grad(function))(batch), each, rtol=1e-9)
    total = hlojit.grad(lambda several: np.sum(hlojit.vmap(function)(several)))
    np.testing.assert_allclose(total(batch), each, rtol=1e-9)


def test_functions_that_transformed_ones_call() -> None:
    inner = hlojit.jit(branch)
    assert hlojit.jit(lambda x: inner(x) + 1)(-2.0) == branch(-2.0) + 1
    assert hlojit.grad(lambda x: branch(x))(-2.0) == pytest.approx(12)
    assert hlojit.jit(lambda x: hlojit.jvp(branch, (x,), (1.0,))[1])(-2.0) == pytest.approx(12)


def test_what_a_transformed_function_raises() -> None:
    with pytest.raises(ValueError, match="negative"):
        hlojit.grad(checked)(-X)
    with pytest.raises(ValueError, match="negative"):
        hlojit.vmap(checked)(np.stack([X, -X]))


def test_blocks_of_turns_are_walked_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """States from which blocks begin, one or several blocks apart, and a last block that is not whole."""
    from hlojit.ir.ops.derivatives import loops

    monkeypatch.setattr(loops, "BLOCK_TURNS", (3, 3))

    def steps(x: Any, count: Any) -> Any:
        for i in range(count):
            x = np.sin(x) + 0.1 * i
        return x

    for count in (0, 1, 3, 8, 9, 10, 29):
        value = hlojit.grad(steps)(0.3, count)
        expected = (steps(0.3 + 1e-6, count) - steps(0.3 - 1e-6, count)) / 2e-6
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-8)


def test_states_that_nobody_reads_are_not_kept() -> None:
    """Of a large array that is filled, only what is put in is kept: all of its states would take more than there is."""

    def filled(x: Any) -> Any:
        out = np.zeros(50000)
        for i in range(50000):
            out[i] = x[i] * x[i]
        return np.sum(out)

    x = np.linspace(0, 1, 50000)
    np.testing.assert_allclose(hlojit.grad(filled)(x), 2 * x)

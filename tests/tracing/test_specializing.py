"""Arguments that become static by themselves, and the warning about a function that is compiled again and again."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing import jitted_functions


def euler(rate: Any, days: Any, dt: Any = 0.5) -> Any:
    x = 1.0
    path = np.zeros(int(days / dt))
    for n in range(int(days / dt)):
        x += rate * x * dt
        path[n] = x
    return path


def test_numbers_that_a_shape_depends_on_are_static() -> None:
    compiled = hlojit.jit(euler)
    for days in (3, 10, 3, 2.5):
        np.testing.assert_array_equal(compiled(0.1, days), euler(0.1, days))
    np.testing.assert_array_equal(compiled(0.1, days=4, dt=0.25), euler(0.1, 4, 0.25))
    # The rate is still an argument: another value is no new compilation.
    before = repr(compiled)
    np.testing.assert_array_equal(compiled(0.7, 3), euler(0.7, 3))
    assert repr(compiled) == before


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x, n: x.reshape(n, -1), (np.arange(12.0), 3)),
        (lambda x, shape: x.reshape(shape), (np.arange(12.0), (3, 4))),
        (lambda x, n: np.full(n, x), (2.5, 4)),
        (lambda x, *n: x.reshape(n), (np.arange(12.0), 3, 4)),
        (lambda x, axis: x.sum(axis), (np.ones((2, 3)), 1)),
        (lambda x, n: {n: x}[n], (np.ones(2), 3)),
        (lambda x, n: [x, 2 * x, 3 * x][n], (np.ones(2), -1)),
        (lambda x, k: x[:k], (np.arange(5), 2)),
        (lambda x, n: np.concatenate([x] * n), (np.arange(3), 4)),
    ],
)
def test_whatever_asks_for_a_number_gets_it(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    expected = function(*arguments)
    result = hlojit.jit(function)(*arguments)
    np.testing.assert_array_equal(result, expected)
    assert np.asarray(result).dtype == np.asarray(expected).dtype


class Mode(enum.Enum):
    ADD = 1
    TAKE = 2


def test_what_cannot_be_an_array_is_static() -> None:
    def apply(function: Any, x: Any, kind: Any = "f4", mode: Any = Mode.ADD) -> Any:
        y = function(x).astype(kind)
        return y + 1 if mode is Mode.ADD else y - 1

    compiled = hlojit.jit(apply)
    x = np.linspace(0, 1, 5)
    for arguments in ((np.sin, x), (np.cos, x, "f8"), (np.cos, x, np.float64, Mode.TAKE), (abs, x, np.dtype("i4"))):
        result = compiled(*arguments)
        assert result.dtype == apply(*arguments).dtype
        np.testing.assert_allclose(result, apply(*arguments), rtol=1e-6)


def test_numbers_that_arrays_take_part_in_are_asked_for_as_before() -> None:
    @hlojit.jit
    def zeros(x: Any, n: Any) -> Any:
        return np.zeros(int(x.sum()) + n)

    with pytest.raises(hlojit.HlojitError, match="known only when the compiled function runs"):
        zeros(np.ones(3), 4)


def test_equal_numbers_of_two_parameters_stay_apart() -> None:
    @hlojit.jit
    def f(n: Any, scale: Any) -> Any:
        return np.ones(n) * scale

    np.testing.assert_array_equal(f(3, 3), [3, 3, 3])
    before = repr(f)
    np.testing.assert_array_equal(f(3, 5), [5, 5, 5])
    assert repr(f) == before


def test_lower_and_nested_functions_specialize_too() -> None:
    @hlojit.jit
    def inner(x: Any, n: Any) -> Any:
        return x.reshape(n, -1).sum(0)

    @hlojit.jit
    def outer(x: Any, n: Any) -> Any:
        return inner(x, n) + n

    np.testing.assert_array_equal(outer(np.arange(6.0), 2), [5, 7, 9])
    assert "tensor<3xf64>" in str(hlojit.jit(inner.function).lower(np.arange(6.0), 2))


def test_a_loop_whose_rounds_are_needed_one_by_one() -> None:
    @hlojit.jit
    def tower(x: Any, n: Any) -> Any:
        layers = []
        for i in range(n):
            layers.append(x[: i + 1].sum())
        return layers

    assert tower(np.arange(12.0), 12) == [sum(range(i + 1)) for i in range(12)]


@pytest.mark.parametrize(
    ("function", "calls", "words"),
    [
        (lambda x: x.sum(), [(np.ones((2, n)),) for n in range(1, 18)], "dimension 1 of x had 16 sizes"),
        (lambda n: np.zeros(n), [(n,) for n in range(18)], "the static argument n had 16 values"),
        (lambda x: x["a"], [({"a": 1.0, str(n): 2.0},) for n in range(18)], "16 different containers"),
    ],
)
def test_a_function_that_is_compiled_again_and_again(
    function: Callable[..., Any], calls: list[tuple[Any, ...]], words: str
) -> None:
    compiled = hlojit.jit(function)
    with pytest.warns(hlojit.RetracingWarning, match=words) as caught:
        for arguments in calls:
            compiled(*arguments)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_few_signatures_and_other_values_warn_of_nothing() -> None:
    compiled = hlojit.jit(lambda x, s: x * s)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, 40):
            compiled(np.ones(3), float(n))
        for n in range(1, 10):
            compiled(np.ones(n), 1.0)


def test_of_very_many_signatures_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jitted_functions, "MOST_KEPT", 6)
    compiled = hlojit.jit(lambda x: x + 1)
    for n in range(12):
        np.testing.assert_array_equal(compiled(np.zeros(n)), np.ones(n))
    assert len(compiled._compiled) <= 8
    np.testing.assert_array_equal(compiled(np.zeros(0)), np.ones(0))

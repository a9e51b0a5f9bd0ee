"""``associative_scan`` beside a plain loop and JAX's: lengths, axes, containers, derivatives, mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError

RNG = np.random.default_rng(0)


def by_loop(function: Callable[[Any, Any], Any], x: Any, reverse: bool, axis: int) -> Any:
    rows = list(np.moveaxis(x, axis, 0))
    rows = rows[::-1] if reverse else rows
    made = rows[:1]
    for row in rows[1:]:
        made.append(function(made[-1], row))
    made = made[::-1] if reverse else made
    return np.moveaxis(np.array(made, x.dtype), 0, axis) if made else x


def recurrence(a: Any, b: Any) -> Any:
    """``y = decay * y + x`` for all positions, of pairs."""
    return {"decay": a["decay"] * b["decay"], "x": a["x"] * b["decay"] + b["x"]}


def later_positive(a: Any, b: Any) -> Any:
    return np.where(b > 0, b, a)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 8, 13, 64, 100])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("function", [np.add, np.maximum, later_positive])
def test_lengths(length: int, reverse: bool, function: Callable[[Any, Any], Any]) -> None:
    x = RNG.integers(-9, 9, length)
    expected = by_loop(function, x, reverse, 0)
    scan = lambda x: hlojit.associative_scan(function, x, reverse=reverse)  # noqa: E731
    for found in (scan(x), hlojit.jit(scan)(x)):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == x.dtype and not np.shares_memory(found, x)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_axes_and_containers_beside_jax(axis: int, reverse: bool) -> None:
    import jax

    xs = {"decay": RNG.random((5, 7, 3)).astype("f4"), "x": RNG.random((5, 7, 3)).astype("f4")}
    expected = jax.lax.associative_scan(recurrence, xs, reverse=reverse, axis=axis % 3)
    found = hlojit.jit(lambda xs: hlojit.associative_scan(recurrence, xs, reverse=reverse, axis=axis))(xs)
    for name in xs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)


def test_a_recurrence_and_its_derivative() -> None:
    decay, x = RNG.random(33), RNG.random(33)

    def last(decay: Any, x: Any) -> Any:
        return hlojit.associative_scan(recurrence, {"decay": decay, "x": x})["x"][-1]

    def by_rounds(decay: Any, x: Any) -> Any:
        y = x[0]
        for n in range(1, len(x)):
            y = decay[n] * y + x[n]
        return y

    np.testing.assert_allclose(hlojit.jit(last)(decay, x), by_rounds(decay, x), rtol=1e-12)
    for mine, other in zip(
        hlojit.jit(hlojit.grad(last, argnums=(0, 1)))(decay, x), hlojit.grad(by_rounds, argnums=(0, 1))(decay, x)
    ):
        np.testing.assert_allclose(mine, other, rtol=1e-10)


def test_under_vmap_and_with_branches_on_values() -> None:
    def clipped(a: Any, b: Any) -> Any:
        return np.minimum(a + b, 5)

    x = RNG.integers(0, 3, (4, 9))
    found = hlojit.jit(hlojit.vmap(lambda row: hlojit.associative_scan(clipped, row)))(x)
    np.testing.assert_array_equal(found, np.minimum(np.cumsum(x, 1), 5))


@pytest.mark.parametrize(
    ("function", "xs", "said"),
    [
        (np.add, (np.ones(3), np.ones(4)), r"one length along axis 0; they have \[3, 4\]"),
        (np.add, np.ones(()), r"xs has 0 dimensions, and axis is 0"),
        (lambda a, b: (a, b), np.ones(4), "other containers"),
        (
            lambda a, b: a.sum(),
            np.ones(4),
            r"gives float64 of shape \(\) for xs, where it takes float64 of shape \(2,\)",
        ),
        (lambda a, b: a > b, np.ones(4), "gives bool of shape"),
        (np.add, ["text"], r"xs\[0\] is 'text' of type str, no array"),
    ],
)
def test_mistakes(function: Any, xs: Any, said: str) -> None:
    for scan in (hlojit.associative_scan, hlojit.jit(lambda x: hlojit.associative_scan(function, xs))):
        with pytest.raises(TracingError, match=said):
            scan(*((function, xs) if scan is hlojit.associative_scan else (np.ones(1),)))  # type: ignore[operator]

"""Generators of random numbers that a function makes of a seed: NumPy's own numbers, of traced arrays and distributions too."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

rng = np.random.default_rng
LINE = np.array([3, 1, 2, 5, 4], np.float32)
ROWS = np.arange(12.0).reshape(3, 4)


def shuffled(make: Callable[[int], Any], part: Callable[[Any], Any] = lambda x: x, **named: Any) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        generator = make(7)
        generator.shuffle(part(x), **named)
        return x.copy()

    return function


def written(x: Any) -> Any:
    generator = rng(7)
    noise, order = generator.normal(size=x.shape), generator.permutation(len(x))
    noise[0] = x[0]
    noise += x
    noise[x > 2] = 0
    order[1:] = x.ravel()[: len(x) - 1]
    return (
        noise,
        order,
        [x[i] for i in generator.integers(0, len(x), 3)],
        x[generator.permutation(len(x))[: int(generator.integers(1, 3))]],
    )


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        same = (type(a), a.dtype, a.shape) == (type(b), b.dtype, b.shape)
        return same and bool(np.allclose(a, b, rtol=1e-15, atol=0, equal_nan=True))
    return type(a) is type(b) and (a == b or abs(a - b) <= 1e-15 * abs(a))


@pytest.mark.parametrize("x", [LINE, ROWS], ids=["a line", "rows"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: rng(7).choice(x, len(x)), lambda x: rng(7).choice(x), lambda x: rng(7).choice(x, ()),
        lambda x: rng(7).choice(x, (2, 3), axis=-1), lambda x: rng(7).choice(x, 3, replace=False, shuffle=False),
        lambda x: rng(7).choice(x, 9, p=np.full(len(x), 1 / len(x))), lambda x: rng(7).permutation(x),
        lambda x: rng(7).permutation(x, axis=-1), lambda x: rng(7).permuted(x), lambda x: rng(7).permuted(x, axis=-1),
        lambda x: rng(7).permuted(x, axis=0), lambda x: np.random.RandomState(7).permutation(x),
        shuffled(rng), shuffled(rng, axis=-1), shuffled(rng, lambda x: x.T), shuffled(rng, lambda x: x[::-1]),
        shuffled(np.random.RandomState), shuffled(random.Random, lambda x: x.ravel()),
        lambda x: rng(7).normal(x, 2), lambda x: rng(7).normal(0, abs(x), (2, *x.shape)), lambda x: rng(7).uniform(x, x + 3),
        written, lambda x: rng(7).exponential(x + 1), lambda x: rng(7).normal(size=x.shape) * x,
    ],
)  # fmt: skip
def test_of_arrays(function: Callable[..., Any], x: Any) -> None:
    jitted = hlojit.jit(function)
    for given in (x, x[::-1].copy()):
        mine, other = copy.deepcopy(given), copy.deepcopy(given)
        assert alike(jitted(mine), function(other))
        assert alike(mine, other)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize(
    "function",
    [
        lambda seed: rng(seed).random(3), lambda seed: rng([seed, 2]).normal(size=2), lambda seed: rng(seed=seed).integers(9),
        lambda seed: np.random.RandomState(seed).rand(2), lambda seed: random.Random(seed).random(),
        lambda seed: np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed).spawn(2)[1])).random(3),
        lambda n: rng(7).choice(n + 2, 2), lambda n: rng(7).choice(9, (n + 1, 2)), lambda n: rng(7).permutation(n + 3),
        lambda n: rng(7).integers(0, n + 5, 5), lambda m: rng(7).normal(m, 2.0), lambda m: rng(7).normal(m, 2, 4),
        lambda m: rng(7).uniform(m, 9), lambda m: rng(7).uniform(-m, 9, (2, 1)), lambda s: rng(7).exponential(s),
        lambda m: np.random.RandomState(7).normal(m, 2, 3),
    ],
)  # fmt: skip
def test_of_numbers(function: Callable[..., Any], seed: int) -> None:
    assert alike(hlojit.jit(function)(seed), function(seed))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x: rng(7).choice(x, 2, axis=4), (LINE,)),
        (lambda x: rng(7).choice(x, 9, replace=False), (LINE,)),
        (lambda x: rng(7).choice(x, 2), (LINE[:0],)),
        (lambda k: rng(7).choice(k, 2), (5.0,)),
        (lambda x: rng(7).permutation(x, axis=7), (ROWS,)),
        (lambda x: np.random.RandomState(7).choice(x, 2), (ROWS,)),
        (lambda x: np.random.RandomState(7).choice(x, 2, axis=1), (ROWS,)),
        (lambda m, s: rng(7).normal(m, s), (3, -2.0)),
        (lambda m, s: rng(7).normal(m, s), (3, -0.0)),
        (lambda m, s: rng(7).normal(m, s, 2), (LINE, 2)),
        (lambda m, s: rng(7).normal(m, s), (1j, 2)),
        (lambda m, s: rng(7).uniform(m, s), (3, 1.5)),
        (lambda m, s: rng(7).uniform(m, s), (3, np.inf)),
    ],
)
def test_errors_of_numpy(function: Callable[..., Any], arguments: Any) -> None:
    with pytest.raises(Exception, match=".") as expected:
        function(*arguments)
    with pytest.raises(expected.type):
        hlojit.jit(function)(*arguments)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + rng().random(), lambda x: x + rng(None).random(), lambda x: x + rng(seed=None).random(),
        lambda x: x + np.random.RandomState().rand(), lambda x: x + np.random.Generator(np.random.PCG64()).random(),
        lambda x: x + rng(np.random.SeedSequence()).random(), lambda x: x + random.Random().random(),
        lambda x: x + random.SystemRandom(3).random(),
    ],
)  # fmt: skip
def test_without_a_seed(function: Callable[..., Any]) -> None:
    """NumPy draws others at every call."""
    with pytest.raises(hlojit.HlojitError, match="other numbers at every call"):
        hlojit.jit(function)(LINE)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: rng(7).choice(3, 2, p=x), "searchsorted"),
        (lambda x: rng(7).shuffle([x[0], x[1]]), "shuffle"),
        (lambda x: rng(7).permuted(x, out=x), "out="),
        (lambda x: rng(7).random(out=x), "out="),
        (lambda x: rng(7).poisson(x), "test_generators.py"),
    ],
)
def test_what_is_refused(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=words):
        hlojit.jit(function)(LINE)

"""The same numbers eagerly, in traced functions, in loops, batches and constants; derivatives of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import jax
import numpy as np
import pytest
from hlojit import random
from scipy import special

KEY = random.key(7)
CALLS: dict[str, Callable[[Any], Any]] = {
    "normal": lambda k: random.normal(k, (5,)),
    "integers": lambda k: random.integers(k, np.array([0, 5]), 2**60, None, np.uint64),
    "truncated_normal": lambda k: random.truncated_normal(k, -1, 2.0, (4,)),
    "split": lambda k: random.split(k, 3),
    "gamma": lambda k: random.gamma(k, np.array([0.5, 40.0])),
    "poisson": lambda k: random.poisson(k, np.array([3.0, 40.0])),
    "permutation": lambda k: random.permutation(k, 6),
    "choice": lambda k: random.choice(k, np.arange(4.0), (3,), p=[0.1, 0.2, 0.3, 0.4]),
}


def same(found: Any, expected: Any) -> None:
    """Integers exactly; floats but for the rounding of functions, which other kernels may compute."""
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    if np.asarray(found).dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", CALLS)
def test_the_numbers_are_the_same_everywhere(name: str) -> None:
    call, key = CALLS[name], random.key(7, ("threefry", "philox")[list(CALLS).index(name) % 2])
    expected = call(key)
    same(hlojit.jit(call)(key), expected)
    keys = random.split(key, 3)
    same(hlojit.vmap(call)(keys), np.stack([call(each) for each in keys]))


def test_keys_that_are_known_and_seeds_that_are_not() -> None:
    same(hlojit.jit(lambda: random.permutation(KEY, 5))(), random.permutation(KEY, 5))
    for generator in ("threefry", "philox"):
        found = hlojit.jit(lambda seed, generator=generator: random.normal(random.key(seed, generator), (3,)))(11)
        same(found, random.normal(random.key(11, generator), (3,)))


def test_bounds_and_shapes_that_are_arguments() -> None:
    between = hlojit.jit(lambda k, low, high: random.integers(k, low, high, (5,)))
    for low, high in ((3, 1000), (-(2**63), 2**63 - 1), (-5, 2**40)):
        same(between(KEY, low, high), random.integers(KEY, low, high, (5,)))
    same(hlojit.jit(lambda k, n: random.normal(k, (n,)))(KEY, 4), random.normal(KEY, (4,)))
    with pytest.raises(ValueError, match=r"integers: low >= high$"):
        between(KEY, 3, 3)
    with pytest.raises(ValueError, match="integers: high is out of bounds"):
        hlojit.jit(lambda k, high: random.integers(k, 0, high, dtype=np.uint8))(KEY, 257)


def test_in_loops() -> None:
    def walk(key: Any, count: int) -> Any:
        place = 0.0
        for number in range(count):
            key, own = random.split(key)
            place += random.normal(own) + random.uniform(random.fold_in(own, number))
        return place

    same(hlojit.jit(walk)(KEY, 20), walk(KEY, 20))


def test_derivatives_of_samples() -> None:
    bounds = hlojit.grad(lambda low: random.uniform(KEY, low=low, high=3.0))(1.0)
    same(bounds, 1 - random.uniform(KEY))
    gradient = hlojit.grad(lambda mean: (mean + 2 * random.normal(KEY, (3,))).sum())(1.0)
    assert gradient == 3
    step = 1e-6
    ends = [random.truncated_normal(KEY, 0.5 + each, 3.0) for each in (step, -step)]
    slope = hlojit.grad(lambda low: random.truncated_normal(KEY, low, 3.0))(0.5)
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("a", [0.05, 3.0, 9_999.0, 10_001.0, 1e7])
def test_derivatives_of_gamma_numbers_are_those_of_quantiles(a: float) -> None:
    value, step = random.gamma(KEY, a), 1e-5 * a
    share = special.gammainc(a, value)
    ends = [special.gammaincinv(a + each, share) for each in (step, -step)]
    found = hlojit.grad(lambda a: random.gamma(KEY, a))(a)
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * step), rtol=1e-7)


def test_second_derivatives_of_gamma_numbers() -> None:
    value, step = random.gamma(KEY, 2.0), 1e-3
    share = special.gammainc(2.0, value)
    below, above = (special.gammaincinv(2.0 + each, share) for each in (-step, step))
    found = hlojit.grad(hlojit.grad(lambda a: random.gamma(KEY, a)))(2.0)
    np.testing.assert_allclose(found, (below - 2 * value + above) / step**2, rtol=1e-5)


def test_derivatives_of_beta_numbers() -> None:
    value, step = random.beta(KEY, 2.0, 3.0), 1e-4
    found = hlojit.grad(lambda a: random.beta(KEY, a, 3.0))(2.0)
    # The key's two gamma numbers, of which the first changes.
    first, second = (random.loggamma(k, s) for k, s in zip(random.split(KEY), (2.0, 3.0)))
    share = special.gammainc(2.0, np.exp(first))
    moved = [special.gammaincinv(2.0 + each, share) for each in (step, -step)]
    ends = [each / (each + np.exp(second)) for each in moved]
    assert value == pytest.approx(np.exp(first) / (np.exp(first) + np.exp(second)))
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


def test_arguments_of_other_kinds() -> None:
    """Keys on devices and of JAX, lists in which something is traced."""
    same(random.normal(hlojit.put(KEY), (2,)), random.normal(KEY, (2,)))
    same(random.normal(jax.random.PRNGKey(7), (2,)), random.normal(KEY, (2,)))
    same(random.gamma(KEY, hlojit.put(np.array([2.0]))), random.gamma(KEY, [2.0]))
    chosen = hlojit.jit(lambda k, x: random.choice(k, [x, x + 1], (4,)))(KEY, 3.0)
    same(chosen, random.choice(KEY, [3.0, 4.0], (4,)))


def test_results_are_numpys() -> None:
    assert type(random.normal(KEY)) is np.float64 and type(random.integers(KEY, 5)) is np.int64
    assert random.normal(KEY, (0, 3)).shape == (0, 3) and random.permutation(KEY, np.zeros((0, 2))).shape == (0, 2)
    assert random.poisson(KEY, np.zeros(3)).tolist() == [0, 0, 0]

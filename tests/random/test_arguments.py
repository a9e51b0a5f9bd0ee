"""What is no key, shape, dtype or parameter is an error that names the argument and says what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import jax
import numpy as np
import pytest
from hlojit import random

KEY = random.key(0)

WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: random.normal(5), r"normal: key is the number 5; hlojit\.random\.key\(5\) makes a key"),
    (lambda: random.normal(np.random.default_rng(0)), "key is a generator of NumPy's, which changes as it is used"),
    (
        lambda: random.normal(random.split(KEY)),
        r"key holds 2 keys \(shape \(2, 2\)\): take one of them, key\[0\], or all by",
    ),
    (
        lambda: random.normal(np.zeros(2)),
        r"key is float64 of shape \(2,\); a key is uint32 of shape \(2,\) for Threefry",
    ),
    (lambda: random.normal(jax.random.key(0)), r"give jax\.random\.key_data\(key\)"),
    (lambda: random.normal(None), "key is NoneType, which is no key"),
    (lambda: random.normal(KEY, -1), r"normal: shape is \(-1,\), and has a negative number"),
    (lambda: random.normal(KEY, (2.5,)), r"normal: shape is \(2\.5,\), and must be a tuple of whole numbers"),
    (
        lambda: random.normal(KEY, (3,), int),
        "normal: dtype is int; one of float16, bfloat16, float32, float64, complex64",
    ),
    (lambda: random.uniform(KEY, (3,), ">f8"), "uniform: dtype is >f8"),
    (
        lambda: random.bits(KEY, (3,), np.int32),
        "bits: dtype is int32; one of unsigned integers of 8, 16, 32 or 64 bits",
    ),
    (
        lambda: random.uniform(KEY, (2,), low=np.zeros(3)),
        r"uniform: low of shape \(3,\) cannot be broadcast to shape=\(2,\)",
    ),
    (
        lambda: random.beta(KEY, np.ones(3), np.ones(2)),
        r"beta: parameters of shapes that do not fit each other: a \(3,\)",
    ),
    (lambda: random.uniform(KEY, low="a"), "uniform: low is str; a real number or an array of them"),
    (lambda: random.integers(KEY, 0, 1.5), "integers: high is 1.5, and must be a whole number"),
    (lambda: random.key(1.5), "key: seed is 1.5, and must be one whole number"),
    (lambda: random.key(2**70), "key: seed is 1180591620717411303424, and must be a whole number of at most 64 bits"),
    (lambda: random.key(0, "philo"), "key: impl is 'philo'; it is 'threefry' or 'philox'; did you mean 'philox'"),
    (lambda: random.fold_in(KEY, 1.5), "fold_in: data is 1.5"),
    (lambda: random.choice(KEY, 3, p=[0.5, 0.5]), r"choice: p has the shape \(2,\), and must have \(3,\)"),
    (lambda: random.choice(KEY, 1.5), "choice: 1.5 is neither a whole number nor an array"),
    (lambda: random.permutation(KEY, np.zeros((2, 2)), 2), "permutation: axis is 2, and there are 2 dimensions"),
    (lambda: random.categorical(KEY, np.zeros((2, 3)), shape=(3,)), r"categorical: shape is \(3,\), and must end in"),
    (lambda: random.dirichlet(KEY, 1.0), "dirichlet: alpha is a number, and must have at least one dimension"),
    (
        lambda: random.multivariate_normal(KEY, np.zeros(2), np.eye(3)),
        r"mean of shape \(2,\) and cov of shape \(3, 3\)",
    ),
    (lambda: hlojit.jit(lambda k: random.normal(k, (3,), int))(KEY), "normal: dtype is int"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(hlojit.ArgumentError, match=message):
        call()


IMPOSSIBLE: list[tuple[Callable[[Any], Any], str]] = [
    (lambda k: random.integers(k, 3, 3), "integers: low >= high"),
    (lambda k: random.integers(k, hlojit.put(np.array([3])), 2), "integers: low >= high"),
    (lambda k: random.integers(k, 3, 2, endpoint=True), "integers: low > high"),
    (lambda k: random.integers(k, 0, 257, dtype=np.uint8), "integers: high is out of bounds for uint8"),
    (lambda k: random.integers(k, np.array([0, -1]), 5, dtype=np.uint64), "integers: low is out of bounds for uint64"),
    (lambda k: random.uniform(k, low=2.0, high=1.0), "uniform: high is below low"),
    (lambda k: random.uniform(k, low=-1.5e308, high=1.5e308), "uniform: the distance from low to high is not finite"),
    (lambda k: random.bernoulli(k, [0.5, 1.5]), "bernoulli: p is not a probability"),
    (lambda k: random.truncated_normal(k, 1.0, 1.0), "truncated_normal: low must be below high"),
    (lambda k: random.gamma(k, 0.0), "gamma: a must be above 0"),
    (lambda k: random.beta(k, 1.0, np.nan), "beta: b must be above 0"),
    (lambda k: random.poisson(k, -1.0), "poisson: lam is negative"),
    (lambda k: random.poisson(k, 200.0, dtype=np.uint8), "poisson: lam is negative, NaN or too large for uint8"),
    (lambda k: random.geometric(k, 0.0), "geometric: p must be above 0"),
    (lambda k: random.geometric(k, 1e-3, dtype=np.uint8), "geometric: p is so small that uint8"),
    (lambda k: random.choice(k, 3, p=[0.5, 0.5, 0.5]), "choice: p does not sum to 1"),
    (lambda k: random.choice(k, 2, p=[1.5, -0.5]), "choice: p has negative numbers"),
    (lambda k: random.choice(k, 3, (4,), replace=False), "choice: 4 of 3 elements cannot be taken"),
    (
        lambda k: random.choice(k, 2, (2,), replace=False, p=[1.0, 0.0]),
        "fewer elements of p are above 0 than are taken",
    ),
    (lambda k: random.choice(k, 0, (1,)), "choice: a must not be empty"),
]


@pytest.mark.parametrize(("call", "message"), IMPOSSIBLE, ids=[message[:40] for _, message in IMPOSSIBLE])
def test_impossible_parameters(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(KEY)


@pytest.mark.parametrize(("call", "message"), IMPOSSIBLE[3::5], ids=[message[:40] for _, message in IMPOSSIBLE[3::5]])
def test_impossible_parameters_in_traced_functions(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hlojit.jit(call)(KEY)


def test_names_of_other_packages_say_what_it_is_called_here() -> None:
    for name, instead in (("randint", "integers"), ("PRNGKey", "key"), ("default_rng", "split"), ("nomal", "normal")):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'.*{instead}"):
            getattr(random, name)

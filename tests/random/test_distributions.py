"""Samples against SciPy's distributions, by tests of Kolmogorov and Smirnov and of chi-square at the level 1e-4, with fixed seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hlojit import random
from scipy import stats

LEVEL = 1e-4
COUNT = 20_000
GENERATORS = ("threefry", "philox")

Draw = Callable[[Any, Any], Any]

CONTINUOUS: dict[str, tuple[Draw, Any]] = {
    "uniform": (lambda k, d: random.uniform(k, (COUNT,), d, -2.0, 3.0), stats.uniform(-2, 5)),
    "normal": (lambda k, d: random.normal(k, (COUNT,), d), stats.norm),
    "exponential": (lambda k, d: random.exponential(k, (COUNT,), d), stats.expon),
    "laplace": (lambda k, d: random.laplace(k, (COUNT,), d), stats.laplace),
    "gumbel": (lambda k, d: random.gumbel(k, (COUNT,), d), stats.gumbel_r),
    "logistic": (lambda k, d: random.logistic(k, (COUNT,), d), stats.logistic),
    "cauchy": (lambda k, d: random.cauchy(k, (COUNT,), d), stats.cauchy),
    "truncated_normal": (lambda k, d: random.truncated_normal(k, -0.5, 2.0, (COUNT,), d), stats.truncnorm(-0.5, 2)),
    "truncated_normal_tail": (
        lambda k, d: random.truncated_normal(k, 8.0, np.inf, (COUNT,), d),
        stats.truncnorm(8, np.inf),
    ),
    "gamma_small": (lambda k, d: random.gamma(k, 0.2, (COUNT,), d), stats.gamma(0.2)),
    "gamma": (lambda k, d: random.gamma(k, 3.5, (COUNT,), d), stats.gamma(3.5)),
    "gamma_large": (lambda k, d: random.gamma(k, 1e6, (COUNT,), d), stats.gamma(1e6)),
    "loggamma": (lambda k, d: random.loggamma(k, 0.001, (COUNT,), d), stats.loggamma(0.001)),
    "chisquare": (lambda k, d: random.chisquare(k, 3.0, (COUNT,), d), stats.chi2(3)),
    "t": (lambda k, d: random.t(k, 2.5, (COUNT,), d), stats.t(2.5)),
    "beta": (lambda k, d: random.beta(k, 0.5, 3.0, (COUNT,), d), stats.beta(0.5, 3)),
    "dirichlet": (lambda k, d: random.dirichlet(k, [1.0, 2.0, 3.0], (COUNT,), d)[:, 1], stats.beta(2, 4)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    draw, distribution = CONTINUOUS[name]
    number = list(CONTINUOUS).index(name)
    dtype = (np.float32, np.float64)[number // 2 % 2]
    found = draw(random.key(number, GENERATORS[number % 2]), dtype)
    assert found.dtype == dtype and np.isfinite(found).all()
    assert stats.kstest(found.astype(np.float64), distribution.cdf).pvalue > LEVEL


def chi_square(found: Any, distribution: Any) -> float:
    """How likely counts that are as far from the expected ones are; rare numbers are counted together."""
    values = np.arange(found.max() + 1)
    expected = distribution.pmf(values) * len(found)
    often, counts = expected > 5, np.bincount(found, minlength=len(values))
    rest = len(found) - expected[often].sum()
    observed, wanted = [*counts[often]], [*expected[often]]
    if rest > 5:
        observed, wanted = [*observed, len(found) - sum(observed)], [*wanted, rest]
    total = sum(observed) / sum(wanted)
    return float(stats.chisquare(observed, [each * total for each in wanted]).pvalue)


DISCRETE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "integers": (lambda k: random.integers(k, 0, 13, (COUNT,)), stats.randint(0, 13)),
    "integers_of_a_byte": (lambda k: random.integers(k, 0, 100, (COUNT,), np.uint8), stats.randint(0, 100)),
    "bernoulli": (lambda k: random.bernoulli(k, 0.3, (COUNT,)).astype(int), stats.bernoulli(0.3)),
    "poisson_few": (lambda k: random.poisson(k, 2.5, (COUNT,)), stats.poisson(2.5)),
    "poisson_at_the_limit": (lambda k: random.poisson(k, 10.0, (COUNT,)), stats.poisson(10)),
    "poisson_many": (lambda k: random.poisson(k, 300.0, (COUNT,)), stats.poisson(300)),
    "geometric": (lambda k: random.geometric(k, 0.2, (COUNT,)), stats.geom(0.2)),
    "choice": (lambda k: random.choice(k, 5, (COUNT,)), stats.randint(0, 5)),
    "choice_by_p": (lambda k: random.choice(k, 2, (COUNT,), p=[0.7, 0.3]), stats.bernoulli(0.3)),
    "categorical": (lambda k: random.categorical(k, np.log([0.7, 0.3]), shape=(COUNT,)), stats.bernoulli(0.3)),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    draw, distribution = DISCRETE[name]
    number = list(DISCRETE).index(name)
    assert chi_square(draw(random.key(number, GENERATORS[number % 2])), distribution) > LEVEL


def test_a_wide_range_that_is_no_power_of_two_is_not_biased() -> None:
    """Of 64 bits a remainder would have the lower third twice as often."""
    top = 3 * 2**62
    found = random.integers(random.key(1), 0, top, (COUNT,), np.uint64)
    assert stats.kstest(found / top, stats.uniform.cdf).pvalue > LEVEL


@pytest.mark.parametrize("generator", GENERATORS)
def test_all_of_64_bits(generator: str) -> None:
    key = random.key(2, generator)
    whole = random.integers(key, -(2**63), 2**63, (COUNT,))
    assert stats.kstest(whole / 2.0**64, stats.uniform(-0.5, 1).cdf).pvalue > LEVEL
    # The same words: the bounds of unsigned ones are as far apart.
    unsigned = random.integers(key, 0, 2**64, (COUNT,), np.uint64)
    assert (unsigned == whole.view(np.uint64) + np.uint64(2**63)).all()
    assert (random.integers(key, 0, 2**64 - 1, (COUNT,), np.uint64, endpoint=True) == unsigned).all()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_of_every_type(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    found = random.integers(random.key(3), limits.min, limits.max, (4000,), dtype, endpoint=True)
    assert found.dtype == dtype
    middle = (int(limits.min) + int(limits.max)) // 2
    assert 1800 < (found > middle).sum() < 2200
    if limits.bits == 8:
        assert len(np.unique(found)) == 256


def test_bounds_are_broadcast() -> None:
    low, high = np.array([[0], [10]]), np.array([5, 100, 1000])
    found = random.integers(random.key(0), low, high + 10)
    assert found.shape == (2, 3) and (found >= low).all() and (found < high + 10).all()
    assert random.uniform(random.key(0), low=np.zeros(3), high=np.array([1.0, 2.0, 3.0])).shape == (3,)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_uniform_floats_take_every_value_below_1(dtype: Any) -> None:
    digits = {2: {np.float16: 10}.get(dtype, 7)}[np.dtype(dtype).itemsize]
    found = np.unique(random.uniform(random.key(0), (100_000,), dtype).astype(np.float64))
    assert (found == np.arange(2**digits) / 2**digits).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_uniform_floats_stay_below_the_upper_bound(dtype: Any) -> None:
    """Rounding would reach it: there are no floats between these bounds but the lower one."""
    high = np.nextafter(np.ones((), dtype), np.full((), 2, dtype))
    assert (random.uniform(random.key(0), (100,), dtype, 1.0, float(high)) == 1).all()


def test_truncated_normal_numbers_are_inside() -> None:
    low, high = np.array([-1.0, 3.0, 9.0, -np.inf]), np.array([1.0, 3.0000001, np.inf, -20.0])
    found = random.truncated_normal(random.key(0), low, high, (1000, 4), np.float32)
    assert ((low.astype("f4") <= found) & (found <= high.astype("f4"))).all()


def test_multivariate_normal() -> None:
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 0.5]])
    found = random.multivariate_normal(random.key(0), mean, cov, (COUNT,))
    assert found.shape == (COUNT, 2)
    np.testing.assert_allclose(found.mean(axis=0), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(found.T), cov, atol=0.05)
    assert random.multivariate_normal(random.key(0), mean, cov).shape == (2,)


def test_complex_normal_numbers() -> None:
    found = random.normal(random.key(0), (COUNT,), np.complex64)
    assert found.dtype == np.complex64
    for part in (found.real, found.imag):
        assert stats.kstest(part * np.sqrt(2), stats.norm.cdf).pvalue > LEVEL


def test_rademacher() -> None:
    found = random.rademacher(random.key(0), (COUNT,))
    assert set(found.tolist()) == {-1, 1} and abs(found.mean()) < 0.05
    assert random.rademacher(random.key(0), (3,), np.float32).dtype == np.float32


def test_choices_without_replacement_are_different() -> None:
    key, names = random.key(0), np.array([10, 20, 30, 40])
    for p in (None, [0.1, 0.2, 0.3, 0.4]):
        assert sorted(random.choice(key, names, (4,), replace=False, p=p).tolist()) == [10, 20, 30, 40]
    first = np.array([random.choice(each, 3, replace=False, p=[0.6, 0.3, 0.1]) for each in random.split(key, 400)])
    assert stats.chisquare(np.bincount(first, minlength=3), [240, 120, 40]).pvalue > LEVEL

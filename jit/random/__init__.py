"""Random numbers of explicit keys, eagerly on NumPy's arrays and in functions that are traced::

    key = hlojit.random.key(42)
    noise_key, choice_key = hlojit.random.split(key)
    noise = hlojit.random.normal(noise_key, (1000,))

The numbers follow from the key, the function and its arguments alone.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from hlojit.ir.near_names import did_you_mean
from hlojit.random.continuous import (
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    multivariate_normal,
    normal,
    truncated_normal,
)
from hlojit.random.discrete import categorical, choice, geometric, permutation, poisson
from hlojit.random.gammas import beta, chisquare, dirichlet, gamma, loggamma, t
from hlojit.random.keys import bits, fold_in, key, split
from hlojit.random.uniforms import bernoulli, integers, rademacher, uniform

__all__ = [
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "geometric",
    "gumbel",
    "integers",
    "key",
    "laplace",
    "loggamma",
    "logistic",
    "multivariate_normal",
    "normal",
    "permutation",
    "poisson",
    "rademacher",
    "split",
    "t",
    "truncated_normal",
    "uniform",
]

_INSTEAD: Final = {
    "PRNGKey": "key(seed)",
    "default_rng": "key(seed), and split(key) for each use",
    "Generator": "key(seed), and split(key) for each use",
    "seed": "key(seed)",
    "randint": "integers(key, low, high, shape)",
    "rand": "uniform(key, shape)",
    "random": "uniform(key, shape)",
    "randn": "normal(key, shape)",
    "standard_normal": "normal(key, shape)",
    "shuffle": "permutation(key, x), which gives a new array",
    "standard_exponential": "exponential(key, shape)",
    "standard_gamma": "gamma(key, a, shape)",
    "standard_t": "t(key, df, shape)",
}
"""What other packages call it."""


def __getattr__(name: str) -> NoReturn:
    instead = f": hlojit.random.{_INSTEAD[name]}" if name in _INSTEAD else did_you_mean(name, __all__)
    raise AttributeError(f"module 'hlojit.random' has no attribute {name!r}{instead}")


def __dir__() -> list[Any]:
    return sorted({*globals(), *__all__})

"""Prime numbers by the sieve of Eratosthenes."""

import numpy as np


def sieve(limit):
    prime = np.ones(limit + 1, dtype=bool)
    prime[:2] = False
    for n in range(2, int(limit**0.5) + 1):
        if prime[n]:
            prime[n * n :: n] = False
    return np.nonzero(prime)[0]


def sample(rng):
    return (10_000,)

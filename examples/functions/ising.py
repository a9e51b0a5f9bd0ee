"""The Ising model by the rule of Metropolis; random numbers are arguments."""

import numpy as np


def ising(spins, chosen, uniform, temperature):
    spins = spins.copy()
    n = spins.shape[0]
    energy = 0.0
    for (i, j), u in zip(chosen, uniform):
        around = spins[(i + 1) % n, j] + spins[i - 1, j] + spins[i, (j + 1) % n] + spins[i, j - 1]
        change = 2 * spins[i, j] * around
        if change <= 0 or u < np.exp(-change / temperature):
            spins[i, j] = -spins[i, j]
            energy += change
    return spins, energy, spins.mean()


def sample(rng):
    n = 32
    return rng.choice([-1, 1], size=(n, n)), rng.integers(0, n, size=(5000, 2)), rng.random(5000), 2.2

"""The best value that fits into a knapsack."""

import numpy as np


def knapsack(weights, values, capacity):
    best = np.zeros(capacity + 1, dtype=np.int64)
    for item in range(len(weights)):
        w, v = weights[item], values[item]
        for c in range(capacity, w - 1, -1):
            best[c] = max(best[c], best[c - w] + v)
    return best[capacity]


def sample(rng):
    return rng.integers(1, 40, 60), rng.integers(1, 100, 60), 500

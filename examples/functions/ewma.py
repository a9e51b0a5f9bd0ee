"""An exponentially weighted mean."""

import numpy as np


def ewma(x, alpha):
    out = np.empty_like(x)
    out[0] = x[0]
    for i in range(1, len(x)):
        out[i] = alpha * x[i] + (1 - alpha) * out[i - 1]
    return out


def sample(rng):
    return rng.normal(size=10_000), 0.1

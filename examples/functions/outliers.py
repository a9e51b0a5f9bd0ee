"""A mean and a deviation without the outliers: they are left out until none is found."""

import numpy as np


def outliers(x, limit=3.0):
    keep = np.ones(len(x), dtype=bool)
    while True:
        mean, deviation = x[keep].mean(), x[keep].std()
        new = np.abs(x - mean) < limit * deviation
        if (new == keep).all():
            break
        keep = new
    return mean, deviation, keep.sum()


def sample(rng):
    return (np.concatenate([rng.normal(size=2000), rng.normal(50, 20, size=40)]),)

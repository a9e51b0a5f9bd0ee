"""Rolling mean, deviation and z-score of a series."""

import numpy as np


def rolling(x, window):
    windows = np.lib.stride_tricks.sliding_window_view(x, window)
    mean = windows.mean(axis=-1)
    deviation = windows.std(axis=-1)
    return mean, deviation, (x[window - 1 :] - mean) / deviation


def sample(rng):
    return rng.normal(size=20_000).cumsum(), 50

"""An Asian option by Monte Carlo: the random numbers are an argument."""

import numpy as np


def asian_option(normals, price, strike, rate, volatility, time):
    steps = normals.shape[1]
    dt = time / steps
    moves = (rate - 0.5 * volatility**2) * dt + volatility * np.sqrt(dt) * normals
    paths = price * np.exp(np.cumsum(moves, axis=1))
    payoff = np.maximum(paths.mean(axis=1) - strike, 0.0)
    discounted = np.exp(-rate * time) * payoff
    return discounted.mean(), discounted.std(ddof=1) / np.sqrt(len(discounted))


def sample(rng):
    return rng.normal(size=(20_000, 50)), 100.0, 100.0, 0.03, 0.2, 1.0

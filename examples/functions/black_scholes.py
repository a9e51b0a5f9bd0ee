"""Prices of European options, calls and puts, by the formula of Black and Scholes."""

import numpy as np
from scipy.special import erf


def cdf(x):
    return 0.5 * (1 + erf(x / np.sqrt(2.0)))


def black_scholes(price, strike, time, rate, volatility):
    root = volatility * np.sqrt(time)
    d1 = (np.log(price / strike) + (rate + 0.5 * volatility**2) * time) / root
    d2 = d1 - root
    discounted = strike * np.exp(-rate * time)
    call = price * cdf(d1) - discounted * cdf(d2)
    put = discounted * cdf(-d2) - price * cdf(-d1)
    return {"call": call, "put": put}


def sample(rng):
    n = 100_000
    return rng.uniform(10, 100, n), rng.uniform(10, 100, n), rng.uniform(0.2, 2, n), 0.02, 0.3

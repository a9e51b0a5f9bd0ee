"""A root of each polynomial x**3 - a*x - b, by Newton's method, one number after the other."""

import numpy as np


def root(a, b):
    x = 2.0 + abs(a) + abs(b)
    for _ in range(100):
        step = (x * x * x - a * x - b) / (3 * x * x - a)
        x -= step
        if abs(step) < 1e-12 * abs(x):
            break
    return x


def newton(a, b):
    out = np.empty(len(a))
    for i in range(len(a)):
        out[i] = root(a[i], b[i])
    return out


def sample(rng):
    return rng.uniform(0.5, 2.0, 2000), rng.uniform(0.5, 3.0, 2000)

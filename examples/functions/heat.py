"""Heat in a plate with fixed borders."""

import numpy as np


def heat(u, rate, steps):
    u = u.copy()
    for _ in range(steps):
        u[1:-1, 1:-1] += rate * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return u


def sample(rng):
    u = np.zeros((200, 200))
    u[0] = 100.0
    return u, 0.2, 200

"""The Lorenz system by the classical method of Runge and Kutta."""

import numpy as np


def lorenz(state, sigma=10.0, rho=28.0, beta=8.0 / 3.0):
    x, y, z = state
    return np.array([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])


def runge_kutta(state, dt, steps):
    path = np.zeros((steps + 1, 3))
    path[0] = state
    for n in range(steps):
        s = path[n]
        k1 = lorenz(s)
        k2 = lorenz(s + dt / 2 * k1)
        k3 = lorenz(s + dt / 2 * k2)
        k4 = lorenz(s + dt * k3)
        path[n + 1] = s + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return path


def sample(rng):
    return np.array([1.0, 1.0, 1.0]), 0.01, 500

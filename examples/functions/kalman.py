"""A Kalman filter: position and speed from noisy positions."""

import numpy as np


def kalman(measured, dt, q, r):
    transition = np.array([[1.0, dt], [0.0, 1.0]])
    seen = np.array([[1.0, 0.0]])
    noise = q * np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    x = np.zeros(2)
    p = np.eye(2)
    states = np.empty((len(measured), 2))
    for i in range(len(measured)):
        x = transition @ x
        p = transition @ p @ transition.T + noise
        innovation = measured[i] - (seen @ x)[0]
        s = (seen @ p @ seen.T)[0, 0] + r
        gain = (p @ seen.T)[:, 0] / s
        x = x + gain * innovation
        p = p - np.outer(gain, seen @ p)
        states[i] = x
    return states


def sample(rng):
    t = np.arange(0, 20, 0.1)
    return np.sin(t) + 0.1 * rng.normal(size=t.size), 0.1, 0.5, 0.01

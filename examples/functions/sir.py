"""An epidemic: susceptible, infected, recovered, by small steps of time."""

import numpy as np


def sir(beta, gamma, infected, days, dt=0.1):
    s, i, r = 1.0 - infected, infected, 0.0
    steps = int(days / dt)
    history = np.zeros((steps, 3))
    for n in range(steps):
        new = beta * s * i * dt
        gone = gamma * i * dt
        s -= new
        i += new - gone
        r += gone
        history[n] = s, i, r
    return history


def sample(rng):
    return 0.3, 0.1, 0.001, 160

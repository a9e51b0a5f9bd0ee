"""A network of two layers learns to tell two spirals apart; the gradient by hand."""

import numpy as np


def mlp_training(x, y, w1, b1, w2, b2, steps=100, rate=0.5):
    w1, b1, w2, b2 = w1.copy(), b1.copy(), w2.copy(), b2.copy()
    losses = np.zeros(steps)
    for n in range(steps):
        hidden = np.tanh(x @ w1 + b1)
        p = 1 / (1 + np.exp(-(hidden @ w2 + b2)))
        losses[n] = -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))
        error = (p - y) / len(y)
        back = np.outer(error, w2) * (1 - hidden**2)
        w2 -= rate * (hidden.T @ error)
        b2 -= rate * error.sum()
        w1 -= rate * (x.T @ back)
        b1 -= rate * back.sum(axis=0)
    return losses


def sample(rng):
    t = np.linspace(0.5, 6, 200)
    spiral = np.stack([t * np.cos(t), t * np.sin(t)], axis=1) / 6
    x = np.concatenate([spiral, -spiral]) + 0.02 * rng.normal(size=(400, 2))
    y = np.repeat([0.0, 1.0], 200)
    return x, y, rng.normal(size=(2, 32)), np.zeros(32), rng.normal(size=32) / 6, np.zeros(())

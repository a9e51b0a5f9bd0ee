"""An LSTM over a sequence."""

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def lstm(x, w, u, b):
    h = np.zeros((x.shape[1], u.shape[0]), dtype=x.dtype)
    c = np.zeros_like(h)
    outputs = []
    for step in x:
        i, f, g, o = np.split(step @ w + h @ u + b, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), (h, c)


def sample(rng):
    steps, batch, inputs, hidden = 40, 16, 32, 64
    scale = 0.2
    return (
        rng.normal(size=(steps, batch, inputs)).astype(np.float32),
        (scale * rng.normal(size=(inputs, 4 * hidden))).astype(np.float32),
        (scale * rng.normal(size=(hidden, 4 * hidden))).astype(np.float32),
        np.zeros(4 * hidden, dtype=np.float32),
    )

"""The solution of a positive definite system by conjugate gradients."""

import numpy as np


def conjugate_gradient(a, b, tolerance=1e-10):
    x = np.zeros_like(b)
    r = b - a @ x
    p = r.copy()
    rs = r @ r
    count = 0
    while np.sqrt(rs) > tolerance and count < len(b):
        ap = a @ p
        alpha = rs / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        new = r @ r
        p = r + (new / rs) * p
        rs = new
        count += 1
    return x, count


def sample(rng):
    m = rng.normal(size=(200, 200))
    return m @ m.T + 200 * np.eye(200), rng.normal(size=200)

"""The largest eigenvalue of a matrix and its vector."""

import numpy as np


def power_method(matrix, tolerance=1e-12):
    vector = np.ones(len(matrix)) / np.sqrt(len(matrix))
    value = 0.0
    for rounds in range(1000):
        image = matrix @ vector
        new = vector @ image
        vector = image / np.linalg.norm(image)
        if abs(new - value) < tolerance * abs(new):
            break
        value = new
    return new, vector, rounds


def sample(rng):
    a = rng.random((200, 200))
    return (a + a.T,)

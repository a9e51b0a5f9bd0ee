"""A self-organizing map of colours."""

import numpy as np


def self_organizing_map(colors, grid, rate, radius):
    grid = grid.copy()
    rows, columns, _ = grid.shape
    y, x = np.mgrid[0:rows, 0:columns]
    for n, color in enumerate(colors):
        fade = np.exp(-n / len(colors))
        distance = ((grid - color) ** 2).sum(axis=2)
        row, column = np.unravel_index(distance.argmin(), distance.shape)
        near = np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * (radius * fade) ** 2))
        grid += rate * fade * near[..., None] * (color - grid)
    return grid


def sample(rng):
    return rng.random((400, 3)), rng.random((16, 16, 3)), 0.5, 5.0

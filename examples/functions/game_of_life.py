"""Conway's game of life on a torus."""

import numpy as np


def game_of_life(world, steps):
    for _ in range(steps):
        neighbours = sum(
            np.roll(np.roll(world, i, axis=0), j, axis=1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)
        )
        world = ((neighbours == 3) | ((world == 1) & (neighbours == 2))).astype(np.uint8)
    return world


def sample(rng):
    return (rng.random((128, 128)) < 0.3).astype(np.uint8), 50

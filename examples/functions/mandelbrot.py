"""The Mandelbrot set: how many rounds each point takes to escape."""

import numpy as np


def escape(c, limit):
    z = 0j
    for n in range(limit):
        if z.real * z.real + z.imag * z.imag > 4.0:
            return n
        z = z * z + c
    return limit


def mandelbrot(width, height, limit):
    counts = np.zeros((height, width), dtype=np.int64)
    for i in range(height):
        for j in range(width):
            counts[i, j] = escape(complex(-2.0 + 2.8 * j / width, -1.2 + 2.4 * i / height), limit)
    return counts


def sample(rng):
    return 120, 80, 100

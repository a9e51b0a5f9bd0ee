"""The edit distance of two words, given as arrays of codes."""

import numpy as np


def edit_distance(a, b):
    row = np.arange(len(b) + 1)
    for i in range(len(a)):
        previous = row[0]
        row[0] = i + 1
        for j in range(len(b)):
            current = row[j + 1]
            if a[i] == b[j]:
                row[j + 1] = previous
            else:
                row[j + 1] = 1 + min(previous, current, row[j])
            previous = current
    return row[-1]


def sample(rng):
    return rng.integers(0, 4, 200), rng.integers(0, 4, 220)

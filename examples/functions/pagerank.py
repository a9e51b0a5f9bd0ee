"""PageRank of a graph by powers, until nothing changes."""

import numpy as np


def pagerank(links, damping=0.85, tolerance=1e-10):
    n = len(links)
    out = links.sum(axis=1)
    transition = np.where(out[:, None] > 0, links / np.maximum(out, 1)[:, None], 1.0 / n)
    rank = np.full(n, 1.0 / n)
    change, rounds = 1.0, 0
    while change > tolerance and rounds < 500:
        new = (1 - damping) / n + damping * (rank @ transition)
        change = np.abs(new - rank).sum()
        rank = new
        rounds += 1
    return rank, rounds


def sample(rng):
    return ((rng.random((300, 300)) < 0.03).astype(float),)

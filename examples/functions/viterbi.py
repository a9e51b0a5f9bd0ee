"""The most probable path through a hidden Markov model."""

import numpy as np


def viterbi(log_start, log_transition, log_emission, observed):
    steps, states = len(observed), len(log_start)
    score = np.zeros((steps, states))
    back = np.zeros((steps, states), dtype=int)
    score[0] = log_start + log_emission[:, observed[0]]
    for t in range(1, steps):
        candidates = score[t - 1][:, None] + log_transition
        back[t] = candidates.argmax(axis=0)
        score[t] = candidates.max(axis=0) + log_emission[:, observed[t]]
    path = np.zeros(steps, dtype=int)
    path[-1] = score[-1].argmax()
    for t in range(steps - 2, -1, -1):
        path[t] = back[t + 1, path[t + 1]]
    return path, score[-1].max()


def sample(rng):
    logs = [np.log(rng.dirichlet(np.ones(k), size=n)) for n, k in ((1, 12), (12, 12), (12, 20))]
    return logs[0][0], logs[1], logs[2], rng.integers(0, 20, 500)

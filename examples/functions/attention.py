"""Causal attention with several heads."""

import numpy as np


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(x, wqkv, wo, heads):
    n, d = x.shape
    q, k, v = (part.reshape(n, heads, d // heads).transpose(1, 0, 2) for part in np.split(x @ wqkv, 3, axis=1))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(d // heads))
    mask = np.tril(np.ones((n, n), dtype=bool))
    weights = softmax(np.where(mask, scores, np.float32(-1e9)))
    return (weights @ v).transpose(1, 0, 2).reshape(n, d) @ wo


def sample(rng):
    n, d = 256, 256
    return (
        rng.normal(size=(n, d)).astype(np.float32),
        (rng.normal(size=(d, 3 * d)) / 16).astype(np.float32),
        (rng.normal(size=(d, d)) / 16).astype(np.float32),
        8,
    )

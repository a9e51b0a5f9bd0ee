"""Principal components: the directions of the largest variance, and the data in them."""

import numpy as np


def pca(x, k=3):
    centered = x - x.mean(axis=0)
    covariance = np.cov(centered, rowvar=False)
    values, vectors = np.linalg.eigh(covariance)
    order = np.argsort(values)[::-1][:k]
    components = vectors[:, order]
    signs = np.sign(components[np.abs(components).argmax(axis=0), np.arange(k)])
    components = components * signs
    return centered @ components, values[order] / values.sum()


def sample(rng):
    return (rng.normal(size=(500, 8)) @ rng.normal(size=(8, 8)) * np.arange(1.0, 9.0),)

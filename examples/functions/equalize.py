"""Histogram equalization of a grey picture."""

import numpy as np


def equalize(image):
    counts, _ = np.histogram(image.ravel(), bins=256, range=(0, 256))
    total = counts.cumsum()
    first = total[total > 0].min()
    table = np.round((total - first) / (image.size - first) * 255).clip(0, 255).astype(np.uint8)
    return table[image]


def sample(rng):
    return (np.clip(rng.normal(100, 20, size=(240, 320)), 0, 255).astype(np.uint8),)

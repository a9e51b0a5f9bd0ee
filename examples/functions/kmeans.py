"""k-means clustering: assignment by distances, means by masks, until the centres stand still."""

import numpy as np


def kmeans(points, centers, steps=20):
    centers = centers.copy()
    for _ in range(steps):
        distances = ((points[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2)
        label = distances.argmin(axis=1)
        new = centers.copy()
        for k in range(len(centers)):
            mine = label == k
            if mine.any():
                new[k] = points[mine].mean(axis=0)
        if np.allclose(new, centers):
            break
        centers = new
    return centers, label


def sample(rng):
    middle = np.array([[0.0, 0.0], [4.0, 4.0], [-4.0, 4.0]])
    points = middle[rng.integers(0, 3, 600)] + rng.normal(size=(600, 2))
    return points, points[:3].copy()

"""A picture of a sphere above a plane, by marching along rays through a distance field."""

import numpy as np


def distance(p):
    sphere = np.sqrt(p[..., 0] ** 2 + (p[..., 1] - 0.2) ** 2 + (p[..., 2] - 3.0) ** 2) - 1.0
    plane = p[..., 1] + 1.0
    return np.minimum(sphere, plane)


def normal(p, h=1e-4):
    gradient = np.stack([distance(p + h * e) - distance(p - h * e) for e in np.eye(3)], axis=-1)
    return gradient / np.linalg.norm(gradient, axis=-1, keepdims=True)


def ray_marcher(width, height, light, steps=60):
    x, y = np.meshgrid(np.linspace(-1.6, 1.6, width), np.linspace(1.0, -1.0, height))
    direction = np.stack([x, y, np.full_like(x, 1.5)], axis=-1)
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    t = np.zeros((height, width))
    for _ in range(steps):
        d = distance(t[..., None] * direction)
        t += np.where((d > 1e-3) & (t < 20.0), d, 0.0)
    hit = t < 20.0
    point = t[..., None] * direction
    shade = np.clip((normal(point) * light).sum(axis=-1), 0.1, 1.0)
    return np.where(hit, shade, 0.0)


def sample(rng):
    light = np.array([0.5, 0.8, -0.4])
    return 160, 100, light / np.linalg.norm(light)

"""A picture turned and scaled, by bilinear interpolation."""

import numpy as np


def bilinear(image, angle, scale):
    h, w = image.shape
    y, x = np.indices((h, w))
    cy, cx = (h - 1) / 2, (w - 1) / 2
    c, s = np.cos(angle) / scale, np.sin(angle) / scale
    sx = c * (x - cx) - s * (y - cy) + cx
    sy = s * (x - cx) + c * (y - cy) + cy
    inside = (sx >= 0) & (sx < w - 1) & (sy >= 0) & (sy < h - 1)
    x0 = np.clip(np.floor(sx).astype(int), 0, w - 2)
    y0 = np.clip(np.floor(sy).astype(int), 0, h - 2)
    fx, fy = sx - x0, sy - y0
    top = image[y0, x0] * (1 - fx) + image[y0, x0 + 1] * fx
    bottom = image[y0 + 1, x0] * (1 - fx) + image[y0 + 1, x0 + 1] * fx
    return np.where(inside, top * (1 - fy) + bottom * fy, 0.0)


def sample(rng):
    return rng.random((200, 300)), 0.3, 1.2

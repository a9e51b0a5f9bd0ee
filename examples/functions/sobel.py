"""Edges of a picture: convolution with two small kernels, magnitude, threshold."""

import numpy as np


def convolve(image, kernel):
    padded = np.pad(image, 1, mode="edge")
    out = np.zeros_like(image)
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            out += kernel[i, j] * padded[i : i + image.shape[0], j : j + image.shape[1]]
    return out


def sobel(image, threshold):
    gx = np.array([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
    magnitude = np.hypot(convolve(image, gx), convolve(image, gx.T))
    magnitude *= 255.0 / magnitude.max()
    magnitude[magnitude < threshold] = 0
    return magnitude


def sample(rng):
    y, x = np.mgrid[0:240, 0:320]
    return 255.0 * ((x // 40 + y // 40) % 2) + rng.normal(size=(240, 320)), 40.0

"""A polynomial through noisy points, its errors and R squared."""

import numpy as np


def least_squares(x, y, degree):
    basis = np.vander(x, degree + 1, increasing=True)
    coefficients, _, rank, _ = np.linalg.lstsq(basis, y, rcond=None)
    residual = y - basis @ coefficients
    variance = (residual @ residual) / (len(y) - rank)
    errors = np.sqrt(np.diag(variance * np.linalg.inv(basis.T @ basis)))
    return coefficients, errors, 1 - (residual @ residual) / ((y - y.mean()) ** 2).sum()


def sample(rng):
    x = np.linspace(-1, 1, 400)
    return x, 1 - 2 * x + 3 * x**3 + 0.1 * rng.normal(size=x.size), 4

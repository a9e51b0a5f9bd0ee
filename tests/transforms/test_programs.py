"""Gradients of programs that people write, as they write them, against differences along a direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

_RNG = np.random.default_rng(0)
_X, _Y = _RNG.standard_normal((12, 3)), _RNG.standard_normal(12)
_CLASSES = np.arange(12) % 4


def gaussian_process(p: Any) -> Any:
    length, scale, noise = np.exp(p)
    distances = ((_X[:, None] - _X[None]) ** 2).sum(-1)
    covariance = scale**2 * np.exp(-0.5 * distances / length**2) + noise**2 * np.eye(12)
    factor = np.linalg.cholesky(covariance)
    alpha = np.linalg.solve(factor.T, np.linalg.solve(factor, _Y))
    return 0.5 * _Y @ alpha + np.sum(np.log(np.diag(factor))) + 6 * np.log(2 * np.pi)


def softmax_regression(p: Any) -> Any:
    scores = np.maximum(0, _X @ p[:, :5]) @ p[:, 5:].reshape(5, -1)[:, :4]
    scores = scores - scores.max(axis=1, keepdims=True)
    return -(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))[np.arange(12), _CLASSES].mean()


def lstm(p: Any) -> Any:
    h, c, total = np.zeros(4), np.zeros(4), 0.0
    for t in range(12):
        i, f, o, g = np.split(np.concatenate([_X[t], h]) @ p, 4)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        total = total + (h.sum() - _Y[t]) ** 2
    return total / 12


def kalman_filter(p: Any) -> Any:
    A, Q, R = np.eye(2) * p[0], np.diag(p[1:3] ** 2), p[3] ** 2
    H, m, P, likelihood = np.array([[1.0, 0.5]]), np.zeros(2), np.eye(2), 0.0
    for k in range(12):
        m, P = A @ m, A @ P @ A.T + Q
        S = (H @ P @ H.T)[0, 0] + R
        error = _Y[k] - (H @ m)[0]
        gain = (P @ H.T)[:, 0] / S
        m, P = m + gain * error, P - np.outer(gain, H @ P)
        likelihood = likelihood - 0.5 * (np.log(2 * np.pi * S) + error * error / S)
    return -likelihood


def differential_equation(p: Any) -> Any:
    t, s = 0.0, 1.0
    while t < 2.0:
        slope = -p[0] * s + p[1] * np.sin(t)
        ahead = -p[0] * (s + 0.1 * slope) + p[1] * np.sin(t + 0.1)
        s, t = s + 0.05 * (slope + ahead), t + 0.1
    return (s - 0.3) ** 2


def clusters(c: Any) -> Any:
    nearest = ((_X[:, None, :] - c[None]) ** 2).sum(axis=2).argmin(axis=1)
    return ((_X - c[nearest]) ** 2).sum()


def convolutions(w: Any) -> Any:
    images = np.arange(64.0).reshape(1, 8, 8) / 64
    found = 0.0
    for i in range(3):
        for j in range(3):
            found = found + images[:, i : i + 6, j : j + 6] * w[i, j]
    return (np.maximum(found, 0).reshape(1, 3, 2, 3, 2).max(axis=(2, 4)) ** 2).sum()


def spectrum(x: Any) -> Any:
    kept = np.where(np.arange(9) < 5, np.fft.rfft(x), 0) * np.exp(-np.arange(9) / 3)
    return np.sum(np.fft.irfft(kept, 16) ** 2) + np.sum(np.abs(np.fft.fft(x)) ** 3)


def sorted_sum(x: Any) -> Any:
    return (np.sort(x, axis=1) * np.arange(9)).sum() + (x[0][np.argsort(x[1])] * x[2]).sum()


def attention(x: Any) -> Any:
    scores = np.where(np.tril(np.ones((4, 4), bool)), x @ x.T / np.sqrt(6.0), -1e9)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.sum((weights / weights.sum(-1, keepdims=True) @ x) ** 2)


def views_and_writes(p: Any) -> Any:
    x = np.zeros(6)
    v = x[1:4]
    v[:] = p
    v *= 2
    x[::2] += p[0]
    x.reshape(2, 3)[1] *= p[1]
    return np.sum(x**2)


def edit_distance(p: Any) -> Any:
    d = np.zeros((4, 4))
    for i in range(1, 4):
        for j in range(1, 4):
            d[i, j] = p[i, j] + np.minimum(np.minimum(d[i - 1, j], d[i, j - 1]), d[i - 1, j - 1])
    return d[3, 3]


def products_with_a_zero(x: Any) -> Any:
    x = x * np.array([1.0, 0.0, 1.0, 1.0])
    return np.prod(x + np.array([0.0, 0.0, 1.0, 2.0])) + np.sum(np.cumprod(x + 1)) + np.prod(x[2:])


def statistics(x: Any) -> Any:
    return np.std(x) + np.cov(x).sum() + np.corrcoef(x)[0, 1] + np.ptp(x) + np.linalg.norm(x, axis=1).prod()


PROGRAMS: list[tuple[Callable[[Any], Any], Any]] = [
    (gaussian_process, np.array([0.1, 0.2, -0.5])),
    (softmax_regression, _RNG.standard_normal((3, 20))),
    (lstm, 0.3 * _RNG.standard_normal((7, 16))),
    (kalman_filter, np.array([0.9, 0.1, 0.2, 0.3])),
    (differential_equation, np.array([1.0, 0.5])),
    (clusters, _RNG.standard_normal((3, 3))),
    (convolutions, _RNG.standard_normal((3, 3))),
    (spectrum, _RNG.standard_normal(16)),
    (sorted_sum, _RNG.standard_normal((3, 9))),
    (attention, _RNG.standard_normal((4, 6))),
    (views_and_writes, np.array([0.3, 2.0, 1.0])),
    (edit_distance, _RNG.standard_normal((4, 4))),
    (products_with_a_zero, _RNG.standard_normal(4)),
    (statistics, _RNG.standard_normal((3, 4))),
]


@pytest.mark.parametrize(("function", "at"), PROGRAMS, ids=lambda value: getattr(value, "__name__", ""))
def test_gradients_of_programs(function: Callable[[Any], Any], at: Any) -> None:
    direction = np.random.default_rng(1).standard_normal(at.shape)
    before = at.copy()
    along = np.sum(hlojit.grad(function)(at) * direction)
    np.testing.assert_array_equal(at, before)
    step = 1e-6 * direction
    np.testing.assert_allclose(along, (function(at + step) - function(at - step)) / 2e-6, rtol=2e-6, atol=2e-6)


def test_zeros_in_products() -> None:
    """The quotient of the product and its factor would be NaN."""
    x = np.array([2.0, 0.0, 3.0])
    np.testing.assert_array_equal(hlojit.grad(np.prod)(x), [0.0, 6.0, 0.0])
    np.testing.assert_array_equal(hlojit.grad(lambda x: np.sum(np.cumprod(x)))(x), [1.0, 8.0, 0.0])


def test_batches_of_loops_whose_elements_end_at_different_times() -> None:
    def grown(p: Any) -> Any:
        s = p
        while s < 10:
            s = s * p + 1
        return s

    values = np.array([1.1, 1.5, 3.0, 20.0])
    np.testing.assert_array_equal(hlojit.vmap(grown)(values), [grown(value) for value in values])
    each = [hlojit.grad(grown)(value) for value in values]
    np.testing.assert_array_equal(hlojit.vmap(hlojit.grad(grown))(values), each)


def test_per_example_gradients_and_hessians() -> None:
    w = _RNG.standard_normal((3, 4))

    def loss(w: Any, x: Any, y: Any) -> Any:
        return np.mean((np.tanh(x @ w).sum(-1) - y) ** 2)

    each = hlojit.vmap(hlojit.grad(loss), in_axes=(None, 0, 0))(w, _X, _Y)
    np.testing.assert_allclose(each.mean(axis=0), hlojit.grad(loss)(w, _X, _Y), rtol=1e-12)
    direction = np.ones_like(w)
    _, product = hlojit.jvp(lambda w: hlojit.grad(loss)(w, _X, _Y), (w,), (direction,))
    np.testing.assert_allclose(np.tensordot(hlojit.hessian(loss)(w, _X, _Y), direction, 2), product, rtol=1e-9)

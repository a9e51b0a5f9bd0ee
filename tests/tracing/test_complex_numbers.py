"""Traced NumPy functions of complex numbers: results of NumPy's dtype and shape, and NumPy's numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

Function = Callable[[Any, Any, Any], Any]

FUNCTIONS: dict[str, Function] = {
    "arithmetic": lambda z, w, x: z * w + z / w - x * z + 2 - 1j * x,
    "powers": lambda z, w, x: z**2 + z**3 + np.square(w) + np.reciprocal(w) + w**-1,
    "power": lambda z, w, x: z**w + z**x,
    "real": lambda z, w, x: z.real + np.real(w) + np.real(x),
    "imag": lambda z, w, x: z.imag + np.imag(w) + x.imag,
    "conjugate": lambda z, w, x: np.conj(z) + w.conj() * z.conjugate() + x.conj(),
    "abs": lambda z, w, x: np.abs(z) + abs(w),
    "angle": lambda z, w, x: np.angle(z) + np.angle(w, deg=True) + np.angle(x),
    "sign": lambda z, w, x: np.sign(z),
    "matmul": lambda z, w, x: z @ w.T @ np.conj(z),
    "vdot": lambda z, w, x: np.vdot(z, w),
    "einsum": lambda z, w, x: np.einsum("ij,kj->ik", z, np.conj(w)),
    "real_times_complex": lambda z, w, x: x @ w.T,
    "exponentials": lambda z, w, x: np.exp(z) + np.expm1(w) + np.exp2(z),
    "logarithms": lambda z, w, x: np.log(z) + np.log1p(w) + np.log2(z) + np.log10(w),
    "roots": lambda z, w, x: np.sqrt(z) + np.sqrt(-w),
    "trigonometry": lambda z, w, x: np.sin(z) + np.cos(w) + np.tan(z),
    "inverse_trigonometry": lambda z, w, x: np.arcsin(z) + np.arccos(w) + np.arctan(z),
    "hyperbolic": lambda z, w, x: np.sinh(z) + np.cosh(w) + np.tanh(z),
    "inverse_hyperbolic": lambda z, w, x: np.arcsinh(z) + np.arccosh(w) + np.arctanh(z),
    "sums": lambda z, w, x: z.sum() + w.sum(0) + np.mean(z, axis=0) + np.cumsum(z, 1)[0],
    "products": lambda z, w, x: z.prod(1) + np.cumprod(w, 1)[:, -1],
    "variance": lambda z, w, x: z.var(0) + np.std(w),
    "norm": lambda z, w, x: np.linalg.norm(z) + np.linalg.norm(w, axis=1),
    "extremes": lambda z, w, x: z.max() + np.maximum(z, w) - w.min(0),
    "places": lambda z, w, x: z.argmax(1) + np.argmin(w),
    "sort": lambda z, w, x: np.sort(z, 1),
    "comparisons": lambda z, w, x: (z == w) | (z != z) | (z < w) | (z >= w),
    "truth": lambda z, w, x: z.any() & np.all(w * 1j) & np.logical_and(1j * x, w),
    "tests": lambda z, w, x: np.isnan(z) | np.isinf(w) | ~np.isfinite(z) | np.isreal(z) | np.iscomplex(x),
    "kinds": lambda z, w, x: z if np.iscomplexobj(z) and np.isrealobj(x) else w,
    "rint": lambda z, w, x: np.rint(3 * z),
    "movement": lambda z, w, x: np.where(x > 0, z, w).T.reshape(2, 10)[:, ::-1],
    "joined": lambda z, w, x: np.concatenate([z, x, np.stack([w[0], z[0]])]),
    "conversions": lambda z, w, x: x.astype(np.complex64) + np.zeros(5, complex) + z.dtype.type(2),
    "places_assigned": lambda z, w, x: _assigned(z, x),
    "closeness": lambda z, w, x: np.allclose(z, z + 1e-12) & np.isclose(z, w),
}


def _assigned(z: Any, x: Any) -> Any:
    result = z.copy()
    result[1, 2:] = x[0, 2:] * 1j
    return result


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_agrees(name: str, dtype: type) -> None:
    generator = np.random.default_rng(0)
    parts = generator.normal(size=(5, 4, 5))
    z, w = (parts[0] + 1j * parts[1]).astype(dtype), (parts[2] + 1j * parts[3]).astype(dtype)
    x = parts[4].astype(z.real.dtype)
    function = FUNCTIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.asarray(function(z, w, x))
    found = np.asarray(hlojit.jit(function)(z, w, x))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    # Each side is off by a few units: six apart were seen, of powers in f64 and inverse hyperbolic functions.
    np.testing.assert_allclose(found, expected, rtol=16 * np.finfo(dtype).eps)


def test_python_numbers_are_weak() -> None:
    z = np.ones(3, np.complex64)
    found = hlojit.jit(lambda z, s, t: z * s + t)(z, 2.0, 1j)
    assert found.dtype == np.complex64
    assert np.array_equal(found, np.full(3, 2 + 1j, np.complex64))


def test_a_number_with_an_imaginary_part_only_is_true() -> None:
    z = np.array([1j, 0, -0.0 - 0.0j, np.nan])
    assert np.array_equal(hlojit.jit(lambda z: z.astype(bool))(z), z.astype(bool))
    assert np.array_equal(hlojit.jit(np.any)(z[:1]), True)

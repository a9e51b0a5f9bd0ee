"""Derivatives of ``numpy.linalg`` against differences and, where JAX has them for all values, JAX's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hlojit
import numpy as np
import pytest

Array = np.ndarray[Any, Any]
Objective = Callable[..., Any]

_RNG = np.random.default_rng(0)
_A, _WEIGHTS = _RNG.standard_normal((4, 4)), _RNG.standard_normal((4, 4))
_STACK = _RNG.standard_normal((2, 4, 4))
_TALL, _WIDE = _RNG.standard_normal((5, 3)), _RNG.standard_normal((3, 5))
_COMPLEX = _A + 1j * _RNG.standard_normal((4, 4))
_POSITIVE = _A @ _A.T + 4 * np.eye(4)
_HERMITIAN = _COMPLEX + _COMPLEX.conj().T
_W = np.arange(1.0, 5.0)

OBJECTIVES: dict[str, tuple[Objective, tuple[Array, ...]]] = {
    "solve": (lambda np, a, b: np.sum(np.linalg.solve(a, b) ** 2), (_A, _TALL[:4])),
    "solve-stacks": (lambda np, a, b: np.sum(np.linalg.solve(a, b) ** 2), (_STACK, _STACK[..., :2] + 1)),
    "solve-complex": (lambda np, a, b: np.sum(abs(np.linalg.solve(a, b)) ** 2), (_COMPLEX, _COMPLEX[:, :2])),
    "inv": (lambda np, a: np.sum(np.linalg.inv(a) * _WEIGHTS), (_A,)),
    "det": (lambda np, a: np.sum(np.linalg.det(a) ** 2), (_STACK,)),
    "slogdet": (lambda np, a: np.linalg.slogdet(a)[1], (_POSITIVE,)),
    "cholesky": (lambda np, a: np.sum(np.linalg.cholesky(a) * _WEIGHTS), (_POSITIVE,)),
    "eigvalsh": (lambda np, a: np.sum(np.linalg.eigvalsh(a) * _W), (_POSITIVE,)),
    "eigh": (lambda np, a: np.sum(np.linalg.eigh(a)[1] ** 2 * _WEIGHTS), (_POSITIVE,)),
    "eigh-complex": (
        lambda np, a: np.sum(abs(np.linalg.eigh(a)[1]) ** 2 * _WEIGHTS) + np.sum(np.linalg.eigh(a)[0] ** 2),
        (_HERMITIAN,),
    ),
    "svd-values": (lambda np, a: np.sum(np.linalg.svd(a, compute_uv=False) * _W[:3]), (_TALL,)),
    "svd-tall": (lambda np, a: np.sum(np.linalg.svd(a, full_matrices=False)[0] ** 2 * _W[:3]), (_TALL,)),
    "svd-wide": (lambda np, a: np.sum(np.linalg.svd(a, full_matrices=False)[2] ** 2 * _W[:3, None]), (_WIDE,)),
    "svd-complex": (lambda np, a: np.sum(abs(np.linalg.svd(a, full_matrices=False)[0]) ** 2 * _WEIGHTS), (_COMPLEX,)),
    "qr": (lambda np, a: np.sum(np.linalg.qr(a)[0] * _WEIGHTS) + np.sum(np.linalg.qr(a)[1] * _WEIGHTS), (_A,)),
    "qr-tall": (lambda np, a: np.sum(np.linalg.qr(a)[0] ** 3) + np.sum(np.linalg.qr(a)[1] ** 2 * _W[:3]), (_TALL,)),
    "qr-wide": (
        lambda np, a: np.sum(np.linalg.qr(a)[0] ** 3) + np.sum(np.linalg.qr(a)[1] ** 2 * _W[:3, None]),
        (_WIDE,),
    ),
    "qr-r": (lambda np, a: np.sum(np.linalg.qr(a, mode="r") ** 2 * _W[:3]), (_TALL,)),
    "qr-complex": (
        lambda np, a: np.sum(abs(np.linalg.qr(a)[0]) ** 2 * _WEIGHTS) + np.sum(abs(np.linalg.qr(a)[1]) ** 2 * _WEIGHTS),
        (_COMPLEX,),
    ),
    "pinv": (lambda np, a: np.sum(np.linalg.pinv(a) ** 2 * _W[:3, None]), (_TALL,)),
    "lstsq": (lambda np, a, b: np.sum(np.linalg.lstsq(a, b, rcond=None)[0] ** 2), (_TALL, _A[0, :1].repeat(5))),
    "eigvals": (lambda np, a: np.sum(abs(np.linalg.eigvals(a)) ** 2 * 1.5), (_A,)),
    "norms": (lambda np, a: np.linalg.norm(a, 2) + np.linalg.norm(a, "nuc") + np.linalg.cond(a), (_A,)),
    "matrix_power": (lambda np, a: np.sum(np.linalg.matrix_power(a, -2) * _WEIGHTS), (_A,)),
    "multi_dot": (lambda np, a, b: np.sum(np.linalg.multi_dot([a, a, b])), (_A, _TALL[:4])),
}


_SYMMETRIC = ("cholesky", "eigvalsh", "eigh", "eigh-complex")
"""One triangle is read: what changes has to be symmetric."""


def _difference(function: Objective, at: Sequence[Array], directions: Sequence[Array], step: float = 1e-6) -> Any:
    plus, minus = ([x + sign * step * d for x, d in zip(at, directions)] for sign in (1, -1))
    return (function(*plus) - function(*minus)) / (2 * step)


def _directions(name: str, arguments: Sequence[Array]) -> list[Array]:
    rng = np.random.default_rng(1)
    found = [rng.standard_normal(x.shape) * np.ones(1, x.dtype) for x in arguments]
    found = [d * (1 + 0.5j) if d.dtype.kind == "c" else d for d in found]
    return [d + d.conj().T for d in found] if name in _SYMMETRIC else found


def _gradient(name: str) -> tuple[Array, ...]:
    objective, arguments = OBJECTIVES[name]
    gradient = hlojit.grad(lambda *a: objective(np, *a), argnums=tuple(range(len(arguments))))
    found: tuple[Array, ...] = gradient(*arguments)
    return found


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_differences(name: str) -> None:
    objective, arguments = OBJECTIVES[name]
    directions = _directions(name, arguments)
    along = sum(np.sum(g * d).real for g, d in zip(_gradient(name), directions, strict=True))
    expected = _difference(lambda *a: objective(np, *a), arguments, directions)
    np.testing.assert_allclose(along, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_those_of_jax(name: str) -> None:
    import jax
    from jax import numpy as jnp

    objective, arguments = OBJECTIVES[name]
    with jax.enable_x64(True):
        gradient = jax.grad(lambda *a: objective(jnp, *a), argnums=tuple(range(len(arguments))))
        expected = [np.asarray(each) for each in gradient(*map(jnp.asarray, arguments))]
    for value, wanted in zip(_gradient(name), expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("objective", "at"),
    [
        (lambda a: np.sum(abs(np.linalg.eig(a)[1]) ** 2 * _WEIGHTS), _A),
        (lambda a: np.sum(np.linalg.pinv(a) ** 2), np.eye(3)),
        (lambda a: np.sum(np.linalg.lstsq(a, np.ones(3), rcond=None)[0] ** 3), np.eye(3)),
    ],
    ids=["eigenvectors", "pinv-equal-values", "lstsq-equal-values"],
)
def test_gradients_that_jax_does_not_have(objective: Objective, at: Array) -> None:
    direction = np.random.default_rng(1).standard_normal(at.shape)
    along = np.sum(hlojit.grad(objective)(at) * direction)
    np.testing.assert_allclose(along, _difference(objective, [at], [direction]), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["qr", "pinv"])
def test_rules_of_parts_compose(name: str) -> None:
    def objective(a: Array) -> Any:
        return np.sum(np.linalg.qr(a)[0] ** 3) if name == "qr" else np.sum(np.linalg.pinv(a) ** 2)

    gradient = hlojit.grad(objective)
    stack = np.stack([_TALL, _TALL[::-1] + 1])
    each = np.stack([gradient(a) for a in stack])
    np.testing.assert_allclose(hlojit.vmap(gradient)(stack), each, rtol=1e-12, atol=1e-12)
    of_batch = hlojit.grad(lambda a: np.sum(hlojit.vmap(objective)(a)))
    np.testing.assert_allclose(of_batch(stack), each, rtol=1e-12, atol=1e-12)
    direction = np.random.default_rng(1).standard_normal(_TALL.shape)
    along = np.tensordot(hlojit.hessian(objective)(_TALL), direction, 2)
    np.testing.assert_allclose(along, _difference(gradient, [_TALL], [direction]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda a: np.linalg.qr(a, mode="complete")[0], r"np.linalg.qr in the modes 'reduced'"),
        (lambda a: np.linalg.svd(a)[0], r"pass full_matrices=False"),
    ],
)
def test_what_is_not_unique_is_refused(function: Callable[[Any], Any], reason: str) -> None:
    with pytest.raises(hlojit.UnsupportedError, match=reason):
        hlojit.grad(lambda a: np.sum(function(a)))(_TALL)

"""``numpy.linalg`` in traced functions: values against NumPy's, factors by what they multiply to, dtypes, shapes, errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.numpy_functions.functions import FUNCTIONS
from numpy import linalg
from numpy.linalg import LinAlgError

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
DTYPES = ("f8", "f4", "c16", "c8")
BY_DTYPE = pytest.mark.parametrize("dtype", DTYPES)


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    imaginary = 1j * generator.standard_normal(shape) if dtype.startswith("c") else 0
    return np.asarray(generator.standard_normal(shape) + imaginary).astype(dtype)


def positive(shape: tuple[int, ...], dtype: str) -> Array:
    factor = random(shape, dtype)
    product: Array = factor @ np.swapaxes(factor, -1, -2).conj() + np.eye(shape[-1], dtype=dtype)
    return product


def close(ours: Any, theirs: Any, units: float = 200, name: str = "") -> None:
    """Equal dtypes and shapes; floats differ by so many epsilons of the largest number."""
    theirs = np.asarray(theirs)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
    bound = units * np.finfo(theirs.dtype).eps if theirs.dtype.kind in "fc" else 0
    finite = np.abs(theirs)[np.isfinite(theirs)]
    np.testing.assert_allclose(ours, theirs, rtol=bound, atol=bound * finite.max(initial=0), err_msg=name)


def agree(cases: list[Function], *arrays: Array, units: float = 200) -> None:
    """Traced as one function, all cases return what NumPy returns; values of f4 are NumPy's f8 ones, rounded."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = [case(*arrays) for case in cases]
        found = hlojit.jit(lambda *given: [case(*given) for case in cases])(*arrays)
    for number, (ours, theirs) in enumerate(zip(found, expected)):
        if isinstance(theirs, tuple):
            assert type(ours) is type(theirs)
            for mine, other in zip(ours, theirs, strict=True):
                close(mine, other, units, f"case {number}")
        else:
            close(ours, theirs, units, f"case {number}")


# ------------------------------------------------------------------------------------------------------------- systems


@BY_DTYPE
def test_systems_and_determinants(dtype: str) -> None:
    cases: list[Function] = [
        lambda a, b: linalg.solve(a, b),
        lambda a, b: linalg.solve(a, b[:, 0]),
        lambda a, b: linalg.solve(a[0], b[:, :, None].swapaxes(0, 1)),
        lambda a, b: linalg.inv(a),
        lambda a, b: linalg.det(a),
        lambda a, b: linalg.slogdet(a),
        lambda a, b: linalg.slogdet(a[1]),
        lambda a, b: linalg.tensorsolve(a[0].reshape(4, 2, 2), b[:, 0]),
        lambda a, b: linalg.tensorsolve(a[0].reshape(2, 4, 2), b[:, 0], axes=(0,)),
        lambda a, b: linalg.tensorinv(a[0].reshape(2, 2, 4)),
        lambda a, b: linalg.tensorinv(a[0].reshape(4, 2, 2), ind=1),
        *[lambda a, b, n=n: linalg.matrix_power(a, n) for n in (-3, -1, 0, 1, 2, 3, 6)],
    ]
    agree(cases, random((3, 4, 4), dtype), random((4, 2), dtype, 1), units=2000)


@pytest.mark.parametrize("order", [1, 2, 5, 24, 25])
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16"])
def test_many_small_systems(dtype: str, order: int) -> None:
    """Real ones up to an order are solved by generated code."""
    a, b = random((4, 5, order, order), dtype), random((5, order, 3), dtype, 1)
    systems = hlojit.jit(lambda a, b: (linalg.solve(a, b), linalg.inv(a)))
    for found, expected in zip(systems(a, b), (linalg.solve(a, b), linalg.inv(a))):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "f4" else 1e-8, atol=1e-9)
    a[1, 2] = np.ones(order)[:, None] * np.arange(order)
    with pytest.raises(LinAlgError, match="Singular matrix"):
        systems(a, b)


def test_f4_is_computed_in_f8_as_numpy_does_it() -> None:
    """A matrix whose condition leaves nothing of f4."""
    hilbert = (1 / (np.arange(9)[:, None] + np.arange(1, 10))).astype("f4")
    np.testing.assert_allclose(hlojit.jit(linalg.inv)(hilbert), linalg.inv(hilbert), rtol=1e-3)


def test_integers_and_mixed_operands_are_promoted() -> None:
    whole = np.array([[4, 1], [2, 3]], "i4")
    side = np.array([1, 2], "f4")
    agree([lambda a, b: linalg.solve(a, b), lambda a, b: linalg.inv(a), lambda a, b: linalg.det(a > 2)], whole, side)
    agree([lambda a, b: linalg.solve(a, b)], whole.astype("f4"), (side * 1j).astype("c8"))
    agree([lambda a, b: linalg.matrix_power(a, 4), lambda a, b: linalg.eigvalsh(a)], whole, side)


@BY_DTYPE
def test_least_squares_and_pseudo_inverses(dtype: str) -> None:
    tall, side = random((6, 3), dtype), random((6, 2), dtype, 1)
    agree(
        [
            lambda a, b: linalg.lstsq(a, b),
            lambda a, b: linalg.lstsq(a, b[:, 0]),
            lambda a, b: linalg.lstsq(a, b, rcond=0.9)[0],
            lambda a, b: linalg.lstsq(a, b, rcond=-1),
            lambda a, b: linalg.lstsq(a.T, b[:3]),
            lambda a, b: linalg.lstsq(a[:3], b[:3, 1]),
            lambda a, b: linalg.pinv(a),
            lambda a, b: linalg.pinv(a.T, rtol=None),
            lambda a, b: linalg.pinv(a, 0.8),
            lambda a, b: linalg.pinv(a[None] * np.ones((2, 1, 1), a.dtype), rcond=np.array([0.1, 0.99])),
            lambda a, b: linalg.pinv(a.T @ a, hermitian=not dtype.startswith("c")),
            lambda a, b: linalg.matrix_rank(a),
            lambda a, b: linalg.matrix_rank(a[:, :2] @ a[:2, :]),
            lambda a, b: linalg.matrix_rank(a[None], tol=1.5),
            lambda a, b: linalg.matrix_rank(a, rtol=0.9),
            lambda a, b: linalg.matrix_rank(b[:, 0]) + linalg.matrix_rank(a, tol=0.0),
        ],
        tall,
        side,
        units=2000,
    )


def test_residuals_that_numpy_leaves_out_are_not_numbers() -> None:
    """Whether the rank is full is known when the function runs, and a shape before."""
    a = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    b = np.array([1.0, 0.0, 2.0])
    x, residuals, rank, s = hlojit.jit(lambda a, b: linalg.lstsq(a, b))(a, b)
    expected = linalg.lstsq(a, b)
    np.testing.assert_allclose(x, expected[0], rtol=1e-12)
    np.testing.assert_allclose(s, expected[3], atol=1e-14)
    assert rank == 1
    assert residuals.shape == (1,)
    assert np.isnan(residuals).all()


@BY_DTYPE
def test_conditions(dtype: str) -> None:
    cases: list[Function] = [
        lambda a, p=p: linalg.cond(a, p) for p in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc")
    ]
    agree([*cases, lambda a: linalg.cond(a[:, :3])], random((2, 4, 4), dtype), units=2000)
    singular = np.array([[[1, 2], [2, 4]], [[np.nan, 1], [1, 1]]], dtype)
    agree([lambda a: linalg.cond(a, 1)], singular)


# ------------------------------------------------------------------------------------------------------------- factors


@BY_DTYPE
def test_cholesky(dtype: str) -> None:
    agree([lambda a: linalg.cholesky(a), lambda a: linalg.cholesky(a, upper=True)], positive((2, 5, 5), dtype))


@BY_DTYPE
@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 5), (4, 4)])
def test_qr_of_every_mode(dtype: str, shape: tuple[int, ...]) -> None:
    a = random(shape, dtype)
    cases: list[Function] = [
        lambda a, m=mode: linalg.qr(a, m) for mode in ("reduced", "complete", "r", "raw", "economic")
    ]
    agree(cases, a)
    q, r = hlojit.jit(linalg.qr)(a)
    close(q @ r, a)


@BY_DTYPE
@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 5), (4, 4)])
def test_singular_values_and_vectors(dtype: str, shape: tuple[int, ...]) -> None:
    a = random(shape, dtype)
    least = min(shape[-2:])
    whole, reduced = hlojit.jit(lambda a: [linalg.svd(a), linalg.svd(a, full_matrices=False)])(a)
    for found, expected in ((whole, linalg.svd(a)), (reduced, linalg.svd(a, full_matrices=False))):
        assert type(found) is type(expected)
        for ours, theirs in zip(found, expected):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        u, s, vh = found
        close((u[..., :least] * s[..., None, :]) @ vh[..., :least, :], a)
        close(
            np.swapaxes(u, -1, -2).conj() @ u,
            np.broadcast_to(np.eye(u.shape[-1], dtype=dtype), u.shape[:-2] + (u.shape[-1],) * 2),
        )
        close(s, expected.S)
    agree([lambda a: linalg.svdvals(a), lambda a: linalg.svd(a, compute_uv=False)], a)


@BY_DTYPE
def test_symmetric_matrices(dtype: str) -> None:
    a = positive((2, 4, 4), dtype) - 3 * np.eye(4, dtype=dtype)
    found = hlojit.jit(lambda a: [linalg.eigh(a), linalg.eigh(a, "U"), linalg.svd(a, hermitian=True)])(a)
    for values, vectors in found[:2]:
        close((vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2).conj(), a)
    close(found[0].eigenvalues, linalg.eigh(a).eigenvalues)
    u, s, vh = found[2]
    close((u * s[..., None, :]) @ vh, a)
    agree(
        [
            lambda a: linalg.eigvalsh(a),
            lambda a: linalg.eigvalsh(np.triu(a), "U"),
            lambda a: linalg.eigvalsh(np.triu(a), "l"),
            lambda a: linalg.svd(a, compute_uv=False, hermitian=True),
            lambda a: linalg.matrix_rank(a, hermitian=True),
        ],
        a,
    )


@BY_DTYPE
def test_eigenvalues_of_any_matrix_are_complex(dtype: str) -> None:
    a = random((2, 5, 5), dtype)
    (values, vectors), alone = hlojit.jit(lambda a: [linalg.eig(a), linalg.eigvals(a)])(a)
    wanted = np.result_type(dtype, "c8")
    assert values.dtype == vectors.dtype == alone.dtype == wanted
    close(a.astype(wanted) @ vectors, vectors * values[:, None, :])
    close(alone, linalg.eigvals(a).astype(wanted))
    # Where NumPy gives real numbers, these are the same ones.
    triangular = np.triu(random((4, 4), dtype))
    np.testing.assert_allclose(hlojit.jit(linalg.eigvals)(triangular), linalg.eigvals(triangular))


# --------------------------------------------------------------------------------------------------- norms, products


@BY_DTYPE
def test_norms_of_every_order_and_axes(dtype: str) -> None:
    a = random((2, 3, 4), dtype)
    orders = (None, 0, 1, 2, 3, -1, -2, 2.5, np.inf, -np.inf)
    matrix_orders = (None, "fro", "f", "nuc", 1, 2, -1, -2, np.inf, -np.inf)
    agree(
        [
            lambda a: linalg.norm(a),
            lambda a: linalg.norm(a, keepdims=True),
            lambda a: linalg.norm(a[0]),
            lambda a: linalg.norm(a[0], "fro"),
            lambda a: linalg.norm(a[0, 0], 2),
            *[lambda a, p=p: linalg.norm(a, p, axis=1) for p in orders],
            *[lambda a, p=p: linalg.norm(a[0, 0], p, keepdims=True) for p in orders],
            *[lambda a, p=p: linalg.norm(a, p, axis=(2, 0)) for p in matrix_orders],
            *[lambda a, p=p: linalg.matrix_norm(a, ord=p, keepdims=True) for p in matrix_orders],
            lambda a: linalg.vector_norm(a),
            lambda a: linalg.vector_norm(a, axis=(2, 0), ord=1),
            lambda a: linalg.vector_norm(a, axis=(0, -1), keepdims=True),
            lambda a: linalg.vector_norm(a, axis=-1, ord=np.inf, keepdims=True),
            lambda a: linalg.vector_norm(a, keepdims=True, ord=0),
        ],
        a,
        units=2000,
    )


def test_norms_of_integers_and_half_floats() -> None:
    agree([lambda a: linalg.norm(a), lambda a: linalg.norm(a, 1, axis=0)], np.arange(12).reshape(3, 4))
    agree(
        [lambda a: linalg.norm(a, axis=0), lambda a: linalg.norm(a, 1, axis=0)],
        np.arange(6, dtype="f2").reshape(2, 3),
        units=2,
    )


@pytest.mark.parametrize("dtype", (*DTYPES, "i4", "?"))
def test_products(dtype: str) -> None:
    a = random((2, 3, 3), dtype) if dtype in DTYPES else (random((2, 3, 3), "f8") * 3).astype(dtype)
    agree(
        [
            lambda a: linalg.matmul(a, a),
            lambda a: linalg.outer(a[0, 0], a[0, 1]),
            lambda a: linalg.tensordot(a, a, axes=([0, 1], [0, 2])),
            lambda a: linalg.matrix_transpose(a),
            lambda a: linalg.diagonal(a, offset=1),
            lambda a: linalg.trace(a),
            lambda a: linalg.trace(a, offset=-1, dtype="c16"),
            lambda a: linalg.multi_dot([a[0], a[1]]),
            lambda a: linalg.multi_dot([a[0, 0], a[1], a[0]]),
            lambda a: linalg.multi_dot([a[0, :1], a[1], a[0], a[1, :, :2], a[0, :2, 0]]),
            lambda a: linalg.multi_dot([a[0, 0], a[1], a[0], a[1, 1]]),
            lambda a: linalg.vecdot(a, a[:, :1], axis=-1),
            lambda a: np.vecdot(a, a[0], axis=1),
            lambda a: np.vecdot(a, a[0, 0]),
            lambda a: np.matvec(a, a[:, 0]),
            lambda a: np.vecmat(a[0], a[:, None]),
        ],
        a,
    )
    if dtype != "?":
        agree([lambda a: linalg.cross(a, a[0]), lambda a: linalg.cross(a, a[1], axis=1)], a)


def test_every_function_has_a_rule() -> None:
    names = [name for name in linalg.__all__ if name != "LinAlgError"]
    assert [name for name in names if getattr(linalg, name) not in FUNCTIONS] == []


# ------------------------------------------------------------------------------------------------------ edges, errors


@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_matrices_without_elements(dtype: str) -> None:
    agree(
        [
            lambda a: linalg.det(a[..., :0, :0]),
            lambda a: linalg.slogdet(a[..., :0, :0]),
            lambda a: linalg.inv(a[..., :0, :0]),
            lambda a: linalg.solve(a[..., :0, :0], a[..., :0, :]),
            lambda a: linalg.solve(a, a[..., :0]),
            lambda a: linalg.qr(a[..., :0, :]),
            lambda a: linalg.qr(a[..., :0]),
            lambda a: linalg.qr(a[..., :0], "complete"),
            lambda a: linalg.qr(a[..., :0], "raw"),
            lambda a: linalg.svd(a[..., :0, :]),
            lambda a: linalg.svd(a[..., :0]),
            lambda a: linalg.svd(a[..., :0, :], full_matrices=False),
            lambda a: linalg.svdvals(a[..., :0]),
            lambda a: linalg.eigh(a[..., :0, :0]),
            lambda a: linalg.cholesky(a[..., :0, :0]),
            lambda a: linalg.pinv(a[..., :0]),
            lambda a: linalg.matrix_rank(a[..., :0]),
            lambda a: linalg.matrix_power(a[..., :0, :0], 3),
            lambda a: linalg.norm(a[..., :0], axis=(1, 2)),
            lambda a: linalg.norm(a[..., :0], 2, axis=(1, 2)),
            # No matrices at all.
            lambda a: linalg.det(a[:0]),
            lambda a: linalg.inv(a[:0]),
            lambda a: linalg.svd(a[:0]),
            lambda a: linalg.qr(a[:0]),
            lambda a: linalg.eigh(a[:0]),
            lambda a: linalg.cholesky(a[:0]),
        ],
        positive((2, 3, 3), dtype),
    )


FAILING: list[Function] = [
    lambda a: linalg.inv(a),
    lambda a: linalg.solve(a, a[0, 0]),
    lambda a: linalg.matrix_power(a, -2),
    lambda a: linalg.tensorinv(a[1].reshape(3, 1, 3), 1)[0],
    lambda a: linalg.cholesky(-a),
    lambda a: linalg.svd(a),
    lambda a: linalg.pinv(a[2]),
    lambda a: linalg.matrix_rank(a),
    lambda a: linalg.cond(a),
    lambda a: linalg.norm(a[2], "nuc"),
    lambda a: linalg.lstsq(a[2], a[0]),
    lambda a: linalg.eig(a),
    lambda a: linalg.eigvals(a / 0),
    lambda a: linalg.inv(np.concatenate([a] * 9)),
]


@pytest.mark.parametrize("failing", FAILING, ids=range(len(FAILING)))
def test_what_numpy_raises_at_run_time_the_call_raises(failing: Function) -> None:
    stack = np.stack([np.eye(3), np.ones((3, 3)), np.full((3, 3), np.nan)])
    with np.errstate(all="ignore"), pytest.raises(LinAlgError) as expected:
        failing(stack)
    compiled = hlojit.jit(failing)
    with pytest.raises(LinAlgError) as found:
        compiled(stack)
    if "Linear Least Squares" not in str(expected.value):
        assert str(found.value).endswith(str(expected.value))
    assert "test_linear_algebra.py" in str(found.value)


def test_what_numpy_does_not_raise_the_call_does_not() -> None:
    """Determinants, conditions by inverses, and factors of what is not finite."""
    stack = np.stack([np.eye(3), np.ones((3, 3)), np.full((3, 3), np.nan)])
    agree([lambda a: linalg.det(a), lambda a: linalg.slogdet(a), lambda a: linalg.cond(a, 1)], stack)
    agree([lambda a: linalg.cholesky(a), lambda a: linalg.cholesky(a, upper=True)], stack[::2])


WRONG: list[Function] = [
    lambda a: linalg.solve(a, a[0]),
    lambda a: linalg.solve(a[:, :2], a),
    lambda a: linalg.solve(a[0, :2, :2], 1.0),
    lambda a: linalg.inv(a[0, 0]),
    lambda a: linalg.inv(a),
    lambda a: linalg.det(a),
    lambda a: linalg.cholesky(a),
    lambda a: linalg.eig(a),
    lambda a: linalg.eigh(a),
    lambda a: linalg.eigh(a[:, :, :3], "X"),
    lambda a: linalg.svd(a[0, 0]),
    lambda a: linalg.qr(a[0, 0]),
    lambda a: linalg.qr(a, "compete"),
    lambda a: linalg.inv(a[:, :, :3].astype("f2")),
    lambda a: linalg.lstsq(a, a),
    lambda a: linalg.lstsq(a[0], a[0, :2]),
    lambda a: linalg.pinv(a, 0.1, rtol=0.1),
    lambda a: linalg.matrix_rank(a, 0.1, rtol=0.1),
    lambda a: linalg.matrix_power(a[:, :, :3], 1.5),
    lambda a: linalg.cond(a[..., :0]),
    lambda a: linalg.cond(a, 1),
    lambda a: linalg.norm(a, 2),
    lambda a: linalg.norm(a, "nuc", axis=0),
    lambda a: linalg.norm(a, 3, axis=(0, 1)),
    lambda a: linalg.norm(a, axis=(1, 1)),
    lambda a: linalg.norm(a, axis=(0, 1, 2)),
    lambda a: linalg.norm(a, axis=1.5j),
    lambda a: linalg.multi_dot([a[0]]),
    lambda a: linalg.multi_dot([a[0].T, a[0], a]),
    lambda a: linalg.outer(a, a),
    lambda a: linalg.cross(a, a),
    lambda a: linalg.matrix_transpose(a[0, 0]),
    lambda a: linalg.tensorinv(a, 0),
    lambda a: linalg.tensorsolve(a, a[0, 0]),
    lambda a: np.vecdot(a, a[..., :2]),
    lambda a: np.matvec(a[0, 0], a),
]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_errors_are_numpys(wrong: Function) -> None:
    a = np.ones((2, 3, 4))
    with pytest.raises((ValueError, TypeError)) as expected:
        wrong(a)
    with pytest.raises(expected.type):
        hlojit.jit(wrong)(a)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_the_reference_computes_the_same(dtype: str) -> None:
    a = positive((2, 3, 3), dtype)
    cases: list[Function] = [
        lambda a: linalg.solve(a, a[0, :, :2]),
        lambda a: linalg.slogdet(a),
        lambda a: linalg.cholesky(a),
        lambda a: linalg.svdvals(a),
        lambda a: linalg.eigvalsh(a),
        lambda a: linalg.qr(a)[1],
        lambda a: linalg.eigvals(a),
    ]
    together = hlojit.jit(lambda a: [case(a) for case in cases], backend="reference")(a)
    compiled = hlojit.jit(lambda a: [case(a) for case in cases])(a)
    for theirs, ours in zip(together, compiled):
        for each, other in zip(theirs, ours) if isinstance(theirs, tuple) else [(theirs, ours)]:
            close(each, other)

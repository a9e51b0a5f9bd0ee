"""cholesky and triangular_solve, and jnp.linalg's programs with their LAPACK calls, held to what makes them right: residuals."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.errors import UnsupportedError, VerificationError
from hlojit.ir.ops.lapack_calls import LETTERS, ROUTINES

Array = np.ndarray[Any, Any]
NAMES = {"f4": "f32", "f8": "f64", "c8": "complex<f32>", "c16": "complex<f64>"}
DTYPES = pytest.mark.parametrize("dtype", list(NAMES))


def transposed(array: Array) -> Array:
    """Of real matrices the transposes, of complex ones the adjoints."""
    return np.swapaxes(array, -1, -2).conj()


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    imaginary = 1j * generator.standard_normal(shape) if dtype.startswith("c") else 0
    return np.asarray(generator.standard_normal(shape) + imaginary).astype(dtype)


def positive(shape: tuple[int, ...], dtype: str) -> Array:
    factor = random(shape, dtype)
    matrix: Array = factor @ transposed(factor) + shape[-1] * np.eye(shape[-1], dtype=dtype)
    return matrix


def epsilon(array: Array) -> float:
    return float(np.finfo(array.dtype).eps)


def text_of(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, NAMES[dtype])))}>"


def cholesky(shape: tuple[int, ...], dtype: str, lower: bool) -> Any:
    kind = text_of(shape, dtype)
    return hlojit.compile(f"""
func.func @main(%a: {kind}) -> {kind} {{
  %0 = stablehlo.cholesky %a, lower = {str(lower).lower()} : {kind}
  return %0 : {kind}
}}""")


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (40, 40), (3, 4, 7, 7), (2, 0, 0), (0, 3, 3), (200, 200)])
@DTYPES
def test_cholesky_is_a_factor(shape: tuple[int, ...], dtype: str, lower: bool) -> None:
    matrix = positive(shape, dtype)
    # The other triangle is not read.
    read = np.tri(shape[-1]) != 0 if lower else np.tri(shape[-1]).T != 0
    given = np.where(read, matrix, np.asarray(np.nan, dtype))
    factor = cholesky(shape, dtype, lower)(given)
    np.testing.assert_array_equal(factor, np.tril(factor) if lower else np.triu(factor))
    product = factor @ transposed(factor) if lower else transposed(factor) @ factor
    size = shape[-1]
    np.testing.assert_allclose(
        product, matrix, rtol=0, atol=4 * (size + 1) * epsilon(matrix) * np.abs(matrix).max(initial=1)
    )


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_of_what_is_not_positive_is_nan_where_the_factor_were(lower: bool) -> None:
    matrices = np.stack([np.eye(3), -np.eye(3), np.full((3, 3), np.nan)]).astype("f4")
    factors = cholesky((3, 3, 3), "f4", lower)(matrices)
    np.testing.assert_array_equal(factors[0], np.eye(3))
    expected = np.where(np.tri(3) if lower else np.tri(3).T, np.nan, 0)
    np.testing.assert_array_equal(factors[1], expected)
    assert np.isnan(factors[2]).any()


def solve(a: Array, b: Array, **options: Any) -> Array:
    flags = {name: str(options[name]).lower() for name in ("left_side", "lower", "unit_diagonal")}
    attributes = ", ".join(f"{name} = {value}" for name, value in flags.items())
    dtype = str(a.dtype.str[1:])
    first, second = text_of(a.shape, dtype), text_of(b.shape, dtype)
    executable = hlojit.compile(
        f"""
func.func @main(%a: {first}, %b: {second}) -> {second} {{
  %0 = "stablehlo.triangular_solve"(%a, %b) <{{{attributes}, transpose_a = #stablehlo<transpose {options["transpose"]}>}}>
    : ({first}, {second}) -> {second}
  return %0 : {second}
}}"""
    )
    found: Array = executable(a, b)
    return found


@DTYPES
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize(("left_side", "lower", "unit_diagonal"), list(itertools.product([True, False], repeat=3)))
def test_triangular_solve_solves(dtype: str, transpose: str, left_side: bool, lower: bool, unit_diagonal: bool) -> None:
    size, rows = 6, 4
    full = random((2, 3, size, size), dtype) / size
    a = full + np.eye(size, dtype=dtype)
    b = random((2, 3, size, rows) if left_side else (2, 3, rows, size), dtype, 1)
    x = solve(a, b, left_side=left_side, lower=lower, unit_diagonal=unit_diagonal, transpose=transpose)
    system = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        system[..., range(size), range(size)] = 1
    if transpose != "NO_TRANSPOSE":
        system = np.swapaxes(system, -1, -2)
    if transpose == "ADJOINT":
        system = system.conj()
    product = system @ x if left_side else x @ system
    np.testing.assert_allclose(product, b, rtol=0, atol=40 * epsilon(b) * np.abs(x).max())


@pytest.mark.parametrize(("order", "columns"), [(0, 3), (3, 0), (1, 1), (65, 1), (130, 33)])
def test_triangular_solve_of_any_size(order: int, columns: int) -> None:
    a = np.tril(random((order, order), "f8")) / max(1, order) + 2 * np.eye(order)
    b = random((order, columns), "f8", 1)
    x = solve(a, b, left_side=True, lower=True, unit_diagonal=False, transpose="NO_TRANSPOSE")
    np.testing.assert_allclose(a @ x, b, atol=1e-12)


def test_triangular_solve_divides_by_zeros() -> None:
    a = np.array([[0.0, 0.0], [1.0, 1.0]])
    x = solve(a, np.ones((2, 1)), left_side=True, lower=True, unit_diagonal=False, transpose="NO_TRANSPOSE")
    np.testing.assert_array_equal(x, [[np.inf], [-np.inf]])


@pytest.mark.parametrize("element", ["bf16", "f16", "f8E5M2"])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_short_floats_are_computed_in_f32(element: str, backend: str) -> None:
    kind = f"tensor<2x3x3x{element}>"
    executable = hlojit.compile(
        f"""
func.func @main(%a: {kind}, %b: {kind}) -> ({kind}, {kind}) {{
  %0 = stablehlo.cholesky %a, lower = true : {kind}
  %1 = "stablehlo.triangular_solve"(%0, %b) <{{left_side = true, lower = true, unit_diagonal = false,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>}}> : ({kind}, {kind}) -> {kind}
  return %0, %1 : {kind}, {kind}
}}""",
        backend=backend,
    )
    dtype = executable.input_types[0].element_type.dtype
    a, b = positive((2, 3, 3), "f4").astype(dtype), random((2, 3, 3), "f4", 1).astype(dtype)
    factor, x = executable(a, b)
    expected = np.linalg.cholesky(a.astype("f4")).astype(dtype)
    np.testing.assert_array_equal(factor, expected)
    np.testing.assert_array_equal(x, np.linalg.solve(expected.astype("f8"), b.astype("f8")).astype("f4").astype(dtype))


# ------------------------------------------------------------------------------------------------ JAX's programs


def lowered(function: Callable[..., Any], *arrays: Array) -> str:
    import jax

    with jax.enable_x64(True):
        return str(jax.jit(function).lower(*arrays).as_text())


def run(function: Callable[..., Any], *arrays: Array, backend: str = "cpu") -> Any:
    """A function of JAX's, lowered by it for CPUs and run here."""
    return hlojit.compile(lowered(function, *arrays), backend=backend)(*arrays)


BACKENDS = pytest.mark.parametrize("backend", ["cpu", "reference"])
CASES = pytest.mark.parametrize(
    ("backend", "dtype"), [*(("cpu", name) for name in NAMES), ("reference", "f8"), ("reference", "c8")]
)
SHAPES = pytest.mark.parametrize("shape", [(6, 6), (7, 4), (4, 7), (2, 3, 5, 4), (1, 1)])


def close(found: Array, expected: Array, scale: float = 1.0) -> None:
    """Within the backward error of a factorization of small matrices."""
    size = max(found.shape[-2:])
    np.testing.assert_allclose(found, expected, rtol=0, atol=30 * size * epsilon(found) * scale)


@CASES
def test_solve_inv_det(backend: str, dtype: str) -> None:
    from jax.numpy import linalg

    a, b = random((3, 5, 5), dtype) + 3 * np.eye(5, dtype=dtype), random((3, 5, 2), dtype, 1)
    close(a @ run(linalg.solve, a, b, backend=backend), b, 10)
    close(a @ run(linalg.inv, a, backend=backend), np.broadcast_to(np.eye(5, dtype=dtype), a.shape), 10)
    np.testing.assert_allclose(run(linalg.det, a, backend=backend), np.linalg.det(a), rtol=50 * epsilon(a))
    sign, logarithm = run(linalg.slogdet, a, backend=backend)
    np.testing.assert_allclose(sign, np.linalg.slogdet(a)[0], rtol=50 * epsilon(a))
    np.testing.assert_allclose(logarithm, np.linalg.slogdet(a)[1], rtol=50 * epsilon(a))


@CASES
@SHAPES
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr(backend: str, dtype: str, shape: tuple[int, ...], mode: str) -> None:
    from jax.numpy import linalg

    a = random(shape, dtype)
    q, r = run(lambda x: tuple(linalg.qr(x, mode=mode)), a, backend=backend)
    close(q @ r, a, 3)
    close(transposed(q) @ q, np.broadcast_to(np.eye(q.shape[-1], dtype=dtype), (*q.shape[:-2], *[q.shape[-1]] * 2)))
    np.testing.assert_array_equal(r, np.triu(r))


@CASES
@SHAPES
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("algorithm", ["QR", "DEFAULT"])
def test_svd(backend: str, dtype: str, shape: tuple[int, ...], full: bool, algorithm: str) -> None:
    from jax.lax.linalg import SvdAlgorithm, svd

    a = random(shape, dtype)
    u, s, vt = run(lambda x: svd(x, full_matrices=full, algorithm=SvdAlgorithm[algorithm]), a, backend=backend)
    count = s.shape[-1]
    close((u[..., :count] * s[..., None, :]) @ vt[..., :count, :], a, 3)
    assert (np.diff(s) <= 0).all()
    (values,) = (run(lambda x: (svd(x, compute_uv=False),), a, backend=backend),)
    np.testing.assert_allclose(values, s, atol=30 * epsilon(a))


@CASES
def test_eigh(backend: str, dtype: str) -> None:
    from jax.numpy import linalg

    a = positive((2, 6, 6), dtype)
    values, vectors = run(lambda x: tuple(linalg.eigh(x)), a, backend=backend)
    close(a @ vectors, vectors * values[..., None, :], 20)
    close(transposed(vectors) @ vectors, np.broadcast_to(np.eye(6, dtype=dtype), a.shape))


@CASES
@pytest.mark.parametrize("shape", [(6, 6), (2, 5, 5), (1, 1)])
def test_eig(backend: str, dtype: str, shape: tuple[int, ...]) -> None:
    from jax.lax.linalg import eig

    a = random(shape, dtype, 2)
    values, left, right = run(lambda x: eig(x, compute_left_eigenvectors=True), a, backend=backend)
    close(a @ right, right * values[..., None, :], 20)
    close(transposed(left) @ a, values[..., :, None] * transposed(left), 20)
    np.testing.assert_allclose(np.linalg.norm(right, axis=-2), 1, rtol=20 * epsilon(a))
    found = run(
        lambda x: eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0], a, backend=backend
    )
    np.testing.assert_allclose(found, values, atol=200 * epsilon(a))


@CASES
def test_what_stands_on_factorizations(backend: str, dtype: str) -> None:
    import jax.scipy.linalg
    from jax.numpy import linalg

    a, b = random((8, 5), dtype), random((8, 2), dtype, 1)
    x, _, rank, s = run(linalg.lstsq, a, b, backend=backend)
    close(transposed(a) @ (a @ x), transposed(a) @ b, 10)
    assert rank == 5
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), rtol=50 * epsilon(a))
    close(run(linalg.pinv, a, backend=backend) @ a, np.eye(5, dtype=dtype), 5)
    assert run(linalg.matrix_rank, np.outer(a[:, 0], b[:, 0]), backend=backend) == 1
    p, lower, upper = run(jax.scipy.linalg.lu, a, backend=backend)
    close(p @ lower @ upper, a, 3)
    if dtype.startswith("c"):
        return  # the exponential's scale is a power, of complex numbers
    square = random((5, 5), dtype)
    exponential = run(jax.scipy.linalg.expm, square, backend=backend)
    close(exponential @ run(jax.scipy.linalg.expm, -square, backend=backend), np.eye(5, dtype=dtype), 100)


@CASES
def test_forms_of_one_matrix(backend: str, dtype: str) -> None:
    import jax
    import jax.scipy.linalg

    a = random((6, 6), dtype)
    form, vectors = run(jax.scipy.linalg.schur, a, backend=backend)
    close(vectors @ form @ transposed(vectors), a, 3)
    hessenberg, q = run(lambda x: jax.scipy.linalg.hessenberg(x, calc_q=True), a, backend=backend)
    close(q @ hessenberg @ transposed(q), a, 3)
    np.testing.assert_array_equal(hessenberg, np.triu(hessenberg, -1))
    symmetric = a + transposed(a)
    _, diagonal, beside, _ = run(jax.lax.linalg.tridiagonal, symmetric, backend=backend)
    tridiagonal = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    np.testing.assert_allclose(np.linalg.eigvalsh(tridiagonal), np.linalg.eigvalsh(symmetric), atol=200 * epsilon(a))
    q, r, order = run(lambda x: jax.scipy.linalg.qr(x, pivoting=True), a, backend=backend)
    close(q @ r, a[:, order], 3)


@CASES
def test_tridiagonal_systems(backend: str, dtype: str) -> None:
    import jax

    below, diagonal, above = (random((2, 6), dtype, seed) for seed in range(3))
    diagonal = diagonal + 5 * diagonal / np.abs(diagonal)
    b = random((2, 6, 3), dtype, 4)
    x = run(jax.lax.linalg.tridiagonal_solve, below, diagonal, above, b, backend=backend)
    for number in range(2):
        matrix = np.diag(diagonal[number]) + np.diag(above[number][:-1], 1) + np.diag(below[number][1:], -1)
        close(matrix @ x[number], b[number], 5)


@CASES
def test_tridiagonal_systems_that_may_be_singular(backend: str, dtype: str) -> None:
    import jax

    def solved(*arrays: Array) -> Any:
        return jax.lax.linalg.tridiagonal_solve(*arrays, perturb_singular=True)

    below, diagonal, above = (random((4, 6), dtype, seed) for seed in range(3))
    # What stands outside of the matrix is not looked at.
    below[:, 0], above[:, -1] = np.nan, np.nan
    diagonal[1, 3] = 0  # rows change their places
    below[2, 1:], above[2, :-1], diagonal[2, 2] = 0, 0, 0
    below[3, 1:], above[3, :-1], diagonal[3] = 0, 0, [4, 1e-20, 1, -0.0, 1e-310, 1]
    b = random((4, 6, 3), dtype, 4)
    with jax.enable_x64(True):
        expected = np.asarray(jax.jit(solved)(below, diagonal, above, b))
    x = run(solved, below, diagonal, above, b, backend=backend)
    # Of the second one, conditioned by 1 / epsilon, directions only; by how much a pivot is moved is nobody's rule.
    np.testing.assert_allclose(x[:2], expected[:2], rtol=1e4 * epsilon(b))
    sound = [0, 1, 3, 4, 5]
    np.testing.assert_allclose(x[2][sound], expected[2][sound], rtol=100 * epsilon(b))
    np.testing.assert_allclose(x[3][[0, 1, 2, 5]], expected[3][[0, 1, 2, 5]], rtol=100 * epsilon(b))
    assert np.isfinite(x).all()
    assert (np.abs(x[2][2]) > 0.1 / epsilon(b) * np.abs(b[2, 2])).all()


@pytest.mark.parametrize("shape", [(0, 6, 3), (2, 0, 3), (2, 6, 0), (1, 1, 1), (6, 1)])
def test_tridiagonal_systems_of_any_size(shape: tuple[int, ...]) -> None:
    import jax

    diagonals = [np.ones(shape[:-1]) * value for value in (0.5, 2.0, 0.5)]
    b = np.ones(shape)
    x = run(lambda *arrays: jax.lax.linalg.tridiagonal_solve(*arrays, perturb_singular=True), *diagonals, b)
    assert x.shape == shape
    if shape == (6, 1):
        matrix = np.diag(diagonals[1]) + np.diag(diagonals[2][:-1], 1) + np.diag(diagonals[0][1:], -1)
        np.testing.assert_allclose(matrix @ x, b, rtol=1e-14)


@CASES
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_products_by_reflectors(backend: str, dtype: str, left: bool, transpose: bool) -> None:
    from jax._src.lax.linalg import geqrf, householder_product, ormqr

    a = random((2, 6, 4), dtype)
    c = random((2, 6, 3) if left else (2, 3, 6), dtype, 1)
    factors, taus = run(geqrf, a, backend=backend)
    before = factors.copy()
    found = run(lambda x, t, y: ormqr(x, t, y, left=left, transpose=transpose), factors, taus, c, backend=backend)
    np.testing.assert_array_equal(factors, before, "the reflectors are the caller's")
    padded = np.concatenate([factors, np.zeros((2, 6, 2), dtype)], axis=-1)
    q = run(householder_product, padded, taus, backend=backend)
    q = transposed(q) if transpose else q
    close(found, q @ c if left else c @ q, 3)


def test_every_target_that_jaxlib_registers_is_there() -> None:
    import jaxlib.lapack

    targets = {name for name, _, _ in jaxlib.lapack.registrations()["cpu"]}
    assert targets - {"tridiagonal_solve_perturbed_ffi"} == {
        f"lapack_{letter}{name}_ffi"
        for letter in LETTERS
        for name in (complex_name(each) if letter in "cz" else each for each in ROUTINES if each != "gesv")
    }


def complex_name(name: str) -> str:
    return {"syevd": "heevd", "sytrd": "hetrd", "orgqr": "ungqr", "ormqr": "unmqr"}.get(name, name)


def test_the_bits_are_jaxs_whose_library_is_the_same() -> None:
    import jax
    from jax.numpy import linalg

    a = random((4, 9, 9), "f8")
    with jax.enable_x64(True):
        expected = jax.jit(linalg.svd)(a)
    for found, wanted in zip(run(lambda x: tuple(linalg.svd(x)), a), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_is_singular_or_not_a_number() -> None:
    from jax.numpy import linalg

    singular, unknown = np.zeros((3, 3)), np.full((3, 3), np.nan)
    assert not np.isfinite(run(linalg.inv, singular)).any()
    assert run(linalg.det, singular) == 0
    assert np.isnan(run(linalg.cholesky, unknown)).any()
    assert np.isnan(run(lambda x: linalg.svd(x, compute_uv=False), unknown)).all()
    assert np.isnan(run(lambda x: tuple(linalg.eigh(x)), unknown)[0]).all()
    import jax.scipy.linalg

    assert np.isnan(run(jax.scipy.linalg.schur, unknown)[0]).all()


def test_matrices_without_elements() -> None:
    from jax.numpy import linalg

    assert run(linalg.det, np.zeros((0, 0))) == 1
    assert run(linalg.inv, np.zeros((2, 0, 0))).shape == (2, 0, 0)
    assert run(linalg.cholesky, np.zeros((0, 3, 3))).shape == (0, 3, 3)
    assert run(lambda x: tuple(linalg.eigh(x)), np.zeros((0, 0)))[1].shape == (0, 0)
    q, r = run(lambda x: tuple(linalg.qr(x)), np.zeros((0, 4)))
    assert (q.shape, r.shape) == ((0, 0), (0, 4))


def test_large_batches_from_several_threads() -> None:
    from jax.numpy import linalg

    a = positive((500, 8, 8), "f8")
    executable = hlojit.compile(lowered(lambda x: tuple(linalg.eigh(x)), a))
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: executable(a), range(8)))
    for values, vectors in results:
        np.testing.assert_array_equal(values, results[0][0])
        close(a @ vectors, vectors * values[..., None, :], 20)


def test_a_saved_program_finds_the_library_by_name(tmp_path: Path) -> None:
    from jax.numpy import linalg

    a = positive((4, 4), "f8")
    executable = hlojit.compile(lowered(linalg.cholesky, a))
    assert executable.spec.compiled is not None
    assert executable.spec.compiled.imports == (("hlojit_lapack_dpotrf", "lapack:dpotrf"),)
    path = tmp_path / "cholesky.hlojit"
    executable.save(path)
    np.save(tmp_path / "a.npy", a)
    code = f"""
import hlojit, numpy, sys
again = hlojit.load({str(path)!r})
a = numpy.load({str(tmp_path / "a.npy")!r})
numpy.testing.assert_allclose(again(a), numpy.linalg.cholesky(a), atol=1e-12)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_scipy_is_loaded_by_who_needs_it() -> None:
    code = """
import hlojit, numpy, sys
hlojit.compile("func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {\\n  return %x : tensor<3xf32>\\n}")
assert "scipy" not in sys.modules and "scipy.linalg" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------------------------------- what does not fit

CALL = """
func.func @main(%a: {given}) -> ({given}, {info}) {{
  %0:2 = stablehlo.custom_call @{target}(%a) {{mhlo.backend_config = {{{config}}}, {layouts}}} : ({given}) -> ({given}, {info})
  return %0#0, %0#1 : {given}, {info}
}}"""
COLUMNS = "operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]"
ROWS = COLUMNS.replace("[0, 1]", "[1, 0]")
SOUND = {
    "target": "lapack_dpotrf_ffi",
    "given": "tensor<4x4xf64>",
    "info": "tensor<i32>",
    "config": "uplo = 76 : ui8",
    "layouts": COLUMNS,
}


def test_a_call_that_fits() -> None:
    a = positive((4, 4), "f8")
    factor, info = hlojit.compile(CALL.format(**SOUND))(a)
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(a), atol=1e-14)
    assert info == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"given": "tensor<4x5xf64>"}, "dimension n is 4 and"),
        ({"given": "tensor<4x4xf32>"}, "stands where f64"),
        ({"info": "tensor<3xi32>"}, "dimensions in front differ|must be a permutation"),
        ({"info": "tensor<i64>"}, "stands where i32"),
        ({"config": "uplo = 77 : ui8"}, "uplo is 'M', none of L, U"),
        ({"config": "uplo = 300 : i32"}, "uplo is 300"),
        ({"config": ""}, r"attributes are \[\], not \['uplo'\]"),
        ({"config": "uplo = 76 : ui8, more = 1 : i32"}, "attributes are"),
        ({"config": "uplo = [76]"}, "the attribute uplo is"),
        ({"layouts": ROWS}, "from the slowest to the fastest"),
        ({"target": "lapack_dgetrf_ffi"}, "has 4 operands and results, not 3"),
        ({"target": "lapack_dsomething_ffi"}, "there is no routine 'dsomething'"),
    ],
)
@BACKENDS
def test_calls_that_do_not_fit_are_refused(changed: dict[str, str], message: str, backend: str) -> None:
    with pytest.raises((UnsupportedError, VerificationError), match=message):
        hlojit.compile(CALL.format(**{**SOUND, **changed}), backend=backend)


def test_layouts_are_checked_wherever_they_stand() -> None:
    layouts = COLUMNS.replace("[0, 1]", "[0, 0]")
    with pytest.raises((UnsupportedError, VerificationError)):
        hlojit.compile(CALL.format(**{**SOUND, "layouts": layouts}))


# -------------------------------------------------------------------------------------- every routine, of any size

SIZES = {"m": (0, 3), "n": (0, 4)}


def call_text(name: str, batch: tuple[int, ...], sizes: dict[str, int], options: dict[str, str]) -> str:
    """A call of a routine whose types fit its signature."""
    letter, rest = name[0], name[1:]
    routine = ROUTINES[{"heevd": "syevd", "hetrd": "sytrd", "ungqr": "orgqr", "unmqr": "ormqr"}.get(rest, rest)]
    element = LETTERS[letter]
    real = {"c": "f32", "z": "f64"}.get(letter, element)
    named = {"T": element, "R": real, "C": f"complex<{real}>", "i": "i32"}

    def kind(spec: str) -> str:
        symbol, *letters = spec.split()
        return f"tensor<{'x'.join(map(str, (*batch, *(sizes[each] for each in letters), named[symbol])))}>"

    def layout(spec: str) -> str:
        rank = len(batch) + len(spec.split()) - 1
        order = list(range(rank))[::-1]
        if len(spec.split()) == 3:
            order[:2] = order[:2][::-1]
        return f"dense<{order if order else ''}> : tensor<{rank}xindex>"

    results = routine.complex_results if letter in "cz" and routine.complex_results else routine.results
    arguments = ", ".join(f"%a{number}: {kind(spec)}" for number, spec in enumerate(routine.operands))
    given, returned = (", ".join(map(kind, specs)) for specs in (routine.operands, results))
    layouts = [f"[{', '.join(map(layout, specs))}]" for specs in (routine.operands, results)]
    config = ", ".join(f"{key} = {value}" for key, value in options.items())
    return f"""
func.func @main({arguments}) -> ({returned}) {{
  %0:{len(results)} = stablehlo.custom_call @lapack_{name}_ffi({", ".join(f"%a{n}" for n in range(len(routine.operands)))}) {{
    mhlo.backend_config = {{{config}}}, operand_layouts = {layouts[0]}, result_layouts = {layouts[1]}}} : ({given}) -> ({returned})
  return {", ".join(f"%0#{n}" for n in range(len(results)))} : {returned}
}}"""


def option_sets(routine: Any, sizes: dict[str, int]) -> list[dict[str, str]]:
    """Some of all combinations of a routine's options, as programs write them."""
    choices = []
    for name, allowed in routine.options.items():
        if allowed is bool:
            values = ["true", "false"]
        elif allowed is int:
            values = [f"{1 if name == 'low' else sizes['n']} : i32"]
        else:
            values = [f"{ord(letter)} : ui8" for letter in allowed]
        choices.append([(name, value) for value in values])
    return [dict(each) for each in itertools.product(*choices)][:4]


@pytest.mark.parametrize("name", sorted(ROUTINES))
def test_every_routine_of_every_size(name: str) -> None:
    routine = ROUTINES[name]
    tried = 0
    for m, n in itertools.product(*SIZES.values()):
        if name == "orgqr" and n > m:
            continue
        least = min(m, n)
        sizes = {"m": m, "n": n, "k": least, "u": m, "v": n, "e": max(0, n - 1), "r": m}
        for options in option_sets(routine, sizes):
            fitted = dict(sizes)
            if name in ("gesdd", "gesvd") and options["mode"] == f"{ord('S')} : ui8":
                fitted |= {"u": least, "v": least}
            if options.get("side") == f"{ord('R')} : ui8" or options.get("left") == "false":
                fitted["r"] = n
            executable = hlojit.compile(call_text(f"d{name}", (2,), fitted, options))
            arrays = [
                np.asarray(random(kind.shape, "f8", 7)).astype(kind.element_type.dtype)
                for kind in executable.input_types
            ]
            executable(*arrays)
            tried += 1
    assert tried


@pytest.mark.parametrize("options", ["[1]", '"text"', "{routine = 3.0 : f32}"])
def test_an_op_of_garbage_is_refused(options: str) -> None:
    text = f"""
func.func @main(%a: tensor<4x4xf64>) -> tensor<4x4xf64> {{
  %0 = "hlojit.lapack"(%a) <{{routine = "dpotrf", options = {options}}}> : (tensor<4x4xf64>) -> tensor<4x4xf64>
  return %0 : tensor<4x4xf64>
}}"""
    with pytest.raises(VerificationError):
        hlojit.compile(text)

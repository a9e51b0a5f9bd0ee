"""Factorizations of many small matrices by generated code, a vector's lanes of them at a time: beside SciPy's LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg.blas
import scipy.linalg.lapack
from hlojit.cpu.kernels.lane_kernels import largest_order
from hlojit.cpu.processor import host_target
from hlojit.lowering.target import Target

from .guarded import run_guarded, without

Array = np.ndarray[Any, Any]
NAMES = {"f4": "f32", "f8": "f64", "i4": "i32"}
LETTERS = {"f4": "s", "f8": "d"}
BATCH = 19
"""A group or more of lanes, and some matrices more."""


TARGETS: dict[str, Callable[[], Target]] = {
    "host": host_target,
    "avx2": lambda: without("avx512", bits=256),
    "portable": lambda: without("avx512", "avx", "fma", bits=128),
}
ORDERS = {"host": (1, 2, 4, 5, 11, 24), "avx2": (4, 5), "portable": (3,)}
EACH = pytest.mark.parametrize(
    ("name", "dtype", "order"),
    [(name, dtype, order) for name, orders in ORDERS.items() for dtype in LETTERS for order in orders],
)


def random(*shape: int, dtype: str, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def spell(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, NAMES[dtype])))}>"


def lapack(
    routine: str, arrays: list[Array], results: list[tuple[tuple[int, ...], str]], name: str = "host", **options: str
) -> list[Array]:
    """A routine over matrices that lie by columns, with nothing written but what should be; results by columns, too."""
    target = TARGETS[name]()
    assert max(extent for array in arrays for extent in array.shape[1:]) <= largest_order(target)
    given = [spell(array.shape, array.dtype.str[1:]) for array in arrays]
    made = [spell(shape, dtype) for shape, dtype in results]
    written = ", ".join(f'{key} = "{value}"' for key, value in options.items())
    operands = ", ".join(f"%a{number}" for number in range(len(arrays)))
    text = f"""
func.func @main({", ".join(f"%a{number}: {kind}" for number, kind in enumerate(given))}) -> ({", ".join(made)}) {{
  %0:{len(made)} = "hlojit.lapack"({operands}) <{{routine = "{LETTERS[arrays[0].dtype.str[1:]]}{routine}", options = {{{written}}}}}> :
    ({", ".join(given)}) -> ({", ".join(made)})
  return {", ".join(f"%0#{number}" for number in range(len(made)))} : {", ".join(made)}
}}"""
    return run_guarded(text, *arrays, target=target)


def turned(matrices: Array) -> Array:
    """By columns what lies by rows."""
    return np.ascontiguousarray(np.swapaxes(matrices, 1, 2))


def library(routine: str, dtype: str) -> Any:
    name = LETTERS[dtype] + routine
    return getattr(scipy.linalg.lapack, name, None) or getattr(scipy.linalg.blas, name)


def epsilon(dtype: str) -> float:
    return float(np.finfo(dtype).eps)


def close(found: Array, expected: Array, dtype: str, factor: float = 1.0) -> None:
    scale = max(1.0, float(np.abs(expected).max()))
    atol = factor * 20 * (max(expected.shape) + 1) * epsilon(dtype) * scale
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@EACH
def test_cholesky(name: str, dtype: str, order: int) -> None:
    factor = random(BATCH, order, order, dtype=dtype)
    a = factor @ turned(factor) + order * np.eye(order, dtype=dtype)
    a[3] = -a[3]
    a[5, -1, -1] = -1
    a[7, 0, 0] = np.nan
    # Other triangles are not read.
    for uplo, is_read in (("L", np.tri(order) != 0), ("U", np.tri(order).T != 0)):
        given = np.where(is_read, a, np.asarray(np.nan, dtype))
        factors, info = lapack("potrf", [turned(given)], [(a.shape, dtype), ((BATCH,), "i4")], name, uplo=uplo)
        for number in range(BATCH):
            expected, complaint = library("potrf", dtype)(a[number], lower=uplo == "L", clean=1)
            # A pivot that is NaN is no positive one, as LAPACK's reference has it; OpenBLAS goes on with it.
            assert info[number] == (1 if number == 7 else complaint)
            assert np.isnan(factors[number].T[~is_read]).all(), "the other triangle is not written"
            if not info[number]:
                close(np.where(is_read, factors[number].T, 0), expected, dtype)


@EACH
@pytest.mark.parametrize("columns", [-2, 0, 3])
def test_lu(name: str, dtype: str, order: int, columns: int) -> None:
    columns = min(max(1, order + columns), largest_order(TARGETS[name]()))
    a = random(BATCH, order, columns, dtype=dtype)
    a[2] = 0
    a[4, :, 0] = 0
    a[6] = np.round(a[6])  # pivots of equal size: the first one
    least = min(order, columns)
    results = [(turned(a).shape, dtype), ((BATCH, least), "i4"), ((BATCH,), "i4")]
    factors, pivots, info = lapack("getrf", [turned(a)], results, name)
    for number in range(BATCH):
        expected, rows, complaint = library("getrf", dtype)(a[number])
        assert info[number] == complaint or number == 6
        assert pivots[number][0] == rows[0] + 1
        if number != 6:  # whose later pivots rounding decides
            np.testing.assert_array_equal(pivots[number], rows + 1)
            # Errors of two right factorizations differ by the inverse of the leading block.
            close(factors[number].T, expected, dtype, 50)
        lower = np.tril(factors[number].T, -1)[:, :least] + np.eye(order, least, dtype=dtype)
        product = (lower @ np.triu(factors[number].T)[:least]).astype(dtype)
        for row in range(least)[::-1]:
            other = pivots[number][row] - 1
            product[[row, other]] = product[[other, row]]
        close(product, a[number], dtype)


@EACH
@pytest.mark.parametrize("side", "LR")
def test_triangular_systems(name: str, dtype: str, order: int, side: str) -> None:
    rows, columns = (order, 3) if side == "L" else (3, order)
    a = random(BATCH, order, order, dtype=dtype) / order + 2 * np.eye(order, dtype=dtype)
    b = random(BATCH, rows, columns, dtype=dtype, seed=1)
    for uplo, transposed, diag in ("LNN", "UTN", "UNU", "LCU"):
        options = {"side": side, "uplo": uplo, "trans_x": transposed, "diag": diag}
        (x,) = lapack("trsm", [turned(a), turned(b)], [(turned(b).shape, dtype)], name, **options)
        for number in range(BATCH):
            flags = {"side": side == "R", "lower": uplo == "L", "diag": diag == "U"}
            expected = library("trsm", dtype)(1.0, a[number], b[number], trans_a="NTC".index(transposed), **flags)
            close(x[number].T, expected, dtype)


@EACH
@pytest.mark.parametrize("columns", [-2, 0, 3])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_reflectors_and_what_they_make(name: str, dtype: str, order: int, columns: int, scale: float) -> None:
    columns = min(max(1, order + columns), largest_order(TARGETS[name]()))
    a = (random(BATCH, order, columns, dtype=dtype) * scale).astype(dtype)
    a[2] = 0
    a[4, 1:] = 0
    least = min(order, columns)
    factors, taus = lapack("geqrf", [turned(a)], [(turned(a).shape, dtype), ((BATCH, least), dtype)], name)
    for number in range(BATCH):
        expected, factor, _, _ = library("geqrf", dtype)(a[number])
        close(taus[number], factor, dtype)
        close(np.triu(factors[number].T) / scale, np.triu(expected) / scale, dtype)
        close(np.tril(factors[number].T, -1), np.tril(expected, -1), dtype, 10)
    vectors = np.ascontiguousarray(factors[:, :least])  # of the first columns
    (q,) = lapack("orgqr", [vectors, taus], [(vectors.shape, dtype)], name)
    for number in range(BATCH):
        close(q[number].T @ np.triu(factors[number].T)[:least] / scale, a[number] / scale, dtype)
        close(q[number] @ q[number].T, np.eye(least), dtype)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", LETTERS)
def test_what_is_not_finite_stays_in_its_matrix(value: float, dtype: str) -> None:
    a = random(BATCH, 4, 4, dtype=dtype) + 4 * np.eye(4, dtype=dtype)
    spoilt = a.copy()
    spoilt[9, 2, 1] = value
    shape = turned(a).shape
    for routine, results in (
        ("getrf", [(shape, dtype), ((BATCH, 4), "i4"), ((BATCH,), "i4")]),
        ("geqrf", [(shape, dtype), ((BATCH, 4), dtype)]),
    ):
        whole = lapack(routine, [turned(a)], results)
        found = lapack(routine, [turned(spoilt)], results)
        for before, after in zip(whole, found):
            np.testing.assert_array_equal(np.delete(after, 9, 0), np.delete(before, 9, 0))
        assert not np.isfinite(found[0][9]).all()


@pytest.mark.parametrize("dtype", LETTERS)
@pytest.mark.parametrize("lower", [True, False])
def test_ops_of_stablehlo(dtype: str, lower: bool) -> None:
    factor = random(BATCH, 5, 5, dtype=dtype)
    a = factor @ turned(factor) + 5 * np.eye(5, dtype=dtype)
    a[3] = -a[3]
    b = random(BATCH, 2, 5, dtype=dtype, seed=1)
    matrix, sides = spell(a.shape, dtype), spell(b.shape, dtype)
    word = str(lower).lower()
    (found,) = run_guarded(
        f"""
func.func @main(%a: {matrix}) -> {matrix} {{
  %0 = stablehlo.cholesky %a, lower = {word} : {matrix}
  return %0 : {matrix}
}}""",
        a,
    )
    triangle = np.tri(5) if lower else np.tri(5).T
    np.testing.assert_array_equal(found[3], np.where(triangle, np.nan, 0))
    sound = np.arange(BATCH) != 3
    expected = np.linalg.cholesky(a[sound])
    close(found[sound], expected if lower else turned(expected), dtype)
    (x,) = run_guarded(
        f"""
func.func @main(%a: {matrix}, %b: {sides}) -> {sides} {{
  %0 = "stablehlo.triangular_solve"(%a, %b) <{{left_side = false, lower = {word}, unit_diagonal = false,
    transpose_a = #stablehlo<transpose TRANSPOSE>}}> : ({matrix}, {sides}) -> {sides}
  return %0 : {sides}
}}""",
        a,
        b,
    )
    close(x @ turned(a * triangle.astype(dtype)), b, dtype)


def test_the_bits_do_not_depend_on_the_place_in_the_batch() -> None:
    factor = random(40, 6, 6, dtype="f8")
    a = factor @ turned(factor) + 6 * np.eye(6)
    (whole, _), (part, _) = (
        lapack("potrf", [turned(each)], [(each.shape, "f8"), (each.shape[:1], "i4")], uplo="L") for each in (a, a[7:24])
    )
    np.testing.assert_array_equal(part, whole[7:24])

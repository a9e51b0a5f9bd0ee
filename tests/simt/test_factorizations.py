"""cholesky and triangular_solve on machines with threads: small matrices by kernels, larger ones in blocks."""

from __future__ import annotations

import itertools
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.ops.factorizations import BLOCK

Array = np.ndarray[Any, Any]
NAMES = {"f4": "f32", "f8": "f64", "c8": "complex<f32>", "c16": "complex<f64>"}


@pytest.fixture(autouse=True)
def _simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    imaginary = 1j * generator.standard_normal(shape) if dtype.startswith("c") else 0
    return np.asarray(generator.standard_normal(shape) + imaginary).astype(dtype)


def adjoint(array: Array) -> Array:
    return np.swapaxes(array, -1, -2).conj()


def positive(shape: tuple[int, ...], dtype: str) -> Array:
    factor = random(shape, dtype)
    matrix: Array = factor @ adjoint(factor) + shape[-1] * np.eye(shape[-1], dtype=dtype)
    return matrix


def type_text(array: Array) -> str:
    return f"tensor<{'x'.join(map(str, (*array.shape, NAMES[array.dtype.str[1:]])))}>"


def cholesky(matrix: Array, lower: bool) -> Array:
    kind = type_text(matrix)
    executable = hlojit.compile(
        f"""
func.func @main(%a: {kind}) -> {kind} {{
  %0 = stablehlo.cholesky %a, lower = {str(lower).lower()} : {kind}
  return %0 : {kind}
}}""",
        backend="cuda",
    )
    found: Array = executable(matrix)
    return found


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 5, 5), (20, 20), (0, 3, 3)])
def test_cholesky(shape: tuple[int, ...], dtype: str, lower: bool) -> None:
    check_factor(positive(shape, dtype), lower)


@pytest.mark.parametrize(("dtype", "lower"), [("f4", True), ("c8", False), ("c16", True)])
def test_cholesky_by_panels(dtype: str, lower: bool) -> None:
    check_factor(positive((BLOCK + 9, BLOCK + 9), dtype), lower)


def check_factor(matrix: Array, lower: bool) -> None:
    size = matrix.shape[-1]
    read = np.tri(size) != 0 if lower else np.tri(size).T != 0
    factor = cholesky(np.where(read, matrix, np.asarray(np.nan, matrix.dtype)), lower)
    np.testing.assert_array_equal(factor, np.where(read, factor, 0))
    product = factor @ adjoint(factor) if lower else adjoint(factor) @ factor
    error = 8 * size * np.finfo(matrix.dtype).eps * np.abs(matrix).max(initial=1)
    np.testing.assert_allclose(product, matrix, rtol=0, atol=float(error))


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("size", [4, BLOCK + 3])
def test_cholesky_of_what_is_not_positive(size: int, lower: bool) -> None:
    matrix = np.eye(size, dtype="f4")
    matrix[1, 1] = 0
    np.testing.assert_array_equal(
        cholesky(matrix, lower), np.where(np.tri(size) if lower else np.tri(size).T, np.nan, 0)
    )


def solve(a: Array, b: Array, options: tuple[bool, bool, bool, str]) -> Array:
    left, lower, unit, transpose = options
    flags = f"left_side = {str(left).lower()}, lower = {str(lower).lower()}, unit_diagonal = {str(unit).lower()}"
    first, second = type_text(a), type_text(b)
    executable = hlojit.compile(
        f"""
func.func @main(%a: {first}, %b: {second}) -> {second} {{
  %0 = "stablehlo.triangular_solve"(%a, %b) <{{{flags}, transpose_a = #stablehlo<transpose {transpose}>}}>
    : ({first}, {second}) -> {second}
  return %0 : {second}
}}""",
        backend="cuda",
    )
    found: Array = executable(a, b)
    return found


OPTIONS = list(itertools.product([True, False], [True, False], [True, False], ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]))


def check_solution(a: Array, b: Array, options: tuple[bool, bool, bool, str]) -> None:
    left, lower, unit, transpose = options
    size = a.shape[-1]
    read = np.tri(size, k=-1 if unit else 0) != 0 if lower else np.tri(size, k=-1 if unit else 0).T != 0
    x = solve(np.where(read, a, np.asarray(np.nan, a.dtype)), b, options)
    system = np.where(read, a, 0)
    if unit:
        system[..., range(size), range(size)] = 1
    system = {"NO_TRANSPOSE": system, "TRANSPOSE": np.swapaxes(system, -1, -2), "ADJOINT": adjoint(system)}[transpose]
    product = system @ x if left else x @ system
    error = 20 * size * np.finfo(a.dtype).eps * np.abs(x).max(initial=1)
    np.testing.assert_allclose(product, b, rtol=0, atol=float(error))


@pytest.mark.parametrize("options", OPTIONS)
def test_triangular_solve(options: tuple[bool, bool, bool, str]) -> None:
    for dtype in ("f8", "c8"):
        a = random((2, 6, 6), dtype) / 6 + 2 * np.eye(6, dtype=dtype)
        check_solution(a, random((2, 6, 3) if options[0] else (2, 3, 6), dtype, 1), options)


@pytest.mark.parametrize("options", OPTIONS)
def test_triangular_solve_by_blocks(options: tuple[bool, bool, bool, str]) -> None:
    size = 2 * BLOCK + 5
    dtype = "c8" if options[3] == "ADJOINT" else "f4"
    a = random((size, size), dtype) / size + 2 * np.eye(size, dtype=dtype)
    check_solution(a, random((size, 2) if options[0] else (2, size), dtype, 1), options)


def test_lapack_is_the_hosts() -> None:
    text = """
func.func @main(%a: tensor<4x4xf64>) -> (tensor<4x4xf64>, tensor<i32>) {
  %0:2 = stablehlo.custom_call @lapack_dpotrf_ffi(%a) {mhlo.backend_config = {uplo = 76 : ui8}, operand_layouts = [dense<[0, 1]> :
    tensor<2xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]}
    : (tensor<4x4xf64>) -> (tensor<4x4xf64>, tensor<i32>)
  return %0#0, %0#1 : tensor<4x4xf64>, tensor<i32>
}"""
    with pytest.raises(hlojit.UnsupportedError, match="LAPACK's routines run on the host"):
        hlojit.compile(text, backend="cuda")

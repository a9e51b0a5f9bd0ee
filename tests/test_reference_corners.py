"""Corners of the reference interpreter, beside the CPU: what NumPy's and SciPy's own functions make of them is not asked for."""

from __future__ import annotations

import hlojit
import jax
import mpmath
import numpy as np
import pytest


@pytest.mark.parametrize("constant", ["true", "false"])
@pytest.mark.parametrize("length", [2, 5, 600])
def test_sort_by_a_constant(constant: str, length: int) -> None:
    """Nothing is less than anything: all are equal, and the sort is stable.  (Of what is less than itself, any order will do.)"""
    compiled = hlojit.compile(
        f"""func.func @main(%x: tensor<3x{length}xi32>) -> tensor<3x{length}xi32> {{
          %0 = "stablehlo.sort"(%x) ({{
          ^bb0(%a: tensor<i32>, %b: tensor<i32>):
            %less = stablehlo.constant dense<{constant}> : tensor<i1>
            stablehlo.return %less : tensor<i1>
          }}) {{dimension = 1 : i64, is_stable = true}} : (tensor<3x{length}xi32>) -> tensor<3x{length}xi32>
          return %0 : tensor<3x{length}xi32>
        }}""",
        backend="reference",
    )
    x = np.random.default_rng(length).integers(-9, 9, (3, length)).astype(np.int32)
    found = compiled(x)
    if constant == "false":
        np.testing.assert_array_equal(found, x)
    np.testing.assert_array_equal(np.sort(found, 1), np.sort(x, 1))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_quantized_numbers_expressed_without_a_zero(backend: str) -> None:
    """f8E8M0FNU has neither zero nor signs: what is not one of its powers of two is NaN, whose stored integer is that nearest to 0."""
    kind = "tensor<6x!quant.uniform<i8:f8E8M0FNU, 1.0>>"
    text = f"func.func @main(%x: {kind}) -> {kind} {{ %0 = stablehlo.add %x, %x : {kind} return %0 : {kind} }}"
    found = hlojit.compile(text, backend=backend)(np.array([1, 8, 32, 127, 0, -3], np.int8))
    # 127 is expressed as 128, and 256 is clamped; 0 and -3 are NaN.
    assert found.tolist() == [2, 16, 64, 127, 0, 0]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("function", [jax.numpy.linalg.eigvals, jax.scipy.linalg.schur], ids=["geev", "gees"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_eigenvalues_of_matrices_that_are_not_finite(backend: str, function, value: float, capfd) -> None:
    x = np.diag([1.0, value, 2.0]).astype("f4")
    found = hlojit.compile(jax.jit(function).lower(x).as_text(), backend=backend)(x)
    for each in found if isinstance(found, tuple) else (found,):
        assert np.isnan(each).all()
    assert not "".join(capfd.readouterr())


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_factors_of_empty_matrices_are_silent(backend: str, capfd) -> None:
    columns = "dense<[0, 1]> : tensor<2xindex>"
    text = f"""func.func @main(%a: tensor<0x0xf32>) -> (tensor<0x0xf32>, tensor<0xi32>, tensor<i32>) {{
      %0:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%a) {{mhlo.backend_config = {{}}, api_version = 4 : i32,
        operand_layouts = [{columns}],
        result_layouts = [{columns}, dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>],
        output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0,
          operand_tuple_indices = []>]}} : (tensor<0x0xf32>) -> (tensor<0x0xf32>, tensor<0xi32>, tensor<i32>)
      return %0#0, %0#1, %0#2 : tensor<0x0xf32>, tensor<0xi32>, tensor<i32>
    }}"""
    factors, pivots, info = hlojit.compile(text, backend=backend)(np.zeros((0, 0), "f4"))
    assert (factors.shape, pivots.shape, info) == ((0, 0), (0,), 0)
    assert not "".join(capfd.readouterr())


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-310, 5e-324, 1e308, 0.5, -3.7, 1e30]
PAIRS = np.array([complex(a, b) for a in SPECIAL for b in SPECIAL])


def both(op: str, *arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the CPU and the reference make of an elementwise op."""
    kind = f"tensor<{len(arrays[0])}xcomplex<f64>>"
    names = [f"%x{number}" for number in range(len(arrays))]
    text = f"""func.func @main({", ".join(f"{name}: {kind}" for name in names)}) -> {kind} {{
      %0 = stablehlo.{op} {", ".join(names)} : {kind}
      return %0 : {kind}
    }}"""
    found = [hlojit.compile(text, backend=backend)(*arrays) for backend in ("cpu", "reference")]
    return found[0], found[1]


def test_complex_products_are_the_plain_formula() -> None:
    x, y = np.repeat(PAIRS, len(PAIRS)), np.tile(PAIRS, len(PAIRS))
    with np.errstate(all="ignore"):
        parts = x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real
    for found in both("multiply", x, y):
        np.testing.assert_array_equal(found.real, parts[0])
        np.testing.assert_array_equal(found.imag, parts[1])


def test_complex_quotients_of_finite_numbers_against_mpmath() -> None:
    finite = PAIRS[np.isfinite(PAIRS)][::5]
    x, y = np.repeat(finite, len(finite)), np.tile(finite, len(finite))
    x, y = x[y != 0], y[y != 0]
    with mpmath.workprec(200):
        wanted = np.array([complex(mpmath.mpc(a) / mpmath.mpc(b)) for a, b in zip(x.tolist(), y.tolist())])
    for found in both("divide", x, y):
        fits = np.isfinite(wanted)
        error = np.abs(found[fits] - wanted[fits])
        assert (error <= 4e-16 * np.abs(wanted[fits]) + 1e-323).all()
        assert not np.isnan(found).any()


def test_complex_exponentials_of_special_numbers() -> None:
    """As docs/numerics.md has it: an infinite angle has no sine, and numbers without an angle are real."""
    for op in ("exponential", "exponential_minus_one"):
        for found in both(op, PAIRS):
            assert np.isnan(found[np.isinf(PAIRS.imag)]).all()
            real = (PAIRS.imag == 0) & ~np.isnan(PAIRS.real)
            with np.errstate(all="ignore"):
                wanted = (np.exp if op == "exponential" else np.expm1)(PAIRS[real].real)
            np.testing.assert_allclose(found[real].real, wanted, rtol=1e-15)
            np.testing.assert_array_equal(found[real].imag, 0)


def test_complex_sign_of_denormal_numbers() -> None:
    x = np.array([5e-324 + 5e-324j, 3e-310 - 4e-310j])
    for found in both("sign", x):
        np.testing.assert_allclose(found, [(1 + 1j) / np.sqrt(2), 0.6 - 0.8j], rtol=4e-16)

"""Corners of the reference interpreter, beside the CPU: what NumPy's and SciPy's own functions make of them is not asked for."""

from __future__ import annotations

import hlojit
import jax
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
    kind = "tensor<4x!quant.uniform<i8:f8E8M0FNU, 1.0>>"
    text = f"func.func @main(%x: {kind}) -> {kind} {{ %0 = stablehlo.add %x, %x : {kind} return %0 : {kind} }}"
    found = hlojit.compile(text, backend=backend)(np.array([1, 8, 32, 127], np.int8))
    assert found.tolist()[:3] == [2, 16, 64]


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

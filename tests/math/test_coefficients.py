"""The generated coefficients are what the generator makes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from generate_coefficients import generate, table
from hlojit.ir.scalar import coefficients


def test_coefficients_file_has_exactly_the_generators_names() -> None:
    assert {name for name in vars(coefficients) if name[0] != "_"} == set(table())


@pytest.mark.parametrize("name", ["EXP_F32", "EXP_F64", "LOG_F32", "LOG_F64", "TANH_F32", "SIN_F64", "ERF_SMALL_F32"])
def test_polynomial_is_found_again(name: str) -> None:
    found, error = generate(name)
    assert 0 < error < 2.0 ** (-25 if name.endswith("32") else -56)
    # the leading ones decide; the last ones may differ with the linear algebra library
    np.testing.assert_allclose(found, getattr(coefficients, name), rtol=1e-6)
    np.testing.assert_allclose(found[:2], getattr(coefficients, name)[:2], rtol=1e-14)


@pytest.mark.parametrize(
    "name", ["HALF_PI_F64", "LN2_F32", "TWO_OVER_PI_WORDS", "DIGAMMA_ROOT", "LGAMMA_ZEROS_LOW", "PI"]
)
def test_constant_is_found_again(name: str) -> None:
    assert generate(name)[0] == getattr(coefficients, name)


def test_exponential_polynomial_is_near_the_series() -> None:
    series = [1 / math.factorial(power + 2) for power in range(len(coefficients.EXP_F64))]
    np.testing.assert_allclose(coefficients.EXP_F64[:6], series[:6], rtol=1e-6)

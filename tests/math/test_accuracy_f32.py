"""f32 functions, compiled, against float64: a sample of all bit patterns and every hard place that is known."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive_ulp import BOUNDS, REFERENCES, inputs
from vector_function import Array, VectorFunction, ulp_error

BORDERS = [
    *(0.0, 0.25, 0.46875, 0.47, 0.5, 0.625, 0.925, 1.0, 1.35, 1.5, 2.0, 2.5, 3.5, 8.0, 9.1, 10.6, 17.3, 25.0),
    *(3.92, 87.33654, 88.02969, 88.72283, 89.41599, 103.97208, 104.0, 126.0, 127.0, 128.0, 149.0, 150.0),
    *(1e5, 2.0**14, 2.0**24, 2.0**64, 2.0**-126, 2.0**-149, 2.0**-80, 3.4028234e38),
]
"""Where some rule changes its formula, saturates or overflows."""


def hard_inputs() -> Array:
    """Neighbours of the borders, of multiples of pi/4 and ln(2)/2, and a sample of all bit patterns."""
    steps = np.arange(-40, 41, dtype=np.int32)
    multiples = np.concatenate([np.arange(1, 200) * np.pi / 4, np.arange(1, 300) * np.log(2) / 2])
    around = np.concatenate([np.float32(BORDERS), multiples.astype(np.float32)])
    near = (around.view(np.int32)[:, None] + steps).ravel().view(np.float32)
    near = near[np.isfinite(near)]
    special = np.float32([0.0, np.inf, np.nan])
    return np.concatenate([near, -near, special, -special, inputs(0, 1 << 32, 39_989)]).astype(np.float32)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_unary_f32_stays_within_its_bound(name: str) -> None:
    x = hard_inputs()
    result = VectorFunction(name, "f32")(x)
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](x.astype(np.float64))
    error = ulp_error(result, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUNDS[name], (x[worst], result[worst], exact[worst])
    zeros = (exact == 0) & (result == 0)
    assert np.array_equal(np.signbit(result[zeros]), np.signbit(exact[zeros]))


def test_pow_f32_stays_within_four_ulp(random: np.random.Generator) -> None:
    count = 60_000
    base = np.concatenate([np.exp(random.uniform(-103, 88, count)), random.uniform(0.5, 2, count)]).astype(np.float32)
    exponent = (random.uniform(-1.2, 1.01, 2 * count) * 88.7 / np.log(base.astype(np.float64))).astype(np.float32)
    exact = np.power(base.astype(np.float64), exponent.astype(np.float64))
    assert ulp_error(VectorFunction("pow", "f32", operands=2)(base, exponent), exact).max() <= 4


def test_atan2_f32_stays_within_two_ulp(random: np.random.Generator) -> None:
    y = (random.normal(size=100_000) * np.exp(random.normal(size=100_000) * 10)).astype(np.float32)
    x = random.normal(size=100_000).astype(np.float32)
    exact = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    assert ulp_error(VectorFunction("atan2", "f32", operands=2)(y, x), exact).max() <= 2


@pytest.fixture
def random() -> np.random.Generator:
    """A fixed source of numbers."""
    return np.random.default_rng(11)

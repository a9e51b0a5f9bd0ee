"""Convolutions of bytes, which are products of their windows with the kernel, against JAX on wide integers."""

from __future__ import annotations

from typing import Any

import hlojit
import jax
import numpy as np
import pytest
from hlojit.ir.ops.convolution_windows import declined_by_kernels
from jax import lax

CASES: dict[str, dict[str, Any]] = {
    "same": {"padding": "SAME"},
    "strides": {"padding": [(1, 2), (0, 1)], "window_strides": (2, 1)},
    "dilations": {"padding": [(2, 0), (1, 3)], "lhs_dilation": (2, 1), "rhs_dilation": (1, 2)},
    "cut": {"padding": [(-1, 0), (0, -2)]},
}


def convolve(x: Any, w: Any, case: str) -> Any:
    options = {"window_strides": (1, 1), **CASES[case]}
    dimensions = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, dimension_numbers=dimensions, preferred_element_type=np.int32, **options)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("channels", [1, 2, 3, 7, 16])
def test_convolutions_of_narrow_integers(channels: int, dtype: Any, case: str) -> None:
    """Windows of 9, 18, 27, 63 and 144 elements: as many as are multiplied at once, and any number besides."""
    limits, random = np.iinfo(dtype), np.random.default_rng(channels)
    x = random.integers(limits.min, limits.max, (2, 9, 8, channels), dtype, endpoint=True)
    w = random.integers(limits.min, limits.max, (3, 3, channels, 11), dtype, endpoint=True)
    text = jax.jit(convolve, static_argnums=2).lower(x, w, case).as_text()
    (instruction,) = (each for each in hlojit.parse(text).walk() if each.op.mnemonic == "convolution")
    assert declined_by_kernels(instruction)
    expected = convolve(x.astype(np.int32), w.astype(np.int32), case)
    np.testing.assert_array_equal(hlojit.compile(text)(x, w), expected)

"""hlojit-mx's own tests, against an installed hlojit and this installed package.

What is right is worked out here with NumPy in f64 and the formats of ml_dtypes, from the definitions of the formats alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit import testing
from hlojit.extensions import registry
from hlojit_mx import table
from hlojit_mx.layer import Weights, arguments, layer, matrices, quantized, random_weights
from hlojit_mx.text import layer_text


def numbers_of(dtype: type) -> np.ndarray:
    """The finite numbers of a format of ml_dtypes without a sign, in the order of their codes."""
    bits = ml_dtypes.finfo(dtype).bits - (dtype is not ml_dtypes.float8_e8m0fnu)
    values = np.arange(2**bits, dtype=np.uint8).view(dtype).astype(np.float64)
    return values[np.isfinite(values)]


def nearest(numbers: np.ndarray, values: np.ndarray, one_digit: bool = False) -> np.ndarray:
    """The nearest of ascending numbers to each magnitude, of two as near that with the even code; too large ones the largest.

    Where significands have one digit none is even: IEEE 754-2019 (4.3.1) takes the larger number, and 0 is still even.
    """
    bounds = (numbers[:-1] + numbers[1:]) / 2
    low = np.searchsorted(bounds, values)
    high = np.searchsorted(bounds, values, side="right")
    return numbers[np.where(low == 0 if one_digit else low % 2 == 0, low, high)]


SCALE8 = np.array([(k % 8 / 8 + (k > 7)) * 2.0 ** (max(k // 8, 1) - 19) for k in range(255)])


def by_exponent(elements: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The rule of MX v1.0: the power of two that brings the largest number into the top binade."""
    top = math.frexp(elements[-1])[1]
    return lambda largest: np.where(largest > 0, 2.0 ** np.clip(np.frexp(largest)[1] - top, -127, 127), 2.0**-127)


@dataclass
class Oracle:
    """A block format: numbers of its elements, a rule of scales, size of a block."""

    elements: np.ndarray
    block: int = 32
    scale: Callable[[np.ndarray], np.ndarray] | None = None
    one_digit: bool = False

    def parts(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Elements and scales of a matrix, as numbers."""
        rule = self.scale or by_exponent(self.elements)
        values = values.astype(np.float64)
        starts = range(0, values.shape[1], self.block)
        scales = rule(np.stack([np.abs(values[:, k : k + self.block]).max(axis=1) for k in starts], axis=1))
        every = values / np.repeat(scales, self.block, axis=1)[:, : values.shape[1]]
        return np.copysign(nearest(self.elements, np.abs(every), self.one_digit), values), scales

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """The numbers that a matrix becomes."""
        elements, scales = self.parts(values)
        return elements * np.repeat(scales, self.block, axis=1)[:, : values.shape[1]]


OWN = {
    "mx_int8": Oracle(np.arange(128) / 64),
    "mx_int4": Oracle(
        np.arange(8) / 4,
        64,
        lambda largest: np.where(
            largest > 0, np.maximum(nearest(SCALE8, largest * 0.9375 / 1.75), SCALE8[1]), SCALE8[1]
        ),
    ),
    "mx_power4": Oracle(np.array([0, *2.0 ** np.arange(-5, 2)]), 16, one_digit=True),
}
BUILT_IN = {
    "mxfp8": Oracle(numbers_of(ml_dtypes.float8_e4m3fn)),
    "mxfp8_e5m2": Oracle(numbers_of(ml_dtypes.float8_e5m2)),
    "mxfp6_e2m3": Oracle(numbers_of(ml_dtypes.float6_e2m3fn)),
    "mxfp6_e3m2": Oracle(numbers_of(ml_dtypes.float6_e3m2fn)),
    "mxfp4": Oracle(numbers_of(ml_dtypes.float4_e2m1fn)),
}
ORACLES = OWN | BUILT_IN


def nvfp4_rounded(values: np.ndarray) -> np.ndarray:
    """NVFP4 of a matrix whose rows are whole blocks: two levels of scales, each step in f32."""
    blocks = values.astype(np.float32).reshape(len(values), -1, 16)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    whole = largest.max() / np.float32(6 * 448)
    scales = (largest / np.float32(6) / whole).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    steps = np.where(largest > 0, scales * whole, 1)
    elements = np.clip(blocks / steps, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    return (elements * scales * whole).reshape(values.shape)


def matrix_of(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Numbers of very different magnitudes, with ties, zeros of both signs and a block of zeros."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, columns)) * np.exp2(rng.integers(-12, 9, (rows, 1)))
    values[0] = np.round(values[0] * 8) / 8
    values[1] = 0
    values[2, ::3] = -0.0
    return values.astype(np.float32)


def test_the_plugin_is_found_by_its_entry_point() -> None:
    record = registry().load().records["mx"]
    assert record.package == "hlojit-mx" and not record.error and record.identity


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("columns", [192, 64, 100, 1])
def test_numbers_are_encoded_as_the_definition_says(name: str, columns: int) -> None:
    values = matrix_of(48, columns)
    array = hlojit.Array.from_values(values, name)
    elements, scales = (np.asarray(part, np.float64) for part in array.parts)
    expected_elements, expected_scales = ORACLES[name].parts(values)
    np.testing.assert_array_equal(scales, expected_scales)
    np.testing.assert_array_equal(elements, expected_elements)
    np.testing.assert_array_equal(array.to_values(), ORACLES[name].rounded(values))


@pytest.mark.parametrize("name", OWN)
def test_every_element_and_every_tie_between_two(name: str) -> None:
    oracle = OWN[name]
    numbers = oracle.elements
    for magnitudes in (numbers, (numbers[:-1] + numbers[1:]) / 2):
        # The first of each block is the largest element, so that exponent scales are 1.
        values = np.full((len(magnitudes), oracle.block), numbers[-1])
        values[:, 1::2], values[:, 2::2] = magnitudes[:, None], -magnitudes[:, None]
        array = hlojit.Array.from_values(values, name)
        np.testing.assert_array_equal(array.to_values(), oracle.rounded(values))
        if name != "mx_int4":
            assert (np.asarray(array.parts[1], np.float64) == 1).all()


@pytest.mark.parametrize("name", OWN)
def test_a_nan_or_infinity_makes_its_block_nan_and_no_other(name: str) -> None:
    block = OWN[name].block
    values = np.ones((2, 3 * block), np.float32)
    values[0, block], values[1, 2 * block + 1] = np.nan, np.inf
    result = hlojit.Array.from_values(values, name).to_values()
    expected = OWN[name].rounded(np.ones_like(values))
    expected[0, block : 2 * block] = expected[1, 2 * block :] = np.nan
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("magnitude", [1e-45, 2.0**-126, 3e-39, 2e-7, 1e5, 3e38])
def test_numbers_at_the_ends_of_f32(name: str, magnitude: float) -> None:
    values = np.array([[magnitude, -magnitude / 2, magnitude / 3, 0]], np.float32)
    with np.errstate(over="ignore"):
        expected = OWN[name].rounded(values).astype(np.float32)
    np.testing.assert_array_equal(hlojit.Array.from_values(values, name).to_values(), expected)


def test_nvfp4_is_encoded_with_both_scales() -> None:
    values = matrix_of(8, 64, seed=3)
    np.testing.assert_array_equal(hlojit.Array.from_values(values, "nvfp4").to_values(), nvfp4_rounded(values))


@pytest.mark.parametrize("name", [*OWN, "nvfp4"])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_programs_encode_as_the_host_does(name: str, backend: str) -> None:
    values = matrix_of(5, 100)
    expected = hlojit.Array.from_values(values, name)
    text = f"""
    func.func @main(%x: tensor<5x100xf32>) -> (tensor<5x100x{name}>, tensor<5x100xf32>) {{
      %0 = stablehlo.convert %x : (tensor<5x100xf32>) -> tensor<5x100x{name}>
      %1 = stablehlo.convert %0 : (tensor<5x100x{name}>) -> tensor<5x100xf32>
      return %0, %1 : tensor<5x100x{name}>, tensor<5x100xf32>
    }}
    """
    array, numbers = hlojit.compile(text, backend=backend)(values)
    jitted = hlojit.jit(lambda x: x.astype(name), backend=backend)(values)
    np.testing.assert_array_equal(numbers, expected.to_values())
    for each in (array, jitted):
        for part, right in zip(each.parts, expected.parts):
            np.testing.assert_array_equal(np.asarray(part), np.asarray(right))


@pytest.mark.parametrize("name", ["mx_i8", "mx_i4", "mx_p4", "mx_scale8"])
def test_elements_and_scales_conform(name: str) -> None:
    groups = ["encodings", "rounding", "products"]
    testing.check_format(name, budget="smoke", groups=groups, progress=False).raise_if_failed()


def layer_by_numpy(
    x: np.ndarray, weights: Weights, heads: int, rounding: Callable[[Any], Any] = lambda x: x
) -> np.ndarray:
    """The layer in f64; ``rounding`` is what happens to the inputs of products with weights."""
    x = x.astype(np.float64)
    tokens, width = x.shape
    attention, projection, up, down = (np.asarray(matrix, np.float64) for matrix in matrices(weights))

    def normalized(x: np.ndarray, k: int) -> np.ndarray:
        deviation = np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        return (x - x.mean(axis=1, keepdims=True)) / deviation * weights.gain[k] + weights.bias[k]

    query, key, value = np.split(rounding(normalized(x, 0)) @ attention.T, 3, axis=1)
    mixed = np.zeros_like(x)
    for head in range(heads):
        part = slice(head * width // heads, (head + 1) * width // heads)
        for token in range(tokens):
            scores = key[: token + 1, part] @ query[token, part] / math.sqrt(width // heads)
            share = np.exp(scores - scores.max())
            mixed[token, part] = share @ value[: token + 1, part] / share.sum()
    x = x + rounding(mixed) @ projection.T
    hidden = rounding(normalized(x, 1)) @ up.T
    gelu = hidden / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)))
    return np.asarray(x + rounding(gelu) @ down.T)


X = np.random.default_rng(5).standard_normal((12, 96)).astype(np.float32)
WEIGHTS = random_weights(96)
NARROW = [*ORACLES, "nvfp4"]


def rounded_weights(name: str) -> Weights:
    """The weights as numbers that the format has, by the oracle."""
    if name == "f32":
        return WEIGHTS
    rounded = nvfp4_rounded if name == "nvfp4" else ORACLES[name].rounded
    return Weights(*map(rounded, matrices(WEIGHTS)), WEIGHTS.gain, WEIGHTS.bias)


def given_weights(name: str) -> Weights:
    return WEIGHTS if name == "f32" else quantized(WEIGHTS, name)


@pytest.mark.parametrize("name", ["f32", *NARROW])
def test_the_layer_with_quantized_weights(name: str) -> None:
    expected = layer_by_numpy(X, rounded_weights(name), heads=4)
    np.testing.assert_allclose(layer(X, given_weights(name), heads=4), expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(layer(X[:1], given_weights(name), heads=4), expected[:1], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["f32", *OWN, "mxfp8", "nvfp4"])
def test_the_layer_as_text(name: str) -> None:
    program = hlojit.compile(layer_text(name, 12, 96, 4))
    expected = layer_by_numpy(X, rounded_weights(name), heads=4)
    np.testing.assert_allclose(program(*arguments(X, given_weights(name))), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", OWN)
def test_block_formats_conform(name: str) -> None:
    testing.check_block_format(name, budget="smoke").raise_if_failed()


def test_the_layer_as_text_on_the_reference() -> None:
    program = hlojit.compile(layer_text("mx_int4", 12, 96, 4), backend="reference")
    expected = layer_by_numpy(X, rounded_weights("mx_int4"), heads=4)
    np.testing.assert_allclose(program(*arguments(X, given_weights("mx_int4"))), expected, rtol=2e-5, atol=2e-5)


def test_the_layer_with_inputs_rounded_too() -> None:
    """A number beside a bound may fall on either side of it, in f32 and in f64: so errors are compared, by their norms."""
    name = "mx_int8"
    exact = layer_by_numpy(X, WEIGHTS, heads=4)
    expected = layer_by_numpy(X, rounded_weights(name), heads=4, rounding=OWN[name].rounded)
    result = layer(X, given_weights(name), heads=4, activations=name)
    assert np.linalg.norm(result - expected) < 0.1 * np.linalg.norm(expected - exact)


def test_weights_take_the_memory_that_the_table_says() -> None:
    numbers = sum(matrix.size for matrix in matrices(WEIGHTS))
    assert sum(each.nbytes for each in matrices(quantized(WEIGHTS, "mx_int8"))) == numbers + numbers // 32
    assert sum(each.nbytes for each in matrices(quantized(WEIGHTS, "mx_power4"))) == numbers + numbers // 16


def test_the_table_has_a_row_of_each_format() -> None:
    lines = table.written(96, 4, rounds=1, formats=("f8E4M3FN", "mx_int8")).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| `f32`", "| `f8E4M3FN`", "| `mx_int8`"]
    assert all(line.count("|") == lines[0].count("|") for line in lines)

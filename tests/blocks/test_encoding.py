"""Encoding and decoding against exact fractions, on the host, on the CPU and by the reference."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest

from .oracle import KINDS, decode_rows, encode_rows

COLUMNS = 80  # neither a multiple of 32 nor of 16 blocks alone: the last block of a row is shorter


def hard_rows() -> Any:
    """Rows of all sizes of numbers, ties, blocks of zeros, subnormal numbers, the largest ones, NaN and infinities."""
    random = np.random.default_rng(7)
    rows = [random.normal(size=COLUMNS) * 2.0**exponent for exponent in (0, 20, -30, 100, -120, -140, 120)]
    rows += [np.zeros(COLUMNS), np.full(COLUMNS, -0.0), np.linspace(-8, 8, COLUMNS)]
    rows.append(np.arange(COLUMNS) / 16)  # ties between elements
    spread = random.normal(size=COLUMNS) * 2.0 ** random.integers(-40, 40, COLUMNS)
    sprinkled = random.normal(size=COLUMNS)
    sprinkled[[3, 40]] = np.nan, np.inf
    edges = np.resize([1.0, 1.75, 1.875, 1.99, 2.0, 447.0, 449.0, 464.0, 6.0, 7.0, 7.5, 0.25, 5.0, 2.0**-149], COLUMNS)
    return np.array([*rows, spread, sprinkled, edges]).astype(np.float32)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(found).astype(np.float64), expected)


@pytest.mark.parametrize("backend", ["host", "cpu", "reference"])
@pytest.mark.parametrize("name", KINDS)
def test_encoding_is_what_exact_fractions_say(name: str, backend: str) -> None:
    kind, rows = KINDS[name], hard_rows()
    if kind.two_levels:
        rows[6] = 0.5  # a tensor whose largest number is near that of f32 leaves nothing of the others
        rows[3] = rows[10]
    elements, scales, overall = encode_rows(rows, kind)
    if backend == "host":
        found = hlojit.Array.from_values(rows, name)
    else:
        found = hlojit.jit(lambda x: x.astype(name), backend=backend)(rows)
    same(found.parts[0], elements)
    same(found.parts[1], scales)
    if kind.two_levels:
        assert found.parts[2] == overall
    expected = decode_rows(elements, scales, overall, kind)
    np.testing.assert_array_equal(found.to_values(), expected)
    values = found.to_values() if backend == "host" else hlojit.jit(lambda x: x.to_values(), backend=backend)(found)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("backend", ["host", "cpu", "reference"])
@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
def test_a_tensor_of_zeros_and_one_of_nan(name: str, backend: str) -> None:
    for filling in (0.0, np.nan, np.inf, 2.0**-149):
        numbers = np.full((2, 32), filling, np.float32)
        if backend == "host":
            values = hlojit.Array.from_values(numbers, name).to_values()
        else:
            values = np.asarray(hlojit.jit(lambda x: x.astype(name), backend=backend)(numbers))
        expected = np.zeros_like(numbers) if np.isfinite(filling) else np.full_like(numbers, np.nan)
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("backend", ["host", "cpu", "reference"])
def test_blocks_along_another_dimension(backend: str) -> None:
    numbers = np.random.default_rng(1).normal(size=(3, 40, 5)).astype(np.float32)
    along_last = hlojit.Array.from_values(np.moveaxis(numbers, 1, 2), "mxfp8")
    if backend == "host":
        found = hlojit.Array.from_values(numbers, "mxfp8_t")
    else:
        found = hlojit.jit(lambda x: x.astype("mxfp8_t"), backend=backend)(numbers)
    assert [part.shape for part in found.parts] == [(3, 40, 5), (3, 2, 5)]
    for part, expected in zip(found.parts, along_last.parts):
        same(part, np.moveaxis(np.asarray(expected).astype(np.float64), 2, 1))
    np.testing.assert_array_equal(found.to_values(), np.moveaxis(along_last.to_values(), 2, 1))


def test_numbers_beyond_f32_are_infinite() -> None:
    import ml_dtypes

    elements = np.array([[448, -1, 0.5] + [0] * 29], ml_dtypes.float8_e4m3fn)
    scales = np.array([[2.0**127]], ml_dtypes.float8_e8m0fnu)
    array = hlojit.Array.from_parts((elements, scales), "mxfp8")
    expected = np.array([np.inf, -(2.0**127), 2.0**126] + [0.0] * 29, np.float32)
    np.testing.assert_array_equal(np.asarray(array)[0], expected)
    for backend in ("cpu", "reference"):
        np.testing.assert_array_equal(hlojit.jit(lambda x: x.to_values(), backend=backend)(array)[0], expected)

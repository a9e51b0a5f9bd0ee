"""Rounding without a code in between gives the bits of encoding and decoding, for every kind of format that it knows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from hlojit.extensions import FloatFormat, HlojitError, NanEncoding, Overflow
from hlojit.ir.formats import element_type
from hlojit.ir.scalar.arrays import decode_array
from hlojit.ir.scalar.formats import decode, encode
from hlojit.ir.scalar.in_place_rounding import is_rounded_in_place, rounded_in_place
from hlojit.ir.scalar.numpy_builder import NumpyBuilder, NumpyScalar

BUILT_IN = ("f8E4M3FN", "f8E5M2", "f8E4M3", "f8E3M4")


def parametric() -> Iterator[FloatFormat]:
    """Narrow exponents and wide ones, at the biases of IEEE and beside, with every kind of infinity, NaN and overflow."""
    fields = [
        (1, 3, 0),
        (2, 1, 1),
        (3, 2, 3),
        (4, 3, 8),
        (5, 2, 14),
        (8, 1, 127),
        (5, 6, 14),
        (8, 15, 127),
        (7, 31, 63),
    ]
    kinds = itertools.product((True, False), (NanEncoding.IEEE, NanEncoding.ALL_ONES), Overflow)
    for (exponent, mantissa, bias), (infinity, nan, overflow) in itertools.product(fields, kinds):
        name = f"round{exponent}_{mantissa}_{bias}_{infinity:d}{nan.name}{overflow.name}".lower()
        with suppress(HlojitError):  # contradictory ones
            yield FloatFormat(
                name,
                exponent_bits=exponent,
                mantissa_bits=mantissa,
                bias=bias,
                has_infinity=infinity,
                nan=nan,
                overflow=overflow,
            )


def numbers(row: FloatFormat) -> np.ndarray:
    """A third of all patterns of the upper bits, all numbers of the format and what lies halfway, and their neighbours."""
    number, word = (np.float32, np.uint32) if row.compute == "f32" else (np.float64, np.uint64)
    width = word(0).itemsize * 8
    patterns = np.arange(0, 1 << 16, 3, dtype=word) << word(width - 16)
    found = [patterns.view(number), (patterns | word((1 << width - 17) + 1)).view(number)]
    if row.bits <= 12:
        own = decode_array(np.arange(1 << row.bits).astype(row.storage_bits), row).astype(number)
        finite = np.unique(own[np.isfinite(own)])
        near = np.concatenate([finite, finite[1:] / 2 + finite[:-1] / 2, 0.75 * finite])
        found += [own, near, np.nextafter(near, number(np.inf)), np.nextafter(near, number(-np.inf))]
    return np.concatenate(found)


def check(row: FloatFormat) -> None:
    b, values = NumpyBuilder(), NumpyScalar(row.compute, numbers(row))
    with np.errstate(all="ignore"):
        expected = decode(b, encode(b, values, row), row).array
        found = rounded_in_place(b, values, row).array
    assert found.tobytes() == expected.tobytes(), row


def test_parametric_formats() -> None:
    rows = [row for row in parametric() if is_rounded_in_place(row)]
    assert len(rows) > 60
    for row in rows:
        check(row)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_formats(name: str) -> None:
    row = element_type(name)
    assert isinstance(row, FloatFormat) and is_rounded_in_place(row)
    check(row)


def test_what_it_does_not_know() -> None:
    rows = [element_type(name) for name in ("f16", "f8E4M3FNUZ", "f8E8M0FNU", "f4E2M1FN")]
    assert [isinstance(row, FloatFormat) and is_rounded_in_place(row) for row in rows] == [True, False, False, False]

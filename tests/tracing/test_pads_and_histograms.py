"""``np.pad``, ``np.histogram``, grids, positions and windows with unusual arguments: as NumPy has them, errors included."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

A = np.random.default_rng(0).normal(size=(4, 5))
V = A.ravel()
WIDTHS: list[Any] = [
    1,
    ((1, 0), (0, 2)),
    ((9, 11), (7, 0)),
    {-1: (1, 2)},
    -1,
    1.5,
    ((1, 2),) * 3,
    np.array([1, 2], "u1"),
]
MODES = ["edge", "wrap", "symmetric", "reflect", "maximum", "mean", "median", "linear_ramp", "constant", "nope"]


def compare(function: Callable[..., Any], *arguments: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = function(*(np.copy(each) for each in arguments))
        except (ValueError, TypeError) as error:
            with pytest.raises(type(error)):
                hlojit.jit(function)(*arguments)
            return
        found = hlojit.jit(function)(*arguments)
    several = isinstance(expected, (tuple, list))
    assert type(found) is type(expected)
    for one, other in zip(found if several else [found], expected if several else [expected], strict=True):
        assert type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5 if one.dtype.itemsize < 8 else 1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_pad(mode: str) -> None:
    for width in WIDTHS:
        compare(lambda x, width=width: np.pad(x, width, mode), A)  # type: ignore[misc]
    for x in ((A * 9).astype("i4"), A.T[::-1], np.ones(1), np.ones((0, 2)), np.array(3.0)):
        compare(lambda x: np.pad(x, 3, mode), x)


def test_pad_options() -> None:
    compare(lambda x: np.pad(x, (2, 7), "reflect", reflect_type="odd"), A)
    compare(lambda x: np.pad(x, 2, "mean", stat_length=(1, 2)), (A * 9).astype(int))
    compare(lambda x: np.pad(x, 3, "linear_ramp", end_values=(3, -4)), (A * 9).astype(int))
    compare(lambda x: np.pad(x, 1, "edge", constant_values=1), A)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i1", "u1", "?"])
def test_histogram(dtype: str) -> None:
    x = (V * 20).astype(dtype)
    ranges: list[Any] = [(None, 10), ((-5, 5), 7), ((0, 100), 4), ((0.5, 0.5), 3), ((5, 1), 3), (None, 0), (None, 2.5)]
    for limits, bins in ranges:
        compare(lambda x, limits=limits, bins=bins: np.histogram(x, bins, limits), x)  # type: ignore[misc]
    compare(lambda x: np.histogram(x, 5, (-10, 10), density=True), x)


@pytest.mark.parametrize("weights", ["f8", "f4", "i8", "c16", "?"])
def test_histogram_of_weights(weights: str) -> None:
    compare(lambda x, w: np.histogram(x, 5, (-1, 1), weights=w), V, (V * 3).astype(weights))


@pytest.mark.parametrize(
    "x", [V[:0], np.array([1, np.nan]), np.ones(3), np.ones(3, int)], ids=["empty", "nan", "ones", "i8"]
)
def test_histogram_of_few(x: Any) -> None:
    compare(lambda x: np.histogram(x), x)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.bool_])
@pytest.mark.filterwarnings("ignore:Converting input")
def test_histogram_of_bytes(dtype: Any) -> None:
    """Counted by value first: bins of one value, of several, of none, and edges between and beside them."""
    low, high = (0, 2) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    x = np.random.default_rng(0).integers(low, high, 300).astype(dtype)
    ranges: list[Any] = [
        (0, 256), (-128, 127), (10, 20), (0.5, 77.3), (-5, 400.0), (3, 3), (300, 400), (np.float32(0.1), np.float32(99.9)), None,
    ]  # fmt: skip
    for bins, between, given in itertools.product((3, 256, 300), ranges, (x, x[:0])):
        expected = np.histogram(given, bins, between)
        found = hlojit.jit(lambda x, bins=bins, between=between: np.histogram(x, bins, between))(given)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_positions() -> None:
    numbers, places = np.arange(12), np.array([[0, 1, 2], [3, 0, 1]])
    for shape in ((3, 4), (2, 2, 3), 12, (0, 3), (2, 2)):
        for order in "CF":
            compare(lambda i, shape=shape, order=order: np.unravel_index(i, shape, order), numbers)  # type: ignore[misc]
    compare(lambda i: np.unravel_index(i, (3, 4)), numbers * 1.0)
    for mode in ("raise", "wrap", "clip", ("wrap", "clip"), ("clip",), "no"):
        compare(lambda p, mode=mode: np.ravel_multi_index((p[0], p[1]), (3, 4), mode), places * 3 - 4)  # type: ignore[misc]
    compare(lambda p: np.ravel_multi_index(p, (3, 4), order="F"), places)


@pytest.mark.parametrize("indexing", ["xy", "ij", "no"])
@pytest.mark.parametrize(("sparse", "copy"), [(False, False), (False, True), (True, False), (True, True)])
def test_meshgrid(indexing: Any, sparse: Any, copy: Any) -> None:
    compare(lambda x, y: np.meshgrid(x, y, 2.0, indexing=indexing, sparse=sparse, copy=copy), V[:3], np.arange(2))


def test_windows() -> None:
    cases: list[Any] = [((2, 3), None), (3, 0), (2, -1), ((2, 2), (0, 0)), (9, 0), (-1, 0), ((2, 3), (1, 0)), (3, None)]
    for window, axis in cases:
        compare(lambda x, window=window, axis=axis: sliding_window_view(x.T, window, axis) * 1, A)  # type: ignore[misc]

    def written(x: Any) -> Any:
        windows = sliding_window_view(x, 3)
        x[1] = 7
        return windows

    def writes(x: Any) -> None:
        sliding_window_view(x, 3)[0] = 7

    compare(written, V)
    compare(writes, V)

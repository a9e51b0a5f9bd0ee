"""Comparison of a jitted function with the same function on plain NumPy arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np


def agree(function: Callable[..., Any], *arguments: Any, ulps: int = 4, atol: float = 0.0) -> None:
    """The compiled function does what it does with NumPy: types, shapes, layouts, elements (within ``ulps``), and its arguments after it."""
    theirs = [each.copy("K") if isinstance(each, np.ndarray) else each for each in arguments]
    ours = [each.copy("K") if isinstance(each, np.ndarray) else each for each in arguments]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = function(*theirs)
        actual = hlojit.jit(function)(*ours)
    if isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
    else:
        actual, expected = (actual,), (expected,)
    for result, other in zip(actual, expected):
        same(result, other, ulps, atol)
    for result, other in zip(ours, theirs):
        same(result, other, ulps, atol)


def same(ours: Any, theirs: Any, ulps: int = 4, atol: float = 0.0) -> None:
    """An array or a scalar as NumPy's, of equal dtype, shape and layout, and elements equal within ``ulps``, NaN where NaN."""
    if type(theirs) in (bool, int, float, complex) or isinstance(theirs, np.generic):
        assert type(ours) is type(theirs), f"{type(ours)}, with NumPy {type(theirs)}"
    theirs, ours = np.asarray(theirs), np.asarray(ours)
    assert ours.dtype == theirs.dtype, f"dtype {ours.dtype}, NumPy's is {theirs.dtype}"
    assert ours.shape == theirs.shape, f"shape {ours.shape}, NumPy's is {theirs.shape}"
    if theirs.flags.c_contiguous or theirs.flags.f_contiguous:
        assert ours.flags.c_contiguous == theirs.flags.c_contiguous, (
            f"strides {ours.strides}, NumPy's are {theirs.strides}"
        )
    if theirs.dtype.kind in "fc":
        rtol = ulps * float(np.finfo(theirs.dtype).eps)
        np.testing.assert_allclose(
            ours, theirs, rtol=rtol, atol=atol + float(np.finfo(theirs.dtype).tiny), equal_nan=True
        )
    else:
        np.testing.assert_array_equal(ours, theirs)

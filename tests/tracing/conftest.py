"""Comparison of a jitted function with the same function on plain NumPy arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np


def agree(function: Callable[..., Any], *arguments: Any, ulps: int = 4, atol: float = 0.0) -> None:
    """The compiled function returns what NumPy returns: dtype, shape and (within ``ulps``) elements."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = function(*[each.copy() if isinstance(each, np.ndarray) else each for each in arguments])
        actual = hlojit.jit(function)(*arguments)
    if isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
    else:
        actual, expected = (actual,), (expected,)
    for ours, theirs in zip(actual, expected):
        same(ours, theirs, ulps, atol)


def same(ours: Any, theirs: Any, ulps: int = 4, atol: float = 0.0) -> None:
    """Equal dtype and shape, and elements equal within ``ulps``, NaN where NaN."""
    theirs = np.asarray(theirs)
    assert ours.dtype == theirs.dtype, f"dtype {ours.dtype}, NumPy's is {theirs.dtype}"
    assert ours.shape == theirs.shape, f"shape {ours.shape}, NumPy's is {theirs.shape}"
    if theirs.dtype.kind in "fc":
        rtol = ulps * float(np.finfo(theirs.dtype).eps)
        np.testing.assert_allclose(
            ours, theirs, rtol=rtol, atol=atol + float(np.finfo(theirs.dtype).tiny), equal_nan=True
        )
    else:
        np.testing.assert_array_equal(ours, theirs)

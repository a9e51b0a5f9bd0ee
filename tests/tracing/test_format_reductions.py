"""Reductions of arrays of formats that NumPy has no dtype for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import FloatFormat, NanEncoding, Overflow

VALUES = np.arange(16.0)
FORMATS = [
    FloatFormat("acme6", exponent_bits=3, mantissa_bits=2, bias=3, has_infinity=False, nan=NanEncoding.ALL_ONES,
                overflow=Overflow.SATURATE),
    FloatFormat("codec4", bits=4, decode=lambda code: VALUES[code], encode=lambda value: int(min(max(value, 0.0), 15.0)),
                has_infinity=False, nan=NanEncoding.NONE),
]  # fmt: skip
PLUGIN = SimpleNamespace(__name__="formats", hlojit_formats=ext.hookimpl(lambda: FORMATS))
X = np.array([[1, 2, 4], [3, 1, 2]], "f4")


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std", "cumsum", "cumprod", "ptp"])
@pytest.mark.parametrize("element", ["acme6", "codec4"])
def test_reductions_are_numpys_rounded_to_the_format(element: str, name: str) -> None:
    function: Any = getattr(np, name)
    with ext.using(PLUGIN):
        x = hlojit.Array.from_values(X, element)
        for axis in (0, 1):
            result = hlojit.jit(lambda x, axis=axis: function(x, axis=axis))(x)
            expected = hlojit.Array.from_values(function(X, axis=axis), element)
            assert result.element_type.name == element
            np.testing.assert_array_equal(result.to_values(), expected.to_values())


@pytest.mark.parametrize("element", ["acme6", "codec4"])
def test_results_of_another_type(element: str) -> None:
    with ext.using(PLUGIN):
        x = hlojit.Array.from_values(X, element)
        assert hlojit.jit(lambda x: np.argmax(x, axis=1))(x).tolist() == [2, 0]
        assert hlojit.jit(lambda x: x.argmin(axis=1))(x).tolist() == [0, 1]
        wide = hlojit.jit(lambda x: x.sum(dtype=np.float32))(x)
        assert wide.dtype == np.float32 and wide == 13
        np.testing.assert_array_equal(hlojit.jit(lambda x: np.sort(x, axis=1))(x).to_values(), np.sort(X, axis=1))

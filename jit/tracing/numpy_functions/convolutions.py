"""Convolutions of arrays of any dimensions on tracers, as sums (``convolution``) and by Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.attributes import ConvDimensionNumbers
from hlojit.tracing.numpy_functions.fourier import FORWARD, FROM_REAL, INVERSE, TO_REAL, transformed
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer


def convolved(ops: Operations, lhs: Tracer, rhs: Tracer) -> Tracer:
    """The whole convolution of two arrays of one rank, in their common dtype; of booleans where any product is true."""
    kind = np.result_type(lhs.dtype, rhs.dtype)
    if kind == np.bool_:
        return convolved(ops, lhs.astype(np.int32), rhs.astype(np.int32)).astype(bool)
    # The shorter one is the window, which runs over the other one with nothing around it.
    volume, window = (lhs, rhs) if lhs.size >= rhs.size else (rhs, lhs)
    rank = volume.ndim
    spatial = tuple(range(2, rank + 2))
    reversed_window: Any = np.flip(window.astype(kind))
    numbers = ConvDimensionNumbers(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)
    operands = [
        volume.astype(kind).reshape(1, 1, *volume.shape).value,
        ops.tracer(reversed_window).reshape(1, 1, *window.shape).value,
    ]
    attributes = {
        "dimension_numbers": numbers,
        "padding": tuple((extent - 1, extent - 1) for extent in window.shape),
        "feature_group_count": 1,
        "batch_group_count": 1,
    }
    found = ops.wrap(ops.builder.create("convolution", operands, attributes=attributes).result)
    return found.reshape(*found.shape[2:])


def convolved_by_transforms(ops: Operations, lhs: Any, rhs: Any, axes: Sequence[int]) -> Any:
    """The whole convolution along ``axes``, in floats; other axes are broadcast."""
    if not axes:
        return lhs * rhs
    kind = np.result_type(lhs.dtype, rhs.dtype)
    to, back = (FORWARD, INVERSE) if kind.kind == "c" else (FROM_REAL, TO_REAL)
    shape = [lhs.shape[axis] + rhs.shape[axis] - 1 for axis in axes]
    lengths = [smooth_length(extent) for extent in shape]
    spectra = [transformed(ops, each, to, lengths, axes, None) for each in (lhs, rhs)]
    found: Any = transformed(ops, spectra[0] * spectra[1], back, lengths, axes, None)
    cut = [slice(None)] * found.ndim
    for axis, extent in zip(axes, shape):
        cut[axis] = slice(extent)
    return found[tuple(cut)]


def smooth_length(least: int) -> int:
    """The smallest number of factors 2, 3 and 5 that is not less."""
    best = 1 << max(0, least - 1).bit_length()
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            quotient = -(-least // odd)
            best = min(best, odd << (quotient - 1).bit_length())
            odd *= 3
        fives *= 5
    return best

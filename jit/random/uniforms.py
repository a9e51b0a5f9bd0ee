"""Numbers that are all as likely: floats, integers, truth values, signs."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.random.arguments import checked_key, checked_shape, float_dtype, integer_dtype, parameter, parameter_dtype
from hlojit.random.bounds import Bounds, bounds_of
from hlojit.random.checking import require
from hlojit.random.floats import between, fractions
from hlojit.random.streams import Stream, draw
from hlojit.tracing.operations import Operations
from hlojit.tracing.reports import reported


@reported
def uniform(key: Any, shape: Any = None, dtype: Any = np.float64, low: Any = 0.0, high: Any = 1.0) -> Any:
    """Floats from ``low`` on, below ``high``; the shape is that of these, if none is given.

    Of 2^23 (f32), 2^52 (f64), 2^10 (f16) or 2^7 (bf16) numbers at equal distances.
    """
    kind = float_dtype("uniform", dtype)
    key = checked_key("uniform", key)
    if type(low) is float and type(high) is float and (low, high) == (0, 1):
        return draw(_fractions, key, (), (checked_shape("uniform", () if shape is None else shape), kind))
    low, high = parameter("uniform", "low", low), parameter("uniform", "high", high)
    found = checked_shape("uniform", shape, ("low", low), ("high", high))
    return draw(_uniform, key, (low, high), (found, kind))


def _fractions(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return fractions(stream, shape, dtype)


def _uniform(stream: Stream, low: Any, high: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    low, high = low.astype(dtype), high.astype(dtype)
    require(high >= low, "uniform: high is below low, or one of them is NaN")
    require(np.isfinite(high - low), "uniform: the distance from low to high is not finite")
    return between(fractions(stream, shape, dtype), low, high)


@reported
def integers(
    key: Any, low: Any, high: Any = None, shape: Any = None, dtype: Any = np.int64, endpoint: bool = False
) -> Any:
    """Whole numbers from ``low`` on, below ``high`` (up to it, with ``endpoint``); with one bound, from 0 on below it.

    Bounds may be arrays, and the shape is theirs if none is given.  Raises ``ValueError`` for bounds between which there is no
    number, or that ``dtype`` does not hold.
    """
    kind = integer_dtype("integers", dtype)
    low, high = parameter("integers", "low", low), None if high is None else parameter("integers", "high", high)
    low, high = (0, low) if high is None else (low, high)
    found = checked_shape("integers", shape, ("low", low), ("high", high))
    bounds = bounds_of(low, high, kind, endpoint)
    return draw(_integers, checked_key("integers", key), (bounds.low, bounds.last), (found, kind, bounds.is_narrow))


def _integers(
    stream: Stream, low: Any, last: Any, shape: tuple[int, ...], dtype: np.dtype[Any], is_narrow: bool
) -> Any:
    return Bounds(low, last, is_narrow).numbers(stream, shape, dtype)


@reported
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """Truth values that are true with probability ``p``, whose shape is taken if none is given."""
    p = parameter("bernoulli", "p", p)
    found = checked_shape("bernoulli", shape, ("p", p))
    return draw(_bernoulli, checked_key("bernoulli", key), (p,), (found, parameter_dtype([p])))


def _bernoulli(stream: Stream, p: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    p = p.astype(dtype)
    require((p >= 0) & (p <= 1), "bernoulli: p is not a probability: below 0, above 1 or NaN")
    return fractions(stream, shape, dtype) < p


@reported
def rademacher(key: Any, shape: Any = (), dtype: Any = np.int64) -> Any:
    """-1 or 1, both as likely, as integers or floats."""
    found = checked_shape("rademacher", shape)
    try:
        kind = integer_dtype("rademacher", dtype, signed=True)
    except TypeError:
        kind = float_dtype("rademacher", dtype)
    return draw(_rademacher, checked_key("rademacher", key), (), (found, kind))


def _rademacher(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    operations: Operations = stream.operations
    is_up = fractions(stream, shape, np.dtype(np.float32)) < np.float32(0.5)
    signs = np.where(is_up, np.int8(1), np.int8(-1))
    return operations.tracer(signs).astype(dtype)

"""Distributions of real numbers that are functions of one uniform or normal number each."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hlojit.ir.errors import ArgumentError
from hlojit.random.arguments import checked_key, checked_shape, float_dtype, parameter, parameter_dtype
from hlojit.random.checking import require
from hlojit.random.floats import detached, fractions, next_after, normals, wide
from hlojit.random.streams import Body, Stream, draw
from hlojit.tracing.operations import Operations
from hlojit.tracing.reports import reported
from hlojit.tracing.scipy_functions.special_series import ndtri

_TINY: Final = np.float64(np.finfo(np.float64).tiny)


def _standard(name: str, body: Body, key: Any, shape: Any, dtype: Any) -> Any:
    """A distribution without parameters; what is smaller than f32 is computed in that and rounded."""
    return draw(body, checked_key(name, key), (), (checked_shape(name, shape), float_dtype(name, dtype)))


@reported
def normal(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Numbers of the standard normal distribution, also complex ones; times a deviation, plus a mean, they are any other.

    By the inverse of the error function of one uniform number each.
    """
    kind = float_dtype("normal", dtype, is_complex=True)
    body = _complex_normal if kind.kind == "c" else _normal
    return draw(body, checked_key("normal", key), (), (checked_shape("normal", shape), kind))


def _normal(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return normals(stream, shape, wide(dtype)).astype(dtype)


def _complex_normal(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    part = np.dtype(f"f{dtype.itemsize // 2}")
    real, imaginary = (normals(each, shape, part) * part.type(np.sqrt(0.5)) for each in stream.split(2))
    operations: Operations = stream.operations
    return operations.wrap(operations.builder.create("complex", [real.value, imaginary.value]).result)


@reported
def exponential(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Exponential numbers of mean 1."""
    return _standard("exponential", _exponential, key, shape, dtype)


def _exponential(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return (-np.log1p(-fractions(stream, shape, wide(dtype)))).astype(dtype)


@reported
def laplace(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Numbers of Laplace's distribution: exponential ones of either sign."""
    return _standard("laplace", _laplace, key, shape, dtype)


def _laplace(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    number = wide(dtype).type
    lowest = number(-1) + np.finfo(number).epsneg
    share = fractions(stream, shape, wide(dtype)) * (number(1) - lowest) + lowest
    return (np.sign(share) * np.log1p(-np.abs(share))).astype(dtype)


@reported
def gumbel(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Numbers of Gumbel's distribution, that of the largest of many."""
    return _standard("gumbel", _gumbel, key, shape, dtype)


def _gumbel(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return gumbels(stream, shape, wide(dtype)).astype(dtype)


def gumbels(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """The same of f32 or f64."""
    share = np.maximum(fractions(stream, shape, dtype), np.finfo(dtype).tiny)
    return -np.log(-np.log(share))


@reported
def logistic(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Numbers of the logistic distribution."""
    return _standard("logistic", _logistic, key, shape, dtype)


def _logistic(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    share = _above(stream, shape, wide(dtype), np.finfo(wide(dtype)).tiny)
    return np.log(share / (wide(dtype).type(1) - share)).astype(dtype)


@reported
def cauchy(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Numbers of Cauchy's distribution, which has no mean."""
    return _standard("cauchy", _cauchy, key, shape, dtype)


def _cauchy(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    number = wide(dtype).type
    share = _above(stream, shape, wide(dtype), np.finfo(number).eps)
    return np.tan(number(np.pi) * (share - number(0.5))).astype(dtype)


def _above(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any], lowest: Any) -> Any:
    """Uniform numbers from ``lowest`` on, below 1."""
    low, one = dtype.type(lowest), dtype.type(1)
    share = fractions(stream, shape, dtype) * (one - low) + low
    return np.minimum(share, np.nextafter(one, low))


@reported
def truncated_normal(key: Any, low: Any, high: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Standard normal numbers, of those between ``low`` and ``high``; bounds may be infinite."""
    kind = float_dtype("truncated_normal", dtype)
    low, high = parameter("truncated_normal", "low", low), parameter("truncated_normal", "high", high)
    found = checked_shape("truncated_normal", shape, ("low", low), ("high", high))
    return draw(_truncated_normal, checked_key("truncated_normal", key), (low, high), (found, kind))


def _truncated_normal(stream: Stream, low: Any, high: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    low, high = (each.astype(np.float64) for each in (low, high))
    require(low < high, "truncated_normal: low must be below high, and none of them NaN")
    # In the lower tail probabilities are small numbers, which have all their digits; the upper one is its mirror image.
    is_upper = low + high > 0
    left, right = np.where(is_upper, -high, low), np.where(is_upper, -low, high)
    share = fractions(stream, shape, np.dtype(np.float64)) + 2.0**-53
    below = [_normal_below(each) for each in (left, right)]
    found = ndtri(np.maximum(below[0] + share * (below[1] - below[0]), _TINY))
    found = np.where(is_upper, -found, found).astype(dtype)
    first, last = (np.broadcast_to(detached(each), shape).astype(dtype) for each in (low, high))
    found = np.where(found <= first, next_after(first, last), found)
    return np.where(found >= last, next_after(last, first), found)


def _normal_below(x: Any) -> Any:
    """How likely a normal number is below ``x``."""
    operations: Operations = x.context
    scaled = operations.tracer(x * -np.sqrt(0.5)).value
    return 0.5 * operations.wrap(operations.builder.create("chlo.erfc", [scaled]).result)


@reported
def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Normal vectors of a mean, (..., n), and a covariance, (..., n, n), which must be positive definite.

    The shape is that in front of the vectors, which are its last dimension in the result.
    """
    mean, cov = parameter("multivariate_normal", "mean", mean), parameter("multivariate_normal", "cov", cov)
    own, square = np.shape(mean), np.shape(cov)
    if not own or len(square) < 2 or square[-1] != square[-2] or square[-1] != own[-1]:
        raise ArgumentError(
            f"multivariate_normal: mean of shape {own} and cov of shape {square}; (n,) and (n, n) are needed"
        )
    kind = float_dtype("multivariate_normal", parameter_dtype([mean, cov]) if dtype is None else dtype)
    batches = ("mean", np.empty(own[:-1], bool)), ("cov", np.empty(square[:-2], bool))
    found = checked_shape("multivariate_normal", shape, *batches)
    return draw(_multivariate_normal, checked_key("multivariate_normal", key), (mean, cov), (found, kind))


def _multivariate_normal(stream: Stream, mean: Any, cov: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    work = wide(dtype)
    factor = np.linalg.cholesky(cov.astype(work))
    vectors = normals(stream, (*shape, mean.shape[-1]), work)
    return (mean.astype(work) + (factor @ vectors[..., None])[..., 0]).astype(dtype)

"""The gamma distribution and what is made of it.

Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26, 2000: proposals for all elements
in rounds, until each has accepted one.  The numbers have derivatives by the shape parameter: those of the quantile that each
of them is.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hlojit.ir.errors import ArgumentError
from hlojit.random.arguments import checked_key, checked_shape, float_dtype, parameter
from hlojit.random.checking import require
from hlojit.random.floats import detached, fractions_of, normals, normals_of, positive_fractions, wide
from hlojit.random.gamma_derivatives import log_gamma_derivative
from hlojit.random.streams import Stream, draw
from hlojit.tracing.control_flow import while_loop
from hlojit.tracing.reports import reported
from hlojit.transforms import custom_jvp

_THIRD: Final = 1 / 3


@reported
def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Numbers of the gamma distribution of shape ``a`` and scale 1."""
    return _of_one(_gamma, "gamma", "a", key, a, shape, dtype)


def _gamma(stream: Stream, a: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    _require_positive(a, "gamma: a")
    return np.exp(log_gammas(stream, a, shape, wide(dtype))).astype(dtype)


@reported
def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """The logarithms of such numbers: of a small ``a`` they are too small for floats."""
    return _of_one(_loggamma, "loggamma", "a", key, a, shape, dtype)


def _loggamma(stream: Stream, a: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    _require_positive(a, "loggamma: a")
    return log_gammas(stream, a, shape, wide(dtype)).astype(dtype)


@reported
def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Numbers of the chi-square distribution: sums of ``df`` squares of normal ones."""
    return _of_one(_chisquare, "chisquare", "df", key, df, shape, dtype)


def _chisquare(stream: Stream, df: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    _require_positive(df, "chisquare: df")
    half = df.astype(wide(dtype)) * wide(dtype).type(0.5)
    return (2 * np.exp(log_gammas(stream, half, shape, wide(dtype)))).astype(dtype)


@reported
def t(key: Any, df: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Numbers of Student's distribution of ``df`` degrees of freedom."""
    return _of_one(_t, "t", "df", key, df, shape, dtype)


def _t(stream: Stream, df: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    _require_positive(df, "t: df")
    first, second = stream.split(2)
    half = df.astype(wide(dtype)) * wide(dtype).type(0.5)
    logarithm = log_gammas(second, half, shape, wide(dtype))
    return (normals(first, shape, wide(dtype)) * np.exp(0.5 * (np.log(half) - logarithm))).astype(dtype)


@reported
def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Numbers of the beta distribution, between 0 and 1."""
    a, b = parameter("beta", "a", a), parameter("beta", "b", b)
    found = checked_shape("beta", shape, ("a", a), ("b", b))
    return draw(_beta, checked_key("beta", key), (a, b), (found, float_dtype("beta", dtype)))


def _beta(stream: Stream, a: Any, b: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    _require_positive(a, "beta: a")
    _require_positive(b, "beta: b")
    logarithms = [log_gammas(each, x, shape, wide(dtype)) for each, x in zip(stream.split(2), (a, b))]
    largest = np.maximum(*map(detached, logarithms))
    first, second = (np.exp(each - largest) for each in logarithms)
    return (first / (first + second)).astype(dtype)


@reported
def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Vectors of positive numbers whose sum is 1; ``alpha`` is (..., n), and the shape is that in front of the vectors."""
    alpha = parameter("dirichlet", "alpha", alpha)
    own = np.shape(alpha)
    if not own:
        raise ArgumentError("dirichlet: alpha is a number, and must have at least one dimension")
    found = checked_shape("dirichlet", shape, ("alpha", np.empty(own[:-1], bool)))
    options = ((*found, own[-1]), float_dtype("dirichlet", dtype))
    return draw(_dirichlet, checked_key("dirichlet", key), (alpha,), options)


def _dirichlet(stream: Stream, alpha: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    _require_positive(alpha, "dirichlet: alpha")
    logarithms = log_gammas(stream, alpha, shape, wide(dtype))
    parts = np.exp(logarithms - detached(logarithms).max(axis=-1, keepdims=True))
    return (parts / parts.sum(axis=-1, keepdims=True)).astype(dtype)


def _of_one(body: Any, name: str, what: str, key: Any, value: Any, shape: Any, dtype: Any) -> Any:
    value = parameter(name, what, value)
    found = checked_shape(name, shape, (what, value))
    return draw(body, checked_key(name, key), (value,), (found, float_dtype(name, dtype)))


def _require_positive(x: Any, what: str) -> None:
    require((x > 0) & (x < np.inf), f"{what} must be above 0 and finite")


def log_gammas(stream: Stream, a: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Logarithms of numbers of the gamma distribution, f32 or f64, with derivatives by ``a``."""
    a = np.broadcast_to(a.astype(dtype), shape)
    # What is refused when the function has run must not keep it from coming to its end.
    a = np.where((a > 0) & (a < np.inf), a, 1)
    return _as_function(_sampled(stream, detached(a), shape, dtype), a)


def _sampled(stream: Stream, a: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    # A number of shape a below 1 is one of shape a + 1, times a uniform number to the power of 1 / a.
    is_small = a < 1
    d = np.where(is_small, a + 1, a) - dtype.type(_THIRD)
    logarithm = np.log(d) + _accepted(stream, d, shape, dtype)
    shrunk = np.log(positive_fractions(stream, shape, dtype)) / a
    return logarithm + np.where(is_small, shrunk, 0)


def _accepted(stream: Stream, d: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """The logarithms of what was accepted."""
    scale = dtype.type(_THIRD) / np.sqrt(d)

    def proposed(state: Any) -> Any:
        number, kept, is_kept = state
        first, second = stream.apart(2 * number + 1).pair(8 * dtype.itemsize, shape)
        x, u = normals_of(first, dtype), 1 - fractions_of(second, dtype)
        step = scale * x
        # The cube of 1 + step, less 1, so that a large d multiplies no rounded difference.
        cube = step * (3 + step * (3 + step))
        logarithm = 3 * np.log1p(np.maximum(step, dtype.type(-1) + np.finfo(dtype).eps))
        is_good = (step > -1) & (np.log(u) < dtype.type(0.5) * x * x + d * (logarithm - cube))
        return number + 1, np.where(is_kept, kept, logarithm), is_kept | is_good

    operations = stream.operations
    start = (
        operations.wrap(operations.full(0, dtype, shape)),
        operations.wrap(operations.full(False, np.dtype(bool), shape)),
    )
    return while_loop(lambda state: ~state[2].all(), proposed, (np.int64(0), *start))[1]


@custom_jvp
def _as_function(logarithm: Any, a: Any) -> Any:
    """Numbers that were drawn, as the quantiles of ``a`` that they are."""
    return logarithm + 0 * a


@_as_function.defjvp
def _as_function_jvp(primals: Any, tangents: Any) -> Any:
    logarithm, a = primals
    double = np.dtype(np.float64)
    # As functions of a, too: the rule has derivatives itself.
    logarithm = _as_function(logarithm, a)
    slope = log_gamma_derivative(logarithm.astype(double), a.astype(double))
    return logarithm, tangents[0] + slope.astype(a.dtype) * tangents[1]

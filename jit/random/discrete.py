"""Distributions of whole numbers; what is chosen of arrays, and their order."""

from __future__ import annotations

import math
import operator
from typing import Any, Final

import numpy as np
from hlojit.ir.errors import ArgumentError
from hlojit.random.arguments import as_array, checked_key, checked_shape, integer_dtype, parameter, parameter_dtype
from hlojit.random.bounds import Bounds
from hlojit.random.checking import require
from hlojit.random.continuous import gumbels
from hlojit.random.floats import fractions, fractions_of, positive_fractions, wide
from hlojit.random.streams import Stream, draw
from hlojit.tracing.control_flow import while_loop
from hlojit.tracing.reports import reported
from hlojit.tracing.scipy_functions.special_ufuncs import one_op

_DOUBLE: Final = np.dtype(np.float64)
_FEW: Final = 10.0
"""Below this mean, Poisson's numbers are counted up to; above it they are guessed and accepted."""


@reported
def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = np.int64) -> Any:
    """Whole numbers of Poisson's distribution of mean ``lam``."""
    lam = parameter("poisson", "lam", lam)
    options = (checked_shape("poisson", shape, ("lam", lam)), integer_dtype("poisson", dtype))
    return draw(_poisson, checked_key("poisson", key), (lam,), options)


def _poisson(stream: Stream, lam: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    lam = lam.astype(_DOUBLE)
    limit = float(np.iinfo(dtype).max)
    require((lam >= 0) & (lam + 10 * np.sqrt(lam) < limit), f"poisson: lam is negative, NaN or too large for {dtype}")
    # What is refused when the function has run must not keep it from coming to its end.
    lam = np.broadcast_to(np.where((lam >= 0) & (lam < limit), lam, 0), shape)
    is_few = lam < _FEW
    few = _counted(fractions(stream, shape, _DOUBLE), np.where(is_few, lam, 0.0))
    many = _transformed(stream, np.where(is_few, 2 * _FEW, lam), is_few, shape)
    return np.where(is_few, few, many).astype(dtype)


def _counted(share: Any, lam: Any) -> Any:
    """The first number up to which there is more than this share."""

    def is_open(state: Any) -> Any:
        # Where nothing comes any more, rounding has left the sum below 1.
        return ((share >= state[2]) & (state[1] > 1e-20)).any()

    def following(state: Any) -> Any:
        number, part, total, found = state
        found = np.where(share >= total, number, found)
        part = part * lam / number
        return number + 1, part, total + part, found

    first = np.exp(-lam)
    return while_loop(is_open, following, (np.float64(1), first, first, np.zeros_like(lam)))[3]


def _transformed(stream: Stream, lam: Any, done: Any, shape: tuple[int, ...]) -> Any:
    """Hoermann, "The transformed rejection method for generating Poisson random variables", 1993: algorithm PTRS."""
    b = 0.931 + 2.53 * np.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse, least = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)
    logarithm = np.log(lam)

    def guessed(state: Any) -> Any:
        number, kept, is_kept = state
        words = stream.apart(2 * number + 1).pair(64, shape)
        u, v = fractions_of(words[0], _DOUBLE) - 0.5, 1 - fractions_of(words[1], _DOUBLE)
        distance = np.maximum(0.5 - np.abs(u), 2.0**-53)
        k = np.floor((2 * a / distance + b) * u + lam + 0.43)
        is_possible = (k >= 0) & ~((distance < 0.013) & (v > distance))
        left = np.log(v * inverse / (a / (distance * distance) + b))
        right = -lam + k * logarithm - one_op(stream.operations, "chlo.lgamma", np.maximum(k, 0) + 1)
        is_good = ((distance >= 0.07) & (v <= least)) | (is_possible & (left <= right))
        return number + 1, np.where(is_kept, kept, k), is_kept | is_good

    return while_loop(lambda state: ~state[2].all(), guessed, (np.int64(0), np.zeros_like(lam), done))[1]


@reported
def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = np.int64) -> Any:
    """How many trials there are until the first success, from 1 on, each of which succeeds with probability ``p``."""
    p = parameter("geometric", "p", p)
    options = (checked_shape("geometric", shape, ("p", p)), integer_dtype("geometric", dtype))
    return draw(_geometric, checked_key("geometric", key), (p,), options)


def _geometric(stream: Stream, p: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    p = p.astype(_DOUBLE)
    require((p > 0) & (p <= 1), "geometric: p must be above 0 and at most 1")
    most = np.log(2.0**-52) / np.log1p(-p) + 1
    require(
        most < float(np.iinfo(dtype).max), f"geometric: p is so small that {dtype} does not hold all numbers of trials"
    )
    return (np.floor(np.log(positive_fractions(stream, shape, _DOUBLE)) / np.log1p(-p)) + 1).astype(dtype)


@reported
def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None) -> Any:
    """Places along ``axis``, whose probabilities are proportional to the exponentials of ``logits``.

    The shape ends in that of ``logits`` without the axis, and is this if none is given.
    """
    logits = parameter("categorical", "logits", logits)
    own = list(np.shape(logits))
    axis = _axis("categorical", axis, len(own))
    categories = own.pop(axis)
    if not categories:
        raise ArgumentError("categorical: logits has no element along the axis")
    found = tuple(own) if shape is None else checked_shape("categorical", shape)
    if found[len(found) - len(own) :] != tuple(own):
        raise ArgumentError(
            f"categorical: shape is {found}, and must end in that of logits without the axis, {tuple(own)}"
        )
    drawn = list(found)
    drawn.insert(len(found) - len(own) + axis, categories)
    options = (tuple(drawn), axis - len(own) - 1, wide(parameter_dtype([logits])))
    return draw(_categorical, checked_key("categorical", key), (logits,), options)


def _categorical(stream: Stream, logits: Any, shape: tuple[int, ...], axis: int, dtype: np.dtype[Any]) -> Any:
    logits = logits.astype(dtype)
    require(~np.isnan(logits), "categorical: logits has NaN")
    return np.argmax(gumbels(stream, shape, dtype) + logits, axis=axis)


@reported
def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0) -> Any:
    """Elements of an array along ``axis``, or of ``range(a)``; with probabilities ``p``, as often as they come or each once."""
    count, array, axis = _population("choice", a, axis)
    found = checked_shape("choice", shape)
    size = math.prod(found)
    if not count and size:
        raise ValueError("choice: a must not be empty")
    if not replace and size > count:
        raise ValueError(f"choice: {size} of {count} elements cannot be taken without replacement")
    operands = [] if array is None else [array]
    if p is not None:
        p = parameter("choice", "p", p)
        if np.shape(p) != (count,):
            raise ArgumentError(f"choice: p has the shape {np.shape(p)}, and must have ({count},)")
        operands.append(p)
    options = (count, found, bool(replace), array is not None, axis)
    return draw(_choice, checked_key("choice", key), operands, options)


def _choice(stream: Stream, *rest: Any) -> Any:
    *operands, count, shape, replace, has_array, axis = rest
    p = operands[has_array] if len(operands) > has_array else None
    size = math.prod(shape)
    if p is not None:
        places = _weighted(stream, p.astype(_DOUBLE), count, shape, replace)
    elif replace:
        low, last = (stream.operations.tracer(np.int64(each)) for each in (0, max(count, 1) - 1))
        places = Bounds(low, last, count <= 1 << 32).numbers(stream, shape, np.dtype(np.int64))
    else:
        places = _order(stream, (count,), 0)[:size].reshape(shape)
    return np.take(operands[0], places, axis) if has_array else places


def _weighted(stream: Stream, p: Any, count: int, shape: tuple[int, ...], replace: bool) -> Any:
    require(p >= 0, "choice: p has negative numbers or NaN")
    require(np.abs(p.sum() - 1) <= 1.5e-8, "choice: p does not sum to 1")
    size = math.prod(shape)
    if replace:
        sums = np.cumsum(p)
        wanted = sums[-1] * (1 - fractions(stream, shape, _DOUBLE))
        return np.searchsorted(sums, wanted.reshape((size,))).reshape(shape)
    require((p > 0).sum() >= size, "choice: fewer elements of p are above 0 than are taken")
    # The largest of these: each is taken with its share of what the ones before it left.
    order = np.argsort(-(gumbels(stream, (count,), _DOUBLE) + np.log(p)), kind="stable")
    return order[:size].reshape(shape)


@reported
def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Any:
    """An array in a random order along ``axis``, or the numbers of ``range(x)``.

    ``independent``: each row along the axis has an order of its own.
    """
    count, array, axis = _population("permutation", x, axis)
    operands = () if array is None else (array,)
    shape = np.shape(array) if array is not None and independent else (count,)
    return draw(_permutation, checked_key("permutation", key), operands, (shape, axis))


def _permutation(stream: Stream, *rest: Any) -> Any:
    *operands, shape, axis = rest
    if not operands:
        return _order(stream, shape, 0)
    (array,) = operands
    if not array.size:
        return array.copy()
    if len(shape) == array.ndim:
        return np.take_along_axis(array, _order(stream, shape, axis), axis)
    return np.take(array, _order(stream, shape, 0), axis)


def _order(stream: Stream, shape: tuple[int, ...], axis: int) -> Any:
    """Places in the order of random words; of several words each, as many as make equal ones unlikely."""
    size = math.prod(shape)
    rounds = math.ceil(3 * math.log(max(1, size)) / math.log(2**32 - 1))
    found: Any = None
    for _ in range(rounds):
        stream, own = stream.split(2)
        order = np.argsort(own.bits(32, shape), axis=axis, kind="stable")
        found = order if found is None else np.take_along_axis(found, order, axis)
    if found is not None:
        return found
    return stream.operations.wrap(stream.operations.full(0, np.dtype(np.int64), shape))


def _population(function: str, a: Any, axis: int) -> tuple[int, Any, int]:
    """How many there are to choose from, of which array (None of a range), along which axis."""
    a = as_array(a)
    if not np.shape(a):
        try:
            count = operator.index(a)
        except TypeError:
            raise ArgumentError(f"{function}: {a!r} is neither a whole number nor an array") from None
        if count < 0:
            raise ValueError(f"{function}: {count} is negative")
        return count, None, 0
    axis = _axis(function, axis, len(np.shape(a)))
    return int(np.shape(a)[axis]), a, axis


def _axis(function: str, axis: Any, rank: int) -> int:
    number = operator.index(axis)
    if not -rank <= number < rank:
        raise ArgumentError(f"{function}: axis is {number}, and there are {rank} dimensions")
    return number % rank

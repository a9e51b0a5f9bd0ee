"""Functions that write some elements of an array, orders by several keys, bits as bytes, and broadcasts of several arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.choosing import in_bounds
from hlojit.tracing.numpy_functions.rules import Rules, flag, implements, places_of, single_axis
from hlojit.tracing.numpy_functions.shapes import broadcast_to
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer
from numpy.lib.array_utils import normalize_axis_tuple

RULES: Rules = {}


def _written(name: str, array: Any) -> Tracer:
    if not isinstance(array, Tracer):
        raise TracingError(f"np.{name} writes into an array that was made outside of what is traced; make it inside")
    return array


def _placed(ops: Operations, given: Any, target: Tracer, casting: str) -> Any:
    """What is written, in one dimension and the target's dtype: arrays by the rule, Python's own numbers if they fit."""
    is_array = isinstance(given, (np.ndarray, np.generic)) or (isinstance(given, Tracer) and given.weak is None)
    is_known = not is_array and not any(isinstance(each, Tracer) for each in np.array(given, object).reshape(-1))
    if is_known and isinstance(target.kind, np.dtype):
        given = np.array(given, target.kind)  # NumPy's errors for what the dtype does not hold
    return ops.tracer(given).astype(target.kind, casting=casting if is_array else "unsafe").reshape(-1)


@implements(RULES, np.put)
def put(ops: Operations, a: Any, ind: Any, v: Any, mode: Any = "raise") -> None:
    target = _written("put", a)
    if not target.size and np.size(ind):
        raise IndexError("cannot replace elements of an empty array")
    places: Any = in_bounds(ops, ops.tracer(places_of(ind)).reshape(-1), target.size, mode)
    values: Any = _placed(ops, v, target, "unsafe")
    if not places.size:
        return
    if not values.size:
        return
    values = np.resize(values, places.size) if values.size != places.size else values
    if mode == "raise":
        wrong = (places < -target.size) | (places >= target.size)
        ops.check(ops.value(np.any(wrong)), IndexError, f"index is out of bounds for axis 0 with size {target.size}")
    if places.size > 1:
        # Of several values for one place NumPy keeps the last: those before it are written there as well.
        order = np.where(places < 0, places + target.size, places)
        later = (order[:, None] == order[None, :]) * np.arange(places.size)
        values = np.take(values, np.max(later, axis=1))
    places = np.where(places < 0, places + target.size, places)
    target[np.unravel_index(places, target.shape)] = values


@implements(RULES, np.place)
def place(ops: Operations, arr: Any, mask: Any, vals: Any) -> None:
    target = _written("place", arr)
    chosen: Any = ops.tracer(mask).astype(bool)
    if chosen.size != target.size:
        raise ValueError("place: mask and data must be the same size")
    values: Any = _placed(ops, vals, target, "safe")
    chosen = chosen.reshape(-1)
    if not values.size:
        ops.check(ops.value(np.any(chosen)), ValueError, "Cannot insert from an empty array!")
        return
    number = np.cumsum(chosen) - 1
    taken = np.take(values, np.remainder(np.maximum(number, 0), values.size))
    flat: Any = np.where(chosen, taken, target.reshape(-1))
    target[...] = flat.reshape(target.shape)


@implements(RULES, np.lexsort)
def lexsort(ops: Operations, keys: Any, axis: Any = -1) -> Any:
    given: list[Any] = [ops.tracer(each) for each in keys]
    if not given:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if any(each.shape != given[0].shape for each in given):
        raise ValueError("all keys need to be the same shape")
    if not given[0].ndim:
        return np.int64(0)
    dimension = single_axis(axis, given[0].ndim)
    order: Any = np.argsort(given[0], axis=dimension, kind="stable")
    for key in given[1:]:
        ordered: Any = np.take_along_axis(key, order, dimension)
        order = np.take_along_axis(order, np.argsort(ordered, axis=dimension, kind="stable"), dimension)
    return order


@implements(RULES, np.broadcast_arrays)
def broadcast_arrays(ops: Operations, *args: Any, subok: Any = False) -> tuple[Any, ...]:
    flag(subok)
    operands = [ops.tracer(each) for each in args]
    shape = np.broadcast_shapes(*(each.shape for each in operands))
    return tuple(
        each if each.shape == shape and not each.is_scalar else broadcast_to(ops, each, shape) for each in operands
    )


@implements(RULES, np.min_scalar_type)
def min_scalar_type(ops: Operations, a: Any, /) -> np.dtype[Any]:
    operand = ops.tracer(a)
    if not operand.ndim:
        raise TracingError(
            "np.min_scalar_type of a number asks for its value, which is known only when the function runs"
        )
    return operand.dtype


@implements(RULES, np.can_cast)
def can_cast(ops: Operations, from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Of dtypes, or of the dtypes of arrays."""
    source, target = (each.dtype if isinstance(each, Tracer) else each for each in (from_, to))
    return bool(np.can_cast(source, target, casting))


# ---------------------------------------------------------------------------------------------------------------- bits


@implements(RULES, np.packbits)
def packbits(ops: Operations, a: Any, /, axis: Any = None, bitorder: Any = "big") -> Any:
    operand: Any = ops.tracer(a)
    _require_order(bitorder)
    if operand.dtype.kind not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    operand, dimension = (operand.reshape(-1), 0) if axis is None else (operand, single_axis(axis, operand.ndim))
    length = operand.shape[dimension]
    count = -(-length // 8)
    bits = np.moveaxis(operand != 0, dimension, -1).astype(np.uint8)
    bits = np.pad(bits, [(0, 0)] * (operand.ndim - 1) + [(0, 8 * count - length)])
    bits = bits.reshape((*bits.shape[:-1], count, 8))
    found: Any = np.sum(bits << _shifts(bitorder), axis=-1, dtype=np.uint8)
    return np.moveaxis(found, -1, dimension)


@implements(RULES, np.unpackbits)
def unpackbits(ops: Operations, a: Any, /, axis: Any = None, count: Any = None, bitorder: Any = "big") -> Any:
    operand: Any = ops.tracer(a)
    _require_order(bitorder)
    if operand.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    operand, dimension = (operand.reshape(-1), 0) if axis is None else (operand, single_axis(axis, operand.ndim))
    moved = np.moveaxis(operand, dimension, -1)
    bits = (moved[..., None] >> _shifts(bitorder)) & np.uint8(1)
    bits = bits.reshape((*moved.shape[:-1], 8 * operand.shape[dimension]))
    if count is not None:
        length = bits.shape[-1]
        if count < -length:
            raise ValueError(f"-count larger than number of elements ({-count} > {length})")
        bits = (
            bits[..., :count] if count <= length else np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, count - length)])
        )
    return np.moveaxis(bits, -1, dimension)


def _require_order(bitorder: Any) -> None:
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")


def _shifts(bitorder: str) -> np.ndarray[Any, Any]:
    shifts = np.arange(8, dtype=np.uint8)
    return shifts if bitorder == "little" else shifts[::-1]


# ----------------------------------------------------------------------------------------------------------- quantiles


@implements(RULES, np.nanmedian)
def nanmedian(
    ops: Operations,
    a: Any,
    axis: Any = None,
    overwrite_input: Any = False,
    keepdims: Any = np._NoValue,
) -> Any:
    """The mean of the two in the middle of those that are numbers."""
    flag(overwrite_input)
    operand: Any = ops.tracer(a)
    if operand.dtype.kind not in "fc":
        return np.median(operand, axis=axis, keepdims=keepdims is not np._NoValue and bool(keepdims))
    rows, shape = _rows(operand, axis, keepdims)
    count = np.sum(~np.isnan(rows), axis=-1, keepdims=True)
    low, high = (np.take_along_axis(rows, np.maximum(place, 0), -1) for place in ((count - 1) // 2, count // 2))
    found = np.where(count % 2 == 1, low, (low + high) / 2)
    return np.where(count > 0, found, operand.dtype.type(np.nan)).astype(operand.dtype).reshape(shape)


def _rows(operand: Any, axis: Any, keepdims: Any) -> tuple[Any, tuple[int, ...]]:
    """What is reduced in the last dimension, sorted, NaN last; and the shape of the result."""
    chosen = list(range(operand.ndim)) if axis is None else list(normalize_axis_tuple(axis, operand.ndim))
    rest = [each for each in range(operand.ndim) if each not in chosen]
    kept = keepdims is not np._NoValue and bool(keepdims)
    shape = tuple(1 if d in chosen else n for d, n in enumerate(operand.shape) if kept or d not in chosen)
    moved = np.transpose(operand, (*rest, *chosen))
    count = -1 if operand.size else 0
    rows = moved.reshape((*(operand.shape[d] for d in rest), count))
    return np.sort(rows, axis=-1), shape


_ALPHA_BETA = {
    "interpolated_inverted_cdf": (0, 1), "hazen": (0.5, 0.5), "weibull": (0, 0), "linear": (1, 1),
    "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}  # fmt: skip
"""Of the continuous methods of Hyndman and Fan (1996), as NumPy's documentation lists them."""


@implements(RULES, np.nanquantile)
def nanquantile(
    ops: Operations, a: Any, q: Any, axis: Any = None, overwrite_input: Any = False,
    method: Any = "linear", keepdims: Any = np._NoValue, *, weights: Any = None, interpolation: Any = None,
) -> Any:  # fmt: skip
    """Each row has as many numbers as are no NaN."""
    flag(overwrite_input)
    operand: Any = ops.tracer(a)
    if weights is not None or interpolation is not None:
        raise TracingError("np.nanquantile: weights= and interpolation= cannot be compiled yet")
    if operand.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    if operand.dtype.kind not in "f":
        return np.quantile(
            operand, q, axis=axis, method=method, keepdims=keepdims is not np._NoValue and bool(keepdims)
        )
    wanted = np.asarray(q, np.float64 if weak_like(q) else None)
    if not (np.all(wanted >= 0) and np.all(wanted <= 1)):
        raise ValueError("Quantiles must be in the range [0, 1]")
    rows, shape = _rows(operand, axis, keepdims)
    count = np.sum(~np.isnan(rows), axis=-1, keepdims=True)
    kind = operand.dtype if weak_like(q) else np.result_type(operand.dtype, wanted.dtype)
    rows = rows.astype(kind)
    found = [_quantile(rows, count, float(each), method).reshape(shape) for each in wanted.reshape(-1)]
    # In memory the quantiles of one row lie side by side.
    result: Any = np.stack(found, axis=-1).reshape((*shape, *wanted.shape))
    result = np.moveaxis(result, range(len(shape), result.ndim), range(wanted.ndim))
    return result.astype(kind)


def weak_like(q: Any) -> bool:
    """Whether a quantile is a Python number, beside which results keep their dtype."""
    return isinstance(q, (int, float)) and not isinstance(q, np.generic)


def _quantile(rows: Any, count: Any, q: float, method: Any) -> Any:
    if method in _ALPHA_BETA:
        alpha, beta = _ALPHA_BETA[method]
        place = (count - 1) * q if method == "linear" else count * q + (alpha + q * (1 - alpha - beta)) - 1
        place = np.clip(place, 0, np.maximum(count - 1, 0))
    elif method in ("lower", "higher", "nearest", "midpoint"):
        exact = (count - 1) * q
        lower, higher = np.floor(exact), np.ceil(exact)
        choices = {"lower": lower, "higher": higher, "nearest": np.rint(exact), "midpoint": 0.5 * (lower + higher)}
        place = np.maximum(choices[method], 0)
    else:
        raise TracingError(f"np.nanquantile: method={method!r} cannot be compiled yet")
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    low, high = np.take_along_axis(rows, below, -1), np.take_along_axis(rows, above, -1)
    part = (place - below).astype(rows.dtype)
    step = high - low
    between = np.where(part >= 0.5, high - step * (1 - part), low + step * part)
    between = np.where(low == high, low, between)
    return np.where(count > 0, between, rows.dtype.type(np.nan))


@implements(RULES, np.nanpercentile)
def nanpercentile(
    ops: Operations, a: Any, q: Any, axis: Any = None, overwrite_input: Any = False, method: Any = "linear",
    keepdims: Any = np._NoValue, *, weights: Any = None, interpolation: Any = None,
) -> Any:  # fmt: skip
    wanted = q / 100 if weak_like(q) else np.true_divide(q, 100)
    if np.any(np.asarray(wanted) < 0) or np.any(np.asarray(wanted) > 1):
        raise ValueError("Percentiles must be in the range [0, 100]")
    options = {"method": method, "keepdims": keepdims, "weights": weights, "interpolation": interpolation}
    return nanquantile(ops, a, wanted, axis, overwrite_input, **options)


# --------------------------------------------------------------------------------------------------------- polynomials


def _require_leading(ops: Operations, name: str, *coefficients: Any) -> None:
    """NumPy drops leading zeros, so that the length of the result would depend on values."""
    for each in coefficients:
        ops.check(
            ops.value(each[0] == 0), ValueError,
            f"np.{name}: the leading coefficient is 0, which NumPy drops: the result would be shorter; cut it off",
        )  # fmt: skip


def _coefficients(ops: Operations, *given: Any) -> list[Any]:
    found: list[Any] = [ops.tracer(each) for each in given]
    found = [each.reshape(1) if not each.ndim else each for each in found]
    if any(each.ndim != 1 or not each.size for each in found):
        raise ValueError("Polynomial must be 1d only.")
    return found


@implements(RULES, np.polymul)
def polymul(ops: Operations, a1: Any, a2: Any) -> Any:
    first, second = _coefficients(ops, a1, a2)
    _require_leading(ops, "polymul", first, second)
    return np.convolve(first, second)


@implements(RULES, np.roots)
def roots(ops: Operations, p: Any) -> Any:
    (coefficients,) = _coefficients(ops, p)
    _require_leading(ops, "roots", coefficients, coefficients[::-1])
    if coefficients.size < 2:
        return np.zeros(0)
    kind = coefficients.dtype if coefficients.dtype.kind in "fc" else np.dtype(np.float64)
    if coefficients.dtype == np.float16:
        raise TypeError("array type float16 is unsupported in linalg")
    coefficients = coefficients.astype(kind)
    below = np.eye(coefficients.size - 2, coefficients.size - 1, dtype=kind)
    companion = np.concatenate([(-coefficients[1:] / coefficients[0])[None], below])
    return np.linalg.eigvals(companion)

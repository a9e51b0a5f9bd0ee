"""Ufuncs that take numbers apart or put them together: ``frexp``, ``ldexp``, ``modf``, ``spacing``; and ``gcd``, ``lcm`` ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.rules import refuse, weak_kind
from hlojit.tracing.operations import Operations

Rule = Callable[..., Any]
UFUNCS: Final[dict[np.ufunc, Rule]] = {}
"""``rule(operations, ufunc, operands, options)``."""

_INTEGERS: Final = {2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}
"""Of the bytes of a float."""


def _dtypes(ops: Operations, ufunc: np.ufunc, inputs: Sequence[Any], options: Mapping[str, Any]) -> list[np.dtype[Any]]:
    """Of the operands and results, by NumPy's own resolution."""
    rest = {name: value for name, value in options.items() if not (name == "where" and value is True)}
    given: dict[str, Any] = {name: rest.pop(name) for name in ("casting",) if name in rest}
    refuse(ufunc.__name__, **rest)
    kinds: list[Any] = [weak_kind(each) or ops.tracer(each).dtype for each in inputs]
    if all(isinstance(kind, type) for kind in kinds):
        kinds = [ops.tracer(each).dtype for each in inputs]
    return [np.dtype(each) for each in ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout), **given)]


def _rule(*ufuncs: np.ufunc) -> Callable[[Rule], Rule]:
    """Register a function of the operands in the dtypes of the loop, all of one shape, for ufuncs."""

    def register(rule: Rule) -> Rule:
        def call(ops: Operations, ufunc: np.ufunc, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
            dtypes = _dtypes(ops, ufunc, inputs, options)
            operands = [
                # NumPy's error for a Python integer that the dtype does not hold.
                ops.tracer(dtype.type(each) if type(each) is int else each).astype(dtype)
                for each, dtype in zip(inputs, dtypes)
            ]
            shape = np.broadcast_shapes(*(each.shape for each in operands))
            made = rule(*(np.broadcast_to(each, shape) for each in operands))
            results = [
                each.astype(dtype)
                for each, dtype in zip(made if isinstance(made, tuple) else (made,), dtypes[len(inputs) :])
            ]
            return tuple(results) if len(results) > 1 else results[0]

        for ufunc in ufuncs:
            UFUNCS[ufunc] = call
        return rule

    return register


def _layout(x: Any) -> tuple[int, int, np.dtype[Any]]:
    """Bits of the mantissa, bias of the exponent, and the integer of the same width."""
    info: Any = np.finfo(x.dtype)
    integer: Any = _INTEGERS.get(x.dtype.itemsize)
    if integer is None:
        raise TracingError(f"{x.dtype} numbers cannot be taken apart")
    return info.nmant, info.maxexp - 1, integer


@_rule(np.modf)
def _modf(x: Any) -> Any:
    whole = np.trunc(x)
    return np.copysign(np.where(np.isinf(x), 0, x - whole), x), whole


@_rule(np.frexp)
def _frexp(x: Any) -> Any:
    """Numbers below the normal ones are scaled first, which is exact."""
    mantissa, bias, integer = _layout(x)
    is_small = np.abs(x) < np.finfo(x.dtype).smallest_normal
    scaled = np.where(is_small, x * x.dtype.type(2.0 ** (mantissa + 2)), x)
    bits = scaled.view(integer)
    exponent = ((bits >> mantissa) & (2 * bias + 1)) - (bias - 1)
    kept = (bits & ~integer.type((2 * bias + 1) << mantissa)) | integer.type((bias - 1) << mantissa)
    is_whole = (x == 0) | ~np.isfinite(x)
    exponent = exponent - np.where(is_small, mantissa + 2, 0)
    return np.where(is_whole, x, kept.view(x.dtype)), np.where(is_whole, 0, exponent)


@_rule(np.ldexp)
def _ldexp(x: Any, power: Any) -> Any:
    """One rounding: the mantissa, below 1, times a power of two that the format holds."""
    mantissa, bias, integer = _layout(x)
    part, exponent = _frexp(x)
    lowest = 1 - bias - mantissa
    power = exponent + np.clip(power.astype(np.int64), -8 * bias, 8 * bias) - 1
    within = np.clip(power, lowest, bias + 1)
    normal = (within + bias).astype(integer) << mantissa
    small = integer.type(1) << np.maximum(within - lowest, 0).astype(integer)
    factor = np.where(within > -bias, normal, small).view(x.dtype)
    # A number between 1 and 2, so that the smallest powers are exact as well.
    found = (part * 2) * factor
    below = np.where(power == lowest - 1, _half_of_the_smallest(part, x), np.copysign(x.dtype.type(0), x))
    found = np.where(power < lowest, below, found)
    return np.where((x == 0) | ~np.isfinite(x), x, found)


def _half_of_the_smallest(part: Any, x: Any) -> Any:
    """Between a half of the smallest number and the whole: up, but for the half itself, which goes to the even 0."""
    smallest = np.finfo(x.dtype).smallest_subnormal
    return np.copysign(np.where(np.abs(part) > 0.5, smallest, x.dtype.type(0)), x)


@_rule(np.spacing)
def _spacing(x: Any) -> Any:
    if x.dtype == np.float16:
        return _spacing_of_halves(x)
    beyond = np.nextafter(x, np.copysign(x.dtype.type(np.inf), x))
    return np.where(np.isinf(x), x.dtype.type(np.nan), beyond - x)


def _spacing_of_halves(x: Any) -> Any:
    """NumPy's own function for them: the distance away from zero, of a negative power of two the one towards it."""
    bits = x.view(np.int16)
    exponent, significand = (bits >> np.int16(10)) & np.int16(31), bits & np.int16(0x3FF)
    exponent = exponent - np.where((bits < 0) & (significand == 0) & (exponent > 1), np.int16(1), np.int16(0))
    normal = (exponent - np.int16(10)) << np.int16(10)
    below = np.int16(1) << np.maximum(exponent - np.int16(1), np.int16(0))
    found = np.where(exponent > 10, normal, below).astype(np.int16).view(np.float16)
    found = np.where(bits == np.int16(0x7BFF), np.float16(np.inf), found)
    return np.where(np.isfinite(x), found, np.float16(np.nan))


@_rule(np.logaddexp2)
def _logaddexp2(x: Any, y: Any) -> Any:
    larger, smaller = np.maximum(x, y), np.minimum(x, y)
    distance = np.where(larger == smaller, 0, smaller - larger)
    return larger + np.log1p(np.exp2(distance)) * x.dtype.type(np.log2(np.e))


def _magnitude(x: Any) -> Any:
    """As an unsigned number, which the smallest of all has as well."""
    unsigned = np.dtype(x.dtype.str.replace("i", "u"))
    bits = x.astype(unsigned)
    return np.where(x < 0, np.negative(bits), bits) if x.dtype.kind == "i" else bits


@_rule(np.gcd)
def _gcd(x: Any, y: Any) -> Any:
    return _greatest(_magnitude(x), _magnitude(y))


def _greatest(a: Any, b: Any) -> Any:
    from hlojit.tracing.control_flow import while_loop

    def step(pair: Any) -> Any:
        first, second = pair
        is_done = second == 0
        rest = np.remainder(first, np.where(is_done, second.dtype.type(1), second))
        return np.where(is_done, first, second), np.where(is_done, second, rest)

    return while_loop(lambda pair: np.any(pair[1] != 0), step, (a, b))[0]


@_rule(np.lcm)
def _lcm(x: Any, y: Any) -> Any:
    a, b = _magnitude(x), _magnitude(y)
    common = _greatest(a, b)
    return a // np.where(common == 0, common.dtype.type(1), common) * b

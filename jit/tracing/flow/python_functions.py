"""Python's functions of numbers, and those of ``math``, on traced values: Python's results and errors."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Iterator, ValuesView
from types import GeneratorType
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.orderings import extreme_by_key
from hlojit.tracing.operations import Operations
from hlojit.tracing.python_numbers import operate
from hlojit.tracing.state import form_of, joined
from hlojit.tracing.tracer import Tracer

RULES: dict[Any, Callable[..., Any]] = {}
"""By function; each takes the operations first, and whatever Python passes."""
_MOST_TRUTHS: Final = 10_000
"""Elements of a generator that ``any`` and ``all`` look at."""


def is_unknown(ops: Operations, value: Any) -> bool:
    """Whether a value is traced, and not the same at every call."""
    return type(value) is Tracer and ops.known(value) is None


def _python(ops: Operations, kind: type, value: Any) -> Tracer:
    made = ops.converted(value, np.dtype(kind))
    return Tracer(ops.wrap(made).window, ops, weak=kind)


def _one(ops: Operations, value: Tracer) -> Any:
    """The one element of an array as a number of its graph."""
    if value.size != 1:
        raise TypeError("only length-1 arrays can be converted to Python scalars")
    if value.ndim:
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
    return value.value


def _rule(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For the calls in which something is not known; all others are the function's own."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:

            def call(ops: Operations, *arguments: Any, _own: Any = function, **named: Any) -> Any:
                if not any(is_unknown(ops, each) for each in [*arguments, *named.values()]):
                    return _own(*arguments, **named)
                ops.mark()
                return rule(ops, *arguments, **named)

            RULES[function] = call
        return rule

    return register


@_rule(builtins.float)
def _float(ops: Operations, value: Tracer) -> Tracer:
    if value.dtype.kind == "c":
        raise TypeError(f"float() argument must be a string or a real number, not {value.__class__.__name__!r}")
    return _python(ops, float, _one(ops, value))


@_rule(builtins.complex)
def _complex(ops: Operations, *parts: Any) -> Tracer:
    values = [_python(ops, complex, ops.value(each)) for each in parts]
    total: Any = values[0] if len(values) == 1 else values[0] + values[1] * 1j
    made: Tracer = total
    return made


@_rule(builtins.bool)
def _bool(ops: Operations, value: Tracer) -> Tracer:
    if value.size != 1:
        raise ValueError("The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()")
    return _python(ops, bool, ops.builder.reshape(value.value, ()))


def _integral(ops: Operations, value: Tracer, rounded: Callable[[Any], Any]) -> Tracer:
    """A float that a Python integer is made of."""
    b, number = ops.builder, ops.converted(_one(ops, value), np.dtype(np.float64))
    ops.check(b.compare(number, number, "NE"), ValueError, "cannot convert float NaN to integer")
    whole = ops.value(rounded(ops.wrap(number)), np.dtype(np.float64))
    limit = ops.full(2.0**63, np.dtype(np.float64))
    ops.check(
        b.compare(b.abs(whole), limit, "GE"),
        OverflowError,
        "cannot convert float to integer: infinite, or more than 64 bits",
    )
    return _python(ops, int, whole)


@_rule(builtins.int, math.trunc)
def _int(ops: Operations, value: Tracer) -> Tracer:
    if value.dtype.kind == "c":
        raise TypeError(f"int() argument must be a string or a real number, not {value.__class__.__name__!r}")
    if value.dtype.kind == "b":
        return _python(ops, int, _one(ops, value))
    if value.dtype.kind != "f":
        _one(ops, value)
        return ops.python_number(value)
    return _integral(ops, value, np.trunc)


@_rule(math.floor)
def _floor(ops: Operations, value: Tracer) -> Tracer:
    return _int(ops, value) if value.dtype.kind != "f" else _integral(ops, value, np.floor)


@_rule(math.ceil)
def _ceil(ops: Operations, value: Tracer) -> Tracer:
    return _int(ops, value) if value.dtype.kind != "f" else _integral(ops, value, np.ceil)


@_rule(builtins.round)
def _round(ops: Operations, number: Tracer, ndigits: Any = None) -> Any:
    if number.weak is None and not number.is_scalar:
        raise TypeError("type numpy.ndarray doesn't define __round__ method")
    if ndigits is not None:
        if number.dtype.kind != "f":
            raise TracingError("round(integer, digits) of a traced number: use np.round")
        made = np.round(ops.wrap(number.value), ndigits)
        return _python(ops, float, ops.value(made)) if number.weak is float else ops.tracer(made)
    return _int(ops, number) if number.dtype.kind != "f" else _integral(ops, number, np.rint)


@_rule(builtins.abs)
def _abs(ops: Operations, value: Any) -> Any:
    return abs(value)


@_rule(builtins.divmod)
def _divmod(ops: Operations, a: Any, b: Any) -> Any:
    return a // b, a % b


def _extremum(name: str) -> Callable[..., Any]:
    """``min`` and ``max``: of several the first that no other is below (above)."""

    def rule(ops: Operations, *values: Any) -> Any:
        if len(values) == 1:
            values = tuple(values[0])
        best = values[0]
        for each in values[1:]:
            best = _chosen(ops, each < best if name == "lt" else each > best, each, best)
        return best

    return rule


def _chosen(ops: Operations, condition: Any, a: Any, b: Any) -> Any:
    if not is_unknown(ops, condition):
        return a if condition else b
    form = joined([form_of(ops, each) for each in (a, b)], lambda: "min() or max() of numbers")
    if form.tensor_type.rank:
        raise ValueError("The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()")
    element = form.tensor_type.element_type
    values = [ops.value(each, element.dtype or element) for each in (a, b)]
    return form.tracer(ops, ops.builder.select(ops.value(condition, np.dtype(bool)), *values))


def _of_all(name: str, function: Any) -> None:
    own = _extremum(name)

    def call(ops: Operations, *values: Any, key: Any = None, **named: Any) -> Any:
        if len(values) == 1 and isinstance(values[0], (Iterator, ValuesView)):
            values = (list(values[0]),)
        if named.keys() - {"default"} or (named and len(values) > 1) or not values:
            # Raises.
            return function(*values, key=key, **named)
        if named and not len(values[0]):
            return named["default"]
        if key is not None:
            return extreme_by_key(ops, function.__name__, values[0] if len(values) == 1 else values, key)
        parts = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values
        if not any(is_unknown(ops, each) for each in parts):
            return function(*values)
        ops.mark()
        return own(ops, *values)

    RULES[function] = call


_of_all("lt", builtins.min)
_of_all("gt", builtins.max)


def _sum(ops: Operations, iterable: Any, /, start: Any = 0) -> Any:
    if type(iterable) is not Tracer or iterable.ndim == 0 or iterable.shape[0] <= 1:
        return builtins.sum(iterable, start)
    total = np.add.reduce(iterable, axis=0)
    return total if type(start) is int and start == 0 else start + total


RULES[builtins.sum] = _sum


def _until(ops: Operations, iterable: Iterator[Any], last: bool) -> list[Any]:
    """The elements up to the first one that is known to end ``any`` or ``all``.

    Where an earlier one ends it when the function runs, Python would not have come so far; what is raised behind it is raised.
    """
    found = []
    for each in iterable:
        found.append(each)
        if not is_unknown(ops, each) and bool(each) is last:
            break
        if len(found) > _MOST_TRUTHS:
            raise TracingError(
                f"{'any' if last else 'all'}() of more than {_MOST_TRUTHS:,} elements one by one; use "
                f"np.{'any' if last else 'all'} of an array"
            )
    return found


def _all_of(reduction: Any, function: Any) -> Callable[..., Any]:
    def call(ops: Operations, iterable: Any) -> Any:
        if isinstance(iterable, map) or (isinstance(iterable, GeneratorType) and iterable.__name__ == "<genexpr>"):
            iterable = _until(ops, iterable, function is any)
        if type(iterable) is Tracer and is_unknown(ops, iterable) and iterable.ndim == 1:
            return ops.python_number(ops.tracer(reduction(iterable)))
        if isinstance(iterable, (list, tuple)) and any(is_unknown(ops, each) for each in iterable):
            truths = [_bool(ops, each) if is_unknown(ops, each) else bool(each) for each in iterable]
            combined = functools.reduce(lambda a, b: operate(ops, "and" if function is all else "or", a, b), truths)
            return combined
        return function(iterable)

    return call


RULES[builtins.all] = _all_of(np.all, builtins.all)
RULES[builtins.any] = _all_of(np.any, builtins.any)


# ---------------------------------------------------------------------------------------------------------------- math


def _as_float(ops: Operations, value: Any) -> Any:
    """An array without dimensions, in f8, which is what ``math`` computes in."""
    if type(value) is Tracer:
        if value.dtype.kind == "c":
            raise TypeError(f"must be real number, not {value.__class__.__name__}")
        return ops.wrap(ops.converted(_one(ops, value), np.dtype(np.float64)))
    return np.float64(value)


def _by_ufunc(function: Any, ufunc: Callable[..., Any]) -> None:
    """``ValueError`` where a NaN is made of numbers, ``OverflowError`` where an infinity is."""

    def rule(ops: Operations, *arguments: Any) -> Tracer:
        given = [_as_float(ops, each) for each in arguments]
        b, result = ops.builder, ops.value(ufunc(*given), np.dtype(np.float64))
        values = [ops.value(each, np.dtype(np.float64)) for each in given]
        finite = [b.create("is_finite", [each]).result for each in values]
        numbers = functools.reduce(lambda x, y: b.create("and", [x, y]).result, finite)
        ordered = [b.compare(each, each, "EQ") for each in values]
        no_nan = functools.reduce(lambda x, y: b.create("and", [x, y]).result, ordered)
        nan = b.create("and", [no_nan, b.compare(result, result, "NE")]).result
        ops.check(nan, ValueError, "math domain error")
        infinite = b.compare(b.abs(result), ops.full(np.inf, np.dtype(np.float64)), "EQ")
        error: Any = (ValueError, "math domain error") if function in _POLES else (OverflowError, "math range error")
        ops.check(b.create("and", [numbers, infinite]).result, *error)
        return _python(ops, float, result)

    _rule(function)(rule)


_POLES: Final = (math.log, math.log2, math.log10, math.log1p, math.atanh)

for _function, _ufunc in {
    math.sqrt: np.sqrt, math.exp: np.exp, math.expm1: np.expm1, math.log2: np.log2, math.log10: np.log10,
    math.log1p: np.log1p, math.sin: np.sin, math.cos: np.cos, math.tan: np.tan, math.asin: np.arcsin, math.acos: np.arccos,
    math.atan: np.arctan, math.atan2: np.arctan2, math.sinh: np.sinh, math.cosh: np.cosh, math.tanh: np.tanh,
    math.asinh: np.arcsinh, math.acosh: np.arccosh, math.atanh: np.arctanh, math.fabs: np.abs, math.hypot: np.hypot,
    math.copysign: np.copysign, math.degrees: np.degrees, math.radians: np.radians, math.pow: np.power,
    math.fmod: np.fmod,
}.items():  # fmt: skip
    _by_ufunc(_function, _ufunc)


@_rule(math.log)
def _log(ops: Operations, value: Any, base: Any = None) -> Any:
    number = _logarithm(ops, value)
    return number if base is None else number / _logarithm(ops, base)


def _logarithm(ops: Operations, value: Any) -> Any:
    if not is_unknown(ops, value):
        return math.log(value)
    given = _as_float(ops, value)
    zero = ops.full(0, np.dtype(np.float64))
    ops.check(ops.builder.compare(ops.value(given), zero, "LE"), ValueError, "math domain error")
    return _python(ops, float, ops.value(np.log(given)))


for _function, _ufunc in {math.isnan: np.isnan, math.isinf: np.isinf, math.isfinite: np.isfinite}.items():

    def _test(ops: Operations, value: Any, _own: Any = _ufunc) -> Tracer:
        return _python(ops, bool, ops.value(_own(_as_float(ops, value))))

    _rule(_function)(_test)

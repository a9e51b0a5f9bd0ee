"""Generators of random numbers that a function makes: of a seed, so that they draw the same at every call.

They draw while the function is traced, as NumPy does: the positions of what is taken from traced arrays, or the standard
numbers of a distribution.  The program takes the elements, or moves and scales the numbers.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.arrays import holds_tracers, taken_up
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

_MODULES: Final = ("numpy.random._generator", "numpy.random.mtrand")


def maker(function: Any) -> Callable[..., Any] | None:
    """What makes a generator in the place of ``function``; None for functions that make none."""
    # NumPy's module is loaded when somebody names it first.
    numpys = sys.modules.get("numpy.random")
    if isinstance(function, type):
        kinds = (numpys.BitGenerator, numpys.RandomState, numpys.SeedSequence) if numpys is not None else ()
        is_maker = issubclass(function, (random.Random, *kinds))
    else:
        is_maker = numpys is not None and function is numpys.default_rng
    return functools.partial(_made, function) if is_maker else None


def _made(function: Any, *seeds: Any, **named: Any) -> Any:
    """Traced seeds are Python's numbers among the arguments: they become static."""
    given = [each for each in (*seeds, *named.values()) if each is not None]
    if not given or function is random.SystemRandom:
        raise TracingError(
            f"{function.__name__}({'' if not given else '...'}) without a seed draws other numbers at every call, and a compiled "
            "function would draw the same: give it a seed, or draw by a key that is an argument, with hlojit.random (key = "
            "hlojit.random.key(0))"
        )
    return function(*map(_seed, seeds), **{name: _seed(each) for name, each in named.items()})


def _seed(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        return type(given)(map(_seed, given))
    return given.__index__() if type(given) is Tracer and given.is_scalar and given.dtype.kind in "iu" else given


def method_of(ops: Operations, method: Any) -> Callable[..., Any] | None:
    """What is called for a method of a generator of NumPy's; None for other objects."""
    kind = type(method.__self__)
    if kind.__module__ not in _MODULES:
        return None
    return functools.partial(_called, ops, _RULES.get(kind.__name__, {}).get(method.__name__), method)


def _called(ops: Operations, rule: Callable[..., Any] | None, method: Any, *arguments: Any, **named: Any) -> Any:
    """Arrays that are drawn are of the program, so that they can be written with traced values."""
    if not holds_tracers(*arguments, *named.values()):
        return taken_up(ops, method(*arguments, **named))
    if holds_tracers(named.get("out")):
        raise TracingError(
            f"{method.__name__}(out=) of a traced array: write array[...] = generator.{method.__name__}(...)"
        )
    return taken_up(ops, method(*arguments, **named) if rule is None else rule(ops, method, *arguments, **named))


def _choice(
    ops: Operations, method: Any, a: Any, size: Any = None, replace: Any = True, p: Any = None, axis: Any = 0,
    shuffle: Any = True,
) -> Any:  # fmt: skip
    weights = ops.tracer(p) if holds_tracers(p) else None
    if weights is not None and ops.known(weights) is None:
        raise TracingError(
            "choice() with traced probabilities asks for numbers that are known only when the compiled function runs; use "
            "np.searchsorted(np.cumsum(p), generator.random(size), side='right')"
        )
    p = p if weights is None else np.asarray(weights)
    named = {} if shuffle else {"shuffle": shuffle}
    if not np.ndim(a):
        return method(_count(a), size, replace, p, **named)
    array = ops.tracer(a)
    taken: Any = array.take(method(np.arange(array.shape[axis]), size, replace, p, **named), axis)
    return taken if size is None else ops.wrap(ops.value(taken))


def _choice_of_line(ops: Operations, method: Any, a: Any, size: Any = None, replace: Any = True, p: Any = None) -> Any:
    if np.ndim(a) > 1:
        raise ValueError("a must be 1-dimensional")
    return _choice(ops, method, a, size, replace, p)


def _count(a: Any) -> Any:
    """A number of elements: NumPy takes integers only."""
    if type(a) is Tracer and a.dtype.kind not in "iu":
        raise ValueError(f"a must be a sequence or an integer, not {a.__class__}")
    return a.__index__() if type(a) is Tracer else a


def _permutation(ops: Operations, method: Any, x: Any, axis: Any = 0) -> Any:
    if not np.ndim(x) and type(x) is Tracer and x.dtype.kind in "iu" and x.is_scalar:
        return method(_count(x))
    array = ops.tracer(x)
    return array.take(_along(method, _line(array, axis), axis).ravel(), axis)


def _shuffle(ops: Operations, method: Any, x: Any, axis: Any = 0) -> None:
    if type(x) is not Tracer:
        raise TracingError(
            "shuffle() of a list with traced values; use generator.permutation(len(x)), and take them by it"
        )
    if not x.ndim:
        raise TypeError("len() of unsized object")
    positions = _line(x, axis)
    _along(method, positions, axis)
    x[...] = x.take(positions.ravel(), axis)


def _shuffle_of_rows(ops: Operations, method: Any, x: Any) -> None:
    _shuffle(ops, method, x)


def _permutation_of_rows(ops: Operations, method: Any, x: Any) -> Any:
    return _permutation(ops, method, x)


def _permuted(ops: Operations, method: Any, x: Any, *, axis: Any = None, out: Any = None) -> Any:
    array = ops.tracer(x)
    if out is not None:
        raise TracingError("permuted(out=) of a traced array: write array[...] = generator.permuted(...)")
    positions = method(np.arange(array.size).reshape(array.shape), axis=axis)
    return array.ravel().take(positions)


def _along(method: Any, positions: np.ndarray[Any, Any], axis: Any) -> Any:
    """Generators of the older kind have no ``axis``."""
    return method(positions, axis) if axis else method(positions)


def _line(array: Tracer, axis: Any) -> np.ndarray[Any, Any]:
    """Positions along an axis of an array, in an array of as many dimensions: how NumPy draws depends on them."""
    if not array.ndim:
        return np.array(0)
    shape = [1] * array.ndim
    length = array.shape[axis] if -array.ndim <= axis < array.ndim else 1
    shape[axis if -array.ndim <= axis < array.ndim else 0] = length
    return np.arange(length).reshape(shape)


def _normal(ops: Operations, method: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    _require_sign(ops, scale)
    return _moved(ops, method.__self__.standard_normal, loc, scale, size)


def _exponential(ops: Operations, method: Any, scale: Any = 1.0, size: Any = None) -> Any:
    _require_sign(ops, scale)
    return _moved(ops, method.__self__.standard_exponential, None, scale, size)


def _uniform(ops: Operations, method: Any, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
    wide = np.subtract(_float64(ops, high), _float64(ops, low))
    ops.check(ops.value(~np.isfinite(wide)), OverflowError, "high - low range exceeds valid bounds")
    ops.check(ops.value(np.less(wide, 0.0)), ValueError, "high - low < 0")
    return _moved(ops, method.__self__.random, low, wide, size)


def _require_sign(ops: Operations, scale: Any) -> None:
    number = _float64(ops, scale)
    ops.check(ops.value(np.signbit(number) & ~np.isnan(number)), ValueError, "scale < 0")


def _moved(ops: Operations, standard: Callable[[Any], Any], loc: Any, scale: Any, size: Any) -> Any:
    """``loc + scale * standard``: one standard number for each element of the result, in the order of rows."""
    factors = [_float64(ops, each) for each in (loc, scale) if each is not None]
    shape = np.broadcast_shapes(*(each.shape for each in factors))
    wanted = shape if size is None else np.empty(size, np.bool_).shape
    if np.broadcast_shapes(wanted, shape) != wanted:
        raise ValueError(f"Output size {wanted} is not compatible with broadcast dimensions of inputs {shape}.")
    drawn = ops.tracer(np.asarray(standard(wanted)))
    result: Any = np.multiply(factors[-1], drawn)
    if loc is not None:
        result = np.add(factors[0], result)
    return ops.python_number(result) if size is None and not shape else ops.wrap(ops.value(result))


def _float64(ops: Operations, number: Any) -> Tracer:
    operand = ops.tracer(number)
    if operand.dtype.kind == "c":
        raise TypeError("float() argument must be a string or a real number, not 'complex'")
    converted: Tracer = operand.astype(np.float64)
    return converted


_RULES: dict[str, dict[str, Callable[..., Any]]] = {
    "Generator": {
        "choice": _choice, "permutation": _permutation, "shuffle": _shuffle, "permuted": _permuted, "normal": _normal,
        "exponential": _exponential, "uniform": _uniform,
    },
    "RandomState": {"choice": _choice_of_line, "permutation": _permutation_of_rows, "shuffle": _shuffle_of_rows},
}  # fmt: skip

"""Reductions, arg-extremes and cumulative functions on tracers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from hlojit.ir.formats import ComplexType, ElementType, FloatFormat, element_type_of
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.arrays.kinds import as_dtype, refuse_in_integers
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.complex_numbers import squared_size
from hlojit.tracing.numpy_functions.rules import (
    Axis,
    Rules,
    flag,
    float_dtype,
    implements,
    mask_of,
    normalized_axes,
    reduced_axes,
    refuse,
    single_axis,
)
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""


def reduce(ops: Operations, operand: Tracer, name: str, initial: Any, axis: Axis, keepdims: bool) -> Tracer:
    """``stablehlo.reduce`` with a one-op combiner."""
    axes = reduced_axes(axis, operand.ndim)
    b = ops.builder
    result = b.create(
        "reduce",
        [operand.value, ops.full(initial, operand.dtype)],
        attributes={"dimensions": axes},
        regions=[b.combiner(name, operand.type.element_type)],
    ).result
    if keepdims:
        result = b.reshape(result, [1 if d in axes else extent for d, extent in enumerate(operand.shape)])
    return ops.wrap(result)


def smallest(dtype: np.dtype[Any]) -> Any:
    """What every number of a dtype is at least: where a maximum starts."""
    element = element_type_of(dtype)
    if isinstance(element, ComplexType):
        return complex(-np.inf, -np.inf)
    if isinstance(element, FloatFormat) and element.has_infinity:
        return -np.inf
    return False if dtype == np.bool_ else _limits(element, dtype).min


def largest(dtype: np.dtype[Any]) -> Any:
    """What every number of a dtype is at most: where a minimum starts."""
    element = element_type_of(dtype)
    if isinstance(element, ComplexType):
        return complex(np.inf, np.inf)
    if isinstance(element, FloatFormat) and element.has_infinity:
        return np.inf
    return True if dtype == np.bool_ else _limits(element, dtype).max


def _limits(element: ElementType, dtype: np.dtype[Any]) -> Any:
    """NumPy's record of a dtype; ml_dtypes' has its own formats and NumPy's."""
    return (ml_dtypes.finfo if isinstance(element, FloatFormat) else ml_dtypes.iinfo)(dtype)


def _sum_dtype(dtype: np.dtype[Any], wanted: Any) -> np.dtype[Any]:
    """NumPy sums small integers and booleans in the platform's integer."""
    if wanted is not None:
        return as_dtype(wanted)
    if dtype == np.bool_ or (dtype.kind == "i" and dtype.itemsize < 8):
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype.kind == "u" and dtype.itemsize < 8 else dtype


def _masked(ops: Operations, name: str, operand: Tracer, where: Any, identity: Any) -> Tracer:
    """The elements that ``where=`` names; others are what changes nothing."""
    if where is np._NoValue or where is True:
        return operand
    mask = ops.tracer(mask_of(where))
    if mask.ndim > operand.ndim or np.broadcast_shapes(mask.shape, operand.shape) != operand.shape:
        raise ValueError(f"np.{name}: where= of shape {mask.shape} does not fit an array of shape {operand.shape}")
    chosen = [ops.broadcast(mask.value, operand.shape), operand.value, ops.full(identity, operand.dtype, operand.shape)]
    return ops.wrap(ops.builder.create("select", chosen).result)


def _require_elements(name: str, operand: Tracer, axis: Axis, where: Any) -> None:
    """Without a value to start with there must be an element to start with."""
    if where is not np._NoValue and where is not True:
        mask_of(where)
        raise ValueError(
            f"reduction operation {name!r} does not have an identity, so to use a where mask one has to specify 'initial'"
        )
    if not all(operand.shape[each] for each in reduced_axes(axis, operand.ndim)):
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")


def _reduction(
    name: str, op: str, start: Callable[[np.dtype[Any]], Any], kind: Callable[..., np.dtype[Any]], has_identity: bool
) -> Callable[..., Any]:
    """A reduction of one op; ``start`` gives what changes no result, ``kind(dtype, wanted)`` where it is computed in."""

    def rule(
        ops: Operations, a: Any, axis: Axis = None, dtype: Any = None, keepdims: Any = False,
        initial: Any = np._NoValue, where: Any = np._NoValue,
    ) -> Tracer:  # fmt: skip
        operand = ops.tracer(a)
        operand = operand.astype(kind(operand.dtype, dtype))
        if initial is None or (initial is np._NoValue and not has_identity):
            _require_elements(name, operand, axis, where)
        identity = start(operand.dtype)
        result = reduce(ops, _masked(ops, name, operand, where, identity), op, identity, axis, flag(keepdims))
        if initial is None or initial is np._NoValue:
            return result
        if np.ndim(initial):
            raise ValueError("setting an array element with a sequence.")
        first = ops.wrap(ops.value(initial)).astype(operand.dtype)
        return ops.wrap(ops.builder.create(op, [result.value, ops.broadcast(first.value, result.shape)]).result)

    return rule


def _own_dtype(dtype: np.dtype[Any], wanted: Any) -> np.dtype[Any]:
    return dtype if wanted is None else as_dtype(wanted)


RULES[np.sum] = _reduction("add", "add", lambda _: 0, _sum_dtype, True)
RULES[np.prod] = _reduction("multiply", "multiply", lambda _: 1, _sum_dtype, True)
RULES[np.max] = RULES[np.amax] = _reduction("maximum", "maximum", smallest, _own_dtype, False)
RULES[np.min] = RULES[np.amin] = _reduction("minimum", "minimum", largest, _own_dtype, False)


def _logical(name: str, op: str, start: bool) -> Callable[..., Any]:
    def rule(ops: Operations, a: Any, axis: Axis = None, keepdims: Any = False, *, where: Any = np._NoValue) -> Tracer:
        operand = _masked(ops, name, ops.tracer(a).astype(bool), where, start)
        return reduce(ops, operand, op, start, axis, flag(keepdims))

    return rule


RULES[np.any] = _logical("any", "or", False)
RULES[np.all] = _logical("all", "and", True)


def _count(ops: Operations, operand: Tracer, axis: Axis, where: Any, keepdims: bool) -> Any:
    """How many elements a mean is of: a number, or an array where ``where=`` decides."""
    if where is np._NoValue or where is True:
        return math.prod(operand.shape[each] for each in normalized_axes(axis, operand.ndim))
    mask_of(where)
    ones = _masked(ops, "mean", ops.wrap(ops.full(1, np.dtype(np.int64), operand.shape)), where, 0)
    return reduce(ops, ones, "add", 0, axis, keepdims)


def _divided(ops: Operations, total: Tracer, count: Any) -> Any:
    kind = total.dtype if total.dtype.kind in "fc" else np.dtype(np.float64)
    count = count.astype(kind) if isinstance(count, Tracer) else kind.type(count)
    return np.true_divide(total, count)


@implements(RULES, np.mean)
def mean(
    ops: Operations, a: Any, axis: Axis = None, dtype: Any = None, keepdims: Any = False, *, where: Any = np._NoValue
) -> Tracer:
    operand = ops.tracer(a)
    kind = float_dtype(operand.dtype, dtype)
    # Half precision is summed in f32, as NumPy does.
    wide = np.dtype(np.float32) if kind.kind == "f" and kind.itemsize < 4 else kind
    total = RULES[np.sum](ops, operand, axis, wide, flag(keepdims), np._NoValue, where)
    return ops.tracer(_divided(ops, total, _count(ops, operand, axis, where, flag(keepdims)))).astype(kind)


def _freedom(ddof: Any, correction: Any) -> Any:
    """What is taken off the number of elements."""
    if correction is np._NoValue:
        return ddof
    if ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return correction


def _variance(
    ops: Operations, a: Any, axis: Axis, dtype: Any, ddof: Any, keepdims: bool, where: Any, mean_: Any
) -> tuple[Tracer, np.dtype[Any]]:
    """The variance in the dtype that it is computed in, and that of the result."""
    operand = ops.tracer(a)
    kind = float_dtype(operand.dtype, dtype)
    wide = np.dtype(np.float32) if kind.kind == "f" and kind.itemsize < 4 else kind
    center: Any = mean_
    if mean_ is np._NoValue:
        total = RULES[np.sum](ops, operand, axis, wide, True, np._NoValue, where)
        center = _divided(ops, total, _count(ops, operand, axis, where, True)).astype(wide)
    squares = ops.tracer(squared_size(ops.tracer(operand - center)))
    # Squares of complex numbers are real, and summed in what was asked for if anything was.
    summed = wide if dtype is not None or wide.kind != "c" else squares.dtype
    total = RULES[np.sum](ops, squares, axis, summed, keepdims, np._NoValue, where)
    count = _count(ops, operand, axis, where, keepdims) - ddof
    # NumPy leaves no number below zero.
    count = np.maximum(count, 0) if isinstance(count, Tracer) else max(count, 0)
    kind = kind if summed.kind == "c" or kind.kind != "c" else summed
    return ops.tracer(_divided(ops, total, count)).astype(summed), kind


@implements(RULES, np.var)
def var(
    ops: Operations, a: Any, axis: Axis = None, dtype: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = np._NoValue, mean: Any = np._NoValue, correction: Any = np._NoValue,
) -> Tracer:  # fmt: skip
    found, kind = _variance(ops, a, axis, dtype, _freedom(ddof, correction), flag(keepdims), where, mean)
    return found.astype(kind)


@implements(RULES, np.std)
def std(
    ops: Operations, a: Any, axis: Axis = None, dtype: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = np._NoValue, mean: Any = np._NoValue, correction: Any = np._NoValue,
) -> Tracer:  # fmt: skip
    found, kind = _variance(ops, a, axis, dtype, _freedom(ddof, correction), flag(keepdims), where, mean)
    return ops.tracer(np.sqrt(found.astype(kind))).astype(kind)


@implements(RULES, np.ptp)
def ptp(ops: Operations, a: Any, axis: Axis = None, keepdims: Any = False) -> Tracer:
    return np.max(a, axis, keepdims=flag(keepdims)) - np.min(a, axis, keepdims=flag(keepdims))


@implements(RULES, np.count_nonzero)
def count_nonzero(ops: Operations, a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tracer:
    return ops.tracer(np.sum(ops.tracer(a).astype(bool), axis=axis, keepdims=keepdims))


def _arg_extreme(ops: Operations, operand: Tracer, axis: int | None, keepdims: bool, direction: str) -> Tracer:
    """The variadic reduce that all back ends recognize: NaN wins, then the value, then the smaller index."""
    if axis is None:
        shape = (1,) * operand.ndim
        flat = _arg_extreme(ops, operand.reshape(-1), 0, False, direction)
        return flat.reshape(shape) if keepdims else flat
    if not operand.ndim and not isinstance(axis, tuple) and axis in (0, -1):
        return _arg_extreme(ops, operand.reshape(1), 0, False, direction).reshape(())
    b = ops.builder
    dimension = single_axis(axis, operand.ndim)
    if not operand.shape[dimension]:
        raise ValueError("attempt to get the position of an extreme in a sequence without elements")
    index_type = operand.type.with_element_type("i64")
    start = smallest(operand.dtype) if direction == "GT" else largest(operand.dtype)
    value, index = tensor((), operand.type.element_type), tensor((), "i64")

    def combine(inner: Any, x: Value, i: Value, y: Value, j: Value) -> tuple[Value, Value]:
        better = inner.compare(x, y, direction)
        if isinstance(x.tensor_type.element_type, (ComplexType, FloatFormat)):
            better = inner.create("or", [better, inner.compare(x, x, "NE")]).result
        same = inner.compare(x, y, "EQ")
        earlier = inner.create("and", [same, inner.compare(i, j, "LT")]).result
        take_index = inner.create("or", [better, earlier]).result
        return inner.select(better, x, y), inner.select(take_index, i, j)

    results = b.create(
        "reduce",
        [operand.value, b.iota(index_type, dimension), ops.full(start, operand.dtype), ops.full(0, np.dtype(np.int64))],
        attributes={"dimensions": (dimension,)},
        regions=[b.region([value, index, value, index], combine)],
    ).results
    result = ops.wrap(results[1])
    return ops.tracer(np.expand_dims(result, dimension)) if keepdims else result


@implements(RULES, np.argmax)
def argmax(ops: Operations, a: Any, axis: int | None = None, *, keepdims: Any = False) -> Tracer:
    return _arg_extreme(ops, ops.tracer(a), axis, keepdims is not np._NoValue and bool(keepdims), "GT")


@implements(RULES, np.argmin)
def argmin(ops: Operations, a: Any, axis: int | None = None, *, keepdims: Any = False) -> Tracer:
    return _arg_extreme(ops, ops.tracer(a), axis, keepdims is not np._NoValue and bool(keepdims), "LT")


def _cumulative(ops: Operations, operand: Tracer, op: str, start: Any, axis: int) -> Tracer:
    """A window over everything before: ``stablehlo.reduce_window``."""
    dimension = single_axis(axis, operand.ndim)
    extent = operand.shape[dimension]
    if not operand.size:
        return operand
    window = tuple(extent if d == dimension else 1 for d in range(operand.ndim))
    padding = tuple((extent - 1, 0) if d == dimension else (0, 0) for d in range(operand.ndim))
    b = ops.builder
    return ops.wrap(
        b.create(
            "reduce_window",
            [operand.value, ops.full(start, operand.dtype)],
            attributes={"window_dimensions": window, "padding": padding},
            regions=[b.combiner(op, operand.type.element_type)],
        ).result
    )


def _cumulative_function(op: str, start: float) -> Callable[..., Any]:
    def rule(ops: Operations, a: Any, axis: int | None = None, dtype: Any = None) -> Tracer:
        operand = ops.tracer(a)
        operand = operand.astype(_sum_dtype(operand.dtype, dtype))
        if axis is None or not operand.ndim:
            single_axis(0 if axis is None else axis, max(operand.ndim, 1))
            operand, axis = operand.reshape(-1), 0
        return _cumulative(ops, operand, op, start, axis)

    return rule


RULES[np.cumsum] = _cumulative_function("add", -0.0)
RULES[np.cumprod] = _cumulative_function("multiply", 1)


def ufunc_method(
    ops: Operations, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]
) -> Tracer:
    """``ufunc.reduce``, ``.accumulate`` and ``.outer``."""
    if method == "outer":
        refuse(f"{ufunc.__name__}.outer", **options)
        a, b = (ops.tracer(each) for each in inputs)
        result: Tracer = ufunc(a.reshape(a.shape + (1,) * b.ndim), b)
        return result
    reducers: dict[Any, Any] = {np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min,
                np.logical_and: np.all, np.logical_or: np.any}  # fmt: skip
    cumulative: dict[np.ufunc, tuple[str, Callable[[np.dtype[Any]], Any]]] = {
        np.add: ("add", lambda _: 0), np.multiply: ("multiply", lambda _: 1),
        np.maximum: ("maximum", smallest), np.minimum: ("minimum", largest),
    }  # fmt: skip
    rest = dict(options)
    axis = rest.pop("axis", 0)
    if method == "reduce" and ufunc in reducers:
        reduced: Tracer = RULES[reducers[ufunc]](ops, inputs[0], axis=axis, **rest)
        return reduced
    if method == "reduce" and ufunc in (np.fmax, np.fmin):
        return _reduced_without_nan(ops, ufunc, inputs[0], axis, rest)
    if method == "accumulate" and ufunc in cumulative:
        operand = ops.tracer(inputs[0])
        kind = _sum_dtype if ufunc in (np.add, np.multiply) else _own_dtype
        operand = operand.astype(kind(operand.dtype, rest.pop("dtype", None)))
        refuse(f"{ufunc.__name__}.accumulate", **rest)
        op, start = cumulative[ufunc]
        return _cumulative(ops, operand, op, start(operand.dtype), axis)
    raise TracingError(f"np.{ufunc.__name__}.{method} cannot be compiled yet")


def _reduced_without_nan(ops: Operations, ufunc: np.ufunc, a: Any, axis: Any, options: dict[str, Any]) -> Tracer:
    """``np.fmax.reduce`` and ``np.fmin.reduce``: NaN where there is nothing else."""
    operand = ops.tracer(a)
    keepdims = options.pop("keepdims", False)
    refuse(f"{ufunc.__name__}.reduce", **options)
    reduced: Any = np.max if ufunc is np.fmax else np.min
    if operand.dtype.kind != "f":
        found: Tracer = reduced(operand, axis=axis, keepdims=keepdims)
        return found
    nan = np.isnan(operand)
    least = operand.dtype.type(-np.inf if ufunc is np.fmax else np.inf)
    numbers = reduced(np.where(nan, least, operand), axis=axis, keepdims=keepdims)
    merged: Tracer = np.where(np.all(nan, axis=axis, keepdims=keepdims), operand.dtype.type(np.nan), numbers)
    return merged


def _through_compute_type(rule: Callable[..., Any], *, keeps_type: bool) -> Callable[..., Any]:
    """The rule for formats without a NumPy dtype too: their numbers are reduced in a wider float, and rounded once."""

    @functools.wraps(rule)
    def widened(ops: Operations, a: Any, *arguments: Any, **options: Any) -> Any:
        operand = ops.tracer(a)
        element = operand.type.element_type
        if element.dtype is not None or not isinstance(element, FloatFormat):
            return rule(ops, a, *arguments, **options)
        refuse_in_integers(element, "a reduction in a jitted function")
        wide = np.float64 if "f64" in (element.compute, element.accumulator) else np.float32
        result = rule(ops, operand.astype(wide), *arguments, **options)
        wanted = options.get("dtype", arguments[1] if len(arguments) > 1 else None)
        return result.astype(element.name) if keeps_type and wanted is None else result

    return widened


_VALUES: tuple[Any, ...] = (
    np.sum, np.prod, np.max, np.amax, np.min, np.amin, np.mean, np.var, np.std, np.cumsum, np.cumprod,
)  # fmt: skip
_PLACES: tuple[Any, ...] = (np.argmax, np.argmin)
for _function in (*_VALUES, *_PLACES):
    RULES[_function] = _through_compute_type(RULES[_function], keeps_type=_function in _VALUES)

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
from hlojit.tracing.complex_numbers import squared_size
from hlojit.tracing.errors import TracingError
from hlojit.tracing.kinds import as_dtype, refuse_in_integers
from hlojit.tracing.operations import Operations
from hlojit.tracing.rules import Axis, Rules, flag, float_dtype, implements, normalized_axes, refuse
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""


def reduce(ops: Operations, operand: Tracer, name: str, initial: Any, axis: Axis, keepdims: bool) -> Tracer:
    """``stablehlo.reduce`` with a one-op combiner."""
    axes = normalized_axes(axis, operand.ndim)
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


def _smallest(dtype: np.dtype[Any]) -> Any:
    """What every number of a dtype is at least: where a maximum starts."""
    element = element_type_of(dtype)
    if isinstance(element, ComplexType):
        return complex(-np.inf, -np.inf)
    if isinstance(element, FloatFormat) and element.has_infinity:
        return -np.inf
    return False if dtype == np.bool_ else _limits(element, dtype).min


def _largest(dtype: np.dtype[Any]) -> Any:
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


def _accumulating(name: str, op: str, start: Any) -> Callable[..., Any]:
    def rule(
        ops: Operations, a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
        initial: Any = np._NoValue, where: Any = np._NoValue,
    ) -> Tracer:  # fmt: skip
        refuse(name, out=out)
        operand = ops.tracer(a)
        operand = operand.astype(_sum_dtype(operand.dtype, dtype))
        if where is not np._NoValue:
            operand = ops.tracer(np.where(where, operand, operand.dtype.type(start)))
        result = reduce(ops, operand, op, start, axis, flag(keepdims))
        if initial is not np._NoValue:
            result = result + initial if op == "add" else result * initial
        return result

    return rule


RULES[np.sum] = _accumulating("sum", "add", 0)
RULES[np.prod] = _accumulating("prod", "multiply", 1)


def _extreme(name: str, op: str, start: Callable[[np.dtype[Any]], Any]) -> Callable[..., Any]:
    def rule(
        ops: Operations, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False,
        initial: Any = np._NoValue, where: Any = np._NoValue,
    ) -> Tracer:  # fmt: skip
        refuse(name, out=out, where=where)
        operand = ops.tracer(a)
        empty = not all(operand.shape[each] for each in normalized_axes(axis, operand.ndim))
        if empty and initial is np._NoValue:
            raise ValueError(f"np.{name} of an array without elements needs initial=")
        result = reduce(ops, operand, op, start(operand.dtype), axis, flag(keepdims))
        if initial is not np._NoValue:
            result = getattr(np, op)(result, initial)
        return result

    return rule


RULES[np.max] = RULES[np.amax] = _extreme("max", "maximum", _smallest)
RULES[np.min] = RULES[np.amin] = _extreme("min", "minimum", _largest)


def _logical(name: str, op: str, start: bool) -> Callable[..., Any]:
    def rule(
        ops: Operations, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False, *, where: Any = np._NoValue
    ) -> Tracer:
        refuse(name, out=out, where=where)
        return reduce(ops, ops.tracer(a).astype(bool), op, start, axis, flag(keepdims))

    return rule


RULES[np.any] = _logical("any", "or", False)
RULES[np.all] = _logical("all", "and", True)


def _count(operand: Tracer, axis: Axis) -> int:
    return math.prod(operand.shape[each] for each in normalized_axes(axis, operand.ndim))


@implements(RULES, np.mean)
def mean(
    ops: Operations,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    *,
    where: Any = np._NoValue,
) -> Tracer:
    refuse("mean", out=out, where=where)
    operand = ops.tracer(a)
    kind = float_dtype(operand.dtype, dtype)
    # Half precision is summed in f32, as NumPy does.
    wide = np.dtype(np.float32) if kind.itemsize < 4 else kind
    total: Any = np.sum(operand.astype(wide), axis=axis, keepdims=flag(keepdims))
    return ops.tracer(total / wide.type(_count(operand, axis))).astype(kind)


@implements(RULES, np.var)
def var(
    ops: Operations,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: int = 0,
    keepdims: Any = False,
    **options: Any,
) -> Tracer:
    refuse("var", out=out, **options)
    operand = ops.tracer(a)
    kind = float_dtype(operand.dtype, dtype)
    operand = operand.astype(np.float32 if kind.itemsize < 4 else kind)
    difference = operand - np.mean(operand, axis=axis, keepdims=True)
    total = np.sum(squared_size(difference), axis=axis, keepdims=flag(keepdims))
    return ops.tracer(total / total.dtype.type(max(_count(operand, axis) - ddof, 0))).astype(kind.type(0).real.dtype)


@implements(RULES, np.std)
def std(ops: Operations, a: Any, *arguments: Any, **options: Any) -> Tracer:
    return ops.tracer(np.sqrt(var(ops, a, *arguments, **options)))


@implements(RULES, np.ptp)
def ptp(ops: Operations, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False) -> Tracer:
    refuse("ptp", out=out)
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
    b = ops.builder
    (dimension,) = normalized_axes(axis, operand.ndim)
    if not operand.shape[dimension]:
        raise ValueError("attempt to get the position of an extreme in a sequence without elements")
    index_type = operand.type.with_element_type("i64")
    start = _smallest(operand.dtype) if direction == "GT" else _largest(operand.dtype)
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
def argmax(ops: Operations, a: Any, axis: int | None = None, out: Any = None, *, keepdims: Any = False) -> Tracer:
    refuse("argmax", out=out)
    return _arg_extreme(ops, ops.tracer(a), axis, flag(keepdims), "GT")


@implements(RULES, np.argmin)
def argmin(ops: Operations, a: Any, axis: int | None = None, out: Any = None, *, keepdims: Any = False) -> Tracer:
    refuse("argmin", out=out)
    return _arg_extreme(ops, ops.tracer(a), axis, flag(keepdims), "LT")


def _cumulative(ops: Operations, operand: Tracer, op: str, start: Any, axis: int) -> Tracer:
    """A window over everything before: ``stablehlo.reduce_window``."""
    (dimension,) = normalized_axes(axis, operand.ndim)
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


def _cumulative_function(name: str, op: str, start: int) -> Callable[..., Any]:
    def rule(ops: Operations, a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tracer:
        refuse(name, out=out)
        operand = ops.tracer(a)
        operand = operand.astype(_sum_dtype(operand.dtype, dtype))
        if axis is None:
            operand, axis = operand.reshape(-1), 0
        return _cumulative(ops, operand, op, start, axis)

    return rule


RULES[np.cumsum] = _cumulative_function("cumsum", "add", 0)
RULES[np.cumprod] = _cumulative_function("cumprod", "multiply", 1)


def ufunc_method(
    ops: Operations, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]
) -> Tracer:
    """``ufunc.reduce``, ``.accumulate`` and ``.outer``."""
    if method == "outer":
        a, b = (ops.tracer(each) for each in inputs)
        result: Tracer = ufunc(a.reshape(a.shape + (1,) * b.ndim), b)
        return result
    reducers: dict[Any, Any] = {np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min,
                np.logical_and: np.all, np.logical_or: np.any}  # fmt: skip
    cumulative: dict[np.ufunc, tuple[str, Callable[[np.dtype[Any]], Any]]] = {
        np.add: ("add", lambda _: 0), np.multiply: ("multiply", lambda _: 1),
        np.maximum: ("maximum", _smallest), np.minimum: ("minimum", _largest),
    }  # fmt: skip
    rest = dict(options)
    axis = rest.pop("axis", 0)
    if method == "reduce" and ufunc in reducers:
        reduced: Tracer = RULES[reducers[ufunc]](ops, inputs[0], axis=axis, **rest)
        return reduced
    if method == "accumulate" and ufunc in cumulative:
        operand = ops.tracer(inputs[0])
        if ufunc in (np.add, np.multiply):
            operand = operand.astype(_sum_dtype(operand.dtype, rest.get("dtype")))
        op, start = cumulative[ufunc]
        return _cumulative(ops, operand, op, start(operand.dtype), axis)
    raise TracingError(f"np.{ufunc.__name__}.{method} cannot be compiled yet")


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

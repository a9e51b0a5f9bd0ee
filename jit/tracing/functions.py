"""NumPy's functions (as opposed to ufuncs) on tracers: ``FUNCTIONS`` maps each to the rule that builds it.

Most are written with other NumPy functions and operators on tracers; only the last step builds graph ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hlojit.ir.formats import element_type_of
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing import products
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer, TracingError

Axis = int | tuple[int, ...] | None
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.dot: products.dot,
    np.tensordot: products.tensordot,
    np.einsum: products.einsum,
    np.outer: products.outer,
    np.inner: products.inner,
    np.vdot: products.vdot,
}


def _implements(*functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            FUNCTIONS[function] = rule
        return rule

    return register


# ----------------------------------------------------------------------------------------------------------- reductions


def normalized_axes(axis: Axis, rank: int) -> tuple[int, ...]:
    """Axes as positions from 0, all of them for None."""
    if axis is None:
        return tuple(range(rank))
    axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    for each in axes:
        if not -rank <= each < rank:
            raise np.exceptions.AxisError(each, rank)
    return tuple(sorted({int(each) % rank for each in axes}))


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
    if dtype == np.bool_:
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _largest(dtype: np.dtype[Any]) -> Any:
    if dtype == np.bool_:
        return True
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def _sum_dtype(dtype: np.dtype[Any], wanted: Any) -> np.dtype[Any]:
    """NumPy sums small integers and booleans in the platform's integer."""
    if wanted is not None:
        return np.dtype(wanted)
    if dtype == np.bool_ or (dtype.kind == "i" and dtype.itemsize < 8):
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype.kind == "u" and dtype.itemsize < 8 else dtype


def _refuse(name: str, **options: Any) -> None:
    for key, value in options.items():
        if value is not None and value is not np._NoValue:  # type: ignore[attr-defined]
            raise TracingError(f"np.{name}: {key}= cannot be compiled yet")


def _flag(value: Any) -> bool:
    return bool(value) if value is not np._NoValue else False  # type: ignore[attr-defined]


def _accumulating(name: str, op: str, start: Any) -> Callable[..., Any]:
    def rule(
        ops: Operations, a: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
        initial: Any = np._NoValue, where: Any = np._NoValue,  # type: ignore[attr-defined]
    ) -> Tracer:  # fmt: skip
        _refuse(name, out=out)
        operand = ops.tracer(a)
        operand = operand.astype(_sum_dtype(operand.dtype, dtype))
        if where is not np._NoValue:  # type: ignore[attr-defined]
            operand = ops.tracer(np.where(where, operand, operand.dtype.type(start)))
        result = reduce(ops, operand, op, start, axis, _flag(keepdims))
        if initial is not np._NoValue:  # type: ignore[attr-defined]
            result = result + initial if op == "add" else result * initial
        return result

    return rule


FUNCTIONS[np.sum] = _accumulating("sum", "add", 0)
FUNCTIONS[np.prod] = _accumulating("prod", "multiply", 1)


def _extreme(name: str, op: str, start: Callable[[np.dtype[Any]], Any]) -> Callable[..., Any]:
    def rule(
        ops: Operations, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False,
        initial: Any = np._NoValue, where: Any = np._NoValue,  # type: ignore[attr-defined]
    ) -> Tracer:  # fmt: skip
        _refuse(name, out=out, where=where)
        operand = ops.tracer(a)
        empty = not all(operand.shape[each] for each in normalized_axes(axis, operand.ndim))
        if empty and initial is np._NoValue:  # type: ignore[attr-defined]
            raise ValueError(f"np.{name} of an array without elements needs initial=")
        result = reduce(ops, operand, op, start(operand.dtype), axis, _flag(keepdims))
        if initial is not np._NoValue:  # type: ignore[attr-defined]
            result = getattr(np, op)(result, initial)
        return result

    return rule


FUNCTIONS[np.max] = FUNCTIONS[np.amax] = _extreme("max", "maximum", _smallest)
FUNCTIONS[np.min] = FUNCTIONS[np.amin] = _extreme("min", "minimum", _largest)


def _logical(name: str, op: str, start: bool) -> Callable[..., Any]:
    def rule(
        ops: Operations, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False, *, where: Any = np._NoValue
    ) -> Tracer:  # type: ignore[attr-defined]
        _refuse(name, out=out, where=where)
        return reduce(ops, ops.tracer(a).astype(bool), op, start, axis, _flag(keepdims))

    return rule


FUNCTIONS[np.any] = _logical("any", "or", False)
FUNCTIONS[np.all] = _logical("all", "and", True)


def _count(operand: Tracer, axis: Axis) -> int:
    return math.prod(operand.shape[each] for each in normalized_axes(axis, operand.ndim))


def _float_dtype(dtype: np.dtype[Any], wanted: Any = None) -> np.dtype[Any]:
    if wanted is not None:
        return np.dtype(wanted)
    return np.dtype(np.float64) if dtype.kind in "iub" else dtype


@_implements(np.mean)
def mean(
    ops: Operations,
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    *,
    where: Any = np._NoValue,
) -> Tracer:  # type: ignore[attr-defined]
    _refuse("mean", out=out, where=where)
    operand = ops.tracer(a)
    kind = _float_dtype(operand.dtype, dtype)
    # Half precision is summed in f32, as NumPy does.
    wide = np.dtype(np.float32) if kind.itemsize < 4 else kind
    total: Any = np.sum(operand.astype(wide), axis=axis, keepdims=_flag(keepdims))
    return ops.tracer(total / wide.type(_count(operand, axis))).astype(kind)


@_implements(np.var)
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
    _refuse("var", out=out, **options)
    operand = ops.tracer(a)
    kind = _float_dtype(operand.dtype, dtype)
    operand = operand.astype(np.float32 if kind.itemsize < 4 else kind)
    difference = operand - np.mean(operand, axis=axis, keepdims=True)
    total = np.sum(difference * difference, axis=axis, keepdims=_flag(keepdims))
    return ops.tracer(total / total.dtype.type(max(_count(operand, axis) - ddof, 0))).astype(kind)


@_implements(np.std)
def std(ops: Operations, a: Any, *arguments: Any, **options: Any) -> Tracer:
    return ops.tracer(np.sqrt(var(ops, a, *arguments, **options)))


@_implements(np.ptp)
def ptp(ops: Operations, a: Any, axis: Axis = None, out: Any = None, keepdims: Any = False) -> Tracer:
    _refuse("ptp", out=out)
    return np.max(a, axis, keepdims=_flag(keepdims)) - np.min(a, axis, keepdims=_flag(keepdims))


@_implements(np.count_nonzero)
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
        if operand.dtype.kind not in "iub":
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


@_implements(np.argmax)
def argmax(ops: Operations, a: Any, axis: int | None = None, out: Any = None, *, keepdims: Any = False) -> Tracer:
    _refuse("argmax", out=out)
    return _arg_extreme(ops, ops.tracer(a), axis, _flag(keepdims), "GT")


@_implements(np.argmin)
def argmin(ops: Operations, a: Any, axis: int | None = None, out: Any = None, *, keepdims: Any = False) -> Tracer:
    _refuse("argmin", out=out)
    return _arg_extreme(ops, ops.tracer(a), axis, _flag(keepdims), "LT")


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
        _refuse(name, out=out)
        operand = ops.tracer(a)
        operand = operand.astype(_sum_dtype(operand.dtype, dtype))
        if axis is None:
            operand, axis = operand.reshape(-1), 0
        return _cumulative(ops, operand, op, start, axis)

    return rule


FUNCTIONS[np.cumsum] = _cumulative_function("cumsum", "add", 0)
FUNCTIONS[np.cumprod] = _cumulative_function("cumprod", "multiply", 1)


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
        reduced: Tracer = FUNCTIONS[reducers[ufunc]](ops, inputs[0], axis=axis, **rest)
        return reduced
    if method == "accumulate" and ufunc in cumulative:
        operand = ops.tracer(inputs[0])
        if ufunc in (np.add, np.multiply):
            operand = operand.astype(_sum_dtype(operand.dtype, rest.get("dtype")))
        op, start = cumulative[ufunc]
        return _cumulative(ops, operand, op, start(operand.dtype), axis)
    raise TracingError(f"np.{ufunc.__name__}.{method} cannot be compiled yet")


# --------------------------------------------------------------------------------------------------------------- shapes


@_implements(np.shape)
def shape(ops: Operations, a: Tracer) -> tuple[int, ...]:
    return a.shape


@_implements(np.ndim)
def ndim(ops: Operations, a: Tracer) -> int:
    return a.ndim


@_implements(np.size)
def size(ops: Operations, a: Tracer, axis: int | None = None) -> int:
    return a.size if axis is None else a.shape[axis]


@_implements(np.reshape)
def reshape(ops: Operations, a: Any, shape: Any = None, order: str = "C", **options: Any) -> Tracer:
    operand = ops.tracer(a)
    if order != "C":
        raise TracingError("np.reshape: only order='C' can be compiled")
    wanted = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(each) for each in shape)
    known = math.prod(each for each in wanted if each != -1)
    if wanted.count(-1) == 1 and known and operand.size % known == 0:
        wanted = tuple(operand.size // known if each == -1 else each for each in wanted)
    if -1 in wanted or math.prod(wanted) != operand.size:
        raise ValueError(f"cannot reshape array of size {operand.size} into shape {tuple(shape)}")
    return ops.wrap(ops.builder.reshape(operand.value, wanted))


@_implements(np.ravel)
def ravel(ops: Operations, a: Any, order: str = "C") -> Tracer:
    return reshape(ops, a, -1, order)


@_implements(np.transpose, np.permute_dims)
def transpose(ops: Operations, a: Any, axes: Any = None) -> Tracer:
    operand = ops.tracer(a)
    order = tuple(reversed(range(operand.ndim))) if axes is None else tuple(int(x) % operand.ndim for x in axes)
    if sorted(order) != list(range(operand.ndim)):
        raise ValueError(f"axes {axes} do not match an array of {operand.ndim} dimensions")
    if order == tuple(range(operand.ndim)):
        return operand
    return ops.wrap(ops.builder.create("transpose", [operand.value], attributes={"permutation": order}).result)


@_implements(np.swapaxes)
def swapaxes(ops: Operations, a: Any, axis1: int, axis2: int) -> Tracer:
    order = list(range(ops.tracer(a).ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose(ops, a, order)


@_implements(np.moveaxis)
def moveaxis(ops: Operations, a: Any, source: Any, destination: Any) -> Tracer:
    rank = ops.tracer(a).ndim
    sources = [x % rank for x in np.atleast_1d(source).tolist()]
    targets = [x % rank for x in np.atleast_1d(destination).tolist()]
    order = [axis for axis in range(rank) if axis not in sources]
    for target, origin in sorted(zip(targets, sources)):
        order.insert(target, origin)
    return transpose(ops, a, order)


@_implements(np.broadcast_to)
def broadcast_to(ops: Operations, array: Any, shape: Any, subok: bool = False) -> Tracer:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return ops.wrap(ops.broadcast(ops.value(array), shape))


@_implements(np.expand_dims)
def expand_dims(ops: Operations, a: Any, axis: Any) -> Tracer:
    operand = ops.tracer(a)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    rank = operand.ndim + len(axes)
    positions = {each % rank for each in axes}
    extents = iter(operand.shape)
    return reshape(ops, operand, [1 if d in positions else next(extents) for d in range(rank)])


@_implements(np.squeeze)
def squeeze(ops: Operations, a: Any, axis: Any = None) -> Tracer:
    operand = ops.tracer(a)
    axes = [d for d, n in enumerate(operand.shape) if n == 1] if axis is None else normalized_axes(axis, operand.ndim)
    if any(operand.shape[d] != 1 for d in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshape(ops, operand, [n for d, n in enumerate(operand.shape) if d not in axes])


@_implements(np.concatenate)
def concatenate(
    ops: Operations,
    arrays: Sequence[Any],
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: Any = None,
) -> Tracer:
    _refuse("concatenate", out=out)
    values = products.common_values(ops, arrays)
    if dtype is not None:
        values = [ops.converted(value, np.dtype(dtype)) for value in values]
    if axis is None:
        values, axis = [ops.builder.reshape(value, (value.tensor_type.size,)) for value in values], 0
    (dimension,) = normalized_axes(axis, values[0].tensor_type.rank)
    if len(values) == 1:
        return ops.wrap(values[0])
    return ops.wrap(ops.builder.create("concatenate", values, attributes={"dimension": dimension}).result)


@_implements(np.stack)
def stack(ops: Operations, arrays: Sequence[Any], axis: int = 0, out: Any = None, **options: Any) -> Tracer:
    return concatenate(ops, [expand_dims(ops, array, axis) for array in arrays], axis, out, **options)


@_implements(np.vstack)
def vstack(ops: Operations, tup: Sequence[Any], **options: Any) -> Tracer:
    return concatenate(ops, [_at_least_2d(ops, each) for each in tup], 0, **options)


@_implements(np.hstack)
def hstack(ops: Operations, tup: Sequence[Any], **options: Any) -> Tracer:
    arrays = [reshape(ops, each, -1) if not ops.tracer(each).ndim else ops.tracer(each) for each in tup]
    return concatenate(ops, arrays, 0 if arrays[0].ndim == 1 else 1, **options)


def _at_least_2d(ops: Operations, array: Any) -> Tracer:
    operand = ops.tracer(array)
    return reshape(ops, operand, (1,) * (2 - operand.ndim) + operand.shape) if operand.ndim < 2 else operand


@_implements(np.split)
def split(ops: Operations, ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    if isinstance(indices_or_sections, (int, np.integer)) and ops.tracer(ary).shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ops, ary, indices_or_sections, axis)


@_implements(np.array_split)
def array_split(ops: Operations, ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    operand = ops.tracer(ary)
    extent = operand.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        count = int(indices_or_sections)
        small, more = divmod(extent, count)
        sizes = [small + 1] * more + [small] * (count - more)
        bounds = [0, *np.cumsum(sizes).tolist()]
    else:
        bounds = [0, *(int(each) for each in indices_or_sections), extent]
    (dimension,) = normalized_axes(axis, operand.ndim)
    return [operand[(*[slice(None)] * dimension, slice(start, stop))] for start, stop in zip(bounds, bounds[1:])]


@_implements(np.flip)
def flip(ops: Operations, m: Any, axis: Axis = None) -> Tracer:
    operand = ops.tracer(m)
    axes = normalized_axes(axis, operand.ndim)
    return ops.wrap(ops.builder.create("reverse", [operand.value], attributes={"dimensions": axes}).result)


@_implements(np.roll)
def roll(ops: Operations, a: Any, shift: Any, axis: Any = None) -> Tracer:
    operand = ops.tracer(a)
    if axis is None:
        return reshape(ops, roll(ops, operand.reshape(-1), shift, 0), operand.shape)
    for amount, dimension in zip(np.atleast_1d(shift).tolist(), np.atleast_1d(axis).tolist()):
        extent = operand.shape[dimension]
        if extent and amount % extent:
            first, second = split(ops, operand, [extent - amount % extent], dimension)
            operand = concatenate(ops, [second, first], dimension)
    return operand


@_implements(np.tile)
def tile(ops: Operations, A: Any, reps: Any) -> Tracer:
    operand = ops.tracer(A)
    counts = (reps,) if isinstance(reps, int) else tuple(reps)
    rank = max(len(counts), operand.ndim)
    counts = (1,) * (rank - len(counts)) + counts
    extents = (1,) * (rank - operand.ndim) + operand.shape
    spread = reshape(ops, operand, [each for extent in extents for each in (1, extent)])
    wide = broadcast_to(ops, spread, [each for pair in zip(counts, extents) for each in pair])
    return reshape(ops, wide, [count * extent for count, extent in zip(counts, extents)])


@_implements(np.repeat)
def repeat(ops: Operations, a: Any, repeats: int, axis: int | None = None) -> Tracer:
    operand = ops.tracer(a)
    if not isinstance(repeats, (int, np.integer)):
        raise TracingError("np.repeat: the count must be one number")
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    (dimension,) = normalized_axes(axis, operand.ndim)
    wide = list(operand.shape)
    wide.insert(dimension + 1, int(repeats))
    spread = broadcast_to(ops, expand_dims(ops, operand, dimension + 1), wide)
    wide[dimension : dimension + 2] = [operand.shape[dimension] * int(repeats)]
    return reshape(ops, spread, wide)


@_implements(np.pad)
def pad(ops: Operations, array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Tracer:
    operand = ops.tracer(array)
    if mode != "constant":
        raise TracingError(f"np.pad: mode {mode!r} cannot be compiled yet; only 'constant'")
    widths = np.broadcast_to(np.asarray(pad_width), (operand.ndim, 2)).tolist()
    fill = ops.value(options.get("constant_values", 0), operand.dtype)
    attributes = {
        "edge_padding_low": tuple(low for low, _ in widths),
        "edge_padding_high": tuple(high for _, high in widths),
        "interior_padding": (0,) * operand.ndim,
    }
    return ops.wrap(ops.builder.create("pad", [operand.value, fill], attributes=attributes).result)


# ------------------------------------------------------------------------------------------------- choosing and ordering


def _weak(operand: Any) -> type | None:
    if isinstance(operand, Tracer):
        return operand.weak
    return type(operand) if type(operand) in (int, float) else None


@_implements(np.where)
def where(ops: Operations, condition: Any, x: Any = None, y: Any = None) -> Tracer:
    if x is None or y is None:
        raise TracingError("np.where with one argument has a shape that depends on the data; give all three")
    weak = [0 if _weak(each) is int else 0.0 for each in (x, y) if _weak(each)]
    typed = [each for each in (x, y) if not _weak(each)]
    dtypes = [each.dtype if isinstance(each, Tracer) else np.asarray(each).dtype for each in typed]
    dtype = np.result_type(*dtypes, *weak)
    values = [ops.value(condition, np.dtype(bool)), ops.value(x, dtype), ops.value(y, dtype)]
    extents = np.broadcast_shapes(*(value.tensor_type.shape for value in values))
    chosen = [ops.broadcast(value, extents) for value in values]
    return ops.wrap(ops.builder.create("select", chosen).result)


@_implements(np.clip)
def clip(
    ops: Operations,
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    **options: Any,
) -> Tracer:
    _refuse("clip", out=out, **options)
    low, high = (a_min if a_min is not None else min), (a_max if a_max is not None else max)
    result = ops.tracer(a)
    if low is not None:
        result = np.maximum(result, low)
    return result if high is None else np.minimum(result, high)


@_implements(np.round)
def round_(ops: Operations, a: Any, decimals: int = 0, out: Any = None) -> Tracer:
    _refuse("round", out=out)
    operand = ops.tracer(a)
    if operand.dtype.kind in "iub":
        return operand
    return ops.tracer(np.rint(operand) if not decimals else np.rint(operand * 10.0**decimals) / 10.0**decimals)


def _sorted(ops: Operations, operands: Sequence[Value], axis: int) -> tuple[Value, ...]:
    """Stable ascending sort of several arrays by the first; NaN last."""
    b = ops.builder
    scalars = [tensor((), value.tensor_type.element_type) for value in operands for _ in range(2)]
    is_float = scalars[0].element_type.storage.kind not in "iub"

    def less(inner: Any, x: Value, y: Value, *rest: Value) -> Value:
        result: Value = inner.compare(x, y, "LT")
        if not is_float:
            return result
        nan_last = inner.create("and", [inner.compare(y, y, "NE"), inner.compare(x, x, "EQ")]).result
        combined: Value = inner.create("or", [result, nan_last]).result
        return combined

    return b.create(
        "sort",
        list(operands),
        attributes={"dimension": axis, "is_stable": True},
        regions=[b.region(scalars, less)],
        result_types=[value.type for value in operands],
    ).results


@_implements(np.sort)
def sort(ops: Operations, a: Any, axis: int | None = -1, **options: Any) -> Tracer:
    operand = ops.tracer(a)
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    return ops.wrap(_sorted(ops, [operand.value], normalized_axes(axis, operand.ndim)[0])[0])


@_implements(np.argsort)
def argsort(ops: Operations, a: Any, axis: int | None = -1, **options: Any) -> Tracer:
    operand = ops.tracer(a)
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    (dimension,) = normalized_axes(axis, operand.ndim)
    indices = ops.builder.iota(operand.type.with_element_type("i64"), dimension)
    return ops.wrap(_sorted(ops, [operand.value, indices], dimension)[1])


@_implements(np.take)
def take(
    ops: Operations, a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
) -> Tracer:
    _refuse("take", out=out)
    operand = ops.tracer(a)
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    (dimension,) = normalized_axes(axis, operand.ndim)
    picked = indices if isinstance(indices, Tracer) else np.asarray(indices)
    return operand[(*[slice(None)] * dimension, picked)]


@_implements(np.take_along_axis)
def take_along_axis(ops: Operations, arr: Any, indices: Any, axis: int | None = -1) -> Tracer:
    operand, picked = ops.tracer(arr), ops.tracer(indices)
    if axis is None:
        operand, axis = operand.reshape(-1), 0
    (dimension,) = normalized_axes(axis, operand.ndim)
    keys: list[Any] = []
    for d, extent in enumerate(operand.shape):
        line = np.arange(extent).reshape([extent if k == d else 1 for k in range(operand.ndim)])
        keys.append(picked if d == dimension else line)
    return operand[tuple(keys)]


# ------------------------------------------------------------------------------------------------------------- matrices


@_implements(np.tril)
def tril(ops: Operations, m: Any, k: int = 0) -> Tracer:
    operand = ops.tracer(m)
    lines: Any = operand.shape[-2:]
    return ops.tracer(np.where(np.tri(*lines, k=k, dtype=bool), operand, operand.dtype.type(0)))  # type: ignore[call-overload]


@_implements(np.triu)
def triu(ops: Operations, m: Any, k: int = 0) -> Tracer:
    operand = ops.tracer(m)
    lines: Any = operand.shape[-2:]
    return ops.tracer(np.where(np.tri(*lines, k=k - 1, dtype=bool), operand.dtype.type(0), operand))  # type: ignore[call-overload]


@_implements(np.diagonal)
def diagonal(ops: Operations, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
    operand = moveaxis(ops, a, (axis1, axis2), (-2, -1))
    rows, columns = operand.shape[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    line = np.arange(count)
    return operand[..., line - min(offset, 0), line + max(offset, 0)]


@_implements(np.trace)
def trace(ops: Operations, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tracer:
    return ops.tracer(np.sum(diagonal(ops, a, offset, axis1, axis2), axis=-1, dtype=dtype))


@_implements(np.linalg.norm)
def norm(ops: Operations, x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Tracer:
    operand = ops.tracer(x)
    operand = operand.astype(_float_dtype(operand.dtype))
    vector = axis is not None and not isinstance(axis, tuple)
    if ord in (None, "fro") or (ord == 2 and (vector or operand.ndim == 1)):
        return ops.tracer(np.sqrt(np.sum(operand * operand, axis=axis, keepdims=keepdims)))
    if ord == 1 and (vector or operand.ndim == 1):
        return ops.tracer(np.sum(np.abs(operand), axis=axis, keepdims=keepdims))
    if ord == np.inf and (vector or operand.ndim == 1):
        return ops.tracer(np.max(np.abs(operand), axis=axis, keepdims=keepdims))
    raise TracingError(f"np.linalg.norm: ord={ord!r} cannot be compiled yet for these axes")


# ------------------------------------------------------------------------------------------------------------- creation


def _filled(number: Any) -> Callable[..., Any]:
    def rule(
        ops: Operations,
        a: Any,
        dtype: Any = None,
        order: str = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: Any = None,
    ) -> Tracer:
        operand = ops.tracer(a)
        extents = operand.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
        return ops.wrap(ops.full(number, np.dtype(dtype or operand.dtype), extents))

    return rule


FUNCTIONS[np.zeros_like] = FUNCTIONS[np.empty_like] = _filled(0)
FUNCTIONS[np.ones_like] = _filled(1)


@_implements(np.full_like)
def full_like(
    ops: Operations,
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Tracer:
    operand = ops.tracer(a)
    extents = operand.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    return ops.wrap(ops.broadcast(ops.value(fill_value, np.dtype(dtype or operand.dtype)), extents))


@_implements(np.copy)
def copy(ops: Operations, a: Any, order: str = "K", subok: bool = False) -> Tracer:
    return ops.wrap(ops.value(a))


@_implements(np.astype)
def astype(ops: Operations, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tracer:
    return ops.tracer(x).astype(dtype)


@_implements(np.result_type)
def result_type(ops: Operations, *arguments: Any) -> np.dtype[Any]:
    return np.result_type(*(each.dtype if isinstance(each, Tracer) else each for each in arguments))


@_implements(np.isclose)
def isclose(ops: Operations, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tracer:
    x, y = ops.tracer(a), ops.tracer(b)
    close = (np.abs(x - y) <= atol + rtol * np.abs(y)) & np.isfinite(y)
    close = close | (x == y)
    return close | (np.isnan(x) & np.isnan(y)) if equal_nan else close


@_implements(np.allclose)
def allclose(
    ops: Operations, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tracer:
    return ops.tracer(np.all(isclose(ops, a, b, rtol, atol, equal_nan)))


def element_name(dtype: np.dtype[Any]) -> str:
    """MLIR spelling of a dtype."""
    return element_type_of(dtype).name

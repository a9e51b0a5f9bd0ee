"""NumPy indexing on tracers: basic (slices, integers, None, ...) and advanced (integer arrays) reads and updates."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hlojit.ir.attributes import GatherDimensionNumbers, ScatterDimensionNumbers
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.arrays.layouts import Strides, contiguous, shadow
from hlojit.tracing.arrays.steps import Part, Place
from hlojit.tracing.arrays.traced_slices import is_traced_slice, stretch
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer


def get_item(ops: Operations, operand: Tracer, key: Any) -> Tracer:
    """``operand[key]``: a view by a basic index, a NumPy scalar by one that names an element, a new array by arrays."""
    keys = _expand(key, operand.ndim)
    if any(_is_mask(each) for each in keys):
        raise TracingError("a single truth value as an index makes a dimension of length 0 or 1; use np.where")
    if any(_is_advanced(each) for each in keys):
        return _gather(ops, operand, keys)
    has_ellipsis = any(each is Ellipsis for each in (key if isinstance(key, tuple) else (key,)))
    return _seen(ops, operand, keys, may_be_scalar=not has_ellipsis)


def set_item(ops: Operations, operand: Tracer, key: Any, value: Any) -> None:
    """``operand[key] = value``."""
    keys = _expand(key, operand.ndim)
    operand.window.require_writable()
    if len(keys) == 1 and _is_mask(keys[0]) and np.shape(keys[0]) == operand.shape:
        updates = ops.broadcast(ops.cast(value, operand.kind), operand.shape)
        operand.window.write(ops, ops.builder.select(ops.value(keys[0]), updates, operand.value))
    elif any(_is_mask(each) for each in keys):
        raise TracingError("a boolean mask in an update must have the array's shape; use np.where")
    elif any(_is_advanced(each) for each in keys):
        _scatter(ops, operand, keys, value)
    else:
        target = _seen(ops, operand, keys, may_be_scalar=False)
        elements = _without_leading_units(ops, ops.cast(value, operand.kind), len(target.shape))
        target.window.write(ops, ops.broadcast(elements, target.shape))


def _without_leading_units(ops: Operations, value: Value, rank: int) -> Value:
    """NumPy assigns an array of more dimensions if the first ones have one element."""
    shape = value.tensor_type.shape
    surplus = len(shape) - rank
    if surplus > 0 and all(extent == 1 for extent in shape[:surplus]):
        return ops.builder.reshape(value, shape[surplus:])
    return value


def _seen(ops: Operations, operand: Tracer, keys: list[Any], *, may_be_scalar: bool) -> Tracer:
    """The view that a basic index makes; some of its positions may be known at run time only."""
    if operand.is_scalar:
        operand = ops.wrap(operand.value)
    operand, keys = _between_traced_bounds(ops, operand, keys)
    is_traced = [isinstance(each, Tracer) for each in keys]
    inner = _part(ops, operand, [slice(None) if traced else each for each, traced in zip(keys, is_traced)])
    dimensions, positions = [], []
    dimension = 0
    for each, traced in zip(keys, is_traced):
        if traced:
            dimensions.append(dimension)
            positions.append(_wrapped_index(ops, each, inner.shape[dimension], dimension).value)
        dimension += 1 if traced or each is None or isinstance(each, slice) else 0
    if dimensions:
        strides = inner.window.strides
        kept = [d for d in range(inner.ndim) if d not in dimensions]
        type = inner.type.with_shape([inner.shape[d] for d in kept])
        left = None if strides is None else tuple(strides[d] for d in kept)
        inner = Tracer(inner.window.then(Place(tuple(dimensions), tuple(positions)), type, left), ops)
    is_scalar = may_be_scalar and not inner.shape and all(each is not None for each in keys)
    return ops.scalar(inner.value) if is_scalar else inner


def _between_traced_bounds(ops: Operations, operand: Tracer, keys: list[Any]) -> tuple[Tracer, list[Any]]:
    """The view after the slices whose bounds are known at run time only, and what is left of them."""
    left = list(keys)
    for number, each in enumerate(keys):
        if is_traced_slice(each):
            dimension = sum(1 for before in keys[:number] if before is not None)
            operand, left[number] = stretch(ops, operand, dimension, each)
    return operand, left


def _part(ops: Operations, operand: Tracer, keys: list[Any]) -> Tracer:
    """The view of a basic index whose positions are known."""
    step = _basic(operand.shape, keys)
    strides = operand.window.strides
    layout: Strides | None = None
    if strides is not None:
        layout = tuple(shadow(operand.shape, strides)[(*keys, Ellipsis)].strides)
    return Tracer(operand.window.then(step, operand.type.with_shape(step.shape), layout), ops)


def _expand(key: Any, rank: int) -> list[Any]:
    keys = list(key) if isinstance(key, tuple) else [key]
    used = 0
    for each in keys:
        if each is None or each is Ellipsis:
            continue
        used += np.ndim(each) if _is_mask(each) else 1
    if used > rank:
        raise IndexError(f"too many indices: the array has {rank} dimensions, {used} were given")
    positions = [position for position, each in enumerate(keys) if each is Ellipsis]
    if len(positions) > 1:
        raise IndexError("an index can have only one ellipsis (...)")
    whole = [slice(None)] * (rank - used)
    if not positions:
        return keys + whole
    return keys[: positions[0]] + whole + keys[positions[0] + 1 :]


def _is_mask(key: Any) -> bool:
    return isinstance(key, (bool, np.bool_)) or (
        isinstance(key, (Tracer, np.ndarray, list))
        and getattr(key, "dtype", np.asarray(key).dtype if isinstance(key, list) else None) == np.bool_
    )


def _is_advanced(key: Any) -> bool:
    """Whether it is an array of positions; a single number, known or not, is none."""
    if isinstance(key, Tracer):
        return not key.is_scalar
    return isinstance(key, (np.ndarray, list))


def _basic(shape: tuple[int, ...], keys: list[Any]) -> Part:
    starts, limits, steps, backwards, result = [], [], [], [], []
    dimension = 0
    for key in keys:
        if key is None:
            result.append(1)
            continue
        extent = shape[dimension]
        if isinstance(key, slice):
            start, stop, step = key.indices(extent)
            count = len(range(start, stop, step))
            if step < 0:
                backwards.append(dimension)
                start, step = start + (count - 1) * step, -step
            if not count:
                start = 0
            starts.append(start)
            limits.append(start + (count - 1) * step + 1 if count else start)
            steps.append(step)
            result.append(count)
        else:
            try:
                index = operator.index(key)
            except TypeError:
                raise IndexError(
                    f"{key!r} cannot be an index; use integers, slices, None, ... or arrays of integers"
                ) from None
            if not -extent <= index < extent:
                raise IndexError(f"index {index} is out of bounds for axis {dimension} with size {extent}")
            starts.append(index % extent)
            limits.append(index % extent + 1)
            steps.append(1)
        dimension += 1
    return Part(tuple(starts), tuple(limits), tuple(steps), tuple(backwards), tuple(result))


@dataclass(frozen=True)
class _Advanced:
    """An advanced index: the array after its basic part, the dimensions indexed by arrays, and their index vectors."""

    dimensions: tuple[int, ...]
    vectors: Value
    """Index vectors: shape of the broadcast index arrays, then one component a dimension."""
    position: int
    """Where the index arrays' dimensions stand in the result."""


def _split(ops: Operations, operand: Tracer, keys: list[Any]) -> tuple[Tracer, _Advanced]:
    """Apply the basic part of a mixed index, and prepare the arrays."""
    rank = operand.ndim
    dimension = 0
    basic: list[Any] = []
    arrays: list[tuple[int, Any]] = []
    result_dimension = 0
    slots = []
    for key in keys:
        if key is None:
            basic.append(None)
            result_dimension += 1
            continue
        if isinstance(key, slice):
            basic.append(key)
            result_dimension += 1
        else:
            basic.append(slice(None))
            arrays.append((result_dimension, key))
            slots.append(len(basic) - 1)
            result_dimension += 1
        dimension += 1
    assert dimension == rank
    inner = get_item(ops, operand, tuple(basic))
    dimensions = tuple(position for position, _ in arrays)
    together = slots == list(range(slots[0], slots[0] + len(slots)))
    indices = [_wrapped_index(ops, key, inner.shape[position], position) for position, key in arrays]
    shape = np.broadcast_shapes(*(index.shape for index in indices))
    b = ops.builder
    parts = [b.reshape(ops.broadcast(index.value, shape), (*shape, 1)) for index in indices]
    vectors = (
        parts[0] if len(parts) == 1 else b.create("concatenate", parts, attributes={"dimension": len(shape)}).result
    )
    return inner, _Advanced(dimensions, vectors, dimensions[0] if together else 0)


def _wrapped_index(ops: Operations, key: Any, extent: int, dimension: int) -> Tracer:
    """Indices as i64, negative ones counted from the end; what is out of bounds raises, now or when the function runs."""
    if not isinstance(key, Tracer):
        array = np.asarray(key)
        if array.dtype.kind not in "iu" and array.size:
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        if array.size and not (-extent <= array.min() and array.max() < extent):
            raise IndexError(f"an index is out of bounds for a dimension of size {extent}")
        return ops.tracer(np.where(array < 0, array + extent, array).astype(np.int64))
    if key.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    wide = ops.converted(key.value, np.dtype(np.int64))
    b = ops.builder
    shape = wide.tensor_type.shape
    zero, size = (ops.full(number, np.dtype(np.int64), shape) for number in (0, extent))
    least, most = ops.ranges.of(wide)
    wrapped = wide if least >= 0 else b.select(b.compare(wide, zero, "LT"), b.add(wide, size), wide)
    wrong = []
    if ops.checks_indices and least < -extent:
        wrong.append(b.compare(wrapped, zero, "LT"))
    if ops.checks_indices and most >= extent:
        wrong.append(b.compare(wrapped, size, "GE"))
    if ops.checks_indices and key.dtype == np.uint64:
        wrong.append(b.compare(wide, zero, "LT"))
    if wrong:
        bad = functools.reduce(lambda x, y: b.create("or", [x, y]).result, wrong)
        ops.check(bad, IndexError, f"an index is out of bounds for axis {dimension} with size {extent}")
        ops.ranges.note(wide, max(least, -extent), min(most, extent - 1))
    return ops.wrap(wrapped)


def _gather(ops: Operations, operand: Tracer, keys: list[Any]) -> Tracer:
    inner, advanced = _split(ops, operand, keys)
    batch_rank = advanced.vectors.tensor_type.rank - 1
    rest = [d for d in range(inner.ndim) if d not in advanced.dimensions]
    before = advanced.position
    offset_dims = tuple(range(before)) + tuple(range(before + batch_rank, batch_rank + len(rest)))
    sizes = tuple(1 if d in advanced.dimensions else extent for d, extent in enumerate(inner.shape))
    numbers = GatherDimensionNumbers(
        offset_dims=offset_dims,
        collapsed_slice_dims=advanced.dimensions,
        start_index_map=advanced.dimensions,
        index_vector_dim=batch_rank,
    )
    result = ops.builder.create(
        "gather",
        [inner.value, advanced.vectors],
        attributes={"dimension_numbers": numbers, "slice_sizes": sizes, "indices_are_sorted": False},
    ).result
    if not result.tensor_type.rank:
        return ops.scalar(result)
    return ops.wrap(result, gathered_strides(batch_rank, advanced.position, result.tensor_type.shape))


def gathered_strides(batch_rank: int, position: int, shape: tuple[int, ...]) -> Strides:
    """NumPy makes what arrays pick with their dimensions in front, and moves these to their place."""
    picked = list(range(position, position + batch_rank))
    order = picked + [d for d in range(len(shape)) if d not in picked]
    inner = contiguous([shape[d] for d in order])
    return tuple(inner[order.index(d)] for d in range(len(shape)))


def _scatter(ops: Operations, operand: Tracer, keys: list[Any], value: Any) -> None:
    inner, advanced = _split(ops, operand, keys)
    batch_shape = advanced.vectors.tensor_type.shape[:-1]
    rest = [d for d in range(inner.ndim) if d not in advanced.dimensions]
    before = advanced.position
    shape = (*(inner.shape[d] for d in rest[:before]), *batch_shape, *(inner.shape[d] for d in rest[before:]))
    elements = _without_leading_units(ops, ops.cast(value, operand.kind), len(shape))
    updates = ops.broadcast(elements, shape)
    numbers = ScatterDimensionNumbers(
        update_window_dims=tuple(range(before)) + tuple(range(before + len(batch_shape), len(shape))),
        inserted_window_dims=advanced.dimensions,
        scatter_dims_to_operand_dims=advanced.dimensions,
        index_vector_dim=len(batch_shape),
    )
    scalar = tensor((), operand.type.element_type)
    region = ops.builder.region([scalar, scalar], lambda inner, old, new: new)
    result = ops.builder.create(
        "scatter",
        [inner.value, advanced.vectors, updates],
        attributes={"scatter_dimension_numbers": numbers, "indices_are_sorted": False, "unique_indices": False},
        regions=[region],
        result_types=[inner.type],
    ).result
    inner.window.write(ops, result)

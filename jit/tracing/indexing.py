"""NumPy indexing on tracers: basic (slices, integers, None, ...) and advanced (integer arrays) reads and updates."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hlojit.ir.attributes import GatherDimensionNumbers, ScatterDimensionNumbers
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer, TracingError


@dataclass(frozen=True)
class _Basic:
    """A basic index: bounds and steps of a slice, dimensions to reverse and to drop, and the final shape."""

    starts: tuple[int, ...]
    limits: tuple[int, ...]
    steps: tuple[int, ...]
    reversed: tuple[int, ...]
    shape: tuple[int, ...]


def get_item(ops: Operations, operand: Tracer, key: Any) -> Tracer:
    """``operand[key]``."""
    keys = _expand(key, operand.ndim)
    if any(_is_mask(each) for each in keys):
        raise TracingError("indexing with a traced boolean mask gives a shape that depends on the data; use np.where")
    if any(_is_advanced(each) for each in keys):
        return _gather(ops, operand, keys)
    basic = _basic(operand.shape, keys)
    value = operand.value
    b = ops.builder
    if any(basic.starts) or basic.limits != operand.shape or any(step != 1 for step in basic.steps):
        value = b.create(
            "slice",
            [value],
            attributes={"start_indices": basic.starts, "limit_indices": basic.limits, "strides": basic.steps},
        ).result
    if basic.reversed:
        value = b.create("reverse", [value], attributes={"dimensions": basic.reversed}).result
    return ops.wrap(b.reshape(value, basic.shape) if value.tensor_type.shape != basic.shape else value)


def set_item(ops: Operations, operand: Tracer, key: Any, value: Any) -> Tracer:
    """The array after ``operand[key] = value``."""
    keys = _expand(key, operand.ndim)
    if len(keys) == 1 and _is_mask(keys[0]) and np.shape(keys[0]) == operand.shape:
        updates = ops.broadcast(ops.value(value, operand.kind), operand.shape)
        return ops.wrap(ops.builder.select(ops.value(keys[0]), updates, operand.value))
    if any(_is_mask(each) for each in keys):
        raise TracingError("a boolean mask in an update must have the array's shape; use np.where")
    if any(_is_advanced(each) for each in keys):
        return _scatter(ops, operand, keys, value)
    basic = _basic(operand.shape, keys)
    updates = ops.broadcast(ops.value(value, operand.kind), basic.shape)
    counts = tuple(len(range(*bounds)) for bounds in zip(basic.starts, basic.limits, basic.steps))
    b = ops.builder
    updates = b.reshape(updates, counts)
    if basic.reversed:
        updates = b.create("reverse", [updates], attributes={"dimensions": basic.reversed}).result
    if all(step == 1 for step in basic.steps):
        starts = [b.constant(np.int32(start)) for start in basic.starts]
        return ops.wrap(b.create("dynamic_update_slice", [operand.value, updates, *starts]).result)
    return _strided_update(ops, operand, basic, counts, updates)


def _strided_update(ops: Operations, operand: Tracer, basic: _Basic, counts: tuple[int, ...], updates: Value) -> Tracer:
    """Spread the updates over the array with interior padding, and choose by a mask of constants."""
    b = ops.builder
    mask = np.zeros(operand.shape, bool)
    mask[tuple(slice(*bounds) for bounds in zip(basic.starts, basic.limits, basic.steps))] = True
    high = [
        extent - start - ((count - 1) * step + 1 if count else 0)
        for extent, start, count, step in zip(operand.shape, basic.starts, counts, basic.steps)
    ]
    spread = b.create(
        "pad",
        [updates, ops.full(0, operand.kind)],
        attributes={
            "edge_padding_low": basic.starts,
            "edge_padding_high": tuple(high),
            "interior_padding": tuple(step - 1 for step in basic.steps),
        },
    ).result
    return ops.wrap(b.select(b.constant(mask), spread, operand.value))


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
    return isinstance(key, (Tracer, np.ndarray, list))


def _basic(shape: tuple[int, ...], keys: list[Any]) -> _Basic:
    starts, limits, steps, backwards, result = [], [], [], [], []
    dimension = 0
    for key in keys:
        if key is None:
            result.append(1)
            continue
        extent = shape[dimension]
        if isinstance(key, slice):
            if any(isinstance(part, Tracer) for part in (key.start, key.stop, key.step)):
                raise TracingError("the bounds of a slice must be known when tracing; use an array of indices")
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
                raise IndexError(f"index {index} is out of bounds for dimension {dimension} of size {extent}")
            starts.append(index % extent)
            limits.append(index % extent + 1)
            steps.append(1)
        dimension += 1
    return _Basic(tuple(starts), tuple(limits), tuple(steps), tuple(backwards), tuple(result))


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
    indices = [_wrapped_index(ops, key, inner.shape[position]) for position, key in arrays]
    shape = np.broadcast_shapes(*(index.shape for index in indices))
    b = ops.builder
    parts = [b.reshape(ops.broadcast(index.value, shape), (*shape, 1)) for index in indices]
    vectors = (
        parts[0] if len(parts) == 1 else b.create("concatenate", parts, attributes={"dimension": len(shape)}).result
    )
    return inner, _Advanced(dimensions, vectors, dimensions[0] if together else 0)


def _wrapped_index(ops: Operations, key: Any, extent: int) -> Tracer:
    """Indices as i64, negative ones counted from the end; constants are checked."""
    if not isinstance(key, Tracer):
        array = np.asarray(key)
        if array.dtype.kind not in "iu":
            raise IndexError("arrays used as indices must be of integer type")
        if array.size and not (-extent <= array.min() and array.max() < extent):
            raise IndexError(f"an index is out of bounds for a dimension of size {extent}")
        return ops.tracer(np.where(array < 0, array + extent, array).astype(np.int64))
    if key.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer type")
    wide = key.astype(np.int64)
    return ops.tracer(np.where(wide < 0, wide + extent, wide))


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
    return ops.wrap(result)


def _scatter(ops: Operations, operand: Tracer, keys: list[Any], value: Any) -> Tracer:
    if any(key is None or (isinstance(key, slice) and key != slice(None)) for key in keys):
        raise TracingError(
            "an update with index arrays can be combined with whole slices (:) only; index the rest with arrays too"
        )
    inner, advanced = _split(ops, operand, keys)
    batch_shape = advanced.vectors.tensor_type.shape[:-1]
    rest = [d for d in range(inner.ndim) if d not in advanced.dimensions]
    before = advanced.position
    shape = (*(inner.shape[d] for d in rest[:before]), *batch_shape, *(inner.shape[d] for d in rest[before:]))
    updates = ops.broadcast(ops.value(value, operand.kind), shape)
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
    return ops.wrap(result)

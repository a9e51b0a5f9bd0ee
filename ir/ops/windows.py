"""Ops over sliding windows: reduce_window and select_and_scatter; window arithmetic shared with convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import ElementType, QuantizedType
from hlojit.ir.ops import padding_rules, shape_rules
from hlojit.ir.ops.attribute_kinds import I64_ARRAY, I64_MATRIX
from hlojit.ir.ops.batching import reductions as batching
from hlojit.ir.ops.block_arithmetic import decode_op_encode
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    Kernel,
    OpDefinition,
    Operand,
    ReferenceCall,
    define,
)
from hlojit.ir.ops.derivatives import reductions as derivatives
from hlojit.ir.ops.parts import SEPARATELY
from hlojit.ir.ops.quantized_reductions import reduced_parts, reduces_quantized
from hlojit.ir.ops.reductions import (
    as_many_inits,
    body_combines,
    check_scalars,
    halves,
    inits_match,
    reduce_last_axis,
    run_on_arrays,
    with_starts,
)
from hlojit.ir.ops.region_loops import expand_reduce_window
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    combined_elements,
    combiner_is,
    compatible_shapes,
    has_size,
    inferred,
    operand_tensor,
    positive,
    region_is,
    result_keeps_shape,
    same_elements,
    same_shapes,
    scalar_type,
    show,
)
from hlojit.ir.ops.window_selection import expand_select_and_scatter
from hlojit.ir.types import DYNAMIC, TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

Padding = tuple[tuple[int, int], ...]


def window_count(
    extent: int, window: int, stride: int, base_dilation: int, window_dilation: int, padding: Sequence[int]
) -> int:
    """How many windows fit along one dimension (``num_windows`` of the specification)."""
    if DYNAMIC in (extent, window):
        return DYNAMIC
    dilated = (extent - 1) * base_dilation + 1 if extent else 0
    padded = padding[0] + dilated + padding[1]
    dilated_window = (window - 1) * window_dilation + 1 if window else 0
    if padded <= 0 or dilated_window > padded:
        return 0
    return (padded - dilated_window) // stride + 1


def pad_array(array: Array, value: Any, padding: Sequence[Sequence[int]], dilations: Sequence[int]) -> Array:
    """Spread elements ``dilations`` apart and add (or, where negative, cut) ``padding`` at the ends."""
    dilated = [(extent - 1) * dilation + 1 if extent else 0 for extent, dilation in zip(array.shape, dilations)]
    full = [max(extent, 0) + max(low, 0) + max(high, 0) for extent, (low, high) in zip(dilated, padding)]
    result = np.full(full, value, array.dtype)
    inner = tuple(
        slice(max(low, 0), max(low, 0) + extent, dilation)
        for extent, dilation, (low, _) in zip(dilated, dilations, padding)
    )
    result[inner] = array
    cut = tuple(slice(max(-low, 0), max(extent - max(-high, 0), -low, 0)) for extent, (low, high) in zip(full, padding))
    return result[cut]


def window_index(
    counts: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Array, ...]:
    """Index arrays, one a dimension, that broadcast to ``counts + window``: positions in the padded array."""
    rank = len(counts)
    index = []
    for dimension in range(rank):
        starts = np.arange(counts[dimension]) * strides[dimension]
        offsets = np.arange(window[dimension]) * dilations[dimension]
        shape = [1] * (2 * rank)
        shape[dimension], shape[rank + dimension] = len(starts), len(offsets)
        index.append((starts[:, None] + offsets).reshape(shape))
    return tuple(index)


# reduce_window


def _spec(call: OpCall, name: str, default: int = 1) -> tuple[int, ...]:
    found = call.attributes.get(name)
    return tuple(found) if found else (default,) * operand_tensor(call, 0).rank


def _padding(call: OpCall) -> Padding:
    found = call.attributes.get("padding")
    return tuple(map(tuple, found)) if found else ((0, 0),) * operand_tensor(call, 0).rank


def _sized(label: str, name: str) -> Constraint:
    return Constraint(
        label, lambda c: has_size(name, _spec(c, name), operand_tensor(c, 0).rank, "the rank of the operand")
    )


def _positive(label: str, name: str) -> Constraint:
    return Constraint(label, lambda c: positive(name, _spec(c, name)))


def padding_is_pairs(call: OpCall) -> str | None:
    """The padding has a row (low, high) for each dimension."""
    rows = _padding(call)
    rank = operand_tensor(call, 0).rank
    if len(rows) == rank and all(len(row) == 2 for row in rows):
        return None
    return f"padding has shape {show((len(rows), len(rows[0]) if rows else 0))}, expected {show((rank, 2))}"


REDUCE_WINDOW_RULES = (
    Constraint("C1", as_many_inits),
    Constraint("C2", lambda c: same_shapes("inputs", halves(c)[0])),
    _sized("C4", "window_dimensions"),
    _positive("C5", "window_dimensions"),
    _sized("C6", "window_strides"),
    _positive("C7", "window_strides"),
    _sized("C8", "base_dilations"),
    _positive("C9", "base_dilations"),
    _sized("C10", "window_dilations"),
    _positive("C11", "window_dilations"),
    Constraint("C12", padding_is_pairs),
    Constraint("C3", inits_match(lambda c: c.attributes["window_dimensions"])),
    Constraint("C13", body_combines),
)


def reduce_window_shape(call: OpCall) -> tuple[int, ...]:
    """The number of windows along each dimension."""
    return tuple(
        map(
            window_count,
            operand_tensor(call, 0).shape,
            _spec(call, "window_dimensions"),
            _spec(call, "window_strides"),
            _spec(call, "base_dilations"),
            _spec(call, "window_dilations"),
            _padding(call),
        )
    )


def _infer_reduce_window(request: InferenceRequest) -> Sequence[Type]:
    shape = reduce_window_shape(request)
    return [tensor(shape, element) for element in combined_elements(request.regions[0])]


def _results_have_one_shape(instruction: Instruction) -> str | None:
    types = [type for type in instruction.result_types if isinstance(type, TensorType)]
    return same_shapes("results", types)


def _results_have_window_shape(instruction: Instruction) -> str | None:
    expected, found = reduce_window_shape(instruction), instruction.results[0].tensor_type
    if compatible_shapes(found.shape, expected):
        return None
    return f"result has type {found}, expected shape {show(expected)}, the number of windows"


def _reduce_window_reference(call: ReferenceCall, *operands: Array) -> tuple[Array, ...]:
    at = call.instruction
    check_scalars(at)
    inputs, inits = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    counts = [
        window_count(*numbers)
        for numbers in zip(
            inputs[0].shape,
            _spec(at, "window_dimensions"),
            _spec(at, "window_strides"),
            _spec(at, "base_dilations"),
            _spec(at, "window_dilations"),
            _padding(at),
        )
    ]
    index = window_index(
        counts, _spec(at, "window_dimensions"), _spec(at, "window_strides"), _spec(at, "window_dilations")
    )
    padded = [pad_array(value, init, _padding(at), _spec(at, "base_dilations")) for value, init in zip(inputs, inits)]
    windows = [value[index].reshape(*counts, -1) if 0 not in counts else np.empty((*counts, 1)) for value in padded]
    starts = [np.broadcast_to(init, counts) for init in inits]
    if 0 in counts:
        return tuple(starts)
    return with_starts(call, 0, starts, reduce_last_axis(call, 0, windows))


REDUCE_WINDOW = define(
    OpDefinition(
        "stablehlo.reduce_window",
        operands=(Operand("inputs", variadic=True), Operand("init_values", variadic=True)),
        attributes=(
            AttributeSpec("window_dimensions", I64_ARRAY),
            AttributeSpec("window_strides", I64_ARRAY, optional=True),
            AttributeSpec("base_dilations", I64_ARRAY, optional=True),
            AttributeSpec("window_dilations", I64_ARRAY, optional=True),
            AttributeSpec("padding", I64_MATRIX, optional=True),
        ),
        regions=("body",),
        infer=checked(REDUCE_WINDOW_RULES, _infer_reduce_window),
        constraints=(
            *REDUCE_WINDOW_RULES,
            Constraint("C14", _results_have_one_shape),
            Constraint("C15", _results_have_window_shape),
            inferred("C16"),
        ),
        reference=reduces_quantized(_reduce_window_reference),
        syntax="generic",
        lowering=Kernel("reduce_window", expansion=expand_reduce_window),
        parts={BlockFormat: decode_op_encode, ElementType: SEPARATELY, QuantizedType: reduced_parts},
        symbolic=shape_rules.reduce_window,
        padded=padding_rules.reduce_window,
        derivative=derivatives.REDUCE_WINDOW,
        batching=batching.reduce_window,
        summary="combines the elements of sliding windows",
    )
)


# select_and_scatter


def _source_shape(call: OpCall) -> str | None:
    operand, source = operand_tensor(call, 0), operand_tensor(call, 1)
    ones = (1,) * operand.rank
    expected = tuple(
        map(
            window_count,
            operand.shape,
            _spec(call, "window_dimensions"),
            _spec(call, "window_strides"),
            ones,
            ones,
            _padding(call),
        )
    )
    if compatible_shapes(source.shape, expected):
        return None
    return f"source has type {source}, expected shape {show(expected)}, the number of windows"


def _select_type(call: OpCall) -> str | None:
    scalar = scalar_type(operand_tensor(call, 0).element_type)
    return region_is("select", call.regions[0], (scalar, scalar), (tensor((), "i1"),))


def _scatter_type(call: OpCall) -> str | None:
    return combiner_is("scatter", call.regions[1], [operand_tensor(call, 0).element_type])


def _init_type(call: OpCall) -> str | None:
    operand, init = operand_tensor(call, 0), operand_tensor(call, 2)
    if init.shape:
        return f"init_value has type {init}, expected {scalar_type(operand.element_type)}"
    return same_elements("init_value and operand", [init, operand])


def _windows_given(call: OpCall) -> str | None:
    given = call.attributes.get("window_dimensions") or ()
    return has_size("window_dimensions", given, operand_tensor(call, 0).rank, "the rank of the operand")


SELECT_AND_SCATTER_RULES = (
    Constraint("C1", lambda c: same_elements("operand and source", [operand_tensor(c, 0), operand_tensor(c, 1)])),
    Constraint("C3", _init_type),
    Constraint("C4", _windows_given),
    _positive("C5", "window_dimensions"),
    _sized("C6", "window_strides"),
    _positive("C7", "window_strides"),
    Constraint("C8", padding_is_pairs),
    Constraint("C2", _source_shape),
    Constraint("C9", _select_type),
    Constraint("C10", _scatter_type),
)


def _infer_select_and_scatter(request: InferenceRequest) -> Sequence[Type]:
    return [tensor(operand_tensor(request, 0).shape, combined_elements(request.regions[1])[0])]


def _select_and_scatter_reference(call: ReferenceCall, operand: Array, source: Array, init: Array) -> Array:
    at = call.instruction
    window, strides, padding = _spec(at, "window_dimensions"), _spec(at, "window_strides"), _padding(at)
    selected = _select_positions(call, operand, source.shape, window, strides, padding)
    result = np.full(operand.size, init, dtype=np.asarray(init).dtype)
    inside = selected >= 0  # padding is never selected; a window of nothing else adds to nothing
    (result,) = scatter_in_rounds(call, 1, [result], selected[inside], [source.ravel()[inside]])
    return result.reshape(operand.shape)


def _select_positions(
    call: ReferenceCall,
    operand: Array,
    counts: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Padding,
) -> Array:
    """The flat position in ``operand`` that each window selects, -1 where a window holds padding only."""
    flat = operand.ravel()
    corner = [start * stride - low for start, stride, (low, _) in zip(np.indices(tuple(counts)), strides, padding)]
    best = np.full(tuple(counts), -1)
    for offset in np.ndindex(*window):
        position = [c + o for c, o in zip(corner, offset)]
        inside = np.ones(tuple(counts), bool)
        for p, extent in zip(position, operand.shape):
            inside &= (p >= 0) & (p < extent)
        candidate = np.zeros(tuple(counts), np.int64)
        for p, extent in zip(position, operand.shape):
            candidate = candidate * extent + np.clip(p, 0, max(extent - 1, 0))
        if not flat.size:
            break
        kept = run_on_arrays(call, 0, [flat[np.maximum(best, 0)], flat[candidate]])[0]
        best = np.where(inside & ((best < 0) | ~kept), candidate, best)
    return best.ravel()


def scatter_in_rounds(
    call: ReferenceCall, region: int, targets: Sequence[Array], positions: Array, updates: Sequence[Array]
) -> list[Array]:
    """Combine each update into ``targets[...][position]`` in the order of the updates.

    Updates of different positions do not meet: the k-th update of every position goes in one call of the region.
    """
    results = [target.copy() for target in targets]
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    first = np.searchsorted(ordered, ordered)
    turn = np.empty(len(positions), np.int64)
    turn[order] = np.arange(len(positions)) - first
    by_turn = np.argsort(turn, kind="stable")
    for chosen in np.split(by_turn, np.cumsum(np.bincount(turn))[:-1]) if len(positions) else ():
        places = positions[chosen]
        old = [result[places] for result in results]
        new = run_on_arrays(call, region, [*old, *(update[chosen] for update in updates)])
        results = [result.astype(value.dtype, copy=False) for result, value in zip(results, new)]
        for result, value in zip(results, new):
            result[places] = value
    return results


SELECT_AND_SCATTER = define(
    OpDefinition(
        "stablehlo.select_and_scatter",
        operands=(Operand("operand"), Operand("source"), Operand("init_value")),
        attributes=(
            AttributeSpec("window_dimensions", I64_ARRAY, optional=True),
            AttributeSpec("window_strides", I64_ARRAY, optional=True),
            AttributeSpec("padding", I64_MATRIX, optional=True),
        ),
        regions=("select", "scatter"),
        infer=checked(SELECT_AND_SCATTER_RULES, _infer_select_and_scatter),
        constraints=(*SELECT_AND_SCATTER_RULES, Constraint("C11", result_keeps_shape), inferred("C12")),
        reference=_select_and_scatter_reference,
        syntax="generic",
        lowering=Expand(expand_select_and_scatter),
        summary="scatters values to the elements that windows select",
    )
)

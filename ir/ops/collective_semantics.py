"""The meaning of collective ops in NumPy: what the processes of a group have, put together by each of them.

The interpreter of one process hands its value to the others (``ReferenceCall.exchange``) and gets theirs.  A module that says
nothing of a grid is one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from hlojit.ir.formats import FloatFormat
from hlojit.ir.ops.definition import Array, ReferenceCall
from hlojit.ir.ops.process_groups import (
    StrategyOf,
    along_one_axis,
    along_one_axis_or_global,
    process_groups,
    process_pairs,
    spanning,
)
from hlojit.ir.ops.quantized_arrays import zeros_of
from hlojit.ir.ops.reductions import run_on_arrays
from hlojit.ir.ops.views import CollectiveView
from hlojit.ir.process_grid import ProcessGrid, grid_of


def grid_of_call(call: ReferenceCall) -> ProcessGrid:
    """The grid of the call's module."""
    return grid_of(call.instruction) or ProcessGrid()


def _gathered(
    call: ReferenceCall, strategy: StrategyOf, value: Array, *, covers: bool = True
) -> tuple[list[Array], int]:
    """The values of this process's group and its own place among them; nothing and -1 where it is in none."""
    groups = process_groups(call.instruction, strategy, covers=covers)
    group = next((group for group in groups if call.process in group), ())
    if not group:
        return [], -1
    values = call.exchange(tuple(sorted(group)), value)
    return [values[member] for member in group], group.index(call.process)


def _combined(call: ReferenceCall, values: Sequence[Array]) -> Array:
    """The values from first to last, by the computation."""
    element = call.instruction.regions[0].arguments[0].tensor_type.element_type
    if isinstance(element, FloatFormat):
        dtype: Any = np.float64 if element.compute == "f64" else np.float32
    else:
        dtype = np.asarray(values[0]).dtype if str(element) == "i1" else element.storage
    promoted = [np.asarray(value).astype(dtype) for value in values]
    return reduce(lambda total, value: run_on_arrays(call, 0, [total, value])[0], promoted)


def all_gather(call: ReferenceCall, *operands: Array) -> tuple[Array, ...]:
    """One behind the other."""
    dimension = call.attributes["all_gather_dim"]
    return tuple(np.concatenate(_gathered(call, spanning, each)[0], dimension) for each in operands)


def all_reduce(call: ReferenceCall, *operands: Array) -> tuple[Array, ...]:
    """Combined."""
    return tuple(_combined(call, _gathered(call, spanning, each)[0]) for each in operands)


def cross_replica_sum(call: ReferenceCall, operand: Array) -> Array:
    """Added, each sum in the operand's type."""
    return reduce(lambda total, value: np.asarray(total + value, total.dtype), _gathered(call, spanning, operand)[0])


def reduce_scatter(call: ReferenceCall, operand: Array) -> Array:
    """A part of what is combined."""
    values, place = _gathered(call, spanning, operand)
    return np.split(_combined(call, values), len(values), call.attributes["scatter_dimension"])[place]


def all_to_all(call: ReferenceCall, *operands: Array) -> tuple[Array, ...]:
    """One part of everybody's operand."""
    count, split = call.attributes["split_count"], call.attributes["split_dimension"]
    results: list[Array] = []
    for operand in operands:
        values, place = _gathered(call, along_one_axis, operand)
        parts = [np.split(value, count, split)[place] for value in values]
        results.append(np.concatenate(parts, call.attributes["concat_dimension"]))
    return tuple(results)


def _zeros(like: Array, call: ReferenceCall, number: int) -> Array:
    """What a process has that nothing is sent to: zeros of the result's type."""
    return np.full_like(like, zeros_of(call.instruction.results[number].tensor_type))


def collective_permute(call: ReferenceCall, *operands: Array) -> tuple[Array, ...]:
    """The operand of who sends to this process."""
    pairs = process_pairs(call.instruction)
    partners = tuple(sorted({member for pair in pairs for member in pair}))
    givers = {target: source for source, target in pairs}
    results: list[Array] = []
    for operand in operands:
        values = call.exchange(partners, operand) if call.process in partners else {}
        giver = givers.get(call.process)
        results.append(_zeros(operand, call, len(results)) if giver is None else values[giver])
    return tuple(results)


def _roots(call: ReferenceCall, operands: Sequence[Array]) -> list[int]:
    """The place of the root for each result."""
    count = len(call.instruction.results)
    is_dynamic = call.attributes.get("has_dynamic_root")
    return [int(operands[-1][number]) for number in range(count)] if is_dynamic else [0] * count


def collective_broadcast(call: ReferenceCall, *operands: Array) -> tuple[Array, ...]:
    """The root's operand."""
    results: list[Array] = []
    for operand, root in zip(operands, _roots(call, operands)):
        values, place = _gathered(call, along_one_axis, operand, covers=False)
        results.append(_zeros(operand, call, len(results)) if place < 0 else values[root])
    return tuple(results)


def collective_reduce(call: ReferenceCall, *operands: Array) -> tuple[Array, ...]:
    """Combined at the root."""
    results: list[Array] = []
    for operand, root in zip(operands, _roots(call, operands)):
        values, place = _gathered(call, along_one_axis_or_global, operand, covers=False)
        total = _combined(call, values or [operand])
        results.append(total if place == root else _zeros(total, call, len(results)))
    return tuple(results)


def replica_id(call: ReferenceCall) -> np.uint32:
    """By the number of the process."""
    return np.uint32(call.process // grid_of_call(call).partitions)


def partition_id(call: ReferenceCall) -> np.uint32:
    """By the number of the process."""
    return np.uint32(call.process % grid_of_call(call).partitions)


def moved(call: ReferenceCall, operand: Array) -> Array:
    """``hlojit.collective``: stacked or exchanged values, with zeros for what nobody gives."""
    view = CollectiveView.of(call)
    groups = [tuple(member for member in group if member != -1) for group in view.groups]
    if view.kind == "permute":
        groups = [tuple({member for pair in groups for member in pair})]
    group = next((group for group in groups if call.process in group), ())
    result = np.zeros(call.instruction.results[0].tensor_type.shape, np.asarray(operand).dtype)
    if not group:
        return result
    values = call.exchange(tuple(sorted(group)), operand)
    if view.kind == "permute":
        given = [values[source] for source, target in view.groups if target == call.process]
        return np.asarray(given[0]) if given else result
    if view.kind == "broadcast":
        return np.asarray(values[group[0]])
    for place, member in enumerate(group):
        result[place] = values[member] if view.kind == "all_gather" else values[member][group.index(call.process)]
    return result


def process_id(call: ReferenceCall) -> np.uint32:
    """``hlojit.process_id``."""
    return np.uint32(call.process)

"""Collective ops as movement among processes and ordinary ops: kernels combine, and whoever moves knows nothing of types.

    all_gather        every process's operand, stacked; transposed and reshaped into place
    all_reduce        small: all operands stacked, and combined by everybody
                      large: everybody gets its part of all operands (all_to_all), combines it, and all parts are gathered
    reduce_scatter    everybody gets its part of all operands and combines it

What is stacked is combined from the first process of the group to the last, by the computation on whole arrays: the same
result on every back end, at every time.  The ops left are ``hlojit.collective`` and ``hlojit.process_id`` (``internal.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.ir.errors import Fault, UnsupportedError, VerificationError
from hlojit.ir.ops.process_groups import (
    StrategyOf,
    along_one_axis,
    along_one_axis_or_global,
    process_groups,
    process_pairs,
    spanning,
)
from hlojit.ir.ops.quantized_arrays import zeros_of
from hlojit.ir.ops.region_expressions import promoted
from hlojit.ir.ops.region_loops import applied_to
from hlojit.ir.process_grid import Groups, ProcessGrid, grid_of

if TYPE_CHECKING:
    from hlojit.ir.builder import Builder
    from hlojit.ir.graph import Instruction, Value

GATHERED_BYTES: Final = 1 << 14
"""Up to here an all_reduce stacks whole operands: one exchange instead of two, and what is combined twice is little."""


def members(groups: Groups) -> int:
    """Processes of the largest group."""
    return max(map(len, groups), default=0)


def _written(groups: Groups) -> Groups:
    """Groups of one size, as an attribute holds them."""
    count = members(groups)
    return tuple((*group, *[-1] * (count - len(group))) for group in groups)


def _exchange(
    builder: Builder, kind: str, operand: Value, instruction: Instruction, groups: Groups, shape: Sequence[int]
) -> Value:
    attributes = {"kind": kind, "groups": _written(groups), "written_as": instruction.name.removeprefix("stablehlo.")}
    made: Value = builder.create(
        "hlojit.collective",
        [operand],
        attributes=attributes,
        result_types=[operand.tensor_type.with_shape(shape)],
    ).result
    return made


def _is_alone(instruction: Instruction, groups: Groups) -> bool:
    """Whether every process is a group of its own: nothing moves."""
    grid = grid_of(instruction) or ProcessGrid()
    return len(groups) == grid.processes and all(len(group) == 1 for group in groups)


def _stacked(builder: Builder, operand: Value, instruction: Instruction, groups: Groups) -> Value:
    """The operands of the group, one behind the other in a new first dimension."""
    shape = operand.tensor_type.shape
    if _is_alone(instruction, groups):
        return builder.reshape(operand, (1, *shape))
    return _exchange(builder, "all_gather", operand, instruction, groups, (members(groups), *shape))


def _exchanged(builder: Builder, parts: Value, instruction: Instruction, groups: Groups) -> Value:
    """Of ``parts[i]``, which are for process i of the group, those that the others had for this one."""
    if _is_alone(instruction, groups):
        return parts
    return _exchange(builder, "all_to_all", parts, instruction, groups, parts.tensor_type.shape)


def _refuse(instruction: Instruction, label: str, message: str) -> VerificationError:
    return VerificationError([Fault(instruction.name, label, message, instruction.location)])


def _even_groups(instruction: Instruction, strategy: StrategyOf) -> Groups:
    groups = process_groups(instruction, strategy)
    if len({len(group) for group in groups}) != 1:
        raise UnsupportedError(instruction.name, "", "its groups have different sizes", instruction.location)
    return groups


def _checked_extent(instruction: Instruction, label: str, dimension: int, expected: int, result: int = 0) -> None:
    found = instruction.results[result].tensor_type.shape[dimension]
    if found != expected:
        message = f"dimension {dimension} of the result is {found}, expected {expected} for the groups of this grid"
        raise _refuse(instruction, label, message)


def _is_static(instruction: Instruction) -> bool:
    return all(value.tensor_type.is_static for value in (*instruction.operands, *instruction.results))


# dimensions


def _split(builder: Builder, value: Value, dimension: int, count: int) -> Value:
    """``count`` parts of a dimension, stacked in a new first dimension."""
    shape = list(value.tensor_type.shape)
    shape[dimension : dimension + 1] = [count, shape[dimension] // count]
    order = [dimension, *(d for d in range(len(shape)) if d != dimension)]
    return _transposed(builder, builder.reshape(value, shape), order)


def _joined(builder: Builder, stacked: Value, dimension: int) -> Value:
    """What is stacked in the first dimension, one behind the other along a dimension of the parts."""
    rank = stacked.tensor_type.rank
    order = [*range(1, dimension + 1), 0, *range(dimension + 1, rank)]
    moved = _transposed(builder, stacked, order)
    shape = list(moved.tensor_type.shape)
    shape[dimension : dimension + 2] = [shape[dimension] * shape[dimension + 1]]
    return builder.reshape(moved, shape)


def _transposed(builder: Builder, value: Value, order: Sequence[int]) -> Value:
    if list(order) == sorted(order):
        return value
    found: Value = builder.transpose(value, permutation=tuple(order))
    return found


def _part(builder: Builder, stacked: Value, number: int) -> Value:
    """Element ``number`` of the first dimension."""
    shape = stacked.tensor_type.shape
    rest = len(shape) - 1
    cut = builder.slice(
        stacked,
        start_indices=(number, *[0] * rest),
        limit_indices=(number + 1, *shape[1:]),
        strides=(1,) * (rest + 1),
    )
    return builder.reshape(cut, shape[1:])


# own place


def process_id(builder: Builder, instruction: Instruction) -> Value:
    """The number of this process; ui32."""
    grid = grid_of(instruction) or ProcessGrid()
    if grid.processes == 1:
        return builder.constant(np.uint32(0))
    made: Value = builder.create("hlojit.process_id").result
    return made


def expand_replica_id(builder: Builder, instruction: Instruction) -> Sequence[Value]:
    """The process's number by the number of partitions."""
    return [_divided(builder, instruction, "divide")]


def expand_partition_id(builder: Builder, instruction: Instruction) -> Sequence[Value]:
    """What is left."""
    return [_divided(builder, instruction, "remainder")]


def _divided(builder: Builder, instruction: Instruction, name: str) -> Value:
    partitions = (grid_of(instruction) or ProcessGrid()).partitions
    own = process_id(builder, instruction)
    made: Value = builder.create(name, [own, builder.constant(np.uint32(partitions))]).result
    return made


def _looked_up(builder: Builder, instruction: Instruction, table: Sequence[int]) -> Value:
    """An i32 of a table that has one for each process."""
    own = process_id(builder, instruction)
    numbers = builder.constant(np.array(table, np.int32))
    return builder.reshape(builder.dynamic_slice(numbers, own, slice_sizes=(1,)), ())


def _by_process(instruction: Instruction, groups: Groups, what: Any, otherwise: int) -> list[int]:
    """``what(group, position)`` for every process, by its number."""
    grid = grid_of(instruction) or ProcessGrid()
    table = [otherwise] * grid.processes
    for group in groups:
        for position, process in enumerate(group):
            table[process] = what(group, position)
    return table


# combining


def _combined(builder: Builder, stacked: Value, instruction: Instruction, groups: Groups) -> Value:
    """The elements of the first dimension, combined in their order by the instruction's computation."""
    region = instruction.regions[0]
    element = region.arguments[0].tensor_type.element_type
    total = promoted(builder, _part(builder, stacked, 0), element)
    counts = _by_process(instruction, groups, lambda group, _: len(group), 0)
    least = min(counts)
    own = None
    for number in range(1, members(groups)):
        part = promoted(builder, _part(builder, stacked, number), element)
        longer = applied_to(builder, region, [total, part])
        if number < least:
            total = longer
            continue
        if own is None:
            own = _looked_up(builder, instruction, counts)
        is_there = builder.compare(builder.constant(np.int32(number)), own, "LT")
        total = builder.select(is_there, longer, total)
    return total


def _filled_up(builder: Builder, operand: Value, count: int) -> Value:
    """The elements in ``count`` rows; the last one again and again at the end, since any number may be wrong to combine."""
    size = operand.tensor_type.size
    flat = builder.reshape(operand, (size,))
    missing = -size % count
    if missing:
        last = builder.slice(flat, start_indices=(size - 1,), limit_indices=(size,), strides=(1,))
        filling = builder.broadcast_in_dim(builder.reshape(last, ()), (missing,))
        flat = builder.concatenate([flat, filling], dimension=0)
    return builder.reshape(flat, (count, (size + missing) // count))


def _reduced_in_parts(builder: Builder, operand: Value, instruction: Instruction, groups: Groups) -> Value:
    """Each process combines its share of the elements, and all get all shares."""
    shape, count = operand.tensor_type.shape, members(groups)
    parts = _exchanged(builder, _filled_up(builder, operand, count), instruction, groups)
    share = _combined(builder, parts, instruction, groups)
    whole = _stacked(builder, share, instruction, groups)
    flat = builder.reshape(whole, (whole.tensor_type.size,))
    if flat.tensor_type.size != prod(shape):
        flat = builder.slice(flat, start_indices=(0,), limit_indices=(prod(shape),), strides=(1,))
    return builder.reshape(flat, shape)


# the ops


def expand_all_gather(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """Stacked, then joined along the dimension."""
    if not _is_static(instruction):
        return None
    groups, dimension = _even_groups(instruction, spanning), instruction.attributes["all_gather_dim"]
    for number, operand in enumerate(instruction.operands):
        expected = operand.tensor_type.shape[dimension] * members(groups)
        _checked_extent(instruction, "C6", dimension, expected, number)
    stacked = [_stacked(builder, operand, instruction, groups) for operand in instruction.operands]
    return [_joined(builder, each, dimension) for each in stacked]


def expand_all_reduce(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """Combined by everybody, or each a part of it."""
    if not _is_static(instruction):
        return None
    groups = process_groups(instruction, spanning)
    is_even = len({len(group) for group in groups}) == 1
    results = []
    for operand in instruction.operands:
        if is_even and members(groups) > 1 and operand.tensor_type.nbytes > GATHERED_BYTES:
            results.append(_reduced_in_parts(builder, operand, instruction, groups))
        else:
            stacked = _stacked(builder, operand, instruction, groups)
            results.append(_combined(builder, stacked, instruction, groups))
    return results


def expand_cross_replica_sum(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """An all_reduce by addition."""
    (operand,) = instruction.operands
    region = builder.combiner("add", operand.tensor_type.element_type)
    groups = instruction.attributes["replica_groups"]
    return list(
        builder.create("all_reduce", [operand], attributes={"replica_groups": groups}, regions=[region]).results
    )


def expand_reduce_scatter(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """Its part of all operands, combined."""
    if not _is_static(instruction):
        return None
    (operand,) = instruction.operands
    groups, dimension = _even_groups(instruction, spanning), instruction.attributes["scatter_dimension"]
    count, extent = members(groups), operand.tensor_type.shape[dimension]
    if extent % count:
        raise _refuse(instruction, "C1", f"dimension {dimension} of {operand.type} is not divisible by {count}")
    _checked_extent(instruction, "C8", dimension, extent // count)
    parts = _exchanged(builder, _split(builder, operand, dimension, count), instruction, groups)
    return [_combined(builder, parts, instruction, groups)]


def expand_all_to_all(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """Split, exchanged, joined."""
    if not _is_static(instruction):
        return None
    groups, attributes = _even_groups(instruction, along_one_axis), instruction.attributes
    count = attributes["split_count"]
    if members(groups) != count:
        raise _refuse(instruction, "C8", f"groups have {members(groups)} members each, expected split_count {count}")
    results = []
    for operand in instruction.operands:
        parts = _split(builder, operand, attributes["split_dimension"], count)
        results.append(
            _joined(builder, _exchanged(builder, parts, instruction, groups), attributes["concat_dimension"])
        )
    return results


def expand_collective_permute(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """Each operand goes along the pairs."""
    pairs = process_pairs(instruction)
    if not pairs:
        return [_zeros(builder, operand) for operand in instruction.operands]
    if _is_alone(instruction, tuple((*{source, target},) for source, target in pairs)):
        return list(instruction.operands)
    targets = [target for _, target in pairs]
    moved = [
        _exchange(builder, "permute", operand, instruction, pairs, operand.tensor_type.shape)
        for operand in instruction.operands
    ]
    return [_or_zeros(builder, instruction, each, targets) for each in moved]


def _zeros(builder: Builder, like: Value) -> Value:
    return builder.constant(zeros_of(like.tensor_type), like.tensor_type)


def _or_zeros(builder: Builder, instruction: Instruction, moved: Value, given: Sequence[int]) -> Value:
    """What came from another process; zeros in those that nothing is ``given``, where these are not all bits zero."""
    if not zeros_of(moved.tensor_type):
        return moved
    table = _by_process(instruction, tuple((process,) for process in given), lambda *_: 1, 0)
    own, one = _looked_up(builder, instruction, table), builder.constant(np.int32(1))
    chosen: Value = builder.select(builder.compare(own, one, "EQ"), moved, _zeros(builder, moved))
    return chosen


def expand_collective_broadcast(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """From the first of a group, or from the one that an operand names."""
    if not _is_static(instruction):
        return None
    groups = process_groups(instruction, along_one_axis, covers=False)
    payload = instruction.operands[: len(instruction.results)]
    if not instruction.attributes.get("has_dynamic_root"):
        if _is_alone(instruction, groups):
            return list(payload)
        moved = [_exchange(builder, "broadcast", each, instruction, groups, each.tensor_type.shape) for each in payload]
        members = [process for group in groups for process in group]
        return [_or_zeros(builder, instruction, each, members) for each in moved]
    roots, results = instruction.operands[-1], []
    for number, operand in enumerate(payload):
        stacked = _stacked(builder, operand, instruction, groups)
        shape = operand.tensor_type.shape
        zeros = [builder.constant(np.int32(0))] * len(shape)
        root = _part(builder, roots, number)
        results.append(builder.reshape(builder.dynamic_slice(stacked, root, *zeros, slice_sizes=(1, *shape)), shape))
    return results


def expand_collective_reduce(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """Combined by everybody; all but the root get zeros."""
    if not _is_static(instruction):
        return None
    groups = process_groups(instruction, along_one_axis_or_global, covers=False)
    own = _looked_up(builder, instruction, _by_process(instruction, groups, lambda _, position: position, -1))
    results = []
    for number, operand in enumerate(instruction.operands[: len(instruction.results)]):
        root = builder.constant(np.int32(0))
        if instruction.attributes.get("has_dynamic_root"):
            root = _part(builder, instruction.operands[-1], number)
        stacked = _stacked(builder, operand, instruction, groups)
        total = _combined(builder, stacked, instruction, groups)
        results.append(builder.select(builder.compare(own, root, "EQ"), total, _zeros(builder, total)))
    return results

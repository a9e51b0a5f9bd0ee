"""Regions that are no expressions of scalars, run element after element by loops of the program itself.

    reduce(%x) { (a, b) -> a loop }    =>    while(%i, %acc) { %acc' = region(%acc, %x[%i]) }

A region may hold whatever a program may: loops, branches, products, tensors.  ``reduce`` takes the elements in their order,
from the init values on, ``reduce_window`` those of each window; the elements of the result stand side by side in arrays, to
which the region is applied at once where it is elementwise, and one after the other where it is not.  Time is the number of
the region's runs; memory is that of operands (of a window: padded) and results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.ops.region_expressions import (
    is_expression,
    is_rewritten,
    prepared_region,
    promotions,
    with_operands,
    with_promoted_operands,
)
from hlojit.ir.ops.views import DimensionsView, WindowView
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block, Instruction, Value
    from hlojit.ir.builder import Builder

Step = Callable[[Any, "Value", Sequence["Value"]], "Sequence[Value]"]
"""``step(builder, number, state)`` gives the next state."""


def rewritten(
    builder: Builder, instruction: Instruction, run: Callable[[Builder, Instruction, Block], Sequence[Value]]
) -> Sequence[Value] | None:
    """The instruction as kernels take it, or else what ``run`` builds of its region; None where it may stay as it is."""
    if promotions(instruction):
        return with_promoted_operands(builder, instruction)
    if not is_rewritten(instruction):
        return None
    region = prepared_region(builder, instruction.regions[0])
    if is_expression(region):
        return with_operands(builder, instruction, region)
    results = run(builder, instruction, region)
    region.drop_all_references()
    return results


# loops


def counted(builder: Builder, count: int, state: Sequence[Value], step: Step) -> Sequence[Value]:
    """Run ``step`` for 0, 1, ... ``count - 1``."""
    index = tensor((), "i32" if count <= np.iinfo(np.int32).max else "i64")

    def body(inner: Any, number: Value, *values: Value) -> list[Value]:
        return [inner.add(number, inner.constant(1, index)), *step(inner, number, values)]

    _, *results = builder.while_(
        [builder.constant(0, index), *state],
        lambda inner, number, *_: inner.compare(number, inner.constant(count, index), "LT"),
        body,
    )
    return results


def element_at(builder: Any, array: Value, place: Value) -> Value:
    """The scalar at a place of an array of rank 1."""
    found: Value = builder.reshape(builder.dynamic_slice(array, place, slice_sizes=(1,)), ())
    return found


def with_element(builder: Any, array: Value, place: Value, scalar: Value) -> Value:
    """An array of rank 1 with another scalar at a place."""
    changed: Value = builder.dynamic_update_slice(array, builder.reshape(scalar, (1,)), place)
    return changed


def applied(builder: Any, region: Block, arrays: Sequence[Value]) -> list[Value]:
    """Apply a region of scalars to the elements of arrays of one rank 1 shape."""
    (count,) = arrays[0].tensor_type.shape
    elements = [value.tensor_type.element_type for value in region.returned]
    if count == 1:
        scalars = builder.inline(region, [builder.reshape(array, ()) for array in arrays])
        return [builder.reshape(scalar, (1,)) for scalar in scalars]
    lifted: list[Value] | None = builder.lift_region(region, arrays, (count,)) if count else None
    if lifted is not None:
        return lifted

    def step(inner: Any, number: Value, state: Sequence[Value]) -> list[Value]:
        scalars = inner.inline(region, [element_at(inner, array, number) for array in arrays])
        return [with_element(inner, array, number, scalar) for array, scalar in zip(state, scalars)]

    empty = [builder.constant(0, tensor((count,), element)) for element in elements]
    return list(counted(builder, count, empty, step)) if count else empty


# ops


def applied_to(builder: Builder, region: Block, operands: Sequence[Value]) -> Value:
    """Apply a region of scalars, which returns one, to tensors of one shape."""
    type = operands[0].tensor_type
    lifted = builder.lift_region(region, operands, type.shape)
    if lifted is not None:
        return lifted[0]
    region = prepared_region(builder, region)
    (result,) = applied(builder, region, [builder.reshape(operand, (type.size,)) for operand in operands])
    region.drop_all_references()
    return builder.reshape(result, type.shape)


def expand_map(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """The computation's ops on whole tensors where all are elementwise; otherwise element after element."""
    if not all(operand.tensor_type.is_static for operand in instruction.operands):
        return None
    return [applied_to(builder, instruction.regions[0], instruction.operands)]


def expand_reduce(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """A reduction whose region kernels do not take."""
    return rewritten(builder, instruction, _reduced)


def _reduced(builder: Builder, instruction: Instruction, region: Block) -> Sequence[Value]:
    count = len(instruction.operands) // 2
    shape = instruction.operands[0].tensor_type.shape
    gone = sorted(DimensionsView.of(instruction).dimensions)
    order = (*gone, *(number for number in range(len(shape)) if number not in gone))
    length, width = prod(shape[number] for number in gone), instruction.results[0].tensor_type.size
    rows = [
        builder.reshape(builder.transpose(value, permutation=order), (length, width))
        for value in instruction.operands[:count]
    ]

    def step(inner: Any, number: Value, state: Sequence[Value]) -> list[Value]:
        zero = inner.constant(0, number.tensor_type)
        taken = [inner.dynamic_slice(row, number, zero, slice_sizes=(1, width)) for row in rows]
        return applied(inner, region, [*state, *(inner.reshape(part, (width,)) for part in taken)])

    results = counted(builder, length, _starts(builder, instruction), step) if length * width else None
    return _shaped(builder, instruction, results or _starts(builder, instruction))


def _starts(builder: Builder, instruction: Instruction) -> list[Value]:
    """The init values, for each element of the result."""
    size = instruction.results[0].tensor_type.size
    inits = instruction.operands[len(instruction.operands) // 2 :]
    return [builder.broadcast_in_dim(init, (size,)) for init in inits]


def _shaped(builder: Builder, instruction: Instruction, flat: Sequence[Value]) -> list[Value]:
    return [builder.reshape(value, result.tensor_type) for value, result in zip(flat, instruction.results)]


def expand_reduce_window(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """Windows whose region kernels do not take."""
    return rewritten(builder, instruction, _windows_reduced)


def _windows_reduced(builder: Builder, instruction: Instruction, region: Block) -> Sequence[Value]:
    """All windows take their first elements, then all their second ones, and so on."""
    windows, count = WindowView.of(instruction), len(instruction.operands) // 2
    counts = instruction.results[0].tensor_type.shape
    state = _starts(builder, instruction)
    if not prod(counts):
        return _shaped(builder, instruction, state)
    padded = [
        builder.pad(
            value,
            init,
            edge_padding_low=[low for low, _ in windows.padding],
            edge_padding_high=[high for _, high in windows.padding],
            interior_padding=[dilation - 1 for dilation in windows.base_dilations],
        )
        for value, init in zip(instruction.operands[:count], instruction.operands[count:])
    ]
    reach = [(number - 1) * stride + 1 for number, stride in zip(counts, windows.strides)]

    def step(inner: Any, number: Value, values: Sequence[Value]) -> list[Value]:
        places = _scaled(inner, _unraveled(inner, number, windows.sizes), windows.dilations)
        taken = [inner.dynamic_slice(value, *places, slice_sizes=reach) for value in padded]
        parts = [
            inner.slice(part, start_indices=[0] * len(reach), limit_indices=reach, strides=windows.strides)
            for part in taken
        ]
        flat = [inner.reshape(part, (prod(counts),)) for part in parts]
        return applied(inner, region, [*values, *flat])

    return _shaped(builder, instruction, counted(builder, prod(windows.sizes), state, step))


def _unraveled(builder: Any, number: Value, sizes: Sequence[int]) -> list[Value]:
    """The index of a number in row-major order."""
    type, found = number.tensor_type, []
    for size in reversed(sizes):
        extent = builder.constant(size, type)
        found.append(builder.remainder(number, extent))
        number = builder.divide(number, extent)
    return found[::-1]


def _scaled(builder: Any, values: Sequence[Value], factors: Sequence[int]) -> list[Value]:
    return [
        value if factor == 1 else builder.multiply(value, builder.constant(factor, value.tensor_type))
        for value, factor in zip(values, factors)
    ]

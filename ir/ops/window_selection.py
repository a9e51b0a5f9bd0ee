"""select_and_scatter as a window that selects, and a scatter: both have code of their own on every back end.

    %found, %at = reduce_window(%operand, %numbers) with (0, -1)    # of every window, the selected element and its number
    %result = scatter(%init, %at, %source)

The numbers are those of the operand's elements in row-major order; -1, which padding has, is the number of no element, so
the comparison never sees padding, and a window of nothing else is scattered to no place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import ScatterDimensionNumbers
from hlojit.ir.ops.open_shapes import Sizes, joined, number
from hlojit.ir.types import DYNAMIC, TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block
    from hlojit.ir.builder import Builder
    from hlojit.ir.graph import Instruction, Value


def expand_select_and_scatter(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """The windows' selection and the scatter; nothing where a shape is not known but has bounds."""
    operand, source, init = instruction.operands
    types = [each.type for each in (operand, source)]
    if not all(isinstance(type, TensorType) and not type.bounds for type in types):
        return None
    if not all(isinstance(type, TensorType) and type.is_static for type in types):
        return _expand_open(builder, instruction)
    size, count = operand.tensor_type.size, source.tensor_type.size
    index = "i32" if size <= np.iinfo(np.int32).max else "i64"
    all_numbers = builder.reshape(builder.iota(tensor((size,), index), 0), operand.tensor_type.shape)
    numbers = _selected_numbers(builder, instruction, all_numbers)
    parts = [
        builder.broadcast_in_dim(init, (size,)),
        builder.reshape(numbers, (count, 1)),
        builder.reshape(source, (count,)),
    ]
    return [builder.reshape(_scattered(builder, instruction, parts), instruction.results[0].tensor_type)]


def _expand_open(builder: Builder, instruction: Instruction) -> Sequence[Value]:
    """The same with sizes that are computed."""
    operand, source, init = instruction.operands
    sizes, element = Sizes.of(builder, operand), operand.tensor_type.element_type
    line = builder.create(
        "stablehlo.dynamic_iota",
        [sizes.total()],
        attributes={"iota_dimension": 0},
        result_types=[tensor((DYNAMIC,), "i64")],
    ).result
    type = operand.tensor_type.with_element_type("i64")
    numbers = _selected_numbers(builder, instruction, _reshaped(builder, line, sizes.vector(), type))
    # Where there is no source for each window, this says so.
    source = builder.select(builder.compare(numbers, numbers, "EQ"), source, source)
    count = Sizes.of(builder, source).total()
    parts = [
        builder.create(
            "stablehlo.dynamic_broadcast_in_dim",
            [init, sizes.total()],
            attributes={"broadcast_dimensions": ()},
            result_types=[tensor((DYNAMIC,), element)],
        ).result,
        _reshaped(builder, numbers, joined(builder, [count, number(builder, 1)]), tensor((DYNAMIC, 1), "i64")),
        _reshaped(builder, source, count, tensor((DYNAMIC,), element)),
    ]
    scattered = _scattered(builder, instruction, parts)
    return [_reshaped(builder, scattered, sizes.vector(), instruction.results[0].tensor_type)]


def _reshaped(builder: Builder, value: Value, sizes: Value, type: TensorType) -> Value:
    return builder.create("stablehlo.dynamic_reshape", [value, sizes], result_types=[type]).result


def _scattered(builder: Builder, instruction: Instruction, parts: Sequence[Value]) -> Value:
    """Elements of the source combined into a line, at their numbers."""
    return builder.create(
        "stablehlo.scatter",
        parts,
        attributes={
            "scatter_dimension_numbers": ScatterDimensionNumbers(
                inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1
            )
        },
        regions=[instruction.regions[1].clone()],
    ).result


def _selected_numbers(builder: Builder, instruction: Instruction, numbers: Value) -> Value:
    """Of each window, the number of the element that it selects, or -1."""
    type = instruction.operands[0].tensor_type
    index = numbers.tensor_type.element_type.name
    ones = (1,) * type.rank
    windows = builder.create(
        "stablehlo.reduce_window",
        [
            instruction.operands[0],
            numbers,
            builder.constant(0, tensor((), type.element_type)),
            builder.constant(-1, tensor((), index)),
        ],
        attributes={
            "window_dimensions": tuple(instruction.attributes.get("window_dimensions") or ones),
            "window_strides": tuple(instruction.attributes.get("window_strides") or ones),
            "base_dilations": ones,
            "window_dilations": ones,
            "padding": tuple(instruction.attributes.get("padding") or ((0, 0),) * type.rank),
        },
        regions=[_better(builder, instruction.regions[0], index)],
    )
    return windows.results[1]


def _better(builder: Builder, select: Block, index: str) -> Block:
    """(value, number, other value, other number) -> the first two if they are an element's that ``select`` keeps."""
    value, number = select.arguments[0].type, tensor((), index)

    def body(inner: Any, kept: Value, at: Value, other: Value, other_at: Value) -> tuple[Value, Value]:
        (wins,) = inner.inline(select, (kept, other))
        none = inner.constant(-1, number)
        exists, alone = inner.compare(at, none, "NE"), inner.compare(other_at, none, "EQ")
        keeps = inner.and_(exists, inner.or_(alone, wins))
        return inner.select(keeps, kept, other), inner.select(keeps, at, other_at)

    return builder.region([value, number, value, number], body)

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
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block
    from hlojit.ir.builder import Builder
    from hlojit.ir.graph import Instruction, Value


def expand_select_and_scatter(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """The windows' selection and the scatter; nothing where a shape is not known."""
    operand, source, init = instruction.operands
    if not (operand.tensor_type.is_static and source.tensor_type.is_static):
        return None
    size, count = operand.tensor_type.size, source.tensor_type.size
    numbers = _selected_numbers(builder, instruction)
    scattered = builder.create(
        "stablehlo.scatter",
        [
            builder.broadcast_in_dim(init, (size,)),
            builder.reshape(numbers, (count, 1)),
            builder.reshape(source, (count,)),
        ],
        attributes={
            "scatter_dimension_numbers": ScatterDimensionNumbers(
                inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1
            )
        },
        regions=[instruction.regions[1].clone()],
    ).result
    return [builder.reshape(scattered, instruction.results[0].tensor_type)]


def _selected_numbers(builder: Builder, instruction: Instruction) -> Value:
    """Of each window, the number of the element that it selects, or -1."""
    type = instruction.operands[0].tensor_type
    index = "i32" if type.size <= np.iinfo(np.int32).max else "i64"
    numbers = builder.reshape(builder.iota(tensor((type.size,), index), 0), type.shape)
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

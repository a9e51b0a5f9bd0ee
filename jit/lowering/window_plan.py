"""What is decided about windows: their positions over the operand, and whether they are a scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlojit.ir.graph import Instruction
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.views import ConstantView, WindowView
from hlojit.ir.scalar.builder import Scalar
from hlojit.lowering.element_constants import constant_numbers
from hlojit.lowering.elements import Elements
from hlojit.lowering.index import Index


@dataclass(frozen=True)
class Window:
    """The window along one dimension."""

    size: int
    stride: int
    base_dilation: int
    dilation: int
    low: int
    high: int


def windows_of(instruction: Instruction) -> list[Window]:
    """The windows of all dimensions, defaults filled in."""
    view = WindowView.of(instruction)
    columns = (view.sizes, view.strides, view.base_dilations, view.dilations, view.padding)
    return [
        Window(size, stride, base, dilation, low, high)
        for size, stride, base, dilation, (low, high) in zip(*columns, strict=True)
    ]


def window_position(
    elements: Elements,
    windows: Sequence[Window],
    shape: Sequence[int],
    index: Sequence[Index],
    offsets: Sequence[Index],
) -> tuple[list[Index], Scalar | bool]:
    """Index of the operand under a position of the window, and whether there is an element and no padding."""
    source: list[Index] = []
    condition: Scalar | bool = True
    for window, extent, at, offset in zip(windows, shape, index, offsets, strict=True):
        place = at * window.stride + offset * window.dilation - window.low
        parts = [elements.in_range(place, 0, (extent - 1) * window.base_dilation + 1)]
        if window.base_dilation > 1:
            parts.append(elements.in_range(place % window.base_dilation, 0, 1))
        for part in parts:
            condition = _both(elements, condition, part)
        source.append(place // window.base_dilation)
    return source, condition


def _both(elements: Elements, a: Scalar | bool, b: Scalar | bool) -> Scalar | bool:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return elements.builder.and_(a, b)


def scanned_dimension(instruction: Instruction, windows: Sequence[Window]) -> int | None:
    """The dimension along which the windows are all prefixes (or all suffixes), if this is a scan."""
    shape = instruction.operands[0].tensor_type.shape
    found = None
    for dimension, (window, extent) in enumerate(zip(windows, shape, strict=True)):
        if (window.stride, window.base_dilation, window.dilation) != (1, 1, 1):
            return None
        if (window.size, window.low, window.high) == (1, 0, 0):
            continue
        spans = window.size == extent and (window.low, window.high) in ((extent - 1, 0), (0, extent - 1))
        if not spans or found is not None:
            return None
        found = dimension
    combiner = combiner_of(instruction.regions[0])
    if found is None or combiner is None or shape[found] == 0:
        return None
    if not combiner.is_idempotent:
        # The padding is combined too: only the identity may be left out.  Zeros of both signs may: sums that hold one
        # init are changed by no other.
        producer = instruction.operands[1].producer
        if producer is None or Trait.CONSTANT not in producer.op.traits:
            return None
        dense = ConstantView.of(producer).value
        if constant_numbers(dense) != (combiner.identity(dense.type.element_type),):
            return None
    return found

"""Convolutions of narrow integers as products: their windows, laid out, times the kernel as a matrix.

    %p = pad(%lhs)    %w = concatenate(slices of %p, one for each place in the window)    dot_general(%w, %kernel)

Processors multiply and add bytes in products of matrices.  The windows are one fused kernel, which moves bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.formats import ElementType, IntegerType
from hlojit.ir.ops.views import ConvolutionView
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

_AT_ONCE: Final = 4
"""Products of bytes that processors add at once; two of 16 bits."""
_MOST_PLACES: Final = 128
"""Windows of more places are not laid out."""
_MOST_BYTES: Final = 1 << 28
"""Nor are more bytes of windows."""


def declined_by_kernels(instruction: Instruction) -> str:
    """Why kernels of convolutions leave an instruction to products, or an empty string."""
    types = [operand.tensor_type for operand in instruction.operands]
    result = instruction.results[0].tensor_type
    known = all(type.is_static for type in (*types, result))
    if not known or result.element_type.name != "i32" or not all(is_narrow(type.element_type) for type in types):
        return ""
    view = ConvolutionView.of(instruction)
    lhs, rhs = types
    places = math.prod(rhs.shape[dimension] for dimension in view.numbers.kernel_spatial)
    rows = result.size // max(result.shape[view.numbers.output_feature], 1)
    size = rows * places * lhs.shape[view.numbers.input_feature] * lhs.element_type.itemsize
    one_group = view.feature_groups == view.batch_groups == 1
    if one_group and 1 < places <= _MOST_PLACES and 0 < size <= _MOST_BYTES and result.size:
        return "narrow integers are multiplied in products of matrices"
    return ""


def is_narrow(element: ElementType) -> bool:
    """Whether processors multiply several of these integers, and add the products, at once."""
    return isinstance(element, IntegerType) and element.bits <= (16 if element.signed else 8)


def padded_image(builder: Any, image: Value, view: ConvolutionView, value: int) -> Value:
    """The left operand with ``value`` around it and between its elements, as the convolution says."""
    if not any(map(any, view.padding)) and all(step == 1 for step in view.lhs_dilation):
        return image
    amounts = np.zeros((3, image.tensor_type.rank), np.int64)
    for dimension, (low, high), step in zip(view.numbers.input_spatial, view.padding, view.lhs_dilation):
        amounts[:, dimension] = low, high, step - 1
    edges = builder.constant(value, tensor((), image.tensor_type.element_type))
    found: Value = builder.pad(image, edges, *(tuple(map(int, row)) for row in amounts))
    return found


def windows_times_kernel(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """A convolution of narrow integers as the product of its windows with the kernel; None for any other."""
    view = ConvolutionView.of(instruction)
    left, right = instruction.operands
    if not declined_by_kernels(instruction):
        return None
    left = padded_image(builder, left, view, 0)
    numbers, result = view.numbers, instruction.results[0].tensor_type
    windows = _windows(builder, instruction, view, left)
    features = [*numbers.kernel_spatial, numbers.kernel_input_feature, numbers.kernel_output_feature]
    kernel = builder.transpose(right, tuple(features))
    outputs = kernel.tensor_type.shape[-1]
    kernel = builder.reshape(kernel, (kernel.tensor_type.size // outputs, outputs))
    last = windows.tensor_type.rank - 1
    if kernel.tensor_type.shape[0] % _AT_ONCE:
        windows, kernel = _filled(builder, windows, last), _filled(builder, kernel, 0)
    type = tensor((*windows.tensor_type.shape[:-1], outputs), "i32")
    dimensions = DotDimensionNumbers(lhs_contracting=(last,), rhs_contracting=(0,))
    sums = builder.dot_general(windows, kernel, dimensions, type=type)
    order = (numbers.output_batch, *numbers.output_spatial, numbers.output_feature)
    return [builder.transpose(sums, tuple(order.index(dimension) for dimension in range(result.rank)))]


def _windows(builder: Any, instruction: Instruction, view: ConvolutionView, left: Value) -> Value:
    """Batch, places of the result, and behind them each window: its places, and the features of each."""
    numbers, result = view.numbers, instruction.results[0].tensor_type
    image = builder.transpose(left, (numbers.input_batch, *numbers.input_spatial, numbers.input_feature))
    kernel = instruction.operands[1].tensor_type.shape
    sizes = [kernel[dimension] for dimension in numbers.kernel_spatial]
    counts = [result.shape[dimension] for dimension in numbers.output_spatial]
    batch, *_, features = image.tensor_type.shape
    slices = []
    for place in itertools.product(*map(range, sizes)):
        ahead = [size - 1 - at if turned else at for at, size, turned in zip(place, sizes, view.reversal)]
        starts = [at * step for at, step in zip(ahead, view.rhs_dilation)]
        limits = [start + (count - 1) * stride + 1 for start, count, stride in zip(starts, counts, view.strides)]
        slices.append(builder.slice(image, (0, *starts, 0), (batch, *limits, features), (1, *view.strides, 1)))
    found: Value = builder.concatenate(slices, image.tensor_type.rank - 1)
    return found


def _filled(builder: Any, values: Value, dimension: int) -> Value:
    """With zeros behind a dimension, up to as many elements as are multiplied at once."""
    nothing = (0,) * values.tensor_type.rank
    more = -values.tensor_type.shape[dimension] % _AT_ONCE
    high = tuple(more if each == dimension else 0 for each in range(values.tensor_type.rank))
    zero = builder.constant(0, tensor((), values.tensor_type.element_type))
    found: Value = builder.pad(values, zero, nothing, high, nothing)
    return found

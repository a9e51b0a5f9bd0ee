"""Convolutions of quantized numbers: convolutions of integers, and what their zero points add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.formats import element_type
from hlojit.ir.ops.convolution_windows import padded_image
from hlojit.ir.ops.parts import Parts
from hlojit.ir.ops.quantized_arithmetic import differences, parameters
from hlojit.ir.ops.quantized_products import (
    as_numbers,
    greatest_difference,
    product_of,
    result_of_sums,
    signed_bytes,
    summed_along,
)
from hlojit.ir.ops.views import ConvolutionView
from hlojit.ir.types import TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


def convolution_dimension(instruction: Instruction) -> Callable[[int], int]:
    """The kernel's output features are those of the result."""
    feature = ConvolutionView.of(instruction).numbers.output_feature
    return lambda axis: feature


def convolution_parts(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
    """A convolution with quantized operands.

    Padding is the number 0.  A zero point of lhs alone is what lhs is padded with, and taken off by sums of the kernel; those of
    the kernel are taken off in ``i16``, not to be multiplied by sums of windows.
    """
    product = product_of(instruction, convolution_dimension(instruction))
    lhs, rhs = (operand.tensor_type for operand in instruction.operands[:2])
    if not (lhs.is_static and rhs.is_static and instruction.results[0].tensor_type.is_static):
        return None
    if product is None or not product.is_exact:
        return as_numbers(builder, instruction, operands, product)
    depth = rhs.size // max(rhs.shape[ConvolutionView.of(instruction).numbers.kernel_output_feature], 1)
    left, right = (parts[0] for parts in operands[:2])
    narrow = product.lhs.storage_element.bits <= 8
    if not narrow or depth * greatest_difference(product.lhs) * greatest_difference(product.rhs) >= 1 << 31:
        left, right = (differences(builder, *each, element_type("i64")) for each in ((left, lhs), (right, rhs)))
        sums = _convolved(builder, instruction, left, right, "i64")
        return [(result_of_sums(builder, sums, product),)]
    (left, (zero,)), (right, others) = signed_bytes(builder, left, lhs), signed_bytes(builder, right, rhs)
    if any(others) or (zero and len(instruction.operands) > 2):
        left, right = _less(builder, left, [zero], lhs), _less(builder, right, others, rhs)
        zero = 0
    sums = _padded_product(builder, instruction, left, right, zero)
    return [(result_of_sums(builder, sums, product),)]


def _convolved(
    builder: Any, instruction: Instruction, left: Value, right: Value, element: str, **changed: Any
) -> Value:
    """The convolution of integers, with some attributes changed."""
    attributes = {name: value for name, value in instruction.attributes.items() if name not in changed}
    made = builder.create(
        instruction.op.name,
        [left, right, *instruction.operands[2:]],
        attributes=attributes | {name: value for name, value in changed.items() if value is not None},
        result_types=[tensor(instruction.results[0].tensor_type.shape, element)],
    )
    found: Value = made.result
    return found


def _padded_product(builder: Any, instruction: Instruction, left: Value, right: Value, zero: int) -> Value:
    """Sums of (l - zero) * r in ``i32``: of l * r with ``zero`` around and between, less ``zero`` times the sums of r."""
    if not zero:
        return _convolved(builder, instruction, left, right, "i32")
    view = ConvolutionView.of(instruction)
    left = padded_image(builder, left, view, zero)
    sums = _convolved(builder, instruction, left, right, "i32", padding=None, lhs_dilation=None)
    feature = view.numbers.kernel_output_feature
    kernels = summed_along(builder, right, [d for d in range(right.tensor_type.rank) if d != feature])
    kernels = builder.multiply(kernels, builder.constant(zero, kernels.tensor_type))
    spread = builder.broadcast_in_dim(kernels, sums.tensor_type, (view.numbers.output_feature,))
    found: Value = builder.subtract(sums, spread)
    return found


def _less(builder: Any, values: Value, zeros: Sequence[int], type: TensorType) -> Value:
    """Integers less zero points, in ``i16``."""
    row = element_type("i16")
    wide = builder.convert(values, row)
    found: Value = builder.subtract(wide, parameters(builder, zeros, type, row)) if any(zeros) else wide
    return found

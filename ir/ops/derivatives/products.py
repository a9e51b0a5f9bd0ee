"""Derivatives of products: the cotangent of one side is a product of the other side with that of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import ConvDimensionNumbers, DotDimensionNumbers
from hlojit.ir.ops.derivatives.kinds import Bilinear, Chosen, Derivative, Rewritten
from hlojit.ir.ops.derivatives.movement import transposed
from hlojit.ir.ops.views import ConvolutionView, DotView

if TYPE_CHECKING:
    from hlojit.ir.blocks import Instruction, Value
    from hlojit.ir.types import TensorType


def _pull_dot(b: Any, i: Instruction, t: Value, side: int) -> Value:
    """Contract the cotangent with the other side over what only that has; then put dimensions where they were."""
    numbers = DotView.of(i).numbers
    batching = (numbers.lhs_batching, numbers.rhs_batching)
    contracting = (numbers.lhs_contracting, numbers.rhs_contracting)
    mine, other = i.operands[side], i.operands[1 - side]
    free = [
        [d for d in range(operand.tensor_type.rank) if d not in batching[k] and d not in contracting[k]]
        for k, operand in enumerate(i.operands)
    ]
    batches, left = len(batching[0]), len(free[0])
    places = (range(batches, batches + left), range(batches + left, batches + left + len(free[1])))
    dimensions = DotDimensionNumbers(
        tuple(range(batches)), batching[1 - side], tuple(places[1 - side]), tuple(free[1 - side])
    )
    attributes = {name: value for name, value in i.attributes.items() if name != "dot_dimension_numbers"}
    element = mine.tensor_type.element_type
    sizes = [mine.tensor_type.shape[d] for d in (*batching[side], *free[side])]
    # What is left of the other side are the contracted dimensions, in ascending order there.
    order = sorted(range(len(contracting[0])), key=lambda k: contracting[1 - side][k])
    sizes += [other.tensor_type.shape[contracting[1 - side][k]] for k in order]
    wide = (
        t
        if t.tensor_type.element_type is other.tensor_type.element_type
        else b.convert(t, other.tensor_type.element_type)
    )
    product = b.create(
        i.op.name,
        [wide, other],
        attributes={**attributes, "dot_dimension_numbers": dimensions},
        result_types=[mine.tensor_type.with_shape(sizes)],
    ).result
    found = (*batching[side], *free[side], *(contracting[side][k] for k in order))
    assert product.tensor_type.element_type is element
    made: Value = transposed(b, product, np.argsort(found).tolist())
    return made


DOT_GENERAL = Bilinear(_pull_dot)


def _split(b: Any, value: Value, dimension: int, groups: int, into: int) -> Value:
    """Take ``groups`` (outer) off one dimension and put them, outer, into another."""
    shape = list(value.tensor_type.shape)
    shape[dimension : dimension + 1] = [groups, shape[dimension] // groups]
    apart = b.reshape(value, shape)
    rest = [d for d in range(len(shape)) if d != dimension]
    target = into + (1 if into > dimension else 0)
    rest.insert(rest.index(target), dimension)
    moved = transposed(b, apart, rest)
    place = rest.index(dimension)
    joined = list(moved.tensor_type.shape)
    joined[place : place + 2] = [joined[place] * joined[place + 1]]
    made: Value = b.reshape(moved, joined)
    return made


def _dilated(extents: Sequence[int], dilation: Sequence[int]) -> list[int]:
    return [(n - 1) * step + 1 if n else 0 for n, step in zip(extents, dilation)]


def _spatial(i: Instruction, view: ConvolutionView) -> tuple[list[int], list[int], list[int]]:
    """Sizes of the dilated input, kernel and result."""
    numbers = view.numbers
    lhs, rhs, out = (value.tensor_type.shape for value in (*i.operands, i.result))
    return (
        _dilated([lhs[d] for d in numbers.input_spatial], view.lhs_dilation),
        _dilated([rhs[d] for d in numbers.kernel_spatial], view.rhs_dilation),
        _dilated([out[d] for d in numbers.output_spatial], view.strides),
    )


def _convolve(b: Any, i: Instruction, lhs: Value, rhs: Value, like: TensorType, **attributes: Any) -> Value:
    attributes = {**attributes, "precision_config": i.attributes.get("precision_config")}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    made: Value = b.create(i.op.name, [lhs, rhs], attributes=attributes, result_types=[like]).result
    return made


def _pull_input(b: Any, i: Instruction, t: Value) -> Value:
    """The cotangent, dilated by the strides, convolved with the kernel turned round."""
    view, numbers = ConvolutionView.of(i), ConvolutionView.of(i).numbers
    lhs, rhs = i.operands
    groups = view.feature_groups
    if max(groups, view.batch_groups) > 1:
        groups = max(groups, view.batch_groups)
        rhs = _split(b, rhs, numbers.kernel_output_feature, groups, numbers.kernel_input_feature)
    turned = b.create("reverse", [rhs], attributes={"dimensions": numbers.kernel_spatial}).result
    dimensions = ConvDimensionNumbers(
        numbers.output_batch,
        numbers.output_feature,
        numbers.output_spatial,
        numbers.kernel_output_feature,
        numbers.kernel_input_feature,
        numbers.kernel_spatial,
        numbers.input_batch,
        numbers.input_feature,
        numbers.input_spatial,
    )
    inputs, kernels, results = _spatial(i, view)
    before = [kernel - 1 - low for kernel, (low, _) in zip(kernels, view.padding)]
    after = [n + kernel - 1 - out - low for n, kernel, out, low in zip(inputs, kernels, results, before)]
    shape = list(lhs.tensor_type.shape)
    if view.batch_groups > 1:
        shape[numbers.input_batch] //= view.batch_groups
        shape[numbers.input_feature] *= view.batch_groups
    found = _convolve(
        b,
        i,
        t,
        turned,
        lhs.tensor_type.with_shape(shape),
        window_strides=view.lhs_dilation,
        padding=tuple(zip(before, after)),
        lhs_dilation=view.strides,
        rhs_dilation=view.rhs_dilation,
        dimension_numbers=dimensions,
        feature_group_count=groups,
        batch_group_count=1,
    )
    if view.batch_groups > 1:
        found = _split(b, found, numbers.input_feature, view.batch_groups, numbers.input_batch)
    return found


def _pull_kernel(b: Any, i: Instruction, t: Value) -> Value:
    """The input convolved with the cotangent, batch and features exchanged."""
    view, numbers = ConvolutionView.of(i), ConvolutionView.of(i).numbers
    lhs, rhs = i.operands
    dimensions = ConvDimensionNumbers(
        numbers.input_feature,
        numbers.input_batch,
        numbers.input_spatial,
        numbers.output_batch,
        numbers.output_feature,
        numbers.output_spatial,
        numbers.kernel_input_feature,
        numbers.kernel_output_feature,
        numbers.kernel_spatial,
    )
    inputs, kernels, results = _spatial(i, view)
    low = [low for low, _ in view.padding]
    high = [out - n + kernel - 1 - before for out, n, kernel, before in zip(results, inputs, kernels, low)]
    return _convolve(
        b,
        i,
        lhs,
        t,
        rhs.tensor_type,
        window_strides=view.rhs_dilation,
        padding=tuple(zip(low, high)),
        lhs_dilation=view.lhs_dilation,
        rhs_dilation=view.strides,
        dimension_numbers=dimensions,
        feature_group_count=view.batch_groups,
        batch_group_count=view.feature_groups,
    )


def _with_turned_kernel(b: Any, i: Instruction) -> Sequence[Value]:
    """A convolution without ``window_reversal``."""
    view = ConvolutionView.of(i)
    turned = tuple(d for d, reverse in zip(view.numbers.kernel_spatial, view.reversal) if reverse)
    kernel = b.create("reverse", [i.operands[1]], attributes={"dimensions": turned}).result
    attributes = {name: value for name, value in i.attributes.items() if name != "window_reversal"}
    return [b.create(i.op.name, [i.operands[0], kernel], attributes=attributes, result_types=i.result_types).result]


_CONVOLUTION = Bilinear(lambda b, i, t, side: _pull_kernel(b, i, t) if side else _pull_input(b, i, t))


def _convolution(instruction: Instruction) -> Derivative:
    return Rewritten(_with_turned_kernel) if any(ConvolutionView.of(instruction).reversal) else _CONVOLUTION


CONVOLUTION = Chosen(_convolution)

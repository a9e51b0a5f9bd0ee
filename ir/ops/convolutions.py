"""Convolution, and its form with padding known only at run time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.ir.attributes import ConvDimensionNumbers
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import QuantizedType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops import dynamic_types, shape_rules
from hlojit.ir.ops.attribute_kinds import BOOL_ARRAY, I64, I64_ARRAY, I64_MATRIX, RecordKind
from hlojit.ir.ops.batching import reductions as batching
from hlojit.ir.ops.block_arithmetic import decode_op_encode
from hlojit.ir.ops.convolution_windows import declined_by_kernels, windows_times_kernel
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
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import products as derivatives
from hlojit.ir.ops.dynamism import padded_at_run_time, scalar_of
from hlojit.ir.ops.mixed_products import declined_mixture, product_of_one_kind
from hlojit.ir.ops.products import (
    PRECISION_CONFIG,
    as_result,
    elements_complaint,
    expressed_complaint,
    factors,
    hybrid_complaint,
    per_tensor_complaint,
    precision_complaint,
    quantized_complaint,
    storage_complaint,
)
from hlojit.ir.ops.quantized_convolutions import convolution_dimension, convolution_parts
from hlojit.ir.ops.quantized_products import evaluated, product_of
from hlojit.ir.ops.quantized_rules import per_tensor, quantized_element
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    compatible_extents,
    compatible_shapes,
    constant_operand,
    has_size,
    in_range,
    operand_tensor,
    positive,
    show,
    unique,
)
from hlojit.ir.ops.views import ConvolutionView
from hlojit.ir.ops.windows import Padding, pad_array, window_count, window_index
from hlojit.ir.types import DYNAMIC, Type, tensor


def conv_numbers(call: OpCall) -> ConvDimensionNumbers:
    """The dimension numbers of a convolution."""
    found = call.attributes["dimension_numbers"]
    assert isinstance(found, ConvDimensionNumbers)
    return found


def spatial_rank(call: OpCall) -> int:
    """Number of spatial dimensions."""
    return operand_tensor(call, 0).rank - 2


def conv_attribute(call: OpCall, name: str, default: Any = 1) -> tuple[Any, ...]:
    """``window_strides``, ``lhs_dilation``, ``rhs_dilation`` or ``window_reversal``, one value a spatial dimension.

    An empty list is the same as none, as in StableHLO's own verifier.
    """
    found = call.attributes.get(name)
    return tuple(found) if found else (default,) * spatial_rank(call)


def conv_padding(call: OpCall) -> Padding:
    """Padding of each spatial dimension, (low, high)."""
    found = call.attributes.get("padding")
    return tuple((low, high) for low, high in found) if found else ((0, 0),) * spatial_rank(call)


def _group_count(call: OpCall, name: str) -> int:
    return int(call.attributes.get(name, 1))


def _sized(label: str, name: str) -> Constraint:
    return Constraint(
        label, lambda c: has_size(name, conv_attribute(c, name), spatial_rank(c), "the number of spatial dimensions")
    )


def _positive(label: str, name: str) -> Constraint:
    return Constraint(label, lambda c: positive(name, conv_attribute(c, name)))


def _count_positive(label: str, name: str) -> Constraint:
    return Constraint(label, lambda c: positive(name, (_group_count(c, name),)))


def _spatial(label: str, name: str) -> Constraint:
    """As many ``input_spatial``, ``kernel_spatial`` or ``output_spatial`` dimensions as the rank asks for."""
    full = f"{name}_dimensions"
    return Constraint(
        label,
        lambda c: has_size(full, getattr(conv_numbers(c), name), spatial_rank(c), "the number of spatial dimensions"),
    )


def _distinct(label: str, name: str, select: Any) -> Constraint:
    def check(call: OpCall) -> str | None:
        values = select(conv_numbers(call))
        return unique(name, values) or in_range(name, values, operand_tensor(call, 0).rank)

    return Constraint(label, check)


def _divisible(label: str, what: str, operand: int, dimension: str, count: str) -> Constraint:
    def check(call: OpCall) -> str | None:
        extent = operand_tensor(call, operand).shape[getattr(conv_numbers(call), dimension)]
        groups = _group_count(call, count)
        if extent == DYNAMIC or extent % groups == 0:
            return None
        return f"{what} has size {extent}, which is not divisible by {count} {groups}"

    return Constraint(label, check)


def _ranks(call: OpCall) -> str | None:
    lhs, rhs = operand_tensor(call, 0), operand_tensor(call, 1)
    if lhs.rank == rhs.rank and lhs.rank >= 2:
        return None
    return f"lhs and rhs must have one rank, 2 or more: found {lhs} and {rhs}"


def _padding_shape(call: OpCall) -> str | None:
    rows, rank = call.attributes.get("padding"), spatial_rank(call)
    if not rows or (len(rows) == rank and all(len(row) == 2 for row in rows)):
        return None
    return f"padding has shape {show((len(rows), len(rows[0]) if rows else 0))}, expected {show((rank, 2))}"


def _kernel_features(call: OpCall) -> str | None:
    dims = conv_numbers(call)
    features = operand_tensor(call, 0).shape[dims.input_feature]
    found = operand_tensor(call, 1).shape[dims.kernel_input_feature]
    groups = _group_count(call, "feature_group_count")
    if DYNAMIC in (features, found) or found == features // groups:
        return None
    return f"the kernel's input features are {found}, expected {features} / {groups} = {features // groups}"


def _one_group(call: OpCall) -> str | None:
    counts = _group_count(call, "feature_group_count"), _group_count(call, "batch_group_count")
    return None if 1 in counts else f"feature_group_count {counts[0]} and batch_group_count {counts[1]}: one must be 1"


def _kernel_axis(call: OpCall) -> str | None:
    element = operand_tensor(call, 1).element_type
    expected = conv_numbers(call).kernel_output_feature
    if not isinstance(element, QuantizedType) or element.axis in (None, expected):
        return None
    return f"rhs is quantized along dimension {element.axis}, expected the output feature dimension {expected}"


def _window_is_there(call: OpCall) -> str | None:
    """Beyond the specification: StableHLO's own verifier refuses a kernel without elements."""
    shape = operand_tensor(call, 1).shape
    sizes = [shape[d] for d in conv_numbers(call).kernel_spatial]
    return None if 0 not in sizes else f"sizes {show(sizes)} of the kernel's spatial dimensions must be positive"


CONVOLUTION_RULES = (
    Constraint("C1", _ranks),
    _sized("C2", "window_strides"),
    _positive("C3", "window_strides"),
    Constraint("C4", _padding_shape),
    _sized("C5", "lhs_dilation"),
    _positive("C6", "lhs_dilation"),
    _sized("C7", "rhs_dilation"),
    _positive("C8", "rhs_dilation"),
    _sized("C9", "window_reversal"),
    _count_positive("C21", "feature_group_count"),
    _count_positive("C22", "batch_group_count"),
    Constraint("C23", _one_group),
    _spatial("C12", "input_spatial"),
    _distinct("C13", "input dimensions", lambda d: (d.input_batch, *d.input_spatial, d.input_feature)),
    _spatial("C17", "kernel_spatial"),
    _distinct(
        "C18", "kernel dimensions", lambda d: (*d.kernel_spatial, d.kernel_input_feature, d.kernel_output_feature)
    ),
    _spatial("C19", "output_spatial"),
    _distinct("C20", "output dimensions", lambda d: (d.output_batch, *d.output_spatial, d.output_feature)),
    _divisible("C10", "the batch of lhs", 0, "input_batch", "batch_group_count"),
    _divisible("C11", "the feature dimension of lhs", 0, "input_feature", "feature_group_count"),
    Constraint("C14", _kernel_features),
    _divisible("C15", "the output feature dimension of rhs", 1, "kernel_output_feature", "batch_group_count"),
    _divisible("C16", "the output feature dimension of rhs", 1, "kernel_output_feature", "feature_group_count"),
    Constraint("C24", precision_complaint),
    Constraint("window", _window_is_there),
    Constraint("C27", elements_complaint),
    per_tensor("I1", 0, "lhs"),
    Constraint("C29", _kernel_axis),
    Constraint("C31", storage_complaint),
)


def conv_shape(call: OpCall, padding: Sequence[Sequence[int]] | None) -> tuple[int, ...]:
    """The shape of a convolution; spatial sizes are unknown where ``padding`` is None."""
    lhs, rhs, dims = operand_tensor(call, 0).shape, operand_tensor(call, 1).shape, conv_numbers(call)
    batch = lhs[dims.input_batch]
    shape = [DYNAMIC] * len(lhs)
    groups = _group_count(call, "batch_group_count")
    shape[dims.output_batch] = batch if batch == DYNAMIC else batch // groups
    shape[dims.output_feature] = rhs[dims.kernel_output_feature]
    strides, dilations = conv_attribute(call, "window_strides"), conv_attribute(call, "rhs_dilation")
    bases = conv_attribute(call, "lhs_dilation")
    for number, d in enumerate(dims.output_spatial):
        extent, window = lhs[dims.input_spatial[number]], rhs[dims.kernel_spatial[number]]
        if padding is not None:
            shape[d] = window_count(extent, window, strides[number], bases[number], dilations[number], padding[number])
    return tuple(shape)


def _infer_convolution(request: InferenceRequest) -> Sequence[Type]:
    return [tensor(conv_shape(request, conv_padding(request)), operand_tensor(request, 0).element_type)]


def _result_shape(instruction: Any) -> str | None:
    expected, found = conv_shape(instruction, conv_padding(instruction)), instruction.results[0].tensor_type
    if compatible_shapes(found.shape, expected):
        return None
    return f"result has type {found}, expected shape {show(expected)}"


def _result_rank(instruction: Any) -> str | None:
    expected, found = operand_tensor(instruction, 0).rank, instruction.results[0].tensor_type
    return None if found.rank == expected else f"result has type {found}, expected rank {expected}"


def _result_axis(instruction: Any) -> str | None:
    element = instruction.results[0].tensor_type.element_type
    expected = conv_numbers(instruction).output_feature
    if not isinstance(element, QuantizedType) or element.axis in (None, expected):
        return None
    return f"result is quantized along dimension {element.axis}, expected the output feature dimension {expected}"


def convolve(call: ReferenceCall, lhs: Array, rhs: Array, padding: Sequence[Sequence[int]]) -> Array:
    """The reference semantics, with padding known."""
    at = call.instruction
    if quantized_element(at.operand_types[1]) is not None:
        product = product_of(at, convolution_dimension(at))
        return evaluated(at, lhs, rhs, product, lambda a, b: _windows_times_kernel(at, a, b, padding))
    return as_result(at, _windows_times_kernel(at, *factors(at, lhs, rhs), padding))


def _windows_times_kernel(at: Instruction, lhs: Array, rhs: Array, padding: Sequence[Sequence[int]]) -> Array:
    """Windows of the padded input, laid out as rows of a matrix, times the kernel; group by group."""
    dims = conv_numbers(at)
    strides, dilations = conv_attribute(at, "window_strides")[: spatial_rank(at)], conv_attribute(at, "rhs_dilation")
    image = lhs.transpose(dims.input_batch, dims.input_feature, *dims.input_spatial)
    kernel = rhs.transpose(dims.kernel_output_feature, dims.kernel_input_feature, *dims.kernel_spatial)
    reversal = conv_attribute(at, "window_reversal", False)
    kernel = np.flip(kernel, tuple(number + 2 for number, reverse in enumerate(reversal) if reverse))
    image = pad_array(image, 0, ((0, 0), (0, 0), *padding), (1, 1, *conv_attribute(at, "lhs_dilation")))
    counts = [
        window_count(extent, window, stride, 1, dilation, (0, 0))
        for extent, window, stride, dilation in zip(image.shape[2:], kernel.shape[2:], strides, dilations)
    ]
    if 0 in counts:
        rows = np.zeros((*image.shape[:2], *counts, *kernel.shape[2:]), image.dtype)
    else:
        index: tuple[Any, ...] = window_index(counts, kernel.shape[2:], strides, dilations)
        rows = image[(slice(None), slice(None), *index)]
    product = _grouped_product(
        rows, kernel, len(counts), _group_count(at, "feature_group_count"), _group_count(at, "batch_group_count")
    )
    order = [0] * product.ndim
    for position, d in enumerate((dims.output_batch, dims.output_feature, *dims.output_spatial)):
        order[d] = position
    return product.transpose(order)


def _grouped_product(rows: Array, kernel: Array, spatial: int, feature_groups: int, batch_groups: int) -> Array:
    """``rows`` is (batch, feature, counts..., window...), ``kernel`` (output, feature, window...)."""
    groups = feature_groups * batch_groups
    counts = rows.shape[2 : 2 + spatial]
    parts = []
    for group in range(groups):
        if batch_groups > 1:
            size = rows.shape[0] // batch_groups
            part = rows[group * size : (group + 1) * size]
        else:
            size = rows.shape[1] // feature_groups
            part = rows[:, group * size : (group + 1) * size]
        outputs = kernel.shape[0] // groups
        weights = kernel[group * outputs : (group + 1) * outputs].reshape(outputs, math.prod(kernel.shape[1:]))
        matrix = np.moveaxis(part, 1, 1 + spatial).reshape(part.shape[0] * math.prod(counts), weights.shape[1])
        parts.append((matrix @ weights.T).reshape(part.shape[0], *counts, outputs))
    return np.moveaxis(np.concatenate(parts, axis=-1), -1, 1)


_RESULT_RULES = (
    Constraint("C26", _result_rank),
    Constraint("C28", quantized_complaint),
    Constraint("C30", _result_axis),
    Constraint("C32", expressed_complaint),
    Constraint("C33", per_tensor_complaint),
    Constraint("C34", hybrid_complaint),
)

_ATTRIBUTES = (
    AttributeSpec("lhs_dilation", I64_ARRAY, optional=True),
    AttributeSpec("rhs_dilation", I64_ARRAY, optional=True),
    AttributeSpec("window_reversal", BOOL_ARRAY, optional=True),
    AttributeSpec("dimension_numbers", RecordKind(ConvDimensionNumbers)),
    AttributeSpec("feature_group_count", I64),
    AttributeSpec("batch_group_count", I64),
    PRECISION_CONFIG,
)


def _operations(instruction: Instruction) -> int:
    """A multiplication and an addition for every element of the kernel that makes a result."""
    kernel, numbers = instruction.operands[1].tensor_type, ConvolutionView.of(instruction).numbers
    return (
        2 * instruction.result.tensor_type.size * (kernel.size // max(1, kernel.shape[numbers.kernel_output_feature]))
    )


CONVOLUTION = define(
    OpDefinition(
        "stablehlo.convolution",
        operands=(Operand("lhs"), Operand("rhs")),
        attributes=(
            AttributeSpec("window_strides", I64_ARRAY, optional=True),
            AttributeSpec("padding", I64_MATRIX, optional=True),
            *_ATTRIBUTES,
        ),
        infer=checked(CONVOLUTION_RULES, _infer_convolution),
        widens=True,
        constraints=(*CONVOLUTION_RULES, Constraint("C25", _result_shape), *_RESULT_RULES),
        reference=lambda call, lhs, rhs: convolve(call, lhs, rhs, conv_padding(call.instruction)),
        syntax="convolution",
        traits=frozenset({Trait.PER_AXIS}),
        lowering=Kernel(
            "convolution",
            operations=_operations,
            takes_pairs=True,
            expansion=lambda builder, at: product_of_one_kind(builder, at) or windows_times_kernel(builder, at),
            declines=lambda at: declined_mixture(at) or declined_by_kernels(at),
        ),
        parts={BlockFormat: decode_op_encode, QuantizedType: convolution_parts},
        symbolic=shape_rules.convolution,
        derivative=derivatives.CONVOLUTION,
        batching=batching.convolution,
        summary="products of windows of an image with a kernel",
    )
)


# dynamic_conv: the padding is an operand


def _dynamic_padding_shape(call: OpCall) -> str | None:
    padding, expected = operand_tensor(call, 2), (spatial_rank(call), 2)
    return None if compatible_shapes(padding.shape, expected) else f"padding has type {padding}, expected {expected}"


def _dynamic_result(instruction: Any) -> str | None:
    expected, found = conv_shape(instruction, None), instruction.results[0].tensor_type
    if len(found.shape) == len(expected) and all(map(compatible_extents, found.shape, expected)):
        return None
    return f"result has type {found}, expected shape {show(expected)}"


def _enough_strides(call: OpCall) -> str | None:
    """Beyond the specification: StableHLO's own verifier and test data take more strides, of which the first count."""
    found, rank = conv_attribute(call, "window_strides"), spatial_rank(call)
    return has_size("window_strides", found, rank, "the number of spatial dimensions") if len(found) < rank else None


_DYNAMIC_RULES: dict[str, Callable[[OpCall], str | None]] = {"C2": _enough_strides, "C4": _dynamic_padding_shape}
DYNAMIC_CONV_RULES = tuple(
    Constraint(rule.label, _DYNAMIC_RULES.get(rule.label, rule.check)) for rule in CONVOLUTION_RULES
)


def _refined_conv(instruction: Any) -> Sequence[int] | None:
    padding = constant_operand(instruction, 2)
    return None if padding is None or padding.ndim != 2 else conv_shape(instruction, padding.tolist())


def _expand_dynamic_conv(builder: Any, instruction: Any) -> Any:
    padding = constant_operand(instruction, 2)
    if padding is None:
        return _expand_run_time_padding(builder, instruction)
    attributes = {**instruction.attributes, "padding": tuple(map(tuple, padding.tolist()))}
    if attributes.get("window_strides"):
        attributes["window_strides"] = tuple(attributes["window_strides"])[: spatial_rank(instruction)]
    return builder.create(
        "stablehlo.convolution",
        instruction.operands[:2],
        attributes=attributes,
        result_types=instruction.result_types,
    ).results


def _expand_run_time_padding(builder: Any, instruction: Any) -> Any:
    """Of a result whose size is known: the image is padded first, as far as the windows of the result reach."""
    lhs, rhs, padding = instruction.operands
    result, dims = instruction.results[0].tensor_type, conv_numbers(instruction)
    if not (lhs.tensor_type.is_static and rhs.tensor_type.is_static and result.is_static):
        return None
    strides, dilations = conv_attribute(instruction, "window_strides"), conv_attribute(instruction, "rhs_dilation")
    bases, spatial = conv_attribute(instruction, "lhs_dilation"), list(dims.input_spatial)
    zero = builder.constant(0, padding.tensor_type.with_shape(()))
    low, interior, shape = [zero] * lhs.tensor_type.rank, [0] * lhs.tensor_type.rank, list(lhs.tensor_type.shape)
    flat = builder.reshape(padding, (2 * len(spatial),))
    for number, d in enumerate(spatial):
        window = (rhs.tensor_type.shape[dims.kernel_spatial[number]] - 1) * dilations[number] + 1
        shape[d] = (result.shape[dims.output_spatial[number]] - 1) * strides[number] + window
        low[d], interior[d] = scalar_of(builder, flat, 2 * number), bases[number] - 1
    if min(shape) < 0:
        return None
    padded = padded_at_run_time(builder, lhs, builder.constant(0, lhs.tensor_type.with_shape(())), low, interior, shape)
    attributes = {**instruction.attributes, "padding": ((0, 0),) * len(spatial), "lhs_dilation": (1,) * len(spatial)}
    return builder.create(
        "stablehlo.convolution", [padded, rhs], attributes=attributes, result_types=instruction.result_types
    ).results


DYNAMIC_CONV = define(
    OpDefinition(
        "stablehlo.dynamic_conv",
        operands=(Operand("lhs"), Operand("rhs"), Operand("padding", sizes=True)),
        refine=dynamic_types.shaped(_refined_conv),
        attributes=(AttributeSpec("window_strides", I64_ARRAY, optional=True), *_ATTRIBUTES),
        infer=checked(
            DYNAMIC_CONV_RULES,
            lambda request: [tensor(conv_shape(request, None), operand_tensor(request, 0).element_type)],
        ),
        widens=True,
        constraints=(*DYNAMIC_CONV_RULES, Constraint("C25", _dynamic_result), *_RESULT_RULES),
        reference=lambda call, lhs, rhs, padding: convolve(call, lhs, rhs, padding.tolist()),
        syntax="generic",
        traits=frozenset({Trait.PER_AXIS}),
        lowering=Expand(_expand_dynamic_conv),
        parts={QuantizedType: convolution_parts},
        summary="a convolution whose padding is an operand",
    )
)

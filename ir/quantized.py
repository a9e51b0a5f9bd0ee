"""Quantized element types: how they are made, spelled and checked, and which of them agree.

    quantized_type("i8", "f32", (0.5,), (3,))                     !quant.uniform<i8:f32, 5.000000e-01:3>
    quantized_type("i8", "f32", (0.5, 0.25), (0, 1), axis=1)      !quant.uniform<i8:f32:1, {5.000000e-01,2.500000e-01:1}>

Labels are those of "quantized element types" and "quantized tensor types" in the specification.  It has no types quantized
by blocks; theirs are the rules of MLIR's quant dialect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hlojit.ir.formats import (
    ElementType,
    FloatFormat,
    IntegerType,
    NanEncoding,
    QuantizedType,
    element_type,
    find_element_type,
)
from hlojit.ir.types import DYNAMIC, TensorType

Complaint = tuple[str, str]
"""The label of a rule, and how it is broken."""

Parameters = tuple[Sequence[float], Sequence[int]]


def quantized_type(
    storage: str,
    expressed: str,
    scales: Sequence[float],
    zero_points: Sequence[int],
    axis: int | None = None,
    *,
    storage_min: int | None = None,
    storage_max: int | None = None,
    blocks: Sequence[tuple[int, int]] = (),
    grid: Sequence[int] = (),
) -> QuantizedType:
    """The quantized element type of these parameters, named as MLIR spells it.

    ``storage`` and ``expressed`` name element types.  With ``blocks`` (pairs of a dimension and the size of its blocks),
    ``scales`` and ``zero_points`` are row-major lists of the elements of an array of shape ``grid``.
    """
    row = element_type(storage)
    spelling = storage.replace("ui", "u")
    if isinstance(row, IntegerType) and (storage_min, storage_max) == (row.minimum, row.maximum):
        storage_min = storage_max = None
    if storage_min is not None:
        spelling += f"<{storage_min}:{storage_max}>"
    pairs = [_number(scale) + (f":{zero}" if zero else "") for scale, zero in zip(scales, zero_points)]
    if blocks:
        sizes = ", ".join(f"{dimension}:{size}" for dimension, size in blocks)
        body = f":{{{sizes}}}, {_nested(pairs, list(grid))}"
    elif axis is not None:
        body = f":{axis}, {{{','.join(pairs)}}}"
    else:
        body = f", {pairs[0] if pairs else ''}"
    return QuantizedType(
        f"!quant.uniform<{spelling}:{expressed}{body}>",
        row.bits,
        storage,
        expressed,
        tuple(map(float, scales)),
        tuple(zero_points),
        axis,
        storage_min,
        storage_max,
        tuple(blocks),
        tuple(grid),
    )


def parameters_of_type(element: QuantizedType) -> tuple[Any, ...]:
    """All parameters of a quantized type, as plain data; ``quantized_type_of`` makes the type of them again."""
    limits = element.storage_min, element.storage_max
    fields = element.storage_type, element.expressed_type, element.scales, element.zero_points, element.axis
    return *fields, limits, element.blocks, element.grid


def quantized_type_of(parameters: tuple[Any, ...]) -> QuantizedType:
    """The quantized type of what ``parameters_of_type`` gave."""
    storage, expressed, scales, zeros, axis, (low, high), blocks, grid = parameters
    return quantized_type(
        storage, expressed, scales, zeros, axis, storage_min=low, storage_max=high, blocks=blocks, grid=grid
    )


def with_axis(element: QuantizedType, axis: int) -> QuantizedType:
    """The same parameters along another dimension."""
    return quantized_type(
        element.storage_type,
        element.expressed_type,
        element.scales,
        element.zero_points,
        axis,
        storage_min=element.storage_min,
        storage_max=element.storage_max,
    )


def _number(value: float) -> str:
    short = f"{value:e}"
    return short if float(short) == value else repr(value) if "." in repr(value) else f"{value:.17e}"


def _nested(pairs: list[str], grid: list[int]) -> str:
    """Parameters in as many braces as there are dimensions, from the innermost outwards."""
    for extent in reversed(grid):
        pairs = [f"{{{', '.join(pairs[at : at + extent])}}}" for at in range(0, len(pairs), max(extent, 1))]
    return pairs[0] if pairs else "{}"


# rules of the types


def element_complaint(element: QuantizedType) -> Complaint | None:
    """The first rule for quantized element types that ``element`` breaks."""
    storage, expressed = find_element_type(element.storage_type), find_element_type(element.expressed_type)
    if not isinstance(storage, IntegerType):
        return "", f"the storage type of a quantized type must be an integer, found {element.storage_type}"
    if not isinstance(expressed, FloatFormat):
        return "", f"the expressed type of a quantized type must be a float, found {element.expressed_type}"
    low, high = element.minimum, element.maximum
    if not storage.minimum <= low < high <= storage.maximum:
        bounds = f"[{storage.minimum}, {storage.maximum}]"
        return "C3", f"the storage range [{low}, {high}] of {element} must lie in {bounds} and hold two integers"
    return _scale_complaint(element, expressed) or _parameter_complaint(element)


def _scale_complaint(element: QuantizedType, expressed: FloatFormat) -> Complaint | None:
    smallest, largest = positive_range(expressed)
    for scale in element.scales:
        if not math.isfinite(scale):
            return "C6", f"the scale {scale} of {element} is not finite"
        if scale <= 0:
            return "C5", f"the scale {scale} of {element} must be positive"
        if not smallest <= scale <= largest:
            return "C4", f"the scale {scale} of {element} is out of the range of {expressed}"
    return None


def _parameter_complaint(element: QuantizedType) -> Complaint | None:
    low, high = element.minimum, element.maximum
    for zero in element.zero_points:
        if not low <= zero <= high:
            return "C7", f"the zero point {zero} of {element} is out of the storage range [{low}, {high}]"
    counts = len(element.scales), len(element.zero_points)
    if counts[0] != counts[1]:
        return "C9", f"{element} has {counts[0]} scales and {counts[1]} zero points"
    if element.is_per_tensor and counts[0] != 1:
        return "C10", f"{element} is quantized per tensor and has {counts[0]} scales"
    if element.axis is not None and element.axis < 0:
        return "C11", f"the quantization dimension {element.axis} of {element} must not be negative"
    return _block_complaint(element)


def _block_complaint(element: QuantizedType) -> Complaint | None:
    dimensions = [dimension for dimension, _ in element.blocks]
    if min(dimensions, default=0) < 0 or len(set(dimensions)) != len(dimensions):
        return "", f"the quantized dimensions {tuple(dimensions)} of {element} must be different ones, none negative"
    if any(size <= 0 for _, size in element.blocks):
        return "", f"the block sizes of {element} must be positive"
    if element.blocks and math.prod(element.grid) != len(element.scales):
        return "", f"the scales of {element} are no array of shape {element.grid}"
    return None


def positive_range(expressed: FloatFormat) -> tuple[float, float]:
    """The smallest and the largest positive finite number of a float format."""
    first = 1 - expressed.bias
    smallest = math.ldexp(1.0, first - expressed.mantissa_bits if expressed.has_zero else -expressed.bias)
    top = (1 << expressed.exponent_bits) - 1 - expressed.bias
    mantissa = (1 << expressed.mantissa_bits) - 1
    if expressed.nan is NanEncoding.IEEE:
        top -= 1
    elif expressed.nan is NanEncoding.ALL_ONES:
        top, mantissa = (top - 1, mantissa) if mantissa == 0 else (top, mantissa - 1)
    return smallest, math.ldexp((1 << expressed.mantissa_bits) + mantissa, top - expressed.mantissa_bits)


def tensor_complaint(type: TensorType) -> Complaint | None:
    """The first rule for quantized types that ``type`` breaks; none where its elements are not quantized."""
    element = type.element_type
    if not isinstance(element, QuantizedType):
        return None
    found = element_complaint(element)
    if found is not None:
        return found
    if element.axis is not None:
        if element.axis >= type.rank:
            return "C12", f"{type} has no dimension {element.axis}, along which it says to be quantized"
        if type.shape[element.axis] not in (DYNAMIC, len(element.scales)):
            return (
                "C13",
                f"dimension {element.axis} of {type} must have the size {len(element.scales)}, one for each scale",
            )
    return _grid_complaint(type, element)


def _grid_complaint(type: TensorType, element: QuantizedType) -> Complaint | None:
    if not element.blocks:
        return None
    sizes = dict(element.blocks)
    if len(element.grid) != type.rank or max(sizes) >= type.rank:
        return "", f"{type} has {type.rank} dimensions, its scales {len(element.grid)}"
    for dimension, (extent, count) in enumerate(zip(type.shape, element.grid)):
        if dimension not in sizes and count != 1:
            return "", f"the scales of {type} must have the size 1 in dimension {dimension}, which has no blocks"
        if dimension in sizes and extent not in (DYNAMIC, count * sizes[dimension]):
            return "", f"dimension {dimension} of {type} must be {count} blocks of {sizes[dimension]} elements"
    return None


# which types agree


def is_quantized(type: Any) -> bool:
    """Whether a type is a tensor of quantized elements."""
    return isinstance(type, TensorType) and isinstance(type.element_type, QuantizedType)


def parameters_of(element: ElementType) -> Parameters | None:
    """Scales and zero points; None of an element type that is not quantized."""
    return (element.scales, element.zero_points) if isinstance(element, QuantizedType) else None


def same_baseline(a: ElementType, b: ElementType) -> bool:
    """Whether element types have one baseline: are equal, scales and zero points aside."""
    if isinstance(a, QuantizedType) and isinstance(b, QuantizedType):
        return _baseline(a) == _baseline(b)
    return a == b


def _baseline(element: QuantizedType) -> tuple[Any, ...]:
    limits = element.storage_min, element.storage_max
    return element.storage_type, element.expressed_type, limits, element.axis, element.blocks, element.grid

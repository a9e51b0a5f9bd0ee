"""Rules about quantized operands and results that several records have.

Where the specification says ``element_type(a) = element_type(b)``, scales and zero points count; ``baseline_type`` leaves
them aside (``same_baselines`` in ``hlojit.ir.ops.rules``).  Ops that only move elements keep the parameters, and say which
dimension of the result is the quantization dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.formats import QuantizedType
from hlojit.ir.ops.definition import Constraint
from hlojit.ir.ops.rules import OpCall, compatible_extents, operand_tensor
from hlojit.ir.quantized import parameters_of, same_baseline
from hlojit.ir.types import DYNAMIC, TensorType

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction


def quantized_element(type: Any) -> QuantizedType | None:
    """The element type of a tensor of quantized elements, otherwise None."""
    element = type.element_type if isinstance(type, TensorType) else None
    return element if isinstance(element, QuantizedType) else None


def per_tensor(label: str, position: int, name: str) -> Constraint:
    """The constraint that an operand is not quantized per axis."""

    def check(call: OpCall) -> str | None:
        element = quantized_element(operand_tensor(call, position))
        if element is None or element.is_per_tensor:
            return None
        return f"{name} must not be quantized per axis, found {call.operand_types[position]}"

    return Constraint(label, check)


def moved_elements(label: str, *, parameters_may_differ: bool = False) -> Constraint:
    """The constraint that the result has the operand's element type, but for the quantization dimension.

    ``parameters_may_differ``: of elements quantized per axis, scales and zero points may differ as well.
    """

    def check(instruction: Instruction) -> str | None:
        operand, result = operand_tensor(instruction, 0), instruction.result_types[0]
        if not isinstance(result, TensorType):
            return f"result must be a tensor, found {result}"
        source, target = operand.element_type, result.element_type
        if _moved(source, target, parameters_may_differ):
            return None
        if same_baseline(source, target) and parameters_of(source) != parameters_of(target):
            return f"scales and zero points of operand and result differ: {operand} and {result}"
        return f"operand and result have different element types: {operand} and {result}"

    return Constraint(label, check)


def _moved(source: Any, target: Any, parameters_may_differ: bool) -> bool:
    if source == target:
        return True
    if not isinstance(source, QuantizedType) or not isinstance(target, QuantizedType):
        return False
    if source.axis is None or target.axis is None:
        return False
    kept = ["storage_type", "expressed_type", "storage_min", "storage_max"]
    kept += [] if parameters_may_differ else ["scales", "zero_points"]
    return all(getattr(source, name) == getattr(target, name) for name in kept)


def _axes(instruction: Any) -> tuple[QuantizedType, QuantizedType, int, int] | None:
    """Element types and quantization dimensions of operand and result, if both are quantized per axis."""
    source = quantized_element(operand_tensor(instruction, 0))
    target = quantized_element(instruction.result_types[0])
    if source is None or target is None or source.axis is None or target.axis is None:
        return None
    return source, target, source.axis, target.axis


def broadcast_axis(label: str, dimensions: Callable[[Any], Sequence[int]]) -> Constraint:
    """The constraint that the quantization dimension is broadcast, and its parameters with it."""

    def check(instruction: Instruction) -> str | None:
        found = _axes(instruction)
        if found is None or found[2] >= len(dimensions(instruction)):
            return None
        source, target, axis, result_axis = found
        expected = dimensions(instruction)[axis]
        if expected != result_axis:
            return f"the quantization dimension {axis} becomes {expected}, the result says {result_axis}"
        if operand_tensor(instruction, 0).shape[axis] != 1:
            return None
        for index, (scale, zero) in enumerate(zip(target.scales, target.zero_points)):
            if (scale, zero) != (source.scales[0], source.zero_points[0]):
                return (
                    f"scale and zero point {index} of the result are {scale}:{zero}, "
                    f"of the operand's only slice {source.scales[0]}:{source.zero_points[0]}"
                )
        return None

    return Constraint(label, check)


def reshaped_axis(label: str) -> Constraint:
    """The constraint that as many elements lie before, in and behind the quantization dimension as did before."""

    def check(instruction: Instruction) -> str | None:
        found = _axes(instruction)
        result = instruction.result_types[0]
        if found is None or not isinstance(result, TensorType):
            return None
        operand = operand_tensor(instruction, 0)
        if found[2] >= operand.rank or found[3] >= result.rank:
            return None
        parts = [_around(operand.shape, found[2]), _around(result.shape, found[3])]
        if all(map(compatible_extents, *parts)):
            return None
        return f"sizes before, at and after the quantization dimension: {parts[0]} in the operand, {parts[1]} in the result"

    return Constraint(label, check)


def _around(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    before, after = shape[:axis], shape[axis + 1 :]
    return (
        DYNAMIC if DYNAMIC in before else math.prod(before),
        shape[axis],
        DYNAMIC if DYNAMIC in after else math.prod(after),
    )

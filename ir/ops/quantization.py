"""Conversions between floats and uniformly quantized numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import FloatFormat, IntegerType, QuantizedType, element_type
from hlojit.ir.ops.definition import Array, Constraint, InferenceRequest, OpDefinition, Operand, ReferenceCall, define
from hlojit.ir.ops.dynamic_types import keeps_shape
from hlojit.ir.ops.rules import OpCall, checked, inferred, operand_tensor, result_keeps_shape
from hlojit.ir.types import TensorType, Type, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlojit.ir.graph import Instruction


def parameters(type: TensorType) -> tuple[Array, Array]:
    """Scales and zero points of a quantized type, in shapes that broadcast over its elements."""
    element = type.element_type
    assert isinstance(element, QuantizedType)
    scales, zeros = np.array(element.scales, np.float32), np.array(element.zero_points, np.float32)
    if element.axis is None:
        return scales.reshape(()), zeros.reshape(())
    shape = [1] * type.rank
    shape[element.axis] = len(scales)
    return scales.reshape(shape), zeros.reshape(shape)


def dequantize(values: Array, type: TensorType) -> Array:
    """The numbers that quantized ``values`` of ``type`` stand for: (value - zero point) * scale."""
    scales, zeros = parameters(type)
    return (values.astype(np.float32) - zeros) * scales


def quantize(values: Array, type: TensorType) -> Array:
    """The nearest quantized values, within the storage type's limits."""
    element = type.element_type
    assert isinstance(element, QuantizedType)
    storage = element_type(element.storage_type)
    assert isinstance(storage, IntegerType)
    low = storage.minimum if element.storage_min is None else element.storage_min
    high = storage.maximum if element.storage_max is None else element.storage_max
    scales, zeros = parameters(type)
    rounded = np.round(values.astype(np.float32) / scales) + zeros
    return np.clip(np.nan_to_num(rounded, nan=0.0), low, high).astype(storage.storage)


def _expressed(type: TensorType) -> str:
    element = type.element_type
    return element.expressed_type if isinstance(element, QuantizedType) else element.name


def _operand_is_quantized(call: OpCall) -> str | None:
    type = operand_tensor(call, 0)
    return None if isinstance(type.element_type, QuantizedType) else f"operand must be quantized, found {type}"


def _operand_is_number(call: OpCall) -> str | None:
    type = operand_tensor(call, 0)
    if isinstance(type.element_type, (FloatFormat, QuantizedType)):
        return None
    return f"operand must be of floats or quantized, found {type}"


def _infer_dequantized(request: InferenceRequest) -> Sequence[Type]:
    type = operand_tensor(request, 0)
    return [tensor(type.shape, _expressed(type))]


UNIFORM_DEQUANTIZE = define(
    OpDefinition(
        "stablehlo.uniform_dequantize",
        operands=(Operand("operand"),),
        infer=checked((Constraint("I1", _operand_is_quantized),), _infer_dequantized),
        constraints=(
            Constraint("I1", _operand_is_quantized),
            Constraint("C1", result_keeps_shape),
            inferred("C2"),
        ),
        reference=lambda call, values: dequantize(values, operand_tensor(call.instruction, 0)),
        syntax="pretty-same-type",
        lowering=None,
        summary="quantized numbers as floats",
    )
)


def _result_is_quantized(instruction: Instruction) -> str | None:
    operand, result = operand_tensor(instruction, 0), instruction.results[0].tensor_type
    if isinstance(result.element_type, QuantizedType) and _expressed(result) == _expressed(operand):
        return None
    return f"result has type {result}, expected a quantized type that expresses {_expressed(operand)}"


def _quantize_reference(call: ReferenceCall, values: Any) -> Array:
    operand = operand_tensor(call.instruction, 0)
    numbers = dequantize(values, operand) if isinstance(operand.element_type, QuantizedType) else values
    return quantize(numbers, call.instruction.results[0].tensor_type)


UNIFORM_QUANTIZE = define(
    OpDefinition(
        "stablehlo.uniform_quantize",
        operands=(Operand("operand"),),
        refine=keeps_shape,
        constraints=(
            Constraint("I1", _operand_is_number),
            Constraint("C1", result_keeps_shape),
            Constraint("C2", _result_is_quantized),
        ),
        reference=_quantize_reference,
        syntax="pretty-same-type",
        lowering=None,
        summary="floats as quantized numbers",
    )
)

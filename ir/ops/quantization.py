"""Quantized numbers: what stored integers stand for, and the conversions between them and floats.

The functions on arrays are the specification's ``dequantize`` and ``quantize``: every step is rounded to the expressed type.
The interpreter puts them around the reference semantics of ops that compute with the numbers (``Trait.DEQUANTIZES``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import FloatFormat, QuantizedType, element_type
from hlojit.ir.ops.definition import (
    Array,
    Constraint,
    InferenceRequest,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.dynamic_types import keeps_shape
from hlojit.ir.ops.rules import OpCall, checked, inferred, operand_tensor, result_keeps_shape
from hlojit.ir.quantized import is_quantized
from hlojit.ir.scalar.arrays import round_array
from hlojit.ir.scalar.numpy_builder import saturate
from hlojit.ir.types import TensorType, Type, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlojit.ir.graph import Instruction


def quantized_element_of(type: TensorType) -> QuantizedType:
    """The element type of a tensor that is known to be quantized."""
    element = type.element_type
    assert isinstance(element, QuantizedType)
    return element


def spread_parameters(values: Array, type: TensorType, shape: Sequence[int]) -> Array:
    """Scales or zero points of a quantized type in a shape that broadcasts over ``shape``, the sizes at run time."""
    element = quantized_element_of(type)
    if element.blocks:
        values = values.reshape(element.grid)
        for dimension, size in element.blocks:
            values = np.repeat(values, size, axis=dimension)
        return values
    if element.axis is None:
        return values.reshape(())
    return values.reshape([-1 if dimension == element.axis else 1 for dimension in range(len(shape))])


def _float_parameters(values: Sequence[float], type: TensorType, shape: Sequence[int]) -> Array:
    """Parameters as numbers of the expressed type, in compute form."""
    expressed = quantized_element_of(type).expressed_element
    return spread_parameters(round_array(np.array(values, np.float64), expressed), type, shape)


def dequantize(values: Array, type: TensorType) -> Array:
    """The numbers that quantized ``values`` of ``type`` stand for: (value - zero point) * scale."""
    element = quantized_element_of(type)
    expressed = element.expressed_element
    zeros = spread_parameters(np.array(element.zero_points, np.int64), type, values.shape)
    differences = _from_integers(values.astype(np.int64) - zeros, expressed)
    return round_array(differences * _float_parameters(element.scales, type, values.shape), expressed)


def quantize(values: Array, type: TensorType) -> Array:
    """The nearest stored integers, within the storage range; NaN becomes the integer nearest to 0."""
    element = quantized_element_of(type)
    expressed = element.expressed_element
    scaled = round_array(values / _float_parameters(element.scales, type, values.shape), expressed)
    zeros = [float(zero) for zero in element.zero_points]
    return stored_nearest(scaled, _float_parameters(zeros, type, values.shape), element, expressed)


def stored_nearest(scaled: Array, zeros: Array, element: QuantizedType, expressed: FloatFormat) -> Array:
    """``scaled`` plus zero points, rounded to even and clamped: the end of ``quantize``."""
    moved = round_array(scaled + zeros, expressed)
    low, high = (float(round_array(np.array(float(limit)), expressed)) for limit in (element.minimum, element.maximum))
    whole = saturate(np.rint(np.clip(moved, low, high)), np.dtype(np.int64))
    return np.clip(whole, element.minimum, element.maximum).astype(element.storage)


def _from_integers(values: Array, expressed: FloatFormat) -> Array:
    """Integers of less than 53 bits as numbers of a float format, in compute form."""
    return round_array(values.astype(np.float64), expressed)


def requantize(values: Array, source: TensorType, target: TensorType) -> Array:
    """Stored integers of one quantized type as those of another."""
    return quantize(dequantize(values, source), target)


def computes_with_numbers(instruction: Instruction) -> bool:
    """Whether an instruction computes with the numbers that quantized operands stand for.

    What only compares and moves elements of one quantized type does so with the stored integers, exactly.
    """
    traits = instruction.op.traits
    if Trait.DEQUANTIZES not in traits:
        return False
    types = (*instruction.operand_types, *instruction.result_types)
    elements = {type.element_type for type in types if isinstance(type, TensorType) and is_quantized(type)}
    return len(elements) > 1 or (len(elements) == 1 and Trait.ORDERS not in traits)


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
    return [tensor(type.shape, element_type(_expressed(type)))]


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
        traits=frozenset({Trait.PER_AXIS}),
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
        traits=frozenset({Trait.PER_AXIS}),
        lowering=None,
        summary="floats as quantized numbers",
    )
)

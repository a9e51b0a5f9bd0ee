"""Conversions between floats and uniformly quantized numbers, and between these and their stored integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlojit.ir.formats import FloatFormat, QuantizedType, element_type
from hlojit.ir.ops import quantized_arithmetic
from hlojit.ir.ops.definition import (
    Array,
    Constraint,
    Cost,
    Indexed,
    InferenceRequest,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.dynamic_types import keeps_shape
from hlojit.ir.ops.quantized_arrays import dequantize, quantize
from hlojit.ir.ops.rules import OpCall, checked, inferred, operand_tensor, result_keeps_shape
from hlojit.ir.types import TensorType, Type, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlojit.ir.graph import Instruction


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
        parts={QuantizedType: quantized_arithmetic.uniformly_dequantized},
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
        parts={QuantizedType: quantized_arithmetic.uniformly_quantized},
        summary="floats as quantized numbers",
    )
)


def _casts(instruction: Instruction) -> str | None:
    types = operand_tensor(instruction, 0), instruction.results[0].tensor_type
    for type, other in (types, types[::-1]):
        element = type.element_type
        if isinstance(element, QuantizedType) and other.element_type == element.storage_element:
            return None
        if isinstance(element, FloatFormat) and element.in_integers and other.element_type.storage == element.storage:
            return None
    return f"one type must be quantized, the other that of its stored integers, found {types[0]} and {types[1]}"


STORAGE_CAST = define(
    OpDefinition(
        "quant.scast",
        operands=(Operand("input"),),
        constraints=(Constraint("types", _casts), Constraint("shape", result_keeps_shape)),
        reference=lambda call, values: values,
        traits=frozenset({Trait.BITCAST, Trait.PARTS, Trait.PER_AXIS}),
        lowering=Indexed(lambda emitter, instruction, index: emitter.operand(0, index)),
        cost=Cost.CHEAP,
        parts={QuantizedType: quantized_arithmetic.same_bits},
        summary="quantized numbers as their stored integers, or these as quantized numbers: the same memory",
    )
)
"""MLIR's storage cast."""

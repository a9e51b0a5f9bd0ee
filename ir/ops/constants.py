"""constant, iota and get_dimension_size: values that come from attributes and shapes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.attributes import Dense, ElidedElements
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import ComplexType, FloatFormat, IntegerType, QuantizedType, element_type
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops import padding_rules, shape_rules
from hlojit.ir.ops.attribute_kinds import I64, WRITTEN_ELEMENTS
from hlojit.ir.ops.complex_arithmetic import counted
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    Indexed,
    InferenceRequest,
    OpDefinition,
    Operand,
    RangeOf,
    Structural,
    Trait,
    ValueRange,
    define,
)
from hlojit.ir.ops.quantized_arithmetic import quantized_indices
from hlojit.ir.ops.quantized_arrays import quantize
from hlojit.ir.ops.rules import checked, dimension_in_range, in_range, inferred, operand_tensor, sized_result
from hlojit.ir.ops.views import ConstantView, IotaView
from hlojit.ir.quantized import is_quantized
from hlojit.ir.scalar import conversions
from hlojit.ir.scalar.builder import Scalar
from hlojit.ir.scalar.elements import ElementEmitter, IndexExpression
from hlojit.ir.types import DYNAMIC, TensorType, Type, tensor


def _constant_type(request: InferenceRequest) -> tuple[Type, ...]:
    value = request.attributes["value"]
    assert isinstance(value, (Dense, ElidedElements))
    return (value.type,)


def _written_type(instruction: Instruction) -> str | None:
    """The result has the type of the elements; of a quantized result these are what it stores."""
    value, found = instruction.attributes["value"].type, instruction.result_types[0]
    if found is value:
        return None
    if isinstance(found, TensorType) and isinstance(found.element_type, QuantizedType) and found.shape == value.shape:
        stored = found.element_type.storage_type
        return None if stored == value.element_type.name else f"result types are {found}, which stores {stored}"
    return f"result types are {found}, expected {value}"


CONSTANT = define(
    OpDefinition(
        "stablehlo.constant",
        attributes=(AttributeSpec("value", WRITTEN_ELEMENTS),),
        infer=_constant_type,
        constraints=(Constraint("C1", _written_type, compares_results=True),),
        reference=lambda call: ConstantView.of(call).value.array,
        syntax="constant",
        traits=frozenset({Trait.CONSTANT}),
        lowering=Structural("constant"),
        summary="The elements that are written in the program.",
    )
)


def _refuse_elided(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    raise UnsupportedError(
        "stablehlo.constant",
        "",
        "its elements are not in the text, which was printed without its large constants",
        instruction.location,
    )


ELIDED_CONSTANT = define(
    OpDefinition(
        "hlojit.elided_constant",
        attributes=(AttributeSpec("value", WRITTEN_ELEMENTS),),
        infer=_constant_type,
        constraints=(Constraint("C1", _written_type, compares_results=True),),
        syntax="constant",
        lowering=Expand(_refuse_elided),
        summary="A constant in a text that was printed without its large constants: it is checked and printed, not compiled.",
    )
)
"""What the parser makes of such a constant: every other one has its elements."""

# iota


def _iota_dimension(instruction: Any) -> str | None:
    result = instruction.result_types[0]
    if not isinstance(result, TensorType):
        return f"result must be a tensor, found {result}"
    if not isinstance(result.element_type, (IntegerType, FloatFormat)) and result.element_type.name[:5] not in (
        "!quan",
        "compl",
    ):
        return f"result must be a tensor of numbers, found {result}"
    return in_range("iota_dimension", (IotaView.of(instruction).dimension,), result.rank)


def iota_array(shape: tuple[int, ...], dimension: int) -> Array:
    """Indices along a dimension, in i64."""
    line = np.arange(shape[dimension]).reshape([-1 if d == dimension else 1 for d in range(len(shape))])
    return np.broadcast_to(line, shape)


def _iota_reference(call: Any) -> Array:
    type = call.instruction.result.tensor_type
    counts = iota_array(type.shape, IotaView.of(call).dimension)
    if is_quantized(type):
        return quantize(counts.astype(np.float64), type)
    return (
        counts.astype(np.float64)
        if isinstance(type.element_type, FloatFormat)
        else counts.astype(type.element_type.storage)
    )


def _iota(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    type = instruction.result.tensor_type
    dimension = IotaView.of(instruction).dimension
    kind = "i32" if type.shape[dimension] <= 1 << 31 else "i64"
    count = emitter.index_value(index[dimension], kind)
    return conversions.convert(emitter.builder, count, element_type(kind), type.element_type)


def _iota_range(iota: Any, range_of: RangeOf) -> ValueRange | None:
    extent = iota.results[0].tensor_type.shape[IotaView.of(iota).dimension]
    return (0, extent - 1) if extent > 0 else None


IOTA = define(
    OpDefinition(
        "stablehlo.iota",
        attributes=(AttributeSpec("iota_dimension", I64),),
        constraints=(Constraint("C1", _iota_dimension), Constraint("O1", sized_result)),
        reference=_iota_reference,
        syntax="iota",
        traits=frozenset({Trait.NUMBERS}),
        lowering=Indexed(_iota),
        value_range=_iota_range,
        parts={ComplexType: counted, QuantizedType: quantized_indices},
        symbolic=shape_rules.iota,
        summary="The index along one dimension.",
    )
)

# get_dimension_size


_SIZE_RULES = (Constraint("C1", dimension_in_range),)


def _known_size(instruction: Instruction) -> Any:
    extent = operand_tensor(instruction, 0).shape[instruction.attributes["dimension"]]
    return None if extent == DYNAMIC else np.int32(extent)


GET_DIMENSION_SIZE = define(
    OpDefinition(
        "stablehlo.get_dimension_size",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("dimension", I64),),
        infer=checked(_SIZE_RULES, lambda request: (tensor((), "i32"),)),
        constraints=(*_SIZE_RULES, inferred("O1")),
        reference=lambda call, operand: np.int32(operand.shape[call.attributes["dimension"]]),
        known_value=_known_size,
        syntax="get_dimension_size",
        traits=frozenset({Trait.PER_AXIS}),
        lowering=Indexed(
            lambda emitter, instruction, index: emitter.builder.constant(
                "i32", instruction.operands[0].tensor_type.shape[instruction.attributes["dimension"]]
            )
        ),
        padded=padding_rules.get_dimension_size,
        summary="The size of one dimension.",
    )
)

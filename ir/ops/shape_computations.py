"""Ops of MLIR's dialects ``tensor``, ``shape``, ``func`` and ``builtin`` that exports mix in to compute shapes.

They are read, checked and printed, and the reference evaluates them; for back ends ``shape-legalizer`` writes them in StableHLO.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.ir.errors import ExecutionError
from hlojit.ir.formats import INDEX, IntegerType
from hlojit.ir.ops.attribute_kinds import ELEMENTS, STRING, SYMBOL
from hlojit.ir.ops.control import STRUCTURAL, callee_of
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    OpDefinition,
    Operand,
    ReferenceCall,
    Structural,
    Trait,
    define,
)
from hlojit.ir.ops.rules import OpCall, checked, compatible, compatible_lists, has_size, inferred, operand_tensor, spell
from hlojit.ir.types import (
    DYNAMIC,
    FunctionType,
    ScalarType,
    TensorType,
    Type,
    UnrankedTensorType,
    opaque_type,
    scalar,
)

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

INDEX_NUMBER: Final = scalar(INDEX)
SHAPE: Final = opaque_type("!shape.shape")
SIZE: Final = opaque_type("!shape.size")
WITNESS: Final = opaque_type("!shape.witness")
_KEEP: Final = frozenset({Trait.UNRANKED})


def _is_tensor(type: Type) -> bool:
    return isinstance(type, (TensorType, UnrankedTensorType))


def _is_shape(type: Type) -> bool:
    """Whether values of the type are shapes: lists of integers, or what the dialect calls one."""
    is_list = isinstance(type, TensorType) and type.rank == 1 and isinstance(type.element_type, IntegerType)
    return type is SHAPE or is_list


def _shapes(call: OpCall) -> str | None:
    for type in call.operand_types:
        if not _is_shape(type):
            return f"operands must be shapes, found {type}"
    return None


def _is_size(type: Type) -> bool:
    return type is SIZE or (isinstance(type, ScalarType) and isinstance(type.element_type, IntegerType))


def _one_tensor(call: OpCall) -> str | None:
    type = call.operand_types[0]
    return None if _is_tensor(type) else f"operand must be a tensor, found {type}"


def _all_indices(label: str, start: int) -> Constraint:
    def check(call: OpCall) -> str | None:
        for type in call.operand_types[start:]:
            if type is not INDEX_NUMBER:
                return f"indices must be of type index, found {type}"
        return None

    return Constraint(label, check)


# tensor


def _castable(instruction: Instruction) -> str | None:
    source, target = instruction.operand_types[0], instruction.result_types[0]
    if _is_tensor(target) and compatible(source, target):
        return None
    return f"{source} cannot be cast to {target}"


def _expand_cast(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    value = instruction.operands[0]
    return [value] if value.type is instruction.result_types[0] else None


TENSOR_CAST = define(
    OpDefinition(
        "tensor.cast",
        operands=(Operand("source"),),
        constraints=(Constraint("operand", _one_tensor), Constraint("result", _castable)),
        reference=lambda call, value: value,
        syntax="pretty-to-type",
        traits=_KEEP,
        lowering=Expand(_expand_cast),
        summary="the same tensor, of which more or less is known",
    )
)

_DIM_RULES = (Constraint("operand", _one_tensor), _all_indices("index", 1))

TENSOR_DIM = define(
    OpDefinition(
        "tensor.dim",
        operands=(Operand("source"), Operand("index")),
        infer=checked(_DIM_RULES, lambda request: (INDEX_NUMBER,)),
        constraints=(*_DIM_RULES, inferred("result")),
        reference=lambda call, value, index: np.int64(np.shape(value)[int(index)]),
        syntax="tensor.dim",
        traits=_KEEP,
        summary="the size of a dimension",
    )
)


def _elements_fit(instruction: Instruction) -> str | None:
    result = instruction.result_types[0]
    if not isinstance(result, TensorType) or not result.is_static:
        return f"result must be a tensor of known sizes, found {result}"
    expected = scalar(result.element_type)
    for type in instruction.operand_types:
        if type is not expected:
            return f"elements must be of type {expected}, found {type}"
    return has_size("elements", instruction.operands, result.size, "the size of the result")


TENSOR_FROM_ELEMENTS = define(
    OpDefinition(
        "tensor.from_elements",
        operands=(Operand("elements", variadic=True),),
        constraints=(Constraint("result", _elements_fit),),
        reference=lambda call, *values: np.array(values).reshape(call.instruction.results[0].tensor_type.shape),
        syntax="tensor.from_elements",
        summary="a tensor of single numbers",
    )
)


def _extracts(call: OpCall) -> str | None:
    return has_size("indices", call.operand_types[1:], operand_tensor(call, 0).rank, "the rank of the tensor")


_EXTRACT_RULES = (Constraint("indices", _extracts), _all_indices("index", 1))


def _element_at(call: ReferenceCall, value: Array, *index: Array) -> Any:
    place = tuple(int(each) for each in index)
    if not all(0 <= each < extent for each, extent in zip(place, np.shape(value))):
        raise ExecutionError(f"tensor.extract at {call.instruction.location}: there is no element {place}")
    return np.asarray(value)[place]


TENSOR_EXTRACT = define(
    OpDefinition(
        "tensor.extract",
        operands=(Operand("tensor"), Operand("indices", variadic=True)),
        infer=checked(_EXTRACT_RULES, lambda request: (scalar(operand_tensor(request, 0).element_type),)),
        constraints=(*_EXTRACT_RULES, inferred("result")),
        reference=_element_at,
        syntax="tensor.extract",
        summary="an element",
    )
)

# shape


def _shape_result(instruction: Instruction) -> str | None:
    source, result = instruction.operand_types[0], instruction.result_types[0]
    if not _is_shape(result):
        return f"result must be a shape, found {result}"
    if (
        isinstance(source, TensorType)
        and isinstance(result, TensorType)
        and result.shape[0] not in (DYNAMIC, source.rank)
    ):
        return f"result has type {result}, expected {source.rank} elements, the rank of the operand"
    return None


SHAPE_OF = define(
    OpDefinition(
        "shape.shape_of",
        operands=(Operand("arg"),),
        constraints=(Constraint("operand", _one_tensor), Constraint("result", _shape_result)),
        reference=lambda call, value: np.array(np.shape(value), np.int64),
        syntax="pretty-arrow-type",
        traits=_KEEP,
        summary="the sizes of all dimensions",
    )
)


def _size_result(instruction: Instruction) -> str | None:
    result = instruction.result_types[0]
    return None if _is_size(result) else f"result must be a size, found {result}"


NUM_ELEMENTS = define(
    OpDefinition(
        "shape.num_elements",
        operands=(Operand("shape"),),
        constraints=(Constraint("operands", _shapes), Constraint("result", _size_result)),
        reference=lambda call, shape: np.int64(prod(map(int, shape))),
        syntax="pretty-arrow-type",
        summary="how many elements a shape has",
    )
)


def _common_shape(call: ReferenceCall, *shapes: Array) -> Array:
    try:
        return np.array(np.broadcast_shapes(*(tuple(map(int, shape)) for shape in shapes)), np.int64)
    except ValueError as error:
        raise ExecutionError(f"{call.instruction.name} at {call.instruction.location}: {error}") from None


def _broadcast_result(instruction: Instruction) -> str | None:
    result = instruction.result_types[0]
    if not _is_shape(result):
        return f"result must be a shape, found {result}"
    known = [type.shape[0] for type in instruction.operand_types if isinstance(type, TensorType)]
    if isinstance(result, TensorType) and len(known) == len(instruction.operands) and DYNAMIC not in known:
        expected = max(known, default=0)
        if result.shape[0] not in (DYNAMIC, expected):
            return f"result has type {result}, expected {expected} elements"
    return None


SHAPE_BROADCAST = define(
    OpDefinition(
        "shape.broadcast",
        operands=(Operand("shapes", variadic=True),),
        attributes=(AttributeSpec("error", STRING, optional=True),),
        constraints=(Constraint("operands", _shapes), Constraint("result", _broadcast_result)),
        reference=_common_shape,
        syntax="pretty-arrow-type",
        summary="the shape to which shapes can be broadcast",
    )
)


def _written_shape(instruction: Instruction) -> str | None:
    value, result = instruction.attributes["shape"], instruction.result_types[0]
    if value.type.rank != 1 or value.array.dtype.kind not in "iu":
        return f"shape must be a list of sizes, found {value.type}"
    if not _is_shape(result) or (
        isinstance(result, TensorType) and result.shape[0] not in (DYNAMIC, value.type.shape[0])
    ):
        return f"result has type {result}, expected a shape of {value.type.shape[0]} sizes"
    return None


CONST_SHAPE = define(
    OpDefinition(
        "shape.const_shape",
        attributes=(AttributeSpec("shape", ELEMENTS),),
        constraints=(Constraint("result", _written_shape),),
        reference=lambda call: call.attributes["shape"].array,
        syntax="shape.const_shape",
        summary="a shape that is written in the program",
    )
)


def _witness(request: InferenceRequest) -> Sequence[Type]:
    return (WITNESS,)


def _assert_broadcastable(call: ReferenceCall, *shapes: Array) -> Any:
    _common_shape(call, *shapes)
    return (True,)


CSTR_BROADCASTABLE = define(
    OpDefinition(
        "shape.cstr_broadcastable",
        operands=(Operand("shapes", variadic=True),),
        infer=checked((Constraint("operands", _shapes),), _witness),
        constraints=(Constraint("operands", _shapes), inferred("result")),
        reference=_assert_broadcastable,
        syntax="shape.constraint",
        summary="asserts that shapes can be broadcast",
    )
)

# func and builtin


def _function_of(instruction: Instruction) -> str | None:
    callee, result = callee_of(instruction, "value"), instruction.result_types[0]
    if callee is None:
        return f"there is no function @{instruction.attributes['value']} in the module"
    return None if result is callee.type else f"result has type {result}, but @{callee.name} has type {callee.type}"


FUNC_CONSTANT = define(
    OpDefinition(
        "func.constant",
        attributes=(AttributeSpec("value", SYMBOL),),
        constraints=(Constraint("value", _function_of),),
        reference=lambda call: call.attributes["value"],
        syntax="func.constant",
        traits=STRUCTURAL,
        callees=("value",),
        lowering=Structural("function"),
        summary="a function of the module as a value",
    )
)


def _called_type(call: OpCall) -> str | None:
    callee = call.operand_types[0]
    if not isinstance(callee, FunctionType):
        return f"callee must be a function, found {callee}"
    if compatible_lists(call.operand_types[1:], callee.inputs):
        return None
    return f"arguments are {spell(call.operand_types[1:])}, but the function takes {spell(callee.inputs)}"


_INDIRECT_RULES = (Constraint("callee", _called_type),)


def _results_of(request: InferenceRequest) -> Sequence[Type]:
    callee = request.operand_types[0]
    assert isinstance(callee, FunctionType)
    return callee.results


def _expand_indirect_call(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """A call of the function that the callee is known to be, once the functions that it was passed through are inlined."""
    callee, *operands = instruction.operands
    if callee.producer is None or not callee.producer.op.callees:
        return None
    (name,) = callee.producer.callees
    call: Instruction = builder.create(
        "func.call", operands, result_types=instruction.result_types, attributes={"callee": name}
    )
    return call.results


CALL_INDIRECT = define(
    OpDefinition(
        "func.call_indirect",
        operands=(Operand("callee"), Operand("operands", variadic=True)),
        infer=checked(_INDIRECT_RULES, _results_of),
        constraints=(*_INDIRECT_RULES, inferred("results")),
        reference=lambda call, callee, *values: call.call(callee, *values),
        lowering=Expand(_expand_indirect_call),
        syntax="func.call_indirect",
        traits=STRUCTURAL | {Trait.EFFECT},
        summary="calls a function that is a value",
    )
)


def _expand_conversion(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    same = instruction.operand_types == instruction.result_types
    return list(instruction.operands) if same else None


def _some_result(instruction: Instruction) -> str | None:
    return None if instruction.results else "there must be at least one result"


UNREALIZED_CAST = define(
    OpDefinition(
        "builtin.unrealized_conversion_cast",
        operands=(Operand("inputs", variadic=True),),
        constraints=(Constraint("results", _some_result),),
        syntax="pretty-to-type",
        traits=_KEEP,
        lowering=Expand(_expand_conversion),
        summary="values between two conversions of types, which are not finished",
    )
)

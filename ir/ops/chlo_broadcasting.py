"""CHLO's ops with NumPy's broadcasting of operands: each expands into broadcast_in_dim and the op without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.errors import TypeInferenceError
from hlojit.ir.formats import BooleanType, ElementType, find_element_type
from hlojit.ir.ops.attribute_kinds import I64_ARRAY, EnumKind
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
    op,
)
from hlojit.ir.ops.pointwise import BOOLEAN, INTEGER, takes
from hlojit.ir.ops.rules import OpCall, inferred, operand_tensor, operand_tensors, spell
from hlojit.ir.quantized import same_baseline
from hlojit.ir.types import DYNAMIC, TensorType, Type, UnrankedTensorType, tensor, unranked

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

BROADCAST_DIMENSIONS = AttributeSpec("broadcast_dimensions", I64_ARRAY, optional=True)


def operand_dimensions(call: OpCall, position: int, rank: int) -> tuple[int, ...]:
    """Where the dimensions of an operand go in a result of ``rank``: the last ones, unless the attribute says."""
    own = operand_tensor(call, position).rank
    given = call.attributes.get("broadcast_dimensions")
    if given is not None and own < rank and len(given) == own:
        if not all(0 <= d < rank for d in given) or len(set(given)) < own:
            raise TypeInferenceError(f"broadcast_dimensions {tuple(given)} must be different numbers below {rank}")
        return tuple(given)
    return tuple(range(rank - own, rank))


def broadcast_shape(call: OpCall) -> tuple[int, ...]:
    """The common shape of all operands."""
    types = operand_tensors(call)
    rank = max(type.rank for type in types)
    shape = [1] * rank
    for position, type in enumerate(types):
        for extent, d in zip(type.shape, operand_dimensions(call, position, rank)):
            if extent == 1 or shape[d] == extent:
                continue
            if shape[d] == 1 or (shape[d] == DYNAMIC and extent != 1):
                shape[d] = extent
            elif extent != DYNAMIC:
                raise TypeInferenceError(f"operands {', '.join(map(str, types))} cannot be broadcast to one shape")
    return tuple(shape)


def _spread(builder: Any, instruction: Instruction, position: int, shape: tuple[int, ...]) -> Value:
    operand = instruction.operands[position]
    if operand.tensor_type.shape == shape:
        return operand
    found: Value = builder.broadcast_in_dim(operand, shape, operand_dimensions(instruction, position, len(shape)))
    return found


def _expand(plain: str) -> Expand:
    def rule(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
        if not all(isinstance(type, TensorType) and type.is_static for type in instruction.operand_types):
            return None
        shape = broadcast_shape(instruction)
        operands = [_spread(builder, instruction, position, shape) for position in range(len(instruction.operands))]
        attributes = {n: v for n, v in instruction.attributes.items() if n != "broadcast_dimensions"}
        return list(builder.create(plain, operands, attributes=attributes).results)

    return Expand(rule)


def _reference(plain: str) -> Any:
    def evaluate(call: ReferenceCall, *arrays: Array) -> Any:
        record = op(plain)
        assert record.reference is not None
        rank = max(array.ndim for array in arrays)
        spread = []
        for position, array in enumerate(arrays):
            shape = [1] * rank
            for extent, d in zip(array.shape, operand_dimensions(call.instruction, position, rank)):
                shape[d] = extent
            spread.append(array.reshape(shape))
        return record.reference(call, *np.broadcast_arrays(*spread))

    return evaluate


def _element(call: OpCall, position: int) -> ElementType:
    type = call.operand_types[position]
    return type.element_type if isinstance(type, UnrankedTensorType) else operand_tensor(call, position).element_type


def _same_element(call: OpCall) -> ElementType:
    first = _element(call, 0)
    for position in range(1, len(call.operand_types)):
        if not same_baseline(_element(call, position), first):
            raise TypeInferenceError(f"operands have different element types: {spell(call.operand_types)}")
    return first


def _broadcast(request: InferenceRequest, element: ElementType) -> Sequence[Type]:
    """The operands' common shape, which is not known where one of them has no rank."""
    if any(isinstance(type, UnrankedTensorType) for type in request.operand_types):
        return [unranked(element)]
    return [tensor(broadcast_shape(request), element)]


def _infer(request: InferenceRequest) -> Sequence[Type]:
    return _broadcast(request, _same_element(request))


def _infer_predicate(request: InferenceRequest) -> Sequence[Type]:
    _same_element(request)
    return _broadcast(request, BooleanType())


def _infer_complex(request: InferenceRequest) -> Sequence[Type]:
    element = find_element_type(f"complex<{_same_element(request).name}>")
    if element is None:
        raise TypeInferenceError(f"there are no complex numbers of {_same_element(request)}")
    return _broadcast(request, element)


def _infer_select(request: InferenceRequest) -> Sequence[Type]:
    predicate, first, second = (_element(request, position) for position in range(3))
    if not isinstance(predicate, BooleanType) or not same_baseline(first, second):
        raise TypeInferenceError(
            f"expected a pred of i1 and two values of one type, found {spell(request.operand_types)}"
        )
    return _broadcast(request, first)


def _define(
    name: str,
    plain: str,
    infer: Any = _infer,
    traits: frozenset[Trait] = frozenset(),
    rules: tuple[Constraint, ...] = (),
    **more: Any,
) -> OpDefinition:
    values: dict[str, Any] = {
        "operands": (Operand("lhs"), Operand("rhs")),
        "attributes": (BROADCAST_DIMENSIONS,),
        "syntax": "pretty-function-type",
    }
    return define(
        OpDefinition(
            f"chlo.{name}",
            infer=infer,
            constraints=(*rules, inferred("result")),
            reference=_reference(plain),
            traits=traits | {Trait.UNRANKED},
            lowering=_expand(plain),
            summary=f"{plain.partition('.')[2]} with broadcasting",
            **(values | more),
        )
    )


_DEQUANTIZES = frozenset({Trait.DEQUANTIZES})
_ORDERS = _DEQUANTIZES | {Trait.ORDERS}

BROADCASTING = tuple(
    _define(f"broadcast_{name}", f"stablehlo.{name}", traits=traits)
    for traits, names in (
        (_DEQUANTIZES, ("add", "atan2", "divide", "multiply", "power", "remainder", "subtract")),
        (_ORDERS, ("maximum", "minimum")),
        (frozenset(), ("shift_left", "shift_right_arithmetic", "shift_right_logical")),
    )
    for name in names
)
_OF_BITS = (takes("I1", 0, "lhs", (BOOLEAN, INTEGER)), takes("I2", 1, "rhs", (BOOLEAN, INTEGER)))
BROADCASTING_BITWISE = tuple(
    _define(f"broadcast_{name}", f"stablehlo.{name}", rules=_OF_BITS) for name in ("and", "or", "xor")
)
BROADCASTING_CHLO = tuple(_define(f"broadcast_{name}", f"chlo.{name}") for name in ("next_after", "polygamma", "zeta"))

BROADCAST_COMPLEX = _define("broadcast_complex", "stablehlo.complex", _infer_complex)
BROADCAST_COMPARE = _define(
    "broadcast_compare",
    "stablehlo.compare",
    _infer_predicate,
    attributes=(
        BROADCAST_DIMENSIONS,
        AttributeSpec(
            "comparison_direction", EnumKind("comparison_direction", ("EQ", "NE", "GE", "GT", "LE", "LT"), "chlo")
        ),
        AttributeSpec(
            "compare_type",
            EnumKind("comparison_type", ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"), "chlo"),
            optional=True,
        ),
    ),
    syntax="pretty-function-type",
    traits=_ORDERS,
)
BROADCAST_SELECT = _define(
    "broadcast_select",
    "stablehlo.select",
    _infer_select,
    operands=(Operand("pred"), Operand("on_true"), Operand("on_false")),
    attributes=(),
    traits=_ORDERS,
)

"""CHLO's ops that are not elementwise: constants and top_k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import BoolAttr, Dense, FloatAttr, IntegerAttr
from hlojit.ir.formats import ElementType, FloatFormat, element_type
from hlojit.ir.ops.attribute_kinds import BOOL, ELEMENTS, GENERIC, I64
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
from hlojit.ir.ops.open_shapes import Sizes, joined, number
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    inferred,
    operand_tensor,
)
from hlojit.ir.types import DYNAMIC, TensorType, Type, UnrankedTensorType, tensor, unranked

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

CONSTANT = define(
    OpDefinition(
        "chlo.constant",
        attributes=(AttributeSpec("value", ELEMENTS),),
        infer=lambda request: [request.attributes["value"].type],
        constraints=(inferred("result"),),
        reference=lambda call: call.attributes["value"].array,
        syntax="chlo.constant",
        traits=frozenset({Trait.CONSTANT}),
        lowering=Structural("constant"),
        summary="a constant",
    )
)


def like_value(call: OpCall) -> Any:
    """The number that constant_like repeats."""
    value = call.attributes["value"]
    if isinstance(value, (FloatAttr, IntegerAttr, BoolAttr)):
        return value.value
    return value.splat_value if isinstance(value, Dense) else value


def like_element(call: OpCall) -> ElementType:
    """The element type of what constant_like repeats."""
    value = call.attributes["value"]
    if isinstance(value, (FloatAttr, IntegerAttr)):
        return element_type(value.type)
    if isinstance(value, BoolAttr):
        return element_type("i1")
    return value.type.element_type if isinstance(value, Dense) else operand_tensor(call, 0).element_type


def _like(request: InferenceRequest) -> Sequence[Type]:
    element = like_element(request)
    if isinstance(request.operand_types[0], UnrankedTensorType):
        return [unranked(element)]
    return [operand_tensor(request, 0).with_element_type(element)]


CONSTANT_LIKE = define(
    OpDefinition(
        "chlo.constant_like",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("value", GENERIC),),
        infer=_like,
        constraints=(inferred("result"),),
        traits=frozenset({Trait.UNRANKED}),
        reference=lambda call, operand: np.full(operand.shape, like_value(call.instruction)),
        lowering=Expand(
            lambda builder, i: (
                [builder.constant(like_value(i), i.results[0].tensor_type)]
                if isinstance(i.result_types[0], TensorType) and i.results[0].tensor_type.is_static
                else None
            )
        ),
        summary="a number in every place of the operand's shape",
    )
)

# top_k


def _largest(call: OpCall) -> str | None:
    k = call.attributes["k"]
    if isinstance(call.operand_types[0], UnrankedTensorType):
        return None if k >= 0 else f"k {k} must not be negative"
    type = operand_tensor(call, 0)
    if type.rank >= 1 and k >= 0 and (type.shape[-1] == DYNAMIC or k <= type.shape[-1]):
        return None
    return f"k {k} must lie within the last dimension of {type}"


TOP_K_RULES = (Constraint("k", _largest),)


def _infer_top_k(request: InferenceRequest) -> Sequence[Type]:
    first = request.operand_types[0]
    if isinstance(first, UnrankedTensorType):
        return [first, unranked(element_type("i32"))]
    type = operand_tensor(request, 0)
    shape = (*type.shape[:-1], request.attributes["k"])
    return [tensor(shape, type.element_type), tensor(shape, "i32")]


def total_order(values: Array) -> Array:
    """Integers in the order of the numbers: floats by totalOrder, in which -0.0 < 0.0 and NaN is outermost."""
    if values.dtype.kind != "f":
        return values
    bits = np.ascontiguousarray(values).view(f"i{values.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _top_k_reference(call: ReferenceCall, operand: Array) -> tuple[Array, Array]:
    key = ~total_order(operand)  # descending; equal keys keep their order
    order = np.argsort(key, axis=-1, kind="stable")[..., : call.attributes["k"]]
    return np.take_along_axis(operand, order, axis=-1), order.astype(np.int32)


def _expand_top_k(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """A stable descending sort of values and indices, cut off behind k."""
    operand, k = instruction.operands[0], instruction.attributes["k"]
    type = operand.type
    if not isinstance(type, TensorType) or type.bounds:
        return None
    if not type.is_static:
        return open_top_k(builder, operand, number(builder, k), instruction.result_types)
    ordered = _descending(builder, operand, builder.iota(tensor(type.shape, "i32"), type.rank - 1))
    bounds = {
        "start_indices": (0,) * type.rank,
        "limit_indices": (*type.shape[:-1], k),
        "strides": (1,) * type.rank,
    }
    return [builder.create("stablehlo.slice", [value], attributes=bounds).result for value in ordered]


def open_top_k(builder: Any, operand: Value, k: Value, types: Sequence[Type]) -> Sequence[Value]:
    """The same of a value whose sizes are open, and ``k`` (tensor<1xi64>) elements of each row."""
    type, sizes = operand.tensor_type, Sizes.of(builder, operand)
    numbers = builder.create(
        "stablehlo.dynamic_iota",
        [sizes.vector()],
        attributes={"iota_dimension": type.rank - 1},
        result_types=[type.with_element_type("i32")],
    ).result
    starts, ones = (builder.constant([each] * type.rank, tensor((type.rank,), "i64")) for each in (0, 1))
    limits = joined(builder, [*sizes.each[:-1], k])
    ordered = _descending(builder, operand, numbers)
    return [
        builder.create("stablehlo.real_dynamic_slice", [value, starts, limits, ones], result_types=[found]).result
        for value, found in zip(ordered, types)
    ]


def _descending(builder: Any, operand: Value, numbers: Value) -> Sequence[Value]:
    """Rows and their elements' numbers, the largest first."""
    type, index = operand.tensor_type, numbers.tensor_type
    order = "TOTALORDER" if isinstance(type.element_type, FloatFormat) else None
    scalar, position = type.with_shape(()), index.with_shape(())
    comparator = builder.region(
        [scalar, scalar, position, position], lambda inner, a, b, i, j: inner.compare(a, b, "GT", order)
    )
    ordered = builder.create(
        "stablehlo.sort",
        [operand, numbers],
        attributes={"dimension": type.rank - 1, "is_stable": True},
        regions=[comparator],
    )
    results: Sequence[Value] = ordered.results
    return results


TOP_K = define(
    OpDefinition(
        "chlo.top_k",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("k", I64), AttributeSpec("is_stable", BOOL, optional=True, default=True)),
        infer=checked(TOP_K_RULES, _infer_top_k),
        constraints=(*TOP_K_RULES, inferred("result")),
        reference=_top_k_reference,
        syntax="top_k",
        traits=frozenset({Trait.UNRANKED}),
        lowering=Expand(_expand_top_k),
        summary="the k largest elements of each row and their indices",
    )
)

"""What the records of elementwise ops share: constraints on element types, type inference, rules by kind of number.

define(unary("floor", (FLOAT, QUANTIZED), by_type(real=lambda b, x: b.floor(x)), lambda call, x: np.floor(x)))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import ResultAccuracy
from hlojit.ir.errors import HlojitError, TypeInferenceError
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType, QuantizedType
from hlojit.ir.ops.attribute_kinds import RecordKind
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Cost,
    InferenceRequest,
    Lowering,
    OpDefinition,
    Operand,
    Pointwise,
    PointwiseCall,
    RangeOf,
    Trait,
    ValueRange,
)
from hlojit.ir.ops.derivatives.kinds import Derivative
from hlojit.ir.ops.parts import NO_RULES, RuleOfParts
from hlojit.ir.ops.rules import (
    OpCall,
    agreement,
    baseline_compatible,
    checked,
    compatible_shapes,
    inferred,
    merged_type,
    show,
    spell,
)
from hlojit.ir.types import DYNAMIC, TensorType, Type, UnrankedTensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction
    from hlojit.ir.scalar.builder import Scalar, ScalarBuilder

BOOLEAN = "boolean"
INTEGER = "integer"
SIGNED = "signed integer"
FLOAT = "floating-point"
SINGLE = "f32 or f64"
COMPLEX = "complex"
QUANTIZED = "per-tensor quantized"
PER_AXIS = "per-axis quantized"
ANY = (BOOLEAN, INTEGER, FLOAT, COMPLEX, QUANTIZED)
ANY_PER_AXIS = (*ANY, PER_AXIS)

_TESTS: dict[str, Callable[[ElementType], bool]] = {
    BOOLEAN: lambda element: isinstance(element, BooleanType),
    INTEGER: lambda element: isinstance(element, IntegerType),
    SIGNED: lambda element: isinstance(element, IntegerType) and element.signed,
    FLOAT: lambda element: isinstance(element, FloatFormat),
    SINGLE: lambda element: element.name in ("f32", "f64"),
    COMPLEX: lambda element: isinstance(element, ComplexType),
    QUANTIZED: lambda element: isinstance(element, QuantizedType) and element.axis is None,
    PER_AXIS: lambda element: isinstance(element, QuantizedType) and element.axis is not None,
}

ACCURACY = (AttributeSpec("result_accuracy", RecordKind(ResultAccuracy), optional=True),)

# constraints


def takes(label: str, position: int, name: str, kinds: Sequence[str]) -> Constraint:
    """The constraint that an operand is a tensor of one of these kinds of elements."""

    def check(call: OpCall) -> str | None:
        type = call.operand_types[position]
        if isinstance(type, (TensorType, UnrankedTensorType)) and any(
            _TESTS[kind](type.element_type) for kind in kinds
        ):
            return None
        listed = " or ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
        return f"{name} must be a tensor of {listed} type, found {type}"

    return Constraint(label, check)


def _tolerances(call: OpCall) -> str | None:
    found: ResultAccuracy | None = call.attributes.get("result_accuracy")
    if found is None:
        return None
    tolerances = (found.atol, found.rtol, found.ulps)
    if any(value < 0 for value in tolerances):
        return f"result_accuracy has a negative tolerance: {show(tolerances)}"
    if found.mode != "TOLERANCE" and any(tolerances):
        return f"result_accuracy of mode {found.mode} must have no tolerances, found {show(tolerances)}"
    return None


ACCURACY_RULE = Constraint("accuracy", _tolerances)
"""Tolerances are not negative, and belong to the mode ``TOLERANCE`` alone."""


def same_operand_types(
    label: str, names: Sequence[str], agree: Callable[[Type, Type], bool] = baseline_compatible
) -> Constraint:
    """The constraint that all operands have one type (of quantized ones, one baseline type)."""

    def check(call: OpCall) -> str | None:
        if all(agree(type, call.operand_types[0]) for type in call.operand_types[1:]):
            return None
        return f"{' and '.join(names)} have different types: {spell(call.operand_types)}"

    return Constraint(label, check)


def inferred_shape(label: str) -> Constraint:
    """The constraint that the result has the shape that follows from the operands."""
    return Constraint(label, lambda instruction: _result_differs(instruction, shape=True))


def inferred_element(label: str) -> Constraint:
    """The constraint that the result has the element type that follows from the operands."""
    return Constraint(label, lambda instruction: _result_differs(instruction, shape=False))


def _result_differs(instruction: Instruction, *, shape: bool) -> str | None:
    infer = instruction.op.infer
    found = instruction.result_types[0]
    assert infer is not None
    try:
        (expected,) = infer(InferenceRequest(instruction.operand_types, instruction.attributes, instruction.regions))
    except TypeInferenceError:
        return None  # reported under its own label
    if not isinstance(found, TensorType) or not isinstance(expected, TensorType):
        return f"result must be a tensor, found {found}"
    if shape:
        return (
            None
            if compatible_shapes(found.shape, expected.shape)
            else (f"result has type {found}, expected shape {expected.shape}")
        )
    same = agreement(instruction.op)(found.with_shape(()), expected.with_shape(()))
    return None if same else f"result has type {found}, expected element type {expected.element_type}"


# inference


def merged_shape(types: Sequence[Type]) -> tuple[int, ...]:
    """The shape that compatible tensor types share: a size that any of them knows is known."""
    shapes = [type.shape for type in types if isinstance(type, TensorType)]
    return tuple(next((extent for extent in extents if extent != DYNAMIC), DYNAMIC) for extents in zip(*shapes))


def like_operands(request: InferenceRequest) -> tuple[Type, ...]:
    """One result of the operands' common type."""
    first = request.operand_types[0]
    if len(request.operand_types) == 1 or all(type is first for type in request.operand_types):
        return (first,)
    types = [type for type in request.operand_types if isinstance(type, TensorType)]
    return (merged_type(types) if types else first,)


def with_element(element: Callable[[ElementType], ElementType]) -> Callable[[InferenceRequest], tuple[Type, ...]]:
    """One result of the operands' shape whose element type is a function of theirs."""

    def infer(request: InferenceRequest) -> tuple[Type, ...]:
        first = request.operand_types[0]
        assert isinstance(first, TensorType)
        return (tensor(merged_shape(request.operand_types), element(first.element_type)),)

    return infer


# records

Rule = Callable[..., "Scalar"]
Reference = Callable[..., Array]


def dequantizing(kinds: Sequence[str]) -> frozenset[Trait]:
    """The traits of an op that computes with elements of these kinds, if quantized ones are among them."""
    return frozenset({Trait.DEQUANTIZES}) if QUANTIZED in kinds else frozenset()


def unary(
    mnemonic: str,
    kinds: Sequence[str],
    lowering: Lowering | None,
    reference: Reference,
    *,
    attributes: tuple[AttributeSpec, ...] = (),
    traits: frozenset[Trait] = frozenset(),
    cost: Cost = Cost.CHEAP,
    parts: Mapping[type[Any], RuleOfParts] = NO_RULES,
    further: tuple[Constraint, ...] = (),
    derivative: Derivative | None = None,
    summary: str = "",
) -> OpDefinition:
    """The record of an op with one operand whose result has the operand's type."""
    rules = (takes("I1", 0, "operand", kinds),)
    return OpDefinition(
        f"stablehlo.{mnemonic}",
        operands=(Operand("operand"),),
        attributes=attributes,
        infer=checked(rules, like_operands),
        constraints=(*rules, inferred("C1"), *further),
        reference=reference,
        syntax="pretty-same-type",
        traits=traits | dequantizing(kinds),
        lowering=lowering,
        cost=cost,
        parts=parts,
        derivative=derivative,
        summary=summary,
    )


def binary(
    mnemonic: str,
    kinds: Sequence[str],
    lowering: Lowering | None,
    reference: Reference,
    *,
    further: tuple[Constraint, ...] = (),
    agree: Callable[[Type, Type], bool] = baseline_compatible,
    traits: frozenset[Trait] = frozenset(),
    cost: Cost = Cost.CHEAP,
    identity: Callable[[ElementType], Any] | None = None,
    value_range: Callable[[Instruction, RangeOf], ValueRange | None] | None = None,
    parts: Mapping[type[Any], RuleOfParts] = NO_RULES,
    derivative: Derivative | None = None,
    summary: str = "",
) -> OpDefinition:
    """The record of an op with two operands of one type, which is the result's too.

    ``agree`` says of two types whether the operands may have them.
    """
    rules = (
        takes("I1", 0, "lhs", kinds),
        takes("I2", 1, "rhs", kinds),
        same_operand_types("C1", ("lhs", "rhs"), agree),
    )
    return OpDefinition(
        f"stablehlo.{mnemonic}",
        operands=(Operand("lhs"), Operand("rhs")),
        infer=checked(rules, like_operands),
        constraints=(*rules, inferred("C1"), *further),
        reference=reference,
        syntax="pretty-same-type",
        traits=traits | dequantizing(kinds),
        lowering=lowering,
        cost=cost,
        identity=identity,
        value_range=value_range,
        parts=parts,
        derivative=derivative,
        summary=summary,
    )


# rules


def by_type(
    *,
    real: Callable[..., Scalar] | None = None,
    integer: Callable[..., Scalar] | None = None,
    boolean: Callable[..., Scalar] | None = None,
    pair: Callable[..., Scalar] | None = None,
    exact: bool = False,
) -> Pointwise:
    """A lowering that chooses by the first operand's type.

    ``real(b, *scalars)`` for floats, ``integer(b, element, *scalars)`` for integers, ``boolean(b, *scalars)`` for i1,
    ``pair(b, *scalars)`` for complex numbers, whose scalars are a ``Pair`` each.
    """

    def rule(b: ScalarBuilder, call: PointwiseCall, *scalars: Scalar) -> Scalar:
        element = call.operand_types[0]
        if isinstance(element, FloatFormat) and real is not None:
            return real(b, *scalars)
        if isinstance(element, IntegerType) and integer is not None:
            return integer(b, element, *scalars)
        if isinstance(element, BooleanType) and boolean is not None:
            return boolean(b, *scalars)
        if isinstance(element, ComplexType) and pair is not None:
            return pair(b, *scalars)
        raise HlojitError(f"there is no elementwise code for elements of type {element}")

    return Pointwise(rule, exact=exact)


def lowest(element: ElementType) -> int | float:
    """The number that no other of the element type is below: the identity of the maximum."""
    if isinstance(element, BooleanType):
        return 0
    return element.minimum if isinstance(element, IntegerType) else -math.inf


def highest(element: ElementType) -> int | float:
    """The number that no other of the element type is above: the identity of the minimum."""
    if isinstance(element, BooleanType):
        return 1
    return element.maximum if isinstance(element, IntegerType) else math.inf


def all_ones(element: ElementType) -> int:
    """The integer with every bit set: the identity of the bitwise and."""
    return 1 if isinstance(element, BooleanType) else -1


def is_signed(element: ElementType) -> bool:
    """Whether integers of the type are compared and divided as signed ones."""
    return isinstance(element, IntegerType) and element.signed


# references


def widened(function: Callable[..., Any]) -> Reference:
    """Reference semantics by a NumPy function in double precision, so that the interpreter's is the only rounding."""

    def reference(call: Any, *arrays: Array) -> Array:
        wide = np.complex128 if arrays[0].dtype.kind == "c" else np.float64
        return np.asarray(function(*(array.astype(wide) for array in arrays)))

    return reference


def plain(function: Callable[..., Any]) -> Reference:
    """Reference semantics by a NumPy function in the operands' own type."""

    def reference(call: Any, *arrays: Array) -> Array:
        return np.asarray(function(*arrays))

    return reference

"""compare, select and clamp."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.ir.formats import (
    BooleanType,
    ComplexType,
    ElementType,
    FloatFormat,
    IntegerType,
    QuantizedType,
    element_type,
)
from hlojit.ir.ops import complex_arithmetic
from hlojit.ir.ops.attribute_kinds import EnumKind
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Cost,
    InferenceRequest,
    OpDefinition,
    Operand,
    Pointwise,
    PointwiseCall,
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import pointwise as derivatives
from hlojit.ir.ops.pointwise import ANY, BOOLEAN, inferred_element, inferred_shape, is_signed, merged_shape, takes
from hlojit.ir.ops.ranges import clamped, union_of
from hlojit.ir.ops.rules import (
    OpCall,
    baseline_compatible,
    checked,
    compatible_shapes,
    inferred,
    operand_tensor,
)
from hlojit.ir.ops.views import CompareView
from hlojit.ir.quantized import same_baseline
from hlojit.ir.scalar import arithmetic
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.types import TensorType, Type, tensor

DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
COMPARE_TYPES = ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")

# compare


def _same_elements(call: OpCall) -> str | None:
    lhs, rhs = operand_tensor(call, 0), operand_tensor(call, 1)
    same = same_baseline(lhs.element_type, rhs.element_type)
    return None if same else f"lhs and rhs have different element types: {lhs} and {rhs}"


def _same_shapes(call: OpCall) -> str | None:
    lhs, rhs = operand_tensor(call, 0), operand_tensor(call, 1)
    return None if compatible_shapes(lhs.shape, rhs.shape) else f"lhs and rhs have different shapes: {lhs} and {rhs}"


def allowed_compare_types(element: ElementType) -> tuple[str, ...]:
    """The values of ``compare_type`` for an element type, the default first.

    Beyond the specification: StableHLO's own verifier takes any, and its tests and older programs have signs that are not
    those of the elements.  What is compared how follows from the element type; a total order is one of floats.  The numbers
    that quantized elements stand for are floats without NaN and -0.0: both orders are one.
    """
    if isinstance(element, (FloatFormat, ComplexType, QuantizedType)):
        return ("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")
    return ("SIGNED", "UNSIGNED") if is_signed(element) else ("UNSIGNED", "SIGNED")


def _compare_type_fits(call: OpCall) -> str | None:
    found = CompareView.of(call).order
    element = operand_tensor(call, 0).element_type
    allowed = allowed_compare_types(element)
    if found == "NOTYPE" or found in allowed:
        return None
    return f"compare_type of {element} elements must be {' or '.join(allowed)}, found {found}"


def _booleans(request: InferenceRequest) -> tuple[Type, ...]:
    return (tensor(merged_shape(request.operand_types), element_type("i1")),)


_FLOAT_PREDICATES = {"EQ": "oeq", "NE": "une", "GE": "oge", "GT": "ogt", "LE": "ole", "LT": "olt"}


def _compare(b: ScalarBuilder, call: PointwiseCall, x: Scalar, y: Scalar) -> Scalar:
    view, element = CompareView.of(call), call.operand_types[0]
    direction = view.direction
    if isinstance(element, FloatFormat):
        if not view.is_total_order:
            return b.fcmp(_FLOAT_PREDICATES[direction], x, y)
        x, y = arithmetic.total_order_key(b, x), arithmetic.total_order_key(b, y)
    if direction in ("EQ", "NE"):
        return b.icmp(direction.lower(), x, y)
    signed = isinstance(element, FloatFormat) or (isinstance(element, IntegerType) and element.signed)
    return b.icmp(("s" if signed else "u") + direction.lower(), x, y)


_COMPARISONS = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


def _total_order(x: Array) -> Array:
    """Integers in the total order of floats."""
    bits = x.view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, np.iinfo(bits.dtype).max ^ bits, bits)


def _compare_arrays(call: Any, x: Array, y: Array) -> Array:
    view = CompareView.of(call)
    direction = view.direction
    if view.is_total_order and x.dtype.kind == "f":
        x, y = _total_order(x), _total_order(y)
    function = _COMPARISONS[direction]
    if x.dtype.kind != "c" or direction in ("EQ", "NE"):
        return np.asarray(function(x, y))
    return np.asarray(np.where(x.real == y.real, function(x.imag, y.imag), function(x.real, y.real)))


_COMPARE_RULES = (
    takes("I1", 0, "lhs", ANY),
    takes("I2", 1, "rhs", ANY),
    Constraint("C1", _same_elements),
    Constraint("C2", _same_shapes),
    Constraint("C3", _compare_type_fits),
)

COMPARE = define(
    OpDefinition(
        "stablehlo.compare",
        operands=(Operand("lhs"), Operand("rhs")),
        attributes=(
            AttributeSpec("comparison_direction", EnumKind("comparison_direction", DIRECTIONS)),
            AttributeSpec("compare_type", EnumKind("comparison_type", COMPARE_TYPES), optional=True),
        ),
        infer=checked(_COMPARE_RULES, _booleans),
        constraints=(*_COMPARE_RULES, inferred_shape("C2"), inferred_element("O1")),
        reference=_compare_arrays,
        syntax="compare",
        traits=frozenset({Trait.COMPARISON, Trait.DEQUANTIZES, Trait.ORDERS}),
        lowering=Pointwise(_compare, exact=True),
        cost=Cost.CHEAP,
        parts={ComplexType: complex_arithmetic.compared},
        summary="Whether two elements stand in a relation; TOTALORDER tells -0.0 from 0.0 and orders NaN.",
    )
)

# select


def _scalar_or_shaped(label: str, position: int, name: str, other: int, other_name: str) -> Constraint:
    def check(call: OpCall) -> str | None:
        type, model = operand_tensor(call, position), operand_tensor(call, other)
        if type.rank == 0 or compatible_shapes(type.shape, model.shape):
            return None
        return f"{name} must be a scalar or have the shape of {other_name}, found {type} and {model}"

    return Constraint(label, check)


def _same_branches(call: OpCall) -> str | None:
    on_true, on_false = call.operand_types[1:]
    if baseline_compatible(on_true, on_false):
        return None
    return f"on_true and on_false have different types: {on_true} and {on_false}"


def _branch_type(request: InferenceRequest) -> tuple[Type, ...]:
    on_true = request.operand_types[1]
    assert isinstance(on_true, TensorType)
    shaped = [type for type in request.operand_types if isinstance(type, TensorType) and type.rank == on_true.rank]
    return (tensor(merged_shape(shaped), on_true.element_type),)


_SELECT_RULES = (
    takes("I1", 0, "pred", (BOOLEAN,)),
    takes("I2", 1, "on_true", ANY),
    takes("I3", 2, "on_false", ANY),
    _scalar_or_shaped("C1", 0, "pred", 1, "on_true"),
    Constraint("C2", _same_branches),
)

SELECT = define(
    OpDefinition(
        "stablehlo.select",
        operands=(Operand("pred"), Operand("on_true"), Operand("on_false")),
        infer=checked(_SELECT_RULES, _branch_type),
        constraints=(*_SELECT_RULES, inferred("C2")),
        reference=lambda call, pred, on_true, on_false: np.where(pred, on_true, on_false),
        syntax="select",
        traits=frozenset({Trait.SELECTION, Trait.DEQUANTIZES, Trait.ORDERS}),
        lowering=Pointwise(
            lambda b, call, pred, on_true, on_false: b.select(pred, on_true, on_false), exact=True, moves=True
        ),
        cost=Cost.CHEAP,
        value_range=union_of(1),
        derivative=derivatives.SELECT,
        summary="on_true where pred holds, on_false elsewhere.",
    )
)

# clamp


def _one_element_type(call: OpCall) -> str | None:
    types = [operand_tensor(call, position) for position in range(3)]
    if all(same_baseline(type.element_type, types[1].element_type) for type in types):
        return None
    return f"min, operand and max have different element types: {', '.join(map(str, types))}"


def _operand_type(request: InferenceRequest) -> tuple[Type, ...]:
    operand = request.operand_types[1]
    assert isinstance(operand, TensorType)
    shaped = [type for type in request.operand_types if isinstance(type, TensorType) and type.rank == operand.rank]
    return (tensor(merged_shape(shaped), operand.element_type),)


def _clamp(b: ScalarBuilder, call: PointwiseCall, low: Scalar, x: Scalar, high: Scalar) -> Scalar:
    element = call.operand_types[1]
    if isinstance(element, FloatFormat):
        return arithmetic.float_minimum(b, arithmetic.float_maximum(b, x, low), high)
    if isinstance(element, BooleanType):
        return b.and_(b.or_(x, low), high)
    signed = is_signed(element)
    raised = arithmetic.integer_extremum(b, x, low, largest=True, signed=signed)
    return arithmetic.integer_extremum(b, raised, high, largest=False, signed=signed)


def _clamp_arrays(call: Any, low: Array, x: Array, high: Array) -> Array:
    from hlojit.ir.ops.elementwise import MAXIMUM, MINIMUM

    assert MAXIMUM.reference is not None and MINIMUM.reference is not None
    return np.asarray(MINIMUM.reference(call, MAXIMUM.reference(call, x, low), high))


_CLAMP_RULES = (
    takes("I1", 0, "min", ANY),
    takes("I2", 1, "operand", ANY),
    takes("I3", 2, "max", ANY),
    _scalar_or_shaped("C1", 0, "min", 1, "operand"),
    _scalar_or_shaped("C2", 2, "max", 1, "operand"),
    Constraint("C3", _one_element_type),
)

CLAMP = define(
    OpDefinition(
        "stablehlo.clamp",
        operands=(Operand("min"), Operand("operand"), Operand("max")),
        infer=checked(_CLAMP_RULES, _operand_type),
        constraints=(*_CLAMP_RULES, inferred("C4")),
        reference=_clamp_arrays,
        syntax="pretty-same-type",
        traits=frozenset({Trait.DEQUANTIZES, Trait.ORDERS}),
        lowering=Pointwise(_clamp, exact=True),
        cost=Cost.CHEAP,
        value_range=clamped,
        parts={ComplexType: complex_arithmetic.clamped},
        derivative=derivatives.CLAMP,
        summary="minimum(maximum(operand, min), max).",
    )
)

"""Arithmetic on elements: sums, products, quotients, powers, extrema, signs and rounding to integers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import ComplexType, ElementType, FloatFormat, NanEncoding, QuantizedType, element_type
from hlojit.ir.ops import complex_arrays, complex_references
from hlojit.ir.ops.complex_arithmetic import extremum, of_parts, product
from hlojit.ir.ops.complex_functions import function_of_parts
from hlojit.ir.ops.definition import (
    Array,
    Constraint,
    Cost,
    OpDefinition,
    Operand,
    Pointwise,
    PointwiseCall,
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import pointwise as derivatives
from hlojit.ir.ops.parts import each_part
from hlojit.ir.ops.pointwise import (
    ANY,
    ANY_PER_AXIS,
    COMPLEX,
    FLOAT,
    INTEGER,
    QUANTIZED,
    SIGNED,
    binary,
    by_type,
    highest,
    inferred_element,
    inferred_shape,
    lowest,
    plain,
    takes,
    unary,
    widened,
    with_element,
)
from hlojit.ir.ops.quantized_arithmetic import all_finite
from hlojit.ir.ops.ranges import monotonic
from hlojit.ir.ops.rules import checked, compatible_unless_quantized
from hlojit.ir.scalar import arithmetic
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.formats import round_to_format
from hlojit.ir.types import TensorType

_NUMBERS = (INTEGER, FLOAT, COMPLEX, QUANTIZED)
_COMMUTATIVE = frozenset({Trait.COMMUTATIVE, Trait.ASSOCIATIVE})
_EXTREMUM = frozenset({Trait.COMMUTATIVE, Trait.ASSOCIATIVE, Trait.IDEMPOTENT, Trait.ORDERS})

# sums and products


def _quantized_elements(instruction: Any) -> list[QuantizedType] | None:
    """Element types of operands and result; None where none is quantized, or (C2) reports that only some are."""
    types = (*instruction.operand_types, *instruction.result_types)
    elements = [type.element_type for type in types if isinstance(type, TensorType)]
    quantized = [element for element in elements if isinstance(element, QuantizedType)]
    return quantized if len(quantized) == 3 else None


def _all_quantized(instruction: Any) -> str | None:
    types = (*instruction.operand_types, *instruction.result_types)
    quantized = [isinstance(type, TensorType) and isinstance(type.element_type, QuantizedType) for type in types]
    if any(quantized) and not all(quantized):
        return f"either all or none of lhs, rhs and result may be quantized, found {', '.join(map(str, types))}"
    return None


def _same_quantized_part(attribute: str, name: str) -> Any:
    def check(instruction: Any) -> str | None:
        elements = _quantized_elements(instruction)
        if elements is None:
            return None
        parts = [getattr(element, attribute) for element in elements]
        return None if len(set(parts)) == 1 else f"{name}s differ: {', '.join(parts)}"

    return check


def _per_axis_result(instruction: Any) -> str | None:
    elements = _quantized_elements(instruction)
    if elements is None:
        return None
    lhs, rhs, result = (element.axis is not None for element in elements)
    if (lhs or rhs) == result:
        return None
    return "result must be quantized per axis if and only if lhs or rhs is"


def _same_axis(position: int, name: str) -> Any:
    def check(instruction: Any) -> str | None:
        elements = _quantized_elements(instruction)
        if elements is None or elements[position].axis in (None, elements[2].axis):
            return None
        return f"quantization dimension of {name} is {elements[position].axis}, of the result {elements[2].axis}"

    return check


ADD = define(
    binary(
        "add",
        ANY_PER_AXIS,
        by_type(
            real=lambda b, x, y: b.fadd(x, y),
            integer=lambda b, element, x, y: b.add(x, y),
            boolean=lambda b, x, y: b.or_(x, y),
        ),
        plain(np.add),
        agree=compatible_unless_quantized,
        further=(
            Constraint("C2", _all_quantized),
            Constraint("C3", _same_quantized_part("storage_type", "storage type")),
            Constraint("C4", _same_quantized_part("expressed_type", "expressed type")),
            Constraint("C5", _per_axis_result),
            Constraint("C6", _same_axis(0, "lhs")),
            Constraint("C7", _same_axis(1, "rhs")),
        ),
        traits=_COMMUTATIVE | {Trait.PER_AXIS, Trait.ADDS},
        # 0.0 + -0.0 would lose a sign.
        identity=lambda element: -0.0 if isinstance(element, FloatFormat) else 0,
        value_range=monotonic(operator.add),
        parts={ComplexType: each_part},
        derivative=derivatives.ADD,
        summary="Sum; of booleans, or.",
    )
)

SUBTRACT = define(
    binary(
        "subtract",
        _NUMBERS,
        by_type(real=lambda b, x, y: b.fsub(x, y), integer=lambda b, element, x, y: b.sub(x, y)),
        plain(np.subtract),
        traits=frozenset({Trait.SUBTRACTS}),
        value_range=monotonic(operator.sub),
        parts={ComplexType: each_part},
        derivative=derivatives.SUBTRACT,
        summary="Difference.",
    )
)

MULTIPLY = define(
    binary(
        "multiply",
        ANY,
        by_type(
            real=lambda b, x, y: b.fmul(x, y),
            integer=lambda b, element, x, y: b.mul(x, y),
            boolean=lambda b, x, y: b.and_(x, y),
        ),
        lambda call, x, y: complex_arrays.product(x, y) if x.dtype.kind == "c" else np.multiply(x, y),
        traits=_COMMUTATIVE | {Trait.MULTIPLIES},
        identity=lambda element: 1,
        value_range=monotonic(operator.mul),
        parts={ComplexType: of_parts(product)},
        derivative=derivatives.MULTIPLY,
        summary="Product; of booleans, and.",
    )
)


def divide_integers(x: Array, y: Array) -> Array:
    """Quotient toward zero; x / 0 is all ones, minimum / -1 is minimum."""
    dividend, divisor = x.astype(object), np.where(y == 0, 1, y).astype(object)
    magnitude = np.asarray(abs(dividend) // abs(divisor), object)
    signed = np.where((x < 0) != (y < 0), -magnitude, magnitude)
    bits = x.dtype.itemsize * 8
    wrapped = np.asarray(signed & ((1 << bits) - 1)).astype(f"u{x.dtype.itemsize}").view(x.dtype)
    return np.where(y == 0, ~x.dtype.type(0), wrapped)


def _divide(call: Any, x: Array, y: Array) -> Array:
    if x.dtype.kind == "c":
        return complex_arrays.quotient(x, y)
    return np.asarray(x / y) if x.dtype.kind in "fc" else divide_integers(x, y)


DIVIDE = define(
    binary(
        "divide",
        _NUMBERS,
        by_type(
            real=lambda b, x, y: b.fdiv(x, y),
            integer=lambda b, element, x, y: arithmetic.divide(b, x, y, signed=element.signed),
        ),
        _divide,
        cost=Cost.EXPENSIVE,
        parts={ComplexType: function_of_parts("divide")},
        derivative=derivatives.DIVIDE,
        summary="Quotient, of integers toward zero.",
    )
)


def _remainder(call: Any, x: Array, y: Array) -> Array:
    if x.dtype.kind == "c":
        raise HlojitError("the specification does not define the remainder of complex numbers")
    if x.dtype.kind == "f":
        return np.asarray(np.fmod(x, y))
    return np.where(y == 0, x, x - divide_integers(x, y) * y)


REMAINDER = define(
    binary(
        "remainder",
        _NUMBERS,
        by_type(
            real=arithmetic.float_remainder,
            integer=lambda b, element, x, y: arithmetic.remainder(b, x, y, signed=element.signed),
        ),
        _remainder,
        cost=Cost.EXPENSIVE,
        derivative=derivatives.REMAINDER,
        summary="Remainder of the division toward zero, with the dividend's sign.",
    )
)


def _power(call: Any, x: Array, y: Array) -> Array:
    if x.dtype.kind in "fc":
        return widened(complex_arrays.of_complex(np.power, complex_references.power))(call, x, y)
    result, square = np.ones_like(x), np.array(x)
    exponent = y.view(f"u{y.dtype.itemsize}")
    for position in range(y.dtype.itemsize * 8):
        result = np.where(exponent >> position & 1, result * square, result)
        square = square * square
    return np.where((y < 0) & (x != 1) & (x != -1), 0, result).astype(x.dtype) if x.dtype.kind == "i" else result


def _float_power(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    from hlojit.ir.scalar import functions

    return functions.pow(b, x, y)


POWER = define(
    binary(
        "power",
        _NUMBERS,
        by_type(
            real=_float_power,
            integer=lambda b, element, x, y: arithmetic.integer_power(b, x, y, signed=element.signed),
        ),
        _power,
        cost=Cost.EXPENSIVE,
        parts={ComplexType: function_of_parts("power")},
        derivative=derivatives.POWER,
        summary="lhs to the power of rhs.",
    )
)

# extrema


def _lexicographic(x: Array, y: Array, *, largest: bool) -> Array:
    greater = (x.real > y.real) | ((x.real == y.real) & (x.imag > y.imag))
    chosen = np.where(greater == largest, x, y)
    return np.where(np.isnan(x), x, np.where(np.isnan(y), y, chosen))


def _maximum(call: Any, x: Array, y: Array) -> Array:
    if x.dtype.kind == "c":
        return _lexicographic(x, y, largest=True)
    if x.dtype.kind == "f":
        return np.where((x == 0) & (y == 0), np.where(np.signbit(x), y, x), np.maximum(x, y))
    return np.asarray(np.maximum(x, y))


def _minimum(call: Any, x: Array, y: Array) -> Array:
    if x.dtype.kind == "c":
        return _lexicographic(x, y, largest=False)
    if x.dtype.kind == "f":
        return np.where((x == 0) & (y == 0), np.where(np.signbit(x), x, y), np.minimum(x, y))
    return np.asarray(np.minimum(x, y))


MAXIMUM = define(
    binary(
        "maximum",
        ANY,
        by_type(
            real=arithmetic.float_maximum,
            integer=lambda b, element, x, y: arithmetic.integer_extremum(b, x, y, largest=True, signed=element.signed),
            boolean=lambda b, x, y: b.or_(x, y),
            exact=True,
        ),
        _maximum,
        traits=_EXTREMUM | {Trait.MAXIMUM},
        identity=lowest,
        value_range=monotonic(max),
        parts={ComplexType: extremum("GT")},
        derivative=derivatives.EXTREMUM,
        summary="The larger; NaN if either is NaN, and 0.0 is larger than -0.0.",
    )
)

MINIMUM = define(
    binary(
        "minimum",
        ANY,
        by_type(
            real=arithmetic.float_minimum,
            integer=lambda b, element, x, y: arithmetic.integer_extremum(b, x, y, largest=False, signed=element.signed),
            boolean=lambda b, x, y: b.and_(x, y),
            exact=True,
        ),
        _minimum,
        traits=_EXTREMUM | {Trait.MINIMUM},
        identity=highest,
        value_range=monotonic(min),
        parts={ComplexType: extremum("LT")},
        derivative=derivatives.EXTREMUM,
        summary="The smaller; NaN if either is NaN, and -0.0 is smaller than 0.0.",
    )
)

# signs


def _flip_sign(b: ScalarBuilder, call: PointwiseCall, x: Scalar) -> Scalar:
    """Minus x, a number of the format again: some formats have no -0.0, or no negative numbers."""
    element = call.operand_types[0]
    if isinstance(element, FloatFormat):
        plain_format = element.signed and element.nan is not NanEncoding.NEGATIVE_ZERO and element.encode is None
        return b.fneg(x) if plain_format else round_to_format(b, b.fneg(x), element)
    return b.sub(b.constant(x.kind, 0), x)


NEGATE = define(
    unary(
        "negate",
        _NUMBERS,
        Pointwise(_flip_sign),
        plain(np.negative),
        parts={ComplexType: each_part},
        derivative=derivatives.NEGATE,
        summary="Minus the operand; integers wrap.",
    )
)


def modulus_type(element: ElementType) -> ElementType:
    """The element type of the operand's modulus and parts."""
    return element_type(element.component) if isinstance(element, ComplexType) else element


_ABS_RULES = (takes("I1", 0, "operand", (SIGNED, FLOAT, COMPLEX, QUANTIZED)),)

ABS = define(
    OpDefinition(
        "stablehlo.abs",
        operands=(Operand("operand"),),
        infer=checked(_ABS_RULES, with_element(modulus_type)),
        constraints=(*_ABS_RULES, inferred_shape("C1"), inferred_element("C2")),
        reference=plain(np.abs),
        syntax="pretty-same-type",
        traits=frozenset({Trait.IDEMPOTENT, Trait.DEQUANTIZES}),
        lowering=by_type(
            real=lambda b, x: b.fabs(x),
            integer=lambda b, element, x: arithmetic.integer_absolute(b, x),
        ),
        cost=Cost.CHEAP,
        parts={ComplexType: function_of_parts("abs", is_real=True)},
        derivative=derivatives.ABS,
        summary="The magnitude; of the smallest integer, itself.",
    )
)


def _sign(call: Any, x: Array) -> Array:
    if x.dtype.kind == "c":
        return complex_arrays.sign(x)
    if x.dtype.kind == "f":
        return np.where((x == 0) | np.isnan(x), x, np.copysign(1, x))
    return np.asarray(np.sign(x))


SIGN = define(
    unary(
        "sign",
        (SIGNED, FLOAT, COMPLEX, QUANTIZED),
        by_type(
            real=arithmetic.float_sign,
            integer=lambda b, element, x: arithmetic.integer_sign(b, x),
        ),
        _sign,
        traits=frozenset({Trait.IDEMPOTENT}),
        parts={ComplexType: function_of_parts("sign")},
        derivative=derivatives.SIGN,
        summary="-1, 0 or 1; zeros and NaN as they are.",
    )
)

# rounding to integers


def _round_away(call: Any, x: Array) -> Array:
    magnitude = np.abs(x)
    whole = np.trunc(magnitude)
    return np.asarray(np.copysign(whole + (magnitude - whole >= 0.5), x))


def _rounding(mnemonic: str, rule: Any, reference: Any, summary: str) -> OpDefinition:
    return define(
        unary(
            mnemonic,
            (FLOAT, QUANTIZED),
            by_type(real=rule),
            reference,
            traits=frozenset({Trait.IDEMPOTENT}),
            derivative=derivatives.STEPS,
            summary=summary,
        )
    )


CEIL = _rounding("ceil", lambda b, x: b.ceil(x), plain(np.ceil), "The smallest integer not below the operand.")
FLOOR = _rounding("floor", lambda b, x: b.floor(x), plain(np.floor), "The largest integer not above the operand.")
ROUND_NEAREST_AFZ = _rounding(
    "round_nearest_afz", arithmetic.round_away, _round_away, "The nearest integer, ties away from zero."
)
ROUND_NEAREST_EVEN = _rounding(
    "round_nearest_even", lambda b, x: b.round_even(x), plain(np.rint), "The nearest integer, ties to even."
)


def _is_finite(b: ScalarBuilder, x: Scalar) -> Scalar:
    return b.fcmp("olt", b.fabs(x), b.constant(x.kind, float("inf")))


_FINITE_RULES = (takes("I1", 0, "x", (FLOAT, QUANTIZED)),)

IS_FINITE = define(
    OpDefinition(
        "stablehlo.is_finite",
        operands=(Operand("x"),),
        infer=checked(_FINITE_RULES, with_element(lambda element: element_type("i1"))),
        constraints=(*_FINITE_RULES, inferred_shape("C1"), inferred_element("O1")),
        reference=plain(np.isfinite),
        syntax="pretty-function-type",
        lowering=by_type(real=_is_finite, exact=True),
        parts={QuantizedType: all_finite},
        cost=Cost.CHEAP,
        summary="Whether the operand is neither infinite nor NaN.",
    )
)

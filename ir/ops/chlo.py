"""CHLO's elementwise functions: error functions, gamma functions, inverse trigonometry and so on.

Their code is in ``hlojit.ir.scalar.functions`` where it is more than a few ops; the references are SciPy's and NumPy's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import BooleanType, ComplexType, FloatFormat, IntegerType, NanEncoding
from hlojit.ir.ops import complex_arrays, complex_references
from hlojit.ir.ops.complex_arrays import of_complex
from hlojit.ir.ops.complex_functions import function_of_parts
from hlojit.ir.ops.definition import (
    Array,
    Cost,
    Expand,
    InferenceRequest,
    Lowering,
    OpDefinition,
    Pointwise,
    PointwiseCall,
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import pointwise as derivatives
from hlojit.ir.ops.derivatives.kinds import Derivative
from hlojit.ir.ops.parts import NO_RULES, RuleOfParts
from hlojit.ir.ops.pointwise import COMPLEX, FLOAT, INTEGER, binary, by_type, unary, widened
from hlojit.ir.ops.rules import checked, inferred, operand_tensor
from hlojit.ir.ops.transcendental import by_name
from hlojit.ir.scalar import arithmetic
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.types import Type

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

_KINDS = (FLOAT, COMPLEX)


def special(name: str) -> Callable[..., Any]:
    """A function of ``scipy.special``, which is heavy and loaded when it is first called."""

    def evaluate(*arrays: Array) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*arrays)

    return evaluate


def _renamed(record: OpDefinition, name: str) -> OpDefinition:
    traits = record.traits | {Trait.UNRANKED}
    return define(
        dataclasses.replace(record, name=f"chlo.{name}", syntax="pretty-arrow-type", cost=Cost.EXPENSIVE, traits=traits)
    )


def _function(
    name: str,
    reference: Callable[..., Any],
    summary: str,
    kinds: Sequence[str] = _KINDS,
    lowering: Lowering | None = None,
    derivative: Derivative | None = None,
) -> OpDefinition:
    has_complex_rule = lowering is None and COMPLEX in kinds
    parts: Mapping[type[Any], RuleOfParts] = {ComplexType: function_of_parts(name)} if has_complex_rule else NO_RULES
    lowering = by_type(real=by_name(name)) if lowering is None else lowering
    return _renamed(
        unary(name, kinds, lowering, widened(reference), parts=parts, derivative=derivative, summary=summary), name
    )


ACOS = _function("acos", of_complex(np.arccos, complex_references.acos), "Inverse cosine.", derivative=derivatives.ACOS)
ACOSH = _function(
    "acosh",
    of_complex(np.arccosh, complex_references.acosh),
    "Inverse hyperbolic cosine.",
    derivative=derivatives.ACOSH,
)
ASIN = _function("asin", of_complex(np.arcsin, complex_references.asin), "Inverse sine.", derivative=derivatives.ASIN)
ASINH = _function(
    "asinh", of_complex(np.arcsinh, complex_references.asinh), "Inverse hyperbolic sine.", derivative=derivatives.ASINH
)
ATAN = _function(
    "atan", of_complex(np.arctan, complex_references.atan), "Inverse tangent.", derivative=derivatives.ATAN
)
ATANH = _function(
    "atanh",
    of_complex(np.arctanh, complex_references.atanh),
    "Inverse hyperbolic tangent.",
    derivative=derivatives.ATANH,
)
ASIN_ACOS_KERNEL = _renamed(
    unary(
        "_asin_acos_kernel",
        (COMPLEX,),
        None,
        widened(complex_references.inverse_sine_sides),
        parts={ComplexType: function_of_parts("asin_acos_kernel")},
        summary="What the inverse sine and cosine of a complex number have in common.",
    ),
    "_asin_acos_kernel",
)
BESSEL_I1E = _function(
    "bessel_i1e", special("i1e"), "Modified Bessel function of order 1, scaled by exp(-|x|).", (FLOAT,)
)
COSH = _function(
    "cosh", of_complex(np.cosh, complex_references.cosh), "Hyperbolic cosine.", derivative=derivatives.COSH
)
DIGAMMA = _function(
    "digamma",
    special("digamma"),
    "Derivative of the logarithm of the gamma function.",
    (FLOAT,),
    derivative=derivatives.DIGAMMA,
)
ERF = _function("erf", special("erf"), "Error function.", (FLOAT,), derivative=derivatives.ERF)
ERF_INV = _function(
    "erf_inv", special("erfinv"), "Inverse of the error function.", (FLOAT,), derivative=derivatives.ERF_INV
)
ERFC = _function("erfc", special("erfc"), "1 - erf(x).", (FLOAT,), derivative=derivatives.ERFC)


def _log_gamma(x: Array) -> Array:
    """SciPy's, which is infinite for denormal numbers (it is -log(|x|) there) and negative at -inf."""
    with np.errstate(all="ignore"):
        size = np.abs(x)
        found: Array = np.where(size < 16 * np.finfo(x.dtype).tiny, -np.log(size), special("gammaln")(x))
    return np.where(np.isinf(x), size, found)


LGAMMA = _function(
    "lgamma",
    _log_gamma,
    "Logarithm of the absolute value of the gamma function.",
    (FLOAT,),
    derivative=derivatives.LGAMMA,
)
SINH = _function("sinh", of_complex(np.sinh, complex_references.sinh), "Hyperbolic sine.", derivative=derivatives.SINH)


# what is a few StableHLO ops


def _expansion(build: Callable[..., Any]) -> Expand:
    """An expansion that builds one value from a builder and the operands."""

    def rule(builder: Any, instruction: Instruction) -> Sequence[Value]:
        return [build(builder, *instruction.operands)]

    return Expand(rule)


def _compared_with_infinity(take_absolute: bool, value: float) -> Callable[..., Any]:
    def build(builder: Any, x: Value) -> Any:
        x = builder.abs(x) if take_absolute else x
        return builder.compare(x, builder.constant(value, x.tensor_type), "EQ")

    return build


def _conjugate(builder: Any, x: Value) -> Any:
    if not isinstance(x.tensor_type.element_type, ComplexType):
        return x
    return builder.complex(builder.real(x), builder.negate(builder.imag(x)))


def _expand_square(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """A product; complex numbers have a rule of their own, in whose real part nothing cancels."""
    (x,) = instruction.operands
    return None if isinstance(x.tensor_type.element_type, ComplexType) else [builder.multiply(x, x)]


CONJ = _renamed(
    unary(
        "conj",
        _KINDS,
        _expansion(_conjugate),
        lambda call, x: np.conj(x),
        derivative=derivatives.CONJ,
        summary="Complex conjugate.",
    ),
    "conj",
)
SQUARE = _renamed(
    unary(
        "square",
        _KINDS,
        Expand(_expand_square),
        lambda call, x: complex_arrays.square(x) if x.dtype.kind == "c" else x * x,
        parts={ComplexType: function_of_parts("square")},
        derivative=derivatives.SQUARE,
        summary="The operand times itself.",
    ),
    "square",
)
TAN = _function(
    "tan",
    of_complex(np.tan, complex_references.tan),
    "Tangent.",
    lowering=_expansion(lambda b, x: b.tan(x)),
    derivative=derivatives.TAN,
)


def _predicates(request: InferenceRequest) -> Sequence[Type]:
    return [operand_tensor(request, 0).with_element_type(BooleanType())]


def _test(name: str, build: Callable[..., Any], reference: Callable[..., Any], summary: str) -> OpDefinition:
    record = unary(name, (FLOAT,), _expansion(build), lambda call, x: reference(x), summary=summary)
    rules = record.constraints[:1]
    return _renamed(
        dataclasses.replace(record, infer=checked(rules, _predicates), constraints=(*rules, inferred("C1"))), name
    )


IS_INF = _test("is_inf", _compared_with_infinity(True, np.inf), np.isinf, "Whether an element is infinite.")
IS_NEG_INF = _test("is_neg_inf", _compared_with_infinity(False, -np.inf), np.isneginf, "Whether it is -infinity.")
IS_POS_INF = _test("is_pos_inf", _compared_with_infinity(False, np.inf), np.isposinf, "Whether it is infinity.")


# two operands


def _next_after(call: Any, x: Array, y: Array) -> Array:
    """The next number of the operands' own format, on its bits: magnitudes are ordered like their codes."""
    from hlojit.ir.scalar.arrays import from_bits, to_bits

    element = operand_tensor(call.instruction, 0).element_type
    bits = to_bits(x, element)
    assert isinstance(element, FloatFormat)
    sign = bits.dtype.type(1 << (element.bits - 1) if element.signed else 0)
    one = bits.dtype.type(1)
    away = (bits & sign == 0) == (y > x)  # larger magnitude: upwards from a positive number, downwards from a negative
    stepped = np.where(away, bits + one, bits - one)
    if element.nan is NanEncoding.NEGATIVE_ZERO:
        stepped = np.where(stepped == sign, bits.dtype.type(0), stepped)
    stepped = np.where(x == 0, np.where(y > 0, one, sign | one), stepped)
    stepped = np.where(x == y, to_bits(y, element), stepped)
    return np.where(np.isnan(x) | np.isnan(y), x + y, from_bits(stepped, element))


def _binary(
    name: str,
    reference: Any,
    summary: str,
    lowering: Lowering | None = None,
    kinds: Sequence[str] = (FLOAT,),
    derivative: Derivative | None = None,
) -> OpDefinition:
    return _renamed(binary(name, kinds, lowering, reference, derivative=derivative, summary=summary), name)


def _emit_next_after(b: ScalarBuilder, call: PointwiseCall, x: Scalar, y: Scalar) -> Scalar:
    from hlojit.ir.scalar.neighbours import next_after

    return next_after(b, call.operand_types[0], x, y)


NEXT_AFTER = _binary(
    "next_after",
    _next_after,
    "The number next to the first operand towards the second.",
    Pointwise(_emit_next_after, exact=True),
)


def _polygamma(n: Array, x: Array) -> Any:
    """Scipy's takes integers only; n = 0 is digamma, other n the Hurwitz zeta function."""
    import scipy.special

    s, sign = n + 1, np.where(n % 2 == 0, -1.0, 1.0)
    factorial = scipy.special.gamma(s)
    higher = sign * np.where(np.isinf(factorial) & (x > 0), _long_factorial(s, x), factorial * scipy.special.zeta(s, x))
    value = np.where(n == 0, scipy.special.digamma(x), higher)
    return np.where((n == np.floor(n)) & (n >= 0) & (n < 2.0**1000), value, np.nan)


def _long_factorial(s: Array, x: Array) -> Any:
    """``gamma(s) zeta(s, x)`` by logarithms: the sum of (x / (x + k))**s, the rest of it by Euler and Maclaurin's formula."""
    import scipy.special

    w = x + 40
    total = sum((x / (x + k)) ** s for k in range(40)) + (w / (s - 1) + 0.5 + s / (12 * w)) * (x / w) ** s
    return np.exp(scipy.special.gammaln(s) - s * np.log(x) + np.log(total))


def _zeta(s: Array, q: Array) -> Any:
    """SciPy's; where both sides of a pole differ there is no value."""
    import scipy.special

    odd = (q <= 0) & (q == np.floor(q)) & (s % 2 == 1) & (s > 1)
    limit = np.where(q < 1, np.inf, np.where(q == 1, 1.0, 0.0))
    value = np.where(s == np.inf, np.where(np.isnan(q), q, limit), scipy.special.zeta(s, q))
    value = np.where(odd, np.nan, np.where((s > 1) & (q == np.inf), 0.0, value))
    return np.where(np.isnan(s) | np.isnan(q), np.nan, value)


POLYGAMMA = _binary(
    "polygamma",
    widened(_polygamma),
    "Derivatives of digamma.",
    by_type(real=by_name("polygamma")),
    derivative=derivatives.POLYGAMMA,
)
ZETA = _binary(
    "zeta", widened(_zeta), "Hurwitz zeta function.", by_type(real=by_name("zeta")), derivative=derivatives.ZETA
)


def _mulhi(call: Any, x: Array, y: Array) -> Array:
    bits = operand_tensor(call.instruction, 0).element_type.bits
    return np.array((x.astype(object) * y.astype(object)) >> bits, dtype=object).astype(x.dtype)


def _emit_mulhi(b: ScalarBuilder, element: IntegerType, x: Scalar, y: Scalar) -> Scalar:
    return arithmetic.multiply_high(b, x, y, bits=element.bits, signed=element.signed)


MULHI = _binary("mulhi", _mulhi, "Upper half of the product.", by_type(integer=_emit_mulhi), (INTEGER,))

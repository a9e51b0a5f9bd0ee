"""NumPy's ufuncs on values of the loop's dtypes and of one shape: ``UFUNCS`` maps each to the rule that builds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.ir.attributes import GatherDimensionNumbers
from hlojit.ir.formats import BooleanType, ComplexType, FloatFormat, IntegerType, element_type, find_element_type
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.arrays.kinds import compute_dtype, refuse_in_integers
from hlojit.tracing.operations import Operations

Rule = Callable[[Operations, Sequence[Value]], Value]


def _op(name: str) -> Rule:
    return lambda ops, values: ops.builder.create(name, values).result


def _compare(direction: str) -> Rule:
    def rule(ops: Operations, values: Sequence[Value]) -> Value:
        x, y = values
        if _dtype(x) == _dtype(y):
            return ops.builder.compare(x, y, direction)
        # NumPy compares integers of all types exactly.
        if np.uint64 not in (_dtype(x), _dtype(y)):
            x, y = (ops.converted(each, np.dtype(np.int64)) for each in values)
            return ops.builder.compare(x, y, direction)
        x, y = (ops.converted(each, np.dtype(f"{_dtype(each).kind}8")) for each in values)
        if _dtype(x).kind == "u":
            return _compare_signed_to_unsigned(ops, y, x, _MIRRORED[direction])
        return _compare_signed_to_unsigned(ops, x, y, direction)

    return rule


COMPARISONS: Final = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})

_MIRRORED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def _compare_signed_to_unsigned(ops: Operations, x: Value, y: Value, direction: str) -> Value:
    negative = ops.builder.compare(x, _like(ops, x, 0), "LT")
    compared = ops.builder.compare(ops.converted(x, _dtype(y)), y, direction)
    below = ops.full(direction in ("LT", "LE", "NE"), np.dtype(bool), x.tensor_type.shape)
    return ops.builder.select(negative, below, compared)


def _is_integer(value: Value) -> bool:
    return isinstance(value.tensor_type.element_type, (IntegerType, BooleanType))


def _dtype(value: Value) -> np.dtype[Any]:
    """The elements' dtype; of a format without one, that in which it shows its numbers."""
    element = value.tensor_type.element_type
    found = element.dtype or (compute_dtype(element) if isinstance(element, FloatFormat) else None)
    assert found is not None
    return found


def _like(ops: Operations, value: Value, number: Any) -> Value:
    type = value.tensor_type
    if type.element_type.dtype is None:
        return ops.broadcast(ops.builder.constant(number, tensor((), type.element_type)), type.shape)
    return ops.full(number, _dtype(value), type.shape)


def _right_shift(ops: Operations, values: Sequence[Value]) -> Value:
    signed = _dtype(values[0]).kind == "i"
    name = "shift_right_arithmetic" if signed else "shift_right_logical"
    return ops.builder.create(name, values).result


def _logical(name: str) -> Rule:
    def rule(ops: Operations, values: Sequence[Value]) -> Value:
        return ops.builder.create(name, [ops.converted(value, np.dtype(bool)) for value in values]).result

    return rule


def _python_remainder(ops: Operations, values: Sequence[Value]) -> Value:
    """NumPy's ``%``: the sign of the divisor."""
    b = ops.builder
    remainder = b.remainder(*values)
    if _dtype(values[0]).kind == "u":
        return _zero_divisor(ops, values, remainder)
    zero = _like(ops, remainder, 0)
    if not _is_integer(remainder):
        return b.select(
            b.compare(remainder, zero, "EQ"),
            _copysign(ops, [zero, values[1]]),
            _with_sign_of_divisor(ops, remainder, values[1]),
        )
    differs = b.create("xor", [b.compare(remainder, zero, "LT"), b.compare(values[1], zero, "LT")]).result
    nonzero = b.compare(remainder, zero, "NE")
    adjusted = b.select(b.create("and", [differs, nonzero]).result, b.add(remainder, values[1]), remainder)
    return _zero_divisor(ops, values, adjusted)


def _with_sign_of_divisor(ops: Operations, remainder: Value, divisor: Value) -> Value:
    b = ops.builder
    return b.select(_is_opposite(ops, remainder, divisor), b.add(remainder, divisor), remainder)


def _is_opposite(ops: Operations, x: Value, y: Value) -> Value:
    """Whether exactly one of two numbers is below zero."""
    b = ops.builder
    zero = _like(ops, x, 0)
    return b.create("xor", [b.compare(x, zero, "LT"), b.compare(y, zero, "LT")]).result


def _zero_divisor(ops: Operations, values: Sequence[Value], result: Value) -> Value:
    """NumPy gives 0 for an integer divided by zero."""
    if not _is_integer(values[1]):
        return result
    zero = _like(ops, result, 0)
    return ops.builder.select(ops.builder.compare(values[1], _like(ops, values[1], 0), "EQ"), zero, result)


def _floor_divide(ops: Operations, values: Sequence[Value]) -> Value:
    b = ops.builder
    x, y = values
    if _dtype(x).kind == "u":
        return _zero_divisor(ops, values, b.divide(x, y))
    if _is_integer(x):
        quotient = b.divide(x, y)
        zero, one = _like(ops, x, 0), _like(ops, x, 1)
        inexact = b.compare(b.multiply(quotient, y), x, "NE")
        negative = b.create("xor", [b.compare(x, zero, "LT"), b.compare(y, zero, "LT")]).result
        lower = b.create("and", [inexact, negative]).result
        return _zero_divisor(ops, values, b.select(lower, b.subtract(quotient, one), quotient))
    # As CPython and NumPy do it: from the exact remainder, then rounded to the nearest integer.
    remainder = b.remainder(x, y)
    zero, one = _like(ops, x, 0.0), _like(ops, x, 1.0)
    quotient = b.divide(b.subtract(x, remainder), y)
    lower = b.create("and", [b.compare(remainder, zero, "NE"), _is_opposite(ops, remainder, y)]).result
    quotient = b.select(lower, b.subtract(quotient, one), quotient)
    floor = b.floor(quotient)
    floor = b.select(b.compare(b.subtract(quotient, floor), _like(ops, x, 0.5), "GT"), b.add(floor, one), floor)
    floor = b.select(b.compare(quotient, zero, "EQ"), _copysign(ops, [zero, b.divide(x, y)]), floor)
    return b.select(b.compare(y, zero, "EQ"), b.divide(x, y), floor)


def _scaled(name: str, factor: float) -> Rule:
    def rule(ops: Operations, values: Sequence[Value]) -> Value:
        b = ops.builder
        result = b.create(name, values).result
        if _dtype(result).kind == "c":
            # Each part on its own, as NumPy: the product with a complex number has NaN where a part is infinite.
            real, imaginary = (b.multiply(part, _like(ops, part, factor)) for part in (b.real(result), b.imag(result)))
            return b.complex(real, imaginary)
        return b.multiply(result, _like(ops, result, factor))

    return rule


def _log2(ops: Operations, values: Sequence[Value]) -> Value:
    """Exact for powers of two, as in NumPy."""
    (x,) = values
    near = _scaled("log", 1 / np.log(2.0))(ops, values)
    element = x.tensor_type.element_type
    if not isinstance(element, FloatFormat):
        return near
    b, info = ops.builder, np.finfo(_dtype(x))
    bits = b.bitcast_convert(x, x.tensor_type.with_element_type(f"i{element.bits}"))
    fraction = b.create("and", [bits, _like(ops, bits, (1 << info.nmant) - 1)]).result
    field = b.create("shift_right_logical", [bits, _like(ops, bits, info.nmant)]).result
    # Positive, neither a subnormal number nor infinite: of these the field is the exponent.
    inside = b.compare(x, _like(ops, x, info.smallest_normal), "GE")
    inside = b.create("and", [inside, b.compare(x, _like(ops, x, info.max), "LE")]).result
    is_power = b.create("and", [inside, b.compare(fraction, _like(ops, fraction, 0), "EQ")]).result
    exponent = b.convert(b.subtract(field, _like(ops, field, info.maxexp - 1)), element)
    return b.select(is_power, exponent, near)


def _log10(ops: Operations, values: Sequence[Value]) -> Value:
    """Exact for powers of ten, as in NumPy."""
    (x,) = values
    near = _scaled("log", 1 / np.log(10.0))(ops, values)
    if not isinstance(x.tensor_type.element_type, FloatFormat):
        return near
    b, info = ops.builder, np.finfo(_dtype(x))
    least, most = int(np.ceil(np.log10(info.smallest_normal))), int(np.floor(np.log10(info.max)))
    powers = np.array([float(f"1e{number}") for number in range(least, most + 1)], _dtype(x))
    whole = b.round_nearest_even(near)
    inside = b.minimum(b.maximum(whole, _like(ops, whole, least)), _like(ops, whole, most))
    place = b.subtract(b.convert(inside, "i32"), ops.full(least, np.dtype(np.int32), x.tensor_type.shape))
    numbers = GatherDimensionNumbers((), (0,), (), (), (0,), x.tensor_type.rank)
    attributes = {"dimension_numbers": numbers, "slice_sizes": (1,), "indices_are_sorted": False}
    power = b.create("gather", [b.constant(powers), place], attributes=attributes).result
    return b.select(b.compare(x, power, "EQ"), whole, near)


def _exp2(ops: Operations, values: Sequence[Value]) -> Value:
    b, x = ops.builder, values[0]
    if _dtype(x).kind == "c":
        real, imaginary = (b.multiply(part, _like(ops, part, np.log(2.0))) for part in (b.real(x), b.imag(x)))
        return b.create("exponential", [b.complex(real, imaginary)]).result
    return ops.builder.power(_like(ops, values[0], 2.0), values[0])


def _square(ops: Operations, values: Sequence[Value]) -> Value:
    return ops.builder.multiply(values[0], values[0])


def _reciprocal(ops: Operations, values: Sequence[Value]) -> Value:
    result = ops.builder.divide(_like(ops, values[0], 1), values[0])
    if not _is_integer(values[0]):
        return result
    with np.errstate(all="ignore"):
        of_zero = np.reciprocal(np.zeros((), _dtype(values[0])))
    zero = ops.builder.compare(values[0], _like(ops, values[0], 0), "EQ")
    return ops.builder.select(zero, _like(ops, result, of_zero), result)


def _is_nan(ops: Operations, values: Sequence[Value]) -> Value:
    return ops.builder.compare(values[0], values[0], "NE")


def _is_complex(value: Value) -> bool:
    return isinstance(value.tensor_type.element_type, ComplexType)


def _of_parts(name: str, rule: Rule) -> Rule:
    """A test of numbers that holds of a complex one where it holds of one part (``or``) or of both (``and``)."""

    def tested(ops: Operations, values: Sequence[Value]) -> Value:
        b, (value,) = ops.builder, values
        if not _is_complex(value):
            return rule(ops, values)
        return b.create(name, [rule(ops, [b.real(value)]), rule(ops, [b.imag(value)])]).result

    return tested


def _conjugate(ops: Operations, values: Sequence[Value]) -> Value:
    return ops.builder.create("chlo.conj", values).result if _is_complex(values[0]) else values[0]


def _round_to_integer(ops: Operations, values: Sequence[Value]) -> Value:
    b, (value,) = ops.builder, values
    if not _is_complex(value):
        return b.round_nearest_even(value)
    return b.complex(b.round_nearest_even(b.real(value)), b.round_nearest_even(b.imag(value)))


def _is_inf(ops: Operations, values: Sequence[Value]) -> Value:
    element = values[0].tensor_type.element_type
    if not isinstance(element, FloatFormat) or not element.has_infinity:
        return ops.full(False, np.dtype(bool), values[0].tensor_type.shape)
    b = ops.builder
    return b.compare(b.abs(values[0]), _like(ops, values[0], np.inf), "EQ")


def _is_finite(ops: Operations, values: Sequence[Value]) -> Value:
    if _is_integer(values[0]):
        return ops.full(True, np.dtype(bool), values[0].tensor_type.shape)
    return ops.builder.is_finite(values[0])


def _ignoring_nan(name: str) -> Rule:
    """``fmax`` and ``fmin``: a NaN loses against a number."""

    def rule(ops: Operations, values: Sequence[Value]) -> Value:
        b = ops.builder
        x, y = values
        result = b.create(name, values).result
        if _is_integer(x):
            return result
        result = b.select(b.compare(x, x, "NE"), y, result)
        return b.select(b.compare(y, y, "NE"), x, result)

    return rule


def _hypot(ops: Operations, values: Sequence[Value]) -> Value:
    b = ops.builder
    x, y = (b.abs(value) for value in values)
    large, small = b.maximum(x, y), b.minimum(x, y)
    zero = b.compare(large, _like(ops, large, 0), "EQ")
    ratio = b.select(zero, large, b.divide(small, large))
    result = b.multiply(large, b.sqrt(b.add(_like(ops, large, 1), b.multiply(ratio, ratio))))
    # An infinity wins even against a NaN.
    infinity = _like(ops, large, np.inf)
    infinite = b.create("or", [b.compare(x, infinity, "EQ"), b.compare(y, infinity, "EQ")]).result
    return b.select(infinite, infinity, result)


def _logaddexp(ops: Operations, values: Sequence[Value]) -> Value:
    b = ops.builder
    x, y = values
    difference = b.negate(b.abs(b.subtract(x, y)))
    result = b.add(b.maximum(x, y), b.log_plus_one(b.exponential(difference)))
    return b.select(b.compare(x, y, "EQ"), b.add(x, _like(ops, x, np.log(2.0))), result)


def _abs(ops: Operations, values: Sequence[Value]) -> Value:
    return values[0] if _dtype(values[0]).kind in "ub" else ops.builder.abs(values[0])


def _sign(ops: Operations, values: Sequence[Value]) -> Value:
    if _dtype(values[0]).kind == "u":
        return ops.builder.minimum(values[0], _like(ops, values[0], 1))
    result = ops.builder.create("sign", values).result
    if not isinstance(values[0].tensor_type.element_type, FloatFormat):
        return result
    # Of -0.0 NumPy gives 0.0.
    zero = _like(ops, result, 0)
    return ops.builder.select(ops.builder.compare(result, zero, "EQ"), zero, result)


def _bit_count(ops: Operations, values: Sequence[Value]) -> Value:
    """NumPy counts the bits of the magnitude."""
    return ops.builder.create("popcnt", [_abs(ops, values)]).result


def _rounding(name: str) -> Rule:
    """Integers are what they are."""
    return lambda ops, values: values[0] if _is_integer(values[0]) else ops.builder.create(name, values).result


def _truncate(ops: Operations, values: Sequence[Value]) -> Value:
    b = ops.builder
    if _is_integer(values[0]):
        return values[0]
    return b.select(b.compare(values[0], _like(ops, values[0], 0), "LT"), b.ceil(values[0]), b.floor(values[0]))


def _identity(ops: Operations, values: Sequence[Value]) -> Value:
    return values[0]


def _heaviside(ops: Operations, values: Sequence[Value]) -> Value:
    b = ops.builder
    x, at_zero = values
    zero, one = _like(ops, x, 0), _like(ops, x, 1)
    step = b.select(b.compare(x, zero, "GT"), one, b.select(b.compare(x, zero, "LT"), zero, at_zero))
    return b.select(b.compare(x, x, "NE"), x, step)


def _signbit(ops: Operations, values: Sequence[Value]) -> Value:
    b = ops.builder
    element = values[0].tensor_type.element_type
    if isinstance(element, FloatFormat) and not element.signed:
        return ops.full(False, np.dtype(bool), values[0].tensor_type.shape)
    value = values[0]
    if isinstance(element, FloatFormat) and find_element_type(f"i{element.bits}") is None:
        # No integer has six bits; f32 has the sign of its numbers.
        element = element_type(element.compute)
        value = b.convert(value, element)
    bits = b.bitcast_convert(value, value.tensor_type.with_element_type(f"i{element.bits}"))
    return b.compare(bits, _like(ops, bits, 0), "LT")


def _copysign(ops: Operations, values: Sequence[Value]) -> Value:
    magnitude = ops.builder.abs(values[0])
    return ops.builder.select(_signbit(ops, values[1:]), ops.builder.negate(magnitude), magnitude)


def _next_after(ops: Operations, values: Sequence[Value]) -> Value:
    """Of equal numbers it is the second one, as in C; NumPy's own float16 gives the first, which differs for zeros."""
    made = ops.builder.create("chlo.next_after", values).result
    if _dtype(values[0]) != np.float16:
        return made
    return ops.builder.select(ops.builder.compare(values[0], values[1], "EQ"), values[0], made)


def _in_compute_type(rule: Rule) -> Rule:
    """A rule of several steps, of which only the last is rounded into a narrow float format, as NumPy and ml_dtypes do."""

    def widened(ops: Operations, values: Sequence[Value]) -> Value:
        element = values[0].tensor_type.element_type
        if not isinstance(element, FloatFormat) or element.is_native:
            return rule(ops, values)
        refuse_in_integers(element, "this function")
        wide = element_type(element.compute)
        return ops.builder.convert(rule(ops, [ops.builder.convert(each, wide) for each in values]), element)

    return widened


UFUNCS: dict[str, Rule] = {
    "add": _op("add"), "subtract": _op("subtract"), "multiply": _op("multiply"), "divide": _op("divide"),
    "power": _op("power"), "float_power": _op("power"), "maximum": _op("maximum"), "minimum": _op("minimum"),
    "fmax": _ignoring_nan("maximum"), "fmin": _ignoring_nan("minimum"),
    "negative": _op("negate"), "positive": _identity, "conjugate": _conjugate, "absolute": _abs, "fabs": _abs,
    "sign": _sign, "floor": _rounding("floor"), "ceil": _rounding("ceil"), "rint": _round_to_integer,
    "exp": _op("exponential"), "expm1": _op("exponential_minus_one"), "exp2": _exp2,
    "log": _op("log"), "log1p": _op("log_plus_one"),
    "log2": _in_compute_type(_log2), "log10": _in_compute_type(_log10),
    "logaddexp": _in_compute_type(_logaddexp), "nextafter": _next_after,
    "sqrt": _op("sqrt"), "cbrt": _op("cbrt"), "square": _square,
    "reciprocal": _reciprocal,
    "sin": _op("sine"), "cos": _op("cosine"), "tan": _op("tan"), "tanh": _op("tanh"), "arctan2": _op("atan2"),
    "arcsin": _op("chlo.asin"), "arccos": _op("chlo.acos"), "arctan": _op("chlo.atan"), "sinh": _op("chlo.sinh"),
    "cosh": _op("chlo.cosh"), "arcsinh": _op("chlo.asinh"), "arccosh": _op("chlo.acosh"), "arctanh": _op("chlo.atanh"),
    "hypot": _in_compute_type(_hypot), "deg2rad": lambda ops, v: ops.builder.multiply(v[0], _like(ops, v[0], np.pi / 180)),
    "rad2deg": lambda ops, v: ops.builder.multiply(v[0], _like(ops, v[0], 180 / np.pi)),
    "radians": lambda ops, v: ops.builder.multiply(v[0], _like(ops, v[0], np.pi / 180)),
    "degrees": lambda ops, v: ops.builder.multiply(v[0], _like(ops, v[0], 180 / np.pi)),
    "equal": _compare("EQ"), "not_equal": _compare("NE"), "less": _compare("LT"), "less_equal": _compare("LE"),
    "greater": _compare("GT"), "greater_equal": _compare("GE"),
    "logical_and": _logical("and"), "logical_or": _logical("or"), "logical_xor": _logical("xor"),
    "logical_not": _logical("not"),
    "bitwise_and": _op("and"), "bitwise_or": _op("or"), "bitwise_xor": _op("xor"), "invert": _op("not"),
    "left_shift": _op("shift_left"), "right_shift": _right_shift, "bitwise_count": _bit_count,
    "remainder": _in_compute_type(_python_remainder), "fmod": lambda ops, v: _zero_divisor(ops, v, ops.builder.remainder(*v)),
    "floor_divide": _in_compute_type(_floor_divide), "isnan": _is_nan,
    "isinf": _of_parts("or", _is_inf), "isfinite": _of_parts("and", _is_finite),
    "heaviside": _in_compute_type(_heaviside), "signbit": _signbit, "copysign": _in_compute_type(_copysign),
    "trunc": _truncate,
}  # fmt: skip
"""NumPy's ufuncs by name: each builds the result from operands of the loop's dtypes and one shape."""

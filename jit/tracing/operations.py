"""What a tracer's operations build: ufuncs with NumPy 2's promotion, broadcasting, conversion, dispatch.

Which ufunc becomes which op stands in ``UFUNCS``; NumPy's functions are in ``hlojit.tracing.functions`` (a table of the
same kind), indexing is in ``hlojit.tracing.indexing``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hlojit.arrays import Array
from hlojit.ir.builder import Builder
from hlojit.ir.formats import ElementType, FloatFormat, element_type_of
from hlojit.ir.graph import Value
from hlojit.ir.location import FileLocation, Location
from hlojit.ir.types import tensor
from hlojit.tracing.kinds import as_kind, common_kind, compute_dtype, element_of, kind_of, stand_in
from hlojit.tracing.rules import weak_kind
from hlojit.tracing.tracer import Kind, Tracer, TracingError

# As code objects spell them, which need not be the real path.
_OWN_FOLDERS = tuple(
    os.path.dirname(spelt) + os.sep for path in (__file__, np.__file__) for spelt in (path, os.path.realpath(path))
)

_LEAKED = (
    "a traced array of another trace is used here: it stands for an argument while its function is traced, and must not "
    "be kept; return it from the function, or pass it as an argument"
)

Rule = Callable[["Operations", Sequence[Value]], Value]


class Operations:
    """Builds the graph for one traced function."""

    def __init__(self, builder: Builder):
        self.builder = builder
        self.is_open = True
        """Whether the function still runs: its arrays mean nothing afterwards."""

    # ---------------------------------------------------------------- values

    def value(self, operand: Any, kind: Kind | None = None) -> Value:
        """The graph's value for a tracer, array or number, converted to ``kind`` if given."""
        if isinstance(operand, Tracer):
            if operand.context is not self:
                raise TracingError(_LEAKED)
            return operand.value if kind is None else self.converted(operand.value, kind)
        if isinstance(operand, Array):
            constant = self.builder.constant(operand.storage, operand.type)
            return constant if kind is None else self.converted(constant, kind)
        if isinstance(kind, ElementType):
            return self._encoded(np.asarray(operand), kind)
        array = np.asarray(operand, kind)
        if array.dtype == object:
            raise TracingError(f"{type(operand).__name__} objects cannot be used in a compiled function")
        return self.builder.constant(array)

    def tracer(self, operand: Any) -> Tracer:
        """``operand`` as a tracer."""
        return operand if isinstance(operand, Tracer) else self.wrap(self.value(operand))

    def wrap(self, value: Value) -> Tracer:
        """A tracer of a value."""
        return Tracer(value, self)

    def _encoded(self, numbers: np.ndarray[Any, Any], element: ElementType) -> Value:
        """A constant of numbers, rounded into a format that has no dtype."""
        if numbers.dtype.kind not in "biuf":
            raise TracingError(f"{numbers.dtype} numbers cannot become {element}")
        if isinstance(element, FloatFormat):
            numbers = numbers.astype(compute_dtype(element))
        return self.builder.constant(numbers, tensor(numbers.shape, element))

    def converted(self, value: Value, kind: Kind) -> Value:
        """The value in another kind; NumPy's truth (not zero) for bool."""
        element = element_of(kind)
        if value.tensor_type.element_type is element:
            return value
        return self.builder.convert(value, element)

    def convert(self, operand: Any, kind: Kind) -> Tracer:
        """A tracer in another kind."""
        return self.wrap(self.converted(self.value(operand), kind))

    def astype(self, operand: Tracer, wanted: Any) -> Tracer:
        """A tracer in the kind that ``wanted`` names."""
        return self.convert(operand, as_kind(wanted))

    def to_values(self, operand: Tracer) -> Tracer:
        """A tracer in the compute type of its format."""
        element = operand.element_type
        return self.convert(operand, compute_dtype(element)) if isinstance(element, FloatFormat) else operand

    def broadcast(self, value: Value, shape: Sequence[int]) -> Value:
        """The value in ``shape``, by NumPy's rules."""
        source = value.tensor_type.shape
        shape = tuple(shape)
        if source == shape:
            return value
        offset = len(shape) - len(source)
        if offset < 0 or any(s not in (1, t) for s, t in zip(source, shape[offset:])):
            raise TracingError(f"an array of shape {source} cannot be broadcast to {shape}")
        return self.builder.broadcast_in_dim(value, shape, tuple(range(offset, len(shape))))

    def full(self, number: Any, dtype: Kind, shape: Sequence[int] = ()) -> Value:
        """A constant of one number."""
        if isinstance(dtype, ElementType):
            return self.broadcast(self._encoded(np.asarray(number), dtype), shape)
        return self.builder.constant(
            np.broadcast_to(np.asarray(number, dtype), tuple(shape)), tensor(tuple(shape), element_type_of(dtype))
        )

    # ---------------------------------------------------------------- ufuncs

    def ufunc(self, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """``__array_ufunc__``."""
        self.mark()
        options = {
            key: value for key, value in options.items() if key == "axis" or (value is not None and key != "casting")
        }
        out = options.pop("out", None)
        if method == "__call__":
            result = self._call_ufunc(ufunc, inputs, options)
        elif method in ("reduce", "accumulate", "outer"):
            from hlojit.tracing.functions import ufunc_method

            result = ufunc_method(self, ufunc, method, inputs, options)
        else:
            raise TracingError(f"np.{ufunc.__name__}.{method} cannot be compiled; use functions on whole arrays")
        if out is None:
            return result
        (target,) = out
        if not isinstance(target, Tracer):
            raise TracingError(f"np.{ufunc.__name__}: out= must be an array that is traced too")
        converted = self.converted(self.broadcast(result.value, target.shape), target.kind)
        target.value = converted
        return target

    def _call_ufunc(self, ufunc: np.ufunc, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
        if ufunc is np.matmul:
            from hlojit.tracing.products import matmul

            return matmul(self, *inputs)
        if ufunc is np.divmod:
            return np.floor_divide(*inputs), np.remainder(*inputs)
        rule = UFUNCS.get(ufunc.__name__) if getattr(np, ufunc.__name__, None) is ufunc else None
        if rule is None:
            raise TracingError(f"the ufunc {ufunc.__name__!r} cannot be compiled yet")
        where = options.pop("where", True)
        dtype = options.pop("dtype", None)
        if where is not True or options:
            raise TracingError(
                f"np.{ufunc.__name__}: where= and {', '.join(options) or 'other options'} cannot be compiled; "
                "use np.where"
            )
        kinds = [kind_of(operand) for operand in inputs]
        if any(isinstance(kind, ElementType) for kind in kinds):
            if dtype is not None:
                raise TracingError(f"np.{ufunc.__name__}: dtype= cannot be combined with formats that have no dtype")
            return self._ufunc_in_format(ufunc, rule, inputs, kinds)
        loop = self._loop_dtypes(ufunc, inputs, dtype)
        values = [self.value(operand, loop[position]) for position, operand in enumerate(inputs)]
        shape = np.broadcast_shapes(*(value.tensor_type.shape for value in values))
        return self.wrap(self.converted(rule(self, [self.broadcast(value, shape) for value in values]), loop[-1]))

    def _ufunc_in_format(self, ufunc: np.ufunc, rule: Rule, inputs: Sequence[Any], kinds: Sequence[Kind]) -> Tracer:
        """Computed in the compute type; a result of that type is rounded into the format."""
        weak = [weak_kind(operand) is not None for operand in inputs]
        kind = common_kind([each for each, is_weak in zip(kinds, weak) if not is_weak], f"np.{ufunc.__name__}")
        computed = stand_in(kind)
        loop = ufunc.resolve_dtypes((computed,) * len(inputs) + (None,) * ufunc.nout)
        # A Python number becomes one of the format first, as it would one of a dtype.
        values = [
            self.converted(self.converted(self.value(operand, kind if is_weak else None), kind), loop[position])
            for position, (operand, is_weak) in enumerate(zip(inputs, weak))
        ]
        shape = np.broadcast_shapes(*(value.tensor_type.shape for value in values))
        result = self.converted(rule(self, [self.broadcast(value, shape) for value in values]), loop[-1])
        return self.wrap(self.converted(result, kind) if loop[-1] == computed else result)

    @staticmethod
    def _loop_dtypes(ufunc: np.ufunc, inputs: Sequence[Any], dtype: Any) -> tuple[np.dtype[Any], ...]:
        """Dtypes of inputs and output, by NumPy's own resolution (Python numbers are weak)."""
        kinds: list[Any] = []
        for operand in inputs:
            if type(operand) in (int, float, complex):
                kinds.append(type(operand))
            else:
                kinds.append(
                    (operand.weak or operand.dtype) if isinstance(operand, Tracer) else np.asarray(operand).dtype
                )
        if all(isinstance(kind, type) for kind in kinds):
            kinds = [operand.dtype if isinstance(operand, Tracer) else np.asarray(operand).dtype for operand in inputs]
        options: Any = {} if dtype is None else {"signature": (None,) * len(inputs) + (np.dtype(dtype),)}
        loop = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout), **options)
        return tuple(np.dtype(each) for each in loop)

    # -------------------------------------------------------------- functions

    def function(self, function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """``__array_function__``."""
        from hlojit.tracing.functions import FUNCTIONS

        self.mark()
        rule = FUNCTIONS.get(function)
        if rule is None:
            raise TracingError(
                f"np.{getattr(function, '__name__', function)} cannot be compiled yet; "
                "compute it outside, or express it through other NumPy functions"
            )
        return rule(self, *arguments, **options)

    def get_item(self, operand: Tracer, key: Any) -> Tracer:
        """``operand[key]``."""
        from hlojit.tracing.indexing import get_item

        self.mark()
        return get_item(self, operand, key)

    def set_item(self, operand: Tracer, key: Any, value: Any) -> Tracer:
        """The array after ``operand[key] = value``."""
        from hlojit.tracing.indexing import set_item

        self.mark()
        return set_item(self, operand, key, value)

    def mark(self) -> None:
        """Note the user's line as the location of what is built next; refuse to build after the end."""
        if not self.is_open:
            raise TracingError(_LEAKED)
        self.builder.location = _user_location()


def _user_location() -> Location:
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_FOLDERS):
        frame = frame.f_back
    if frame is None:
        return FileLocation("<unknown>", 1, 1)
    return FileLocation(frame.f_code.co_filename, frame.f_lineno, 1)


# ---------------------------------------------------------------------------------------------------------------- rules


def _op(name: str) -> Rule:
    return lambda ops, values: ops.builder.create(name, values).result


def _compare(direction: str) -> Rule:
    def rule(ops: Operations, values: Sequence[Value]) -> Value:
        x, y = values
        if _dtype(x) == _dtype(y):
            return ops.builder.compare(x, y, direction)
        # NumPy compares int64 and uint64 exactly.
        if _dtype(x).kind == "u":
            return _compare_signed_to_unsigned(ops, y, x, _MIRRORED[direction])
        return _compare_signed_to_unsigned(ops, x, y, direction)

    return rule


_MIRRORED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def _compare_signed_to_unsigned(ops: Operations, x: Value, y: Value, direction: str) -> Value:
    negative = ops.builder.compare(x, _like(ops, x, 0), "LT")
    compared = ops.builder.compare(ops.converted(x, _dtype(y)), y, direction)
    below = ops.full(direction in ("LT", "LE", "NE"), np.dtype(bool), x.tensor_type.shape)
    return ops.builder.select(negative, below, compared)


def _is_integer(value: Value) -> bool:
    return value.tensor_type.element_type.storage.kind in "iub"


def _dtype(value: Value) -> np.dtype[Any]:
    dtype = value.tensor_type.element_type.dtype
    assert dtype is not None
    return dtype


def _like(ops: Operations, value: Value, number: Any) -> Value:
    return ops.full(number, _dtype(value), value.tensor_type.shape)


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
        result = ops.builder.create(name, values).result
        return ops.builder.multiply(result, _like(ops, result, factor))

    return rule


def _exp2(ops: Operations, values: Sequence[Value]) -> Value:
    return ops.builder.power(_like(ops, values[0], 2.0), values[0])


def _square(ops: Operations, values: Sequence[Value]) -> Value:
    return ops.builder.multiply(values[0], values[0])


def _reciprocal(ops: Operations, values: Sequence[Value]) -> Value:
    return ops.builder.divide(_like(ops, values[0], 1), values[0])


def _is_nan(ops: Operations, values: Sequence[Value]) -> Value:
    return ops.builder.compare(values[0], values[0], "NE")


def _is_inf(ops: Operations, values: Sequence[Value]) -> Value:
    if _is_integer(values[0]):
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
    return ops.builder.create("sign", values).result


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
    bits = b.bitcast_convert(values[0], values[0].tensor_type.with_element_type(f"i{element.bits}"))
    return b.compare(bits, _like(ops, bits, 0), "LT")


def _copysign(ops: Operations, values: Sequence[Value]) -> Value:
    magnitude = ops.builder.abs(values[0])
    return ops.builder.select(_signbit(ops, values[1:]), ops.builder.negate(magnitude), magnitude)


UFUNCS: dict[str, Rule] = {
    "add": _op("add"), "subtract": _op("subtract"), "multiply": _op("multiply"), "divide": _op("divide"),
    "power": _op("power"), "float_power": _op("power"), "maximum": _op("maximum"), "minimum": _op("minimum"),
    "fmax": _ignoring_nan("maximum"), "fmin": _ignoring_nan("minimum"),
    "negative": _op("negate"), "positive": _identity, "conjugate": _identity, "absolute": _abs, "fabs": _abs,
    "sign": _sign, "floor": _rounding("floor"), "ceil": _rounding("ceil"), "rint": _op("round_nearest_even"),
    "exp": _op("exponential"), "expm1": _op("exponential_minus_one"), "exp2": _exp2,
    "log": _op("log"), "log1p": _op("log_plus_one"),
    "log2": _scaled("log", 1 / np.log(2.0)), "log10": _scaled("log", 1 / np.log(10.0)),
    "logaddexp": _logaddexp, "sqrt": _op("sqrt"), "cbrt": _op("cbrt"), "square": _square, "reciprocal": _reciprocal,
    "sin": _op("sine"), "cos": _op("cosine"), "tan": _op("tan"), "tanh": _op("tanh"), "arctan2": _op("atan2"),
    "arcsin": _op("chlo.asin"), "arccos": _op("chlo.acos"), "arctan": _op("chlo.atan"), "sinh": _op("chlo.sinh"),
    "cosh": _op("chlo.cosh"), "arcsinh": _op("chlo.asinh"), "arccosh": _op("chlo.acosh"), "arctanh": _op("chlo.atanh"),
    "hypot": _hypot, "deg2rad": lambda ops, v: ops.builder.multiply(v[0], _like(ops, v[0], np.pi / 180)),
    "rad2deg": lambda ops, v: ops.builder.multiply(v[0], _like(ops, v[0], 180 / np.pi)),
    "equal": _compare("EQ"), "not_equal": _compare("NE"), "less": _compare("LT"), "less_equal": _compare("LE"),
    "greater": _compare("GT"), "greater_equal": _compare("GE"),
    "logical_and": _logical("and"), "logical_or": _logical("or"), "logical_xor": _logical("xor"),
    "logical_not": _logical("not"),
    "bitwise_and": _op("and"), "bitwise_or": _op("or"), "bitwise_xor": _op("xor"), "invert": _op("not"),
    "left_shift": _op("shift_left"), "right_shift": _right_shift, "bitwise_count": _bit_count,
    "remainder": _python_remainder, "fmod": lambda ops, v: _zero_divisor(ops, v, ops.builder.remainder(*v)),
    "floor_divide": _floor_divide, "isnan": _is_nan, "isinf": _is_inf, "isfinite": _is_finite,
    "heaviside": _heaviside, "signbit": _signbit, "copysign": _copysign,
    "trunc": _truncate,
}  # fmt: skip
"""NumPy's ufuncs by name: each builds the result from operands of the loop's dtypes and one shape."""

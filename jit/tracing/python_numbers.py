"""Arithmetic of traced Python numbers: what Python does, and not NumPy.

``s * 2`` of a Python float is a Python float, which takes the dtype of the next array that it meets; ``1 / 0`` raises.
Integers are computed in 64 bits, and what does not fit raises ``OverflowError``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.ir.graph import Value
from hlojit.tracing.errors import TracingError
from hlojit.tracing.ranges import INT64, Range, fits, of_difference, of_product, of_quotient, of_sum
from hlojit.tracing.tracer import Tracer

if TYPE_CHECKING:
    from hlojit.tracing.operations import Operations

_ORDER: Final = (bool, int, float, complex)
_INT64: Final = np.dtype(np.int64)


def python_kind(operand: Any) -> type | None:
    """``bool``, ``int``, ``float`` or ``complex`` for a Python number, traced or not; None for everything else."""
    if isinstance(operand, Tracer):
        return operand.weak
    return type(operand) if type(operand) in _ORDER else None


def operate(ops: Operations, name: str, *operands: Any) -> Any:
    """What Python's operator gives for Python numbers, of which at least one is traced."""
    kinds = [python_kind(each) or float for each in operands]
    if name in _COMPARISONS:
        return _compared(ops, name, kinds, operands)
    if name == "divmod":
        return operate(ops, "floordiv", *operands), operate(ops, "mod", *operands)
    if len(operands) == 1:
        return _unary(ops, name, kinds[0], operands[0])
    if name in _BITWISE:
        return _bitwise(ops, name, kinds, operands)
    kind = max(kinds, key=_ORDER.index)
    kind = int if kind is bool else kind
    if name == "pow":
        return _power(ops, kind, *operands)
    if name == "truediv" and kind is int:
        kind = float
    rule = _ARITHMETIC.get(name)
    if rule is None or (kind is complex and name in ("floordiv", "mod")):
        raise TypeError(f"unsupported operand type(s) for {name}: {' and '.join(each.__name__ for each in kinds)}")
    return _number(ops, kind, rule(ops, kind, *(_value(ops, each, kind) for each in operands)))


def _value(ops: Operations, operand: Any, kind: type) -> Value:
    value = operand.value if isinstance(operand, Tracer) else ops.value(operand, np.dtype(python_kind(operand)))
    return ops.converted(value, np.dtype(kind))


def _number(ops: Operations, kind: type, value: Value) -> Tracer:
    return Tracer(ops.wrap(value).window, ops, weak=kind)


def _zero(ops: Operations, kind: type) -> Value:
    return ops.full(0, np.dtype(kind))


def _require_divisor(ops: Operations, kind: type, divisor: Value, message: str) -> None:
    if kind is int and not fits((0, 0), ops.ranges.of(divisor)):
        return
    ops.check(ops.builder.compare(divisor, _zero(ops, kind), "EQ"), ZeroDivisionError, message)


_TOO_LARGE = "a Python integer of more than 64 bits: compiled functions compute with 64; use a float"


def _fitting(ops: Operations, result: Value, range: Range, bad: Callable[[], Value]) -> Value:
    """An integer that would lie in a range if integers had no end; what is bad of it is checked where it may not fit."""
    if not fits(range):
        ops.check(bad(), OverflowError, _TOO_LARGE)
    ops.ranges.note(result, max(range[0], INT64[0]), min(range[1], INT64[1]))
    return result


def _both_negative(ops: Operations, x: Value, y: Value) -> Value:
    return ops.builder.compare(ops.builder.create("and", [x, y]).result, _zero(ops, int), "LT")


def _add(ops: Operations, kind: type, x: Value, y: Value) -> Value:
    b = ops.builder
    if kind is not int:
        return b.add(x, y)
    for one, other in ((x, y), (y, x)):
        if ops.ranges.known(one) == 0:
            return other
    result = b.add(x, y)

    def bad() -> Value:
        # Operands of one sign, and a result of the other.
        return _both_negative(ops, b.create("xor", [x, result]).result, b.create("xor", [y, result]).result)

    return _fitting(ops, result, of_sum(ops.ranges.of(x), ops.ranges.of(y)), bad)


def _subtract(ops: Operations, kind: type, x: Value, y: Value) -> Value:
    b = ops.builder
    if kind is int and ops.ranges.known(y) == 0:
        return x
    result = b.subtract(x, y)
    if kind is not int:
        return result

    def bad() -> Value:
        return _both_negative(ops, b.create("xor", [x, y]).result, b.create("xor", [x, result]).result)

    return _fitting(ops, result, of_difference(ops.ranges.of(x), ops.ranges.of(y)), bad)


def _multiply(ops: Operations, kind: type, x: Value, y: Value) -> Value:
    b = ops.builder
    if kind is not int:
        return b.multiply(x, y)
    for one, other in ((x, y), (y, x)):
        if ops.ranges.known(one) == 1:
            return other
    result = b.multiply(x, y)

    def bad() -> Value:
        # The upper half is the sign of the lower one.
        upper = b.create("chlo.mulhi", [x, y]).result
        sign = b.create("shift_right_arithmetic", [result, ops.full(63, _INT64)]).result
        return b.compare(upper, sign, "NE")

    return _fitting(ops, result, of_product(ops.ranges.of(x), ops.ranges.of(y)), bad)


def _divide(ops: Operations, kind: type, x: Value, y: Value) -> Value:
    _require_divisor(ops, kind, y, "division by zero")
    return ops.builder.divide(x, y)


def _by_ufunc(ufunc: np.ufunc, message: str) -> Callable[..., Value]:
    """Of numbers of one kind NumPy computes what Python does, and does not raise."""

    def rule(ops: Operations, kind: type, x: Value, y: Value) -> Value:
        _require_divisor(ops, kind, y, message)
        dividend, divisor = ops.ranges.of(x), ops.ranges.of(y)
        if kind is int and is_quotient and dividend[0] == INT64[0] and divisor[0] <= -1 <= divisor[1]:
            b = ops.builder
            is_least = b.compare(x, ops.full(INT64[0], _INT64), "EQ")
            is_minus_one = b.compare(y, ops.full(-1, _INT64), "EQ")
            ops.check(b.create("and", [is_least, is_minus_one]).result, OverflowError, _TOO_LARGE)
        if kind is not int or divisor[0] < 1:
            return ops.value(ufunc(ops.wrap(x), ops.wrap(y)))
        if dividend[0] < 0:
            result = ops.value(ufunc(ops.wrap(x), ops.wrap(y)))
        else:
            # Of what is not negative the machine's division is Python's.
            result = ops.builder.create("divide" if is_quotient else "remainder", [x, y]).result
        ops.ranges.note(result, *(of_quotient(dividend, divisor) if is_quotient else (0, divisor[1] - 1)))
        return result

    is_quotient = ufunc is np.floor_divide
    return rule


_ARITHMETIC: Final[dict[str, Callable[..., Value]]] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "truediv": _divide,
    "floordiv": _by_ufunc(np.floor_divide, "integer division or modulo by zero"),
    "mod": _by_ufunc(np.remainder, "integer division or modulo by zero"),
}


def _power(ops: Operations, kind: type, x: Any, y: Any) -> Tracer:
    b = ops.builder
    if kind is int:
        if not isinstance(y, Tracer):
            return _power_of_known(ops, x, int(y))
        exponent = _value(ops, y, int)
        ops.check(
            b.compare(exponent, _zero(ops, int), "LT"),
            TracingError,
            "an integer to a negative power is a float: write float(x) ** y",
        )
        return _number(ops, int, b.power(_value(ops, x, int), exponent))
    base, exponent = _value(ops, x, kind), _value(ops, y, kind)
    result = b.power(base, exponent)
    if kind is float:
        zero = _zero(ops, float)
        below = b.create("and", [b.compare(base, zero, "EQ"), b.compare(exponent, zero, "LT")]).result
        ops.check(below, ZeroDivisionError, "0.0 cannot be raised to a negative power")
        odd = b.create("and", [b.compare(result, result, "NE"), b.compare(base, base, "EQ")]).result
        odd = b.create("and", [odd, b.compare(exponent, exponent, "EQ")]).result
        ops.check(odd, TracingError, "a negative number to a fractional power is complex: write complex(x) ** y")
    return _number(ops, kind, result)


def _power_of_known(ops: Operations, x: Tracer, exponent: int) -> Tracer:
    """An integer to a power that is known: by squares, each checked."""
    if exponent < 0:
        return _power(ops, float, x, float(exponent))
    result: Tracer | None = None
    square: Any = x if x.weak is int else operate(ops, "add", x, 0)
    while exponent:
        if exponent & 1:
            result = square if result is None else operate(ops, "mul", result, square)
        exponent >>= 1
        if exponent:
            square = operate(ops, "mul", square, square)
    return _number(ops, int, ops.full(1, _INT64)) if result is None else result


_COMPARISONS: Final = {"lt": "LT", "le": "LE", "gt": "GT", "ge": "GE", "eq": "EQ", "ne": "NE"}


def _compared(ops: Operations, name: str, kinds: list[type], operands: tuple[Any, ...]) -> Tracer:
    kind = max(kinds, key=_ORDER.index)
    if kind is complex and name not in ("eq", "ne"):
        raise TypeError(f"'{name}' not supported between instances of 'complex'")
    x, y = (_value(ops, each, int if kind is bool else kind) for each in operands)
    return _number(ops, bool, ops.builder.compare(x, y, _COMPARISONS[name]))


_BITWISE: Final = {"and": "and", "or": "or", "xor": "xor", "lshift": "shift_left", "rshift": "shift_right_arithmetic"}


def _bitwise(ops: Operations, name: str, kinds: list[type], operands: tuple[Any, ...]) -> Tracer:
    if not set(kinds) <= {bool, int}:
        raise TypeError(f"unsupported operand type(s) for {name}: {' and '.join(each.__name__ for each in kinds)}")
    b = ops.builder
    if name not in ("lshift", "rshift"):
        kind = bool if set(kinds) == {bool} else int
        x, y = (_value(ops, each, kind) for each in operands)
        return _number(ops, kind, b.create(_BITWISE[name], [x, y]).result)
    x, y = (_value(ops, each, int) for each in operands)
    ops.check(b.compare(y, _zero(ops, int), "LT"), ValueError, "negative shift count")
    result = b.create(_BITWISE[name], [x, y]).result
    if name == "lshift":
        back = b.create("shift_right_arithmetic", [result, y]).result
        ops.check(b.compare(back, x, "NE"), OverflowError, _TOO_LARGE)
    return _number(ops, int, result)


def _unary(ops: Operations, name: str, kind: type, operand: Any) -> Tracer:
    b = ops.builder
    if name == "abs" and kind is complex:
        return _number(ops, float, b.abs(_value(ops, operand, complex)))
    kind = int if kind is bool else kind
    value = _value(ops, operand, kind)
    if kind is int and name in ("neg", "abs"):
        ops.check(b.compare(value, ops.full(-(2**63), _INT64), "EQ"), OverflowError, _TOO_LARGE)
    if name == "invert":
        if kind is not int:
            raise TypeError(f"bad operand type for unary ~: {kind.__name__!r}")
        return _number(ops, int, b.create("not", [value]).result)
    made = {"neg": b.negate, "abs": b.abs, "pos": lambda same: same}[name]
    return _number(ops, kind, made(value))

"""Derivatives of ops on elements.

Where a function has no derivative the conventions are JAX's: at a tie both operands of ``maximum`` count half, ``abs`` has 1 at
0, ``clamp`` counts its operand strictly between the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.formats import ComplexType
from hlojit.ir.ops.derivatives.kinds import (
    MINUS_ONE,
    ONE,
    Chosen,
    Constant,
    Derivative,
    Linear,
    Partials,
    Pushed,
    Tangents,
    is_differentiable,
    number,
)

if TYPE_CHECKING:
    from hlojit.ir.blocks import Instruction, Value


def _is_complex(value: Value) -> bool:
    return isinstance(value.tensor_type.element_type, ComplexType)


def _one_over(b: Any, x: Value) -> Any:
    return b.divide(number(b, 1, x), x)


# sums, products, powers

ADD = Partials(ONE, ONE)
SUBTRACT = Partials(ONE, MINUS_ONE)
NEGATE = Partials(MINUS_ONE)
MULTIPLY = Partials(lambda b, y, left, right: right, lambda b, y, left, right: left)
DIVIDE = Partials(
    lambda b, y, left, right: _one_over(b, right),
    lambda b, y, left, right: b.negate(b.divide(b.divide(left, right), right)),
)


def _truncated_quotient(b: Any, dividend: Value, divisor: Value) -> Any:
    quotient = b.divide(dividend, divisor)
    return b.multiply(b.sign(quotient), b.floor(b.abs(quotient)))


REMAINDER = Partials(ONE, lambda b, y, left, right: b.negate(_truncated_quotient(b, left, right)))


def _power_of_base(b: Any, y: Value, x: Value, exponent: Value) -> Any:
    """p x**(p - 1), and 0 where p is 0, whatever x is."""
    zero, one = number(b, 0, x), number(b, 1, x)
    is_zero = b.compare(exponent, zero, "EQ")
    return b.multiply(exponent, b.power(x, b.select(is_zero, one, b.subtract(exponent, one))))


def _power_of_exponent(b: Any, y: Value, x: Value, exponent: Value) -> Any:
    """log(x) x**p; 0 where x is 0 and so is the power."""
    zero, one = number(b, 0, x), number(b, 1, x)
    logarithm = b.log(b.select(b.compare(x, zero, "EQ"), one, x))
    return b.multiply(logarithm, y)


POWER = Partials(_power_of_base, _power_of_exponent)


def _share(b: Any, mine: Value, y: Value, other: Value) -> Any:
    """1 where the operand is the result, half where both are."""
    zero, half, one = (number(b, each, y) for each in (0, 0.5, 1))
    tied = b.select(b.compare(other, y, "EQ"), half, one)
    return b.select(b.compare(mine, y, "EQ"), tied, zero)


EXTREMUM = Partials(
    lambda b, y, left, right: _share(b, left, y, right), lambda b, y, left, right: _share(b, right, y, left)
)

# functions of one operand

EXPONENTIAL = Partials(lambda b, y, x: y)
EXPONENTIAL_MINUS_ONE = Partials(lambda b, y, x: b.add(y, number(b, 1, y)))
LOG = Partials(lambda b, y, x: _one_over(b, x))
LOG_PLUS_ONE = Partials(lambda b, y, x: _one_over(b, b.add(x, number(b, 1, x))))
LOGISTIC = Partials(lambda b, y, x: b.multiply(y, b.subtract(number(b, 1, y), y)))
SQRT = Partials(lambda b, y, x: b.divide(number(b, 0.5, y), y))
RSQRT = Partials(lambda b, y, x: b.multiply(number(b, -0.5, y), b.divide(y, x)))
CBRT = Partials(lambda b, y, x: b.divide(number(b, 1 / 3, y), b.multiply(y, y)))
SINE = Partials(lambda b, y, x: b.cosine(x))
COSINE = Partials(lambda b, y, x: b.negate(b.sine(x)))
TAN = Partials(lambda b, y, x: b.add(number(b, 1, y), b.multiply(y, y)))
TANH = Partials(lambda b, y, x: b.multiply(b.add(number(b, 1, y), y), b.subtract(number(b, 1, y), y)))
SQUARE = Partials(lambda b, y, x: b.multiply(number(b, 2, x), x))
SINH = Partials(lambda b, y, x: b.cosh(x))
COSH = Partials(lambda b, y, x: b.sinh(x))


def _of_squares(sign_of_one: float, sign_of_square: float, *, is_root: bool, sign: float = 1) -> Partials:
    """``sign / f(sign_of_one + sign_of_square x**2)``, f a square root or nothing."""

    def partial(b: Any, y: Value, x: Value) -> Any:
        square = b.multiply(x, x) if sign_of_square > 0 else b.negate(b.multiply(x, x))
        found = b.add(number(b, sign_of_one, x), square)
        return b.multiply(number(b, sign, x), b.rsqrt(found) if is_root else _one_over(b, found))

    return Partials(partial)


def _acosh(b: Any, y: Value, x: Value) -> Any:
    one = number(b, 1, x)
    return b.multiply(b.rsqrt(b.subtract(x, one)), b.rsqrt(b.add(x, one)))


def _asin(b: Any, y: Value, x: Value) -> Any:
    one = number(b, 1, x)
    return b.rsqrt(b.multiply(b.subtract(one, x), b.add(one, x)))


ASIN = Partials(_asin)
ACOS = Partials(lambda b, y, x: b.negate(_asin(b, y, x)))
ATAN = _of_squares(1, 1, is_root=False)
ASINH = _of_squares(1, 1, is_root=True)
ACOSH = Partials(_acosh)
ATANH = _of_squares(1, -1, is_root=False)


def _gaussian(b: Any, x: Value, factor: float) -> Any:
    return b.multiply(number(b, factor, x), b.exponential(b.negate(b.multiply(x, x))))


ERF = Partials(lambda b, y, x: _gaussian(b, x, 2 / math.sqrt(math.pi)))
ERFC = Partials(lambda b, y, x: _gaussian(b, x, -2 / math.sqrt(math.pi)))
ERF_INV = Partials(lambda b, y, x: b.multiply(number(b, math.sqrt(math.pi) / 2, x), b.exponential(b.multiply(y, y))))
LGAMMA = Partials(lambda b, y, x: b.digamma(x))
GAMMA = Partials(lambda b, y, x: b.multiply(y, b.digamma(x)))
DIGAMMA = Partials(lambda b, y, x: b.polygamma(number(b, 1, x), x))


def _polygamma(b: Any, y: Value, n: Value, x: Value) -> Any:
    return b.polygamma(b.add(n, number(b, 1, n)), x)


POLYGAMMA = Chosen(lambda i: Partials(None, _polygamma))
ZETA = Partials(None, lambda b, y, s, q: b.negate(b.multiply(s, b.zeta(b.add(s, number(b, 1, s)), q))))


def _angle_partial(b: Any, numerator: Value, y: Value, x: Value) -> Any:
    return b.divide(numerator, b.add(b.multiply(x, x), b.multiply(y, y)))


ATAN2 = Partials(
    lambda b, r, y, x: _angle_partial(b, x, y, x),
    lambda b, r, y, x: _angle_partial(b, b.negate(y), y, x),
)

# magnitudes and signs; steps


def _push_modulus(b: Any, instruction: Instruction, tangents: Tangents) -> Tangents:
    """The real part of t conj(x) / |x|, 0 at 0."""
    (x,), (t,) = instruction.operands, tangents
    size = instruction.result
    safe = b.select(b.compare(size, number(b, 0, size), "EQ"), number(b, 1, size), size)
    along = b.add(b.multiply(b.real(t), b.real(x)), b.multiply(b.imag(t), b.imag(x)))
    return [b.divide(along, safe)]


def _push_sign(b: Any, instruction: Instruction, tangents: Tangents) -> Tangents:
    """Of s = x / |x|: (t - s Re(t conj(s))) / |x|, 0 at 0."""
    (x,), (t,) = instruction.operands, tangents
    s, size = instruction.result, b.abs(x)
    safe = b.select(b.compare(size, number(b, 0, size), "EQ"), number(b, 1, size), size)
    along = b.add(b.multiply(b.real(t), b.real(s)), b.multiply(b.imag(t), b.imag(s)))
    across = b.subtract(t, b.multiply(s, b.complex(along, number(b, 0, along))))
    return [b.divide(across, b.complex(safe, number(b, 0, safe)))]


def _by_complex(of_complex: Derivative, of_real: Derivative) -> Chosen:
    return Chosen(lambda instruction: of_complex if _is_complex(instruction.operands[0]) else of_real)


def _direction(b: Any, y: Value, x: Value) -> Any:
    return b.select(b.compare(x, number(b, 0, x), "GE"), number(b, 1, x), number(b, -1, x))


ABS = _by_complex(Pushed(_push_modulus), Partials(_direction))
SIGN = _by_complex(Pushed(_push_sign), Constant())
STEPS = Constant()

# parts, conversions


def _zero_part(b: Any, part: Value) -> Value:
    return number(b, 0, part)


REAL = _by_complex(Linear(lambda b, i, t: [b.complex(t, _zero_part(b, t))]), Linear(lambda b, i, t: [t]))
IMAG = _by_complex(Linear(lambda b, i, t: [b.complex(_zero_part(b, t), b.negate(t))]), Constant())
COMPLEX = Linear(lambda b, i, t: [b.real(t), b.negate(b.imag(t))])


def _conjugate(b: Any, value: Value) -> Any:
    return b.conj(value)


CONJ = Linear(lambda b, i, t: [_conjugate(b, t)])


def _convert(instruction: Instruction) -> Derivative | str:
    source, target = instruction.operands[0].type, instruction.result.type
    if not is_differentiable(source) or not is_differentiable(target):
        return Constant()
    element = instruction.operands[0].tensor_type.element_type
    if isinstance(element, ComplexType) and not _is_complex(instruction.result):
        # The imaginary part is dropped.
        return Linear(lambda b, i, t: [b.convert(b.complex(t, _zero_part(b, t)), element)])
    if _is_complex(instruction.result) and not isinstance(element, ComplexType):
        return Linear(lambda b, i, t: [b.convert(b.real(t), element)])
    return Linear(lambda b, i, t: [b.convert(t, element)])


CONVERT = Chosen(_convert)


REDUCE_PRECISION = Pushed(
    lambda b, i, tangents: [b.create(i.op.name, [tangents[0]], attributes=i.attributes).result],
    lambda b, i, cotangents, wanted: [b.create(i.op.name, [cotangents[0]], attributes=i.attributes).result],
)
IDENTITY = Pushed(lambda b, i, tangents: tangents, lambda b, i, cotangents, wanted: cotangents)

# choices


def _pull_select(b: Any, instruction: Instruction, cotangent: Value) -> Sequence[Value | None]:
    predicate, zero = instruction.operands[0], number(b, 0, cotangent)
    return [None, b.select(predicate, cotangent, zero), b.select(predicate, zero, cotangent)]


SELECT = Linear(_pull_select, operands=(1, 2))


def _clamp_masks(b: Any, instruction: Instruction) -> list[Value]:
    """Where the result moves with lower bound, operand and upper bound."""
    low, x, high = instruction.operands
    shape = x.tensor_type.shape
    low, high = (v if v.tensor_type.shape == shape else b.broadcast_in_dim(v, shape) for v in (low, high))
    above, below = b.compare(x, low, "GT"), b.compare(x, high, "LT")
    return [
        b.and_(b.compare(low, x, "GT"), b.compare(low, high, "LT")),
        b.and_(above, below),
        b.compare(high, x, "LT"),
    ]


def _push_clamp(b: Any, instruction: Instruction, tangents: Tangents) -> Tangents:
    x, total = instruction.operands[1], None
    zero = number(b, 0, x)
    for mask, t in zip(_clamp_masks(b, instruction), tangents):
        if t is not None:
            spread = t if t.type is x.type else b.broadcast_in_dim(t, x.tensor_type.shape)
            part = b.select(mask, spread, zero)
            total = part if total is None else b.add(total, part)
    return [total]


CLAMP = Pushed(_push_clamp)

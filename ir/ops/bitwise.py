"""Ops on the bits of integers and booleans: and, or, xor, not, shifts, and counts of bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.ir.formats import ElementType, IntegerType
from hlojit.ir.ops.definition import Array, OpDefinition, Trait, define
from hlojit.ir.ops.pointwise import BOOLEAN, INTEGER, all_ones, binary, by_type, plain, unary
from hlojit.ir.scalar import arithmetic
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.types import TensorType

_LOGICAL = (BOOLEAN, INTEGER)


_REORDERED = frozenset({Trait.COMMUTATIVE, Trait.ASSOCIATIVE})
_SETS = _REORDERED | {Trait.IDEMPOTENT}


def _logical(
    mnemonic: str,
    rule: Callable[..., Any],
    reference: Callable[..., Any],
    traits: frozenset[Trait],
    identity: Callable[[ElementType], int],
    summary: str,
) -> OpDefinition:
    lowering = by_type(integer=lambda b, element, x, y: rule(b, x, y), boolean=rule, exact=True)
    return define(
        binary(mnemonic, _LOGICAL, lowering, plain(reference), traits=traits, identity=identity, summary=summary)
    )


AND = _logical(
    "and", lambda b, x, y: b.and_(x, y), np.bitwise_and, _SETS | {Trait.CONJUNCTION}, all_ones, "Bitwise and."
)
OR = _logical(
    "or", lambda b, x, y: b.or_(x, y), np.bitwise_or, _SETS | {Trait.DISJUNCTION}, lambda element: 0, "Bitwise or."
)
XOR = _logical(
    "xor", lambda b, x, y: b.xor(x, y), np.bitwise_xor, _REORDERED, lambda element: 0, "Bitwise exclusive or."
)

NOT = define(
    unary(
        "not",
        _LOGICAL,
        by_type(
            integer=lambda b, element, x: b.xor(x, b.constant(x.kind, -1)),
            boolean=lambda b, x: b.xor(x, b.constant("i1", 1)),
        ),
        plain(np.invert),
        summary="Bitwise complement.",
    )
)

# shifts: an amount is taken as unsigned


def _width(call: Any) -> int:
    type = call.instruction.operand_types[0]
    assert isinstance(type, TensorType)
    return type.element_type.bits


def _amounts(call: Any, y: Array) -> tuple[Array, Array]:
    """Amounts as unsigned integers, 0 where they are too large, and whether they are not."""
    amounts = y.view(f"u{y.dtype.itemsize}")
    inside = amounts < _width(call)
    return np.asarray(np.where(inside, amounts, 0)), inside


def _shift_left(call: Any, x: Array, y: Array) -> Array:
    amounts, inside = _amounts(call, y)
    return np.asarray(np.where(inside, x << amounts.astype(x.dtype), x.dtype.type(0)))


def _shift_right_logical(call: Any, x: Array, y: Array) -> Array:
    amounts, inside = _amounts(call, y)
    bits = x.view(f"u{x.dtype.itemsize}") & ((1 << _width(call)) - 1)
    return np.asarray(np.where(inside, bits >> amounts, 0).astype(bits.dtype).view(x.dtype))


def _shift_right_arithmetic(call: Any, x: Array, y: Array) -> Array:
    amounts, inside = _amounts(call, y)
    spare = x.dtype.itemsize * 8 - _width(call)
    signed = np.asarray((x << spare).view(f"i{x.dtype.itemsize}") >> spare)
    shifted = signed >> np.where(inside, amounts, _width(call) - 1).astype(signed.dtype)
    return np.asarray(shifted.view(x.dtype))


def _shift(mnemonic: str, rule: Callable[..., Any], reference: Callable[..., Any], summary: str) -> OpDefinition:
    lowering = by_type(integer=lambda b, element, x, y: rule(b, x, y, element.bits))
    return define(binary(mnemonic, (INTEGER,), lowering, reference, summary=summary))


SHIFT_LEFT = _shift("shift_left", arithmetic.shift_left, _shift_left, "Bits moved up, filled with zeros.")
SHIFT_RIGHT_ARITHMETIC = _shift(
    "shift_right_arithmetic",
    arithmetic.shift_right_arithmetic,
    _shift_right_arithmetic,
    "Bits moved down, filled with the sign.",
)
SHIFT_RIGHT_LOGICAL = _shift(
    "shift_right_logical", arithmetic.shift_right_logical, _shift_right_logical, "Bits moved down, filled with zeros."
)

# counts


def _own_bits(b: ScalarBuilder, element: IntegerType, x: Scalar) -> Scalar:
    """Zero-extended bits of a sub-byte integer."""
    return b.and_(x, b.constant(x.kind, (1 << element.bits) - 1)) if element.bits < 8 else x


def _leading_zeros(b: ScalarBuilder, element: IntegerType, x: Scalar) -> Scalar:
    count = b.count_leading_zeros(_own_bits(b, element, x))
    return b.sub(count, b.constant(x.kind, 8 - element.bits)) if element.bits < 8 else count


def _population_count(b: ScalarBuilder, element: IntegerType, x: Scalar) -> Scalar:
    return b.population_count(_own_bits(b, element, x))


def _bits(call: Any, x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}") & ((1 << _width(call)) - 1)


def _count_ones(call: Any, x: Array) -> Array:
    return np.bitwise_count(_bits(call, x)).astype(x.dtype)


def _count_zeros(call: Any, x: Array) -> Array:
    bits = _bits(call, x)
    lengths = sum(((bits >> position) != 0).astype(np.int64) for position in range(_width(call)))
    return np.asarray(_width(call) - lengths).astype(x.dtype)


POPCNT = define(
    unary("popcnt", (INTEGER,), by_type(integer=_population_count), _count_ones, summary="The number of bits set.")
)

COUNT_LEADING_ZEROS = define(
    unary(
        "count_leading_zeros",
        (INTEGER,),
        by_type(integer=_leading_zeros),
        _count_zeros,
        summary="The number of zeros above the highest bit set.",
    )
)

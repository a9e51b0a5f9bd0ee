"""Keys of a sort as unsigned integers in the same order, so that digits of them can be looked at.

    f32, total order, ascending      -0.0 -> 0x7FFFFFFF, 0.0 -> 0x80000000, 1.0 -> 0xBF800000
    i16, descending                  -1 -> 0x8000, 0 -> 0x7FFF

``KeyCode.of(key)`` chooses how: from the bits of an operand as they stand in memory, where some map of these gives the
order, or else from the key's value.  For floats of at most 16 bits the map is found by trying: the key is computed for every
code, and a map is taken that puts the codes into exactly the order of the values, ties included.  So a sort of f8 numbers
takes one pass over one digit whatever the comparator does to them, and never depends on how a machine converts NaN.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType, NanEncoding
from hlojit.ir.graph import Block, Value
from hlojit.ir.ops.sort_order import SortKey, sort_order
from hlojit.ir.scalar import arithmetic, code_patterns, formats
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.scalar_regions import region_values
from hlojit.lowering.target import KIND_BITS

WIDEST_TRIED: Final = 16
"""Bits of a float whose codes are all tried."""


class Nans(enum.Enum):
    """Where NaNs are in an order."""

    APART = "by their codes"
    BY_SIGN = "all of a sign are one"
    ABOVE = "all are one, above everything"
    BELOW = "all are one, below everything"


@final
@dataclass(frozen=True)
class CodeMap:
    """An order of a float format's codes: by sign and magnitude, and what is joined or turned round."""

    joins_zeros: bool = False
    nans: Nans = Nans.APART
    reverses: bool = False

    def apply(self, b: ScalarBuilder, stored: Scalar, format: FloatFormat) -> Scalar:
        """An unsigned integer of the format's bits, in the kind that the code is stored in."""
        kind, known = stored.kind, code_patterns.codes(format)
        highest = (1 << format.bits) - 1

        def of(value: int) -> Scalar:
            return b.constant(kind, value)

        code = b.and_(stored, of(known.top | known.sign))
        magnitude = b.and_(code, of(known.top))
        if self.nans is Nans.BY_SIGN and known.first_nan is not None:
            is_nan = b.icmp("uge", magnitude, of(known.first_nan))
            code = b.select(is_nan, b.or_(code, of(known.top)), code)
        ordered = code
        if known.sign:
            negative = b.icmp("ne", b.and_(code, of(known.sign)), of(0))
            if self.joins_zeros:
                zero = b.icmp("eq", magnitude, of(0))
                negative = b.select(zero, b.constant("i1", 0), negative)
                code = b.select(zero, of(0), code)
            ordered = b.select(negative, b.xor(code, of(highest)), b.or_(code, of(known.sign)))
        if self.nans in (Nans.ABOVE, Nans.BELOW):
            is_nan, ordered = self._with_nan_outside(b, b.and_(stored, of(known.top | known.sign)), ordered, format)
            ordered = b.select(is_nan, of(highest if self.nans is Nans.ABOVE else 0), ordered)
        return b.xor(ordered, of(highest)) if self.reverses else ordered

    def _with_nan_outside(
        self, b: ScalarBuilder, code: Scalar, ordered: Scalar, format: FloatFormat
    ) -> tuple[Scalar, Scalar]:
        """Whether a code is NaN, and the order of the others such that NaN has a place above or below them."""
        known = code_patterns.codes(format)
        top, one = b.constant(code.kind, known.top), b.constant(code.kind, 1)
        if known.first_nan is not None:
            return b.icmp("uge", b.and_(code, top), b.constant(code.kind, known.first_nan)), ordered
        if format.nan is not NanEncoding.NEGATIVE_ZERO:
            return b.constant("i1", 0), ordered
        # NaN lies between the negative codes and zero: those on one side of it make room.
        if self.nans is Nans.ABOVE:
            ordered = b.select(b.icmp("ugt", ordered, top), b.sub(ordered, one), ordered)
        else:
            ordered = b.select(b.icmp("ult", ordered, top), b.add(ordered, one), ordered)
        return b.icmp("eq", code, b.constant(code.kind, known.sign)), ordered


_MAPS: Final = tuple(
    CodeMap(zeros, nans, reverses) for reverses in (False, True) for zeros in (False, True) for nans in Nans
)


@final
@dataclass(frozen=True)
class KeyCode:
    """How a key becomes an unsigned integer of ``bits`` bits."""

    key: SortKey
    bits: int
    arguments: tuple[tuple[int, Value], ...]
    """The operands of the sort that the key is made of, and what stands for them in the comparator."""
    map: CodeMap | None
    """From the bits of the only operand; None: from the key's value."""
    leaves_nan: bool
    """Whether the key may be NaN where the comparison does not order it."""

    @staticmethod
    def of(key: SortKey, comparator: Block) -> KeyCode:
        """The way of the fewest bits."""
        arguments = tuple(_arguments(key.value, comparator))
        element = key.element
        if len(arguments) == 1:
            source = arguments[0][1].tensor_type.element_type
            if isinstance(source, FloatFormat) and source.bits <= WIDEST_TRIED and not source.decode:
                found = _tried(key, arguments[0][1], source)
                if found is not None:
                    return KeyCode(key, source.bits, arguments, found, False)
        if isinstance(element, FloatFormat):
            return KeyCode(key, KIND_BITS[element.compute], arguments, None, key.leaves_nan)
        return KeyCode(key, _integer_bits(element), arguments, None, False)

    @property
    def kind(self) -> str:
        """Of the integer."""
        return next(kind for kind in ("i8", "i16", "i32", "i64") if KIND_BITS[kind] >= self.bits)

    @property
    def operands(self) -> tuple[int, ...]:
        """The operands of the sort that the key is made of."""
        return tuple(number for number, _ in self.arguments)

    def compute(self, b: ScalarBuilder, stored: Mapping[int, Scalar]) -> Scalar:
        """The integer of an element whose operands are given as they stand in memory."""
        if self.map is not None:
            ((number, argument),) = self.arguments
            element = argument.tensor_type.element_type
            assert isinstance(element, FloatFormat)
            ordered = self.map.apply(b, stored[number], element)
        else:
            values = {
                argument: formats.decode(b, stored[number], argument.tensor_type.element_type)
                for number, argument in self.arguments
            }
            ordered = ordered_value(b, region_values(b, values, [self.key.value])[0], self.key)
        if self.key.descending:
            ordered = b.xor(ordered, b.constant(ordered.kind, (1 << self.bits) - 1))
        return ordered


def key_codes(comparator: Block) -> tuple[KeyCode, ...] | None:
    """The keys of a comparator as integers, the most significant one first, or None if it is not one by keys."""
    keys = sort_order(comparator)
    return None if keys is None else tuple(KeyCode.of(key, comparator) for key in keys)


def ordered_value(b: ScalarBuilder, value: Scalar, key: SortKey) -> Scalar:
    """An unsigned integer in the ascending order of a key's values, which are in compute form."""
    element = key.element
    if isinstance(element, FloatFormat):
        if not key.total:
            zero = b.constant(value.kind, 0.0)
            value = b.select(b.fcmp("oeq", value, zero), zero, value)
        signed = arithmetic.total_order_key(b, value)
        if key.nan_last:
            # Descending keys are turned round afterwards.
            lowest = 1 << (KIND_BITS[signed.kind] - 1)
            nan = b.constant(signed.kind, -lowest if key.descending else lowest - 1)
            signed = b.select(b.fcmp("uno", value, value), nan, signed)
        return b.xor(signed, b.constant(signed.kind, 1 << (KIND_BITS[signed.kind] - 1)))
    if isinstance(element, BooleanType):
        return b.zext(value, "i8")
    assert isinstance(element, IntegerType)
    bits = element.bits
    if element.signed:
        value = b.xor(value, b.constant(value.kind, 1 << (bits - 1)))
    return b.and_(value, b.constant(value.kind, (1 << bits) - 1)) if bits < 8 else value


def _integer_bits(element: ElementType) -> int:
    if isinstance(element, BooleanType):
        return 1
    assert isinstance(element, IntegerType)
    return element.bits


def _arguments(value: Value, comparator: Block) -> Iterator[tuple[int, Value]]:
    """The arguments that a value is made of, with the operands of the sort that they stand for."""
    numbers = {argument: place // 2 for place, argument in enumerate(comparator.arguments)}
    stack, seen = [value], {value}
    while stack:
        top = stack.pop()
        if top in numbers:
            yield numbers[top], top
        for operand in top.producer.operands if top.producer is not None else ():
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)


def _tried(key: SortKey, argument: Value, format: FloatFormat) -> CodeMap | None:
    """The map that puts all codes of an argument into the order of the key's values."""
    b: Any = NumpyBuilder()
    kind = memory_kind(format)
    codes = np.arange(1 << format.bits, dtype=f"u{KIND_BITS[kind] // 8}")
    stored = b.value(kind, codes)
    with np.errstate(all="ignore"):
        (value,) = region_values(b, {argument: formats.decode(b, stored, format)}, [key.value])
        if key.leaves_nan and np.isnan(b.array(value)).any():
            return None
        wanted = _unsigned(b.array(ordered_value(b, value, key)))
        wanted = np.broadcast_to(wanted, codes.shape)
        for each in _MAPS:
            if _same_order(wanted, _unsigned(b.array(each.apply(b, stored, format)))):
                return each
    return None


def _unsigned(numbers: Any) -> Any:
    return numbers.view(f"u{numbers.dtype.itemsize}")


def _same_order(wanted: Any, found: Any) -> bool:
    """Whether numbers are in the order of others, equal where those are."""
    order = np.argsort(wanted, kind="stable")
    x, y = wanted[order], found[order]
    return bool(((x[1:] > x[:-1]) == (y[1:] > y[:-1])).all() and (y[1:] >= y[:-1]).all())


def stored_operands(codes: Sequence[KeyCode]) -> tuple[int, ...]:
    """The operands that keys are made of."""
    return tuple(sorted({number for code in codes for number in code.operands}))

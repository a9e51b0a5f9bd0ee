"""Orders of what is stored, which can be turned back: a sort then moves nothing but keys.

    order = StoredOrder.of(key, comparator)
    key = order.key(b, stored)               # an unsigned integer of ``order.bits`` bits
    stored = order.stored(b, key)            # what has this key, or one of those that have

Several codes may have one key: both zeros, and NaNs, in JAX's comparators.  ``joined`` are the keys of such codes: a stable
sort keeps them in the order in which they were.  Of floats wider than what can be tried, what a comparator does to numbers,
zeros and NaNs is found by evaluating it on these classes: it may choose between the number itself and constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from hlojit.ir.attributes import Dense
from hlojit.ir.formats import FloatFormat, IntegerType
from hlojit.ir.graph import Block, Value
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.sort_order import SortKey
from hlojit.ir.ops.views import CompareView
from hlojit.ir.scalar import code_patterns
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.sort_keys import CodeMap, KeyCode, Nans
from hlojit.lowering.target import KIND_BITS

_SELF: Final = object()
"""An element itself, as a value of a comparator."""
_NEGATIVE_NAN, _NAN, _NUMBER, _NEGATIVE_ZERO, _ZERO = range(5)
_CLASSES: Final = (_NEGATIVE_NAN, _NAN, _NUMBER, _NEGATIVE_ZERO, _ZERO)


@final
@dataclass(frozen=True)
class StoredOrder:
    """A key made of one operand, whose elements are integers of whole bytes or floats."""

    element: IntegerType | FloatFormat
    map: CodeMap | None
    """Of a float."""
    descending: bool

    @staticmethod
    def of(key: SortKey, code: KeyCode, comparator: Block) -> StoredOrder | None:
        """The order of one of the comparator's keys, or None where keys do not tell what was stored."""
        if len(code.arguments) != 1:
            return None
        argument = code.arguments[0][1]
        element = argument.tensor_type.element_type
        if isinstance(element, IntegerType):
            whole = element.bits in (8, 16, 32, 64) and key.value is argument
            return StoredOrder(element, None, key.descending) if whole else None
        if not isinstance(element, FloatFormat) or element.decode:
            return None
        map = code.map or (_map_of_classes(key, argument) if element.is_native else None)
        if map is None:
            return None
        order = StoredOrder(element, map, key.descending)
        return order if element.is_native or order._turns_back() else None

    @property
    def kind(self) -> str:
        """Of the integers that are stored, and of keys."""
        return f"i{max(8, self.bits)}" if self.bits in (8, 16, 32, 64) else "i8"

    @property
    def is_signed(self) -> bool:
        """Whether elements are signed integers in their own order."""
        return isinstance(self.element, IntegerType) and self.element.signed and not self.descending

    @property
    def is_unsigned(self) -> bool:
        """Whether elements are unsigned integers in their own order."""
        return isinstance(self.element, IntegerType) and not self.element.signed and not self.descending

    @property
    def bits(self) -> int:
        """Of a key."""
        return self.element.bits

    @property
    def joined(self) -> tuple[int, ...]:
        """Keys that several codes have, ascending."""
        if self.map is None or not isinstance(self.element, FloatFormat):
            return ()
        known, b = code_patterns.codes(self.element), _numpy()
        codes = []
        if self.map.joins_zeros and known.sign:
            codes.append(0)
        if self.map.nans is not Nans.APART and known.first_nan is not None:
            codes += [known.first_nan, known.first_nan | known.sign]
        return tuple(sorted({int(b.array(self.key(b, b.constant(self.kind, code)))) & self._ones for code in codes}))

    @property
    def _ones(self) -> int:
        return (1 << self.bits) - 1

    def key(self, b: ScalarBuilder, stored: Scalar) -> Scalar:
        """The key of the integer that an element is in memory."""
        if self.map is None:
            ordered = self._signed_to_unsigned(b, stored)
        else:
            assert isinstance(self.element, FloatFormat)
            ordered = self.map.apply(b, stored, self.element)
        return b.xor(ordered, b.constant(self.kind, self._ones)) if self.descending else ordered

    def stored(self, b: ScalarBuilder, key: Scalar) -> Scalar:
        """The inverse: of joined codes one of them."""
        if self.descending:
            key = b.xor(key, b.constant(self.kind, self._ones))
        if self.map is None:
            return self._signed_to_unsigned(b, key)
        assert isinstance(self.element, FloatFormat)
        if self.map.reverses:
            key = b.xor(key, b.constant(self.kind, self._ones))
        sign = code_patterns.codes(self.element).sign
        if not sign:
            return key
        of_sign = b.constant(self.kind, sign)
        positive = b.icmp("ne", b.and_(key, of_sign), b.constant(self.kind, 0))
        return b.xor(key, b.select(positive, of_sign, b.constant(self.kind, self._ones)))

    def _signed_to_unsigned(self, b: ScalarBuilder, value: Scalar) -> Scalar:
        assert isinstance(self.element, IntegerType)
        return b.xor(value, b.constant(self.kind, 1 << (self.bits - 1))) if self.element.signed else value

    def _turns_back(self) -> bool:
        """Whether every code of a format leads to a key that leads to a code with the same key."""
        b = _numpy()
        codes = b.value(self.kind, np.arange(1 << self.bits, dtype=f"u{KIND_BITS[self.kind] // 8}"))
        keys = self.key(b, codes)
        back = b.array(self.stored(b, keys)).astype(np.int64) & self._ones
        again = b.array(self.key(b, b.value(self.kind, back.astype(f"u{KIND_BITS[self.kind] // 8}"))))
        counts = np.bincount(np.asarray(b.array(keys)).astype(np.int64) & self._ones)
        several = set(np.flatnonzero(counts > 1).tolist())
        return bool((b.array(keys) == again).all()) and several == set(self.joined)


def _numpy() -> Any:
    return NumpyBuilder()


def _map_of_classes(key: SortKey, argument: Value) -> CodeMap | None:
    """What a key does to the codes of a native float format, by evaluating it on the classes of numbers."""
    values = {each: _evaluated(key.value, argument, each) for each in _CLASSES}
    if (
        values[_NUMBER] is not _SELF
        or memory_kind(argument.tensor_type.element_type) != key.value.tensor_type.element_type.name
    ):
        return None
    zeros = values[_NEGATIVE_ZERO], values[_ZERO]
    joins = not key.total or zeros[0] is not _SELF
    if any(zero is not _SELF and (not isinstance(zero, float) or zero != 0) for zero in zeros):
        return None
    if key.total and (zeros[0] is _SELF) != (zeros[1] is _SELF):
        return None
    if key.total and zeros[0] is not _SELF and math.copysign(1, zeros[0]) != math.copysign(1, zeros[1]):
        return None
    nans = _place_of_nans(key, values[_NEGATIVE_NAN], values[_NAN])
    return None if nans is None else CodeMap(joins, nans)


def _place_of_nans(key: SortKey, negative: Any, positive: Any) -> Nans | None:
    """Where NaNs go, given what a key makes of those of both signs."""
    constants = [value for value in (negative, positive) if value is not _SELF]
    if any(not isinstance(value, float) or not math.isnan(value) for value in constants):
        return None
    if key.nan_last:
        return Nans.BELOW if key.descending else Nans.ABOVE
    if not key.total:
        return None
    if not constants:
        return Nans.APART
    signs = {math.copysign(1, value) for value in constants}
    if len(constants) == 1 or len(signs) > 1:
        return None
    return Nans.ABOVE if signs == {1.0} else Nans.BELOW


def _evaluated(value: Value, argument: Value, of: int) -> Any:
    """A comparator's value for an element of a class: the element, a constant (float or bool), or None (not known).

    NaNs that constants hold are all the same to what is built here: the same constant stands for all of a class.
    """
    if value is argument:
        return _SELF
    made = value.producer
    if made is None:
        return None
    if Trait.CONSTANT in made.op.traits:
        dense = made.attributes.get("value")
        element = value.tensor_type.element_type
        if not isinstance(dense, Dense) or not isinstance(element, FloatFormat) or not element.is_native:
            return None
        return float(dense.splat_element)
    operands = [_evaluated(operand, argument, of) for operand in made.operands]
    if Trait.COMPARISON in made.op.traits:
        return _compared(CompareView.of(made), operands[0], operands[1], of)
    if Trait.SELECTION in made.op.traits and isinstance(operands[0], bool):
        return operands[1] if operands[0] else operands[2]
    return None


def _compared(view: CompareView, x: Any, y: Any, of: int) -> bool | None:
    """Whether elements of a class equal themselves, or zero: nothing else that a class knows."""
    if view.is_total_order or view.direction not in ("EQ", "NE"):
        return None
    if x is _SELF and y is _SELF:
        equal = of not in (_NEGATIVE_NAN, _NAN)
    elif {type(x), type(y)} == {object, float} and 0.0 in (x, y):
        equal = of in (_NEGATIVE_ZERO, _ZERO)
    else:
        return None
    return equal if view.direction == "EQ" else not equal

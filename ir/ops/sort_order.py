"""What order a comparator means, where it is that of keys: numbers compared one after the other, up or down.

    ^bb0(%a, %b, %i, %j):                          keys, the most significant one first:
      %0 = compare LT, %a, %b, TOTALORDER            a, ascending, in the total order
      %1 = compare EQ, %a, %b, TOTALORDER      =>
      %2 = compare GT, %i, %j                        i, descending
      %3 = and %1, %2
      %4 = or %0, %3
      return %4

A *key* is a value of the region that one side's arguments make; the other side must make it in the same way, whatever that
is (JAX replaces both zeros by one and all NaNs by one before it compares; complex numbers are compared by their parts).
A sort by keys may look at each element on its own.  ``compare`` without a total order does not order NaN: what a sort makes
of it is left open, and depends on which elements meet.  ``SortKey.leaves_nan`` says so.  With ``or (b is NaN and a is not)``
behind it, NaN comes last, as NumPy has it.

Not recognized are ``LE`` and ``GE``, which are no strict orders, and whatever is not made of such comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.definition import Pointwise, Trait
from hlojit.ir.ops.views import CompareView

LARGEST_KEY: Final = 64
"""Instructions of a key: a radix sort computes it again and again."""


@dataclass(frozen=True)
class SortKey:
    """A number by which elements are compared: a value of the comparator, made of the left element's arguments."""

    value: Value
    descending: bool
    total: bool
    """Whether floats are compared by their total order; otherwise both zeros are equal."""
    nan_last: bool = False
    """Whether every NaN comes behind all numbers, where that is not so by the total order."""

    @property
    def element(self) -> ElementType:
        """The type of the numbers."""
        return self.value.tensor_type.element_type

    @property
    def leaves_nan(self) -> bool:
        """Whether numbers of the key's type may be NaN, which the comparison does not order."""
        return isinstance(self.element, FloatFormat) and not self.total and not self.nan_last


def sort_order(comparator: Block) -> tuple[SortKey, ...] | None:
    """The keys that a comparator compares, the most significant one first, or None."""
    if len(comparator.returned) != 1:
        return None
    keys: list[SortKey] = []
    rest: Value | None = comparator.returned[0]
    while rest is not None:
        key = _key(rest, comparator) or _key_with_nan_last(rest, comparator)
        if key is not None:
            return (*keys, key)
        found = _first_key(rest, comparator)
        if found is None:
            return None
        keys.append(found[0])
        rest = found[1]
    return None


def _first_key(value: Value, comparator: Block) -> tuple[SortKey, Value] | None:
    """Of ``before or (equal and rest)`` the key and the rest."""
    parts = _parts(value, Trait.DISJUNCTION)
    for before, tie in (parts, parts[::-1]) if len(parts) == 2 else ():
        key = _key(before, comparator)
        conditions = _parts(tie, Trait.CONJUNCTION)
        if key is None or len(conditions) != 2:
            continue
        for equal, rest in (conditions, conditions[::-1]):
            if _is_tie(equal, before):
                return key, rest
    return None


def _parts(value: Value, trait: Trait) -> tuple[Value, ...]:
    instruction = value.producer
    return instruction.operands if instruction is not None and trait in instruction.op.traits else ()


def _comparison(value: Value) -> Instruction | None:
    instruction = value.producer
    return instruction if instruction is not None and Trait.COMPARISON in instruction.op.traits else None


def _key(value: Value, comparator: Block) -> SortKey | None:
    """The key of one strict comparison of the two sides."""
    compare = _comparison(value)
    if compare is None:
        return None
    view = CompareView.of(compare)
    left, right = compare.operands
    element = left.tensor_type.element_type
    if view.direction not in ("LT", "GT") or not _orders(element):
        return None
    if view.is_total_order and not isinstance(element, FloatFormat):
        return None  # says nothing more of integers
    if _are_sides(left, right, comparator):
        return SortKey(left, view.direction == "GT", view.is_total_order)
    if _are_sides(right, left, comparator):
        return SortKey(right, view.direction == "LT", view.is_total_order)
    return None


def _key_with_nan_last(value: Value, comparator: Block) -> SortKey | None:
    """The key of ``before or (right is NaN and left is not)``, as NumPy sorts."""
    parts = _parts(value, Trait.DISJUNCTION)
    for before, otherwise in (parts, parts[::-1]) if len(parts) == 2 else ():
        key = _key(before, comparator)
        compare = _comparison(before)
        conditions = _parts(otherwise, Trait.CONJUNCTION)
        if key is None or compare is None or not key.leaves_nan or len(conditions) != 2:
            continue
        left, right = compare.operands if compare.operands[0] is key.value else compare.operands[::-1]
        for is_nan, is_number in (conditions, conditions[::-1]):
            if _compares_itself(is_nan, "NE", right) and _compares_itself(is_number, "EQ", left):
                return replace(key, nan_last=True)
    return None


def _compares_itself(value: Value, direction: str, number: Value) -> bool:
    """Whether a number that is compared with itself, without a total order, is NaN (``NE``) or is none (``EQ``)."""
    compare = _comparison(value)
    if compare is None or not all(_is_same(operand, number) for operand in compare.operands):
        return False
    view = CompareView.of(compare)
    return view.direction == direction and not view.is_total_order


def _orders(element: ElementType) -> bool:
    return isinstance(element, (BooleanType, IntegerType, FloatFormat))


def _is_tie(value: Value, before: Value) -> bool:
    """Whether a value says that the numbers which ``before`` compares are equal."""
    compare, other = _comparison(value), _comparison(before)
    if compare is None or other is None:
        return False
    view = CompareView.of(compare)
    same = all(_is_same(x, y) for x, y in zip(compare.operands, other.operands)) or all(
        _is_same(x, y) for x, y in zip(compare.operands, other.operands[::-1])
    )
    return same and view.direction == "EQ" and view.is_total_order == CompareView.of(other).is_total_order


def _is_same(x: Value, y: Value) -> bool:
    return x is y or _made_alike(x, y, {})


def _are_sides(left: Value, right: Value, comparator: Block) -> bool:
    """Whether a value of the left element's arguments is made as one of the right element's."""
    arguments = comparator.arguments
    return _made_alike(left, right, dict(zip(arguments[::2], arguments[1::2])))


def _made_alike(left: Value, right: Value, others: dict[Value, Value]) -> bool:
    """Whether two values are made by the same pointwise code, of arguments on the left and their ``others`` on the right.

    Without others no value may stand for another one.
    """
    stack, seen = [(left, right)], {(left, right)}
    while stack:
        x, y = stack.pop()
        first, second = x.producer, y.producer
        if first is None or second is None:
            if others.get(x) is not y and (others or x is not y):
                return False
            continue
        if not _alike(first, second):
            return False
        for pair in zip(first.operands, second.operands):
            if pair not in seen:
                seen.add(pair)
                stack.append(pair)
        if len(seen) > LARGEST_KEY:
            return False
    return True


def _alike(first: Instruction, second: Instruction) -> bool:
    known = isinstance(first.op.lowering, Pointwise) or Trait.CONSTANT in first.op.traits
    return (
        known
        and first.op is second.op
        and len(first.operands) == len(second.operands)
        and first.attributes == second.attributes
        and [result.type for result in first.results] == [result.type for result in second.results]
    )

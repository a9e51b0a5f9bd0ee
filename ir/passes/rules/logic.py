"""Rules on comparisons, booleans and selection."""

from __future__ import annotations

import math

from hlojit.ir.formats import FloatFormat
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.views import CompareView
from hlojit.ir.passes.rewriting import Effect, Rewriter, RuleSet
from hlojit.ir.passes.rules.matching import (
    element_of,
    integer_range,
    is_boolean,
    is_exact_kind,
    is_integer,
    is_splat,
    made_by,
    splat_number,
)

RULES = RuleSet("logic")
_TRUE_FOR_EQUALS = frozenset(("EQ", "LE", "GE"))
_INVERTED = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}


@RULES.rule("compare", Effect.EXACT)
def compare_with_self(rewriter: Rewriter, compare: Instruction) -> Value | None:
    """X == x is true for integers and booleans (a float may be NaN)."""
    lhs, rhs = compare.operands
    if lhs is not rhs or not is_exact_kind(lhs) or not lhs.tensor_type.is_static:
        return None
    direction = CompareView.of(compare).direction
    return rewriter.splat(compare.result.tensor_type, direction in _TRUE_FOR_EQUALS)


@RULES.rule("compare", Effect.EXACT)
def compare_boolean_with_constant(rewriter: Rewriter, compare: Instruction) -> Value | None:
    """P == true and p != false are p; p == false and p != true are not p."""
    lhs, rhs = compare.operands
    direction = CompareView.of(compare).direction
    constant = splat_number(rhs) if is_boolean(rhs) else None
    if constant is None or direction not in ("EQ", "NE"):
        return None
    if constant == (direction == "EQ"):
        return lhs
    inverted: Value = rewriter.create("not", [lhs], compare.result.type)
    return inverted


@RULES.rule("compare", Effect.EXACT)
def compare_of_converted_boolean(rewriter: Rewriter, compare: Instruction) -> Value | None:
    """convert(p) != 0 is p, convert(p) == 0 is not p, for a boolean p."""
    lhs, rhs = compare.operands
    direction = CompareView.of(compare).direction
    convert = made_by(lhs, "convert")
    if convert is None or direction not in ("EQ", "NE") or not is_boolean(convert.operands[0]):
        return None
    number = splat_number(rhs)
    if not isinstance(number, (int, float)) or number not in (0, 1):
        return None
    if CompareView.of(compare).is_total_order and math.copysign(1.0, number) < 0:
        return None  # no boolean becomes the -0.0 that comes before 0.0
    (predicate,) = convert.operands
    if (number == 1) == (direction == "EQ"):
        return predicate
    inverted: Value = rewriter.create("not", [predicate], compare.result.type)
    return inverted


@RULES.rule("compare", Effect.EXACT)
def compare_decided_by_ranges(rewriter: Rewriter, compare: Instruction) -> Value | None:
    """iota() < 0 is false: a comparison of integers whose bounds decide it."""
    lhs, rhs = compare.operands
    if not is_integer(lhs) or not compare.result.tensor_type.is_static:
        return None
    first = integer_range(lhs)
    second = integer_range(rhs) if first is not None else None
    if first is None or second is None:
        return None
    answer = _decide(CompareView.of(compare).direction, first, second)
    return None if answer is None else rewriter.splat(compare.result.tensor_type, answer)


@RULES.rule("not", Effect.EXACT)
def not_of_not(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """not(not(x)) is x."""
    inner = made_by(instruction.operands[0], "not")
    return inner.operands[0] if inner is not None else None


@RULES.rule("not", Effect.EXACT)
def not_of_compare(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """not(a < b) is a >= b for integers; for floats (NaN is unordered) only EQ and NE change places."""
    compare = made_by(instruction.operands[0], "compare")
    if compare is None:
        return None
    direction = CompareView.of(compare).direction
    ordered = isinstance(element_of(compare.operands[0]), FloatFormat) or not is_exact_kind(compare.operands[0])
    if (ordered and direction not in ("EQ", "NE")) or CompareView.of(compare).is_total_order:
        return None
    inverted: Value = rewriter.create(
        "compare",
        compare.operands,
        instruction.result.type,
        compare.attributes | {"comparison_direction": _INVERTED[direction]},
    )
    return inverted


@RULES.rule("select", Effect.EXACT)
def select_of_same(rewriter: Rewriter, select: Instruction) -> Value | None:
    """select(p, x, x) is x."""
    _, on_true, on_false = select.operands
    return on_true if on_true is on_false else None


@RULES.rule("select", Effect.EXACT)
def select_by_constant(rewriter: Rewriter, select: Instruction) -> Value | None:
    """select(true, x, y) is x."""
    predicate, on_true, on_false = select.operands
    constant = splat_number(predicate)
    if constant is None:
        return None
    return on_true if constant else on_false


@RULES.rule("select", Effect.EXACT)
def select_by_not(rewriter: Rewriter, select: Instruction) -> Value | None:
    """select(not p, x, y) is select(p, y, x)."""
    predicate, on_true, on_false = select.operands
    inner = made_by(predicate, "not")
    if inner is None:
        return None
    return rewriter.create_like(select, [inner.operands[0], on_false, on_true])


@RULES.rule("select", Effect.EXACT)
def select_of_booleans(rewriter: Rewriter, select: Instruction) -> Value | None:
    """select(p, true, false) is p, select(p, false, true) is not p."""
    predicate, on_true, on_false = select.operands
    if not is_boolean(on_true) or predicate.type is not on_true.type:
        return None
    if is_splat(on_true, True) and is_splat(on_false, False):
        return predicate
    if is_splat(on_true, False) and is_splat(on_false, True):
        inverted: Value = rewriter.create("not", [predicate], select.result.type)
        return inverted
    return None


@RULES.rule("select", Effect.EXACT)
def select_within_select(rewriter: Rewriter, select: Instruction) -> Value | None:
    """select(p, select(p, x, y), z) is select(p, x, z), and likewise on the other side."""
    predicate, on_true, on_false = select.operands
    inner = made_by(on_true, "select")
    if inner is not None and inner.operands[0] is predicate:
        return rewriter.create_like(select, [predicate, inner.operands[1], on_false])
    inner = made_by(on_false, "select")
    if inner is not None and inner.operands[0] is predicate:
        return rewriter.create_like(select, [predicate, on_true, inner.operands[2]])
    return None


def _decide(direction: str, first: tuple[int, int], second: tuple[int, int]) -> bool | None:
    """The comparison's result for all values within the bounds, or None if they leave it open."""
    if direction in ("GT", "GE"):
        direction, first, second = {"GT": "LT", "GE": "LE"}[direction], second, first
    if direction == "LT":
        return True if first[1] < second[0] else False if first[0] >= second[1] else None
    if direction == "LE":
        return True if first[1] <= second[0] else False if first[0] > second[1] else None
    apart = first[1] < second[0] or second[1] < first[0]
    same = first == second and first[0] == first[1]
    if direction == "EQ":
        return False if apart else True if same else None
    return True if apart else False if same else None

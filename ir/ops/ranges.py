"""Rules for ``OpDefinition.value_range``: bounds of integer results from bounds of the operands.

    OpDefinition("acme.halve", ..., value_range=monotonic(lambda a: a // 2))

Whoever asks throws bounds away that the result's type cannot hold: there the op may have wrapped around.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from hlojit.ir.ops.definition import RangeOf, ValueRange

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

RangeRule = Callable[["Instruction", RangeOf], "ValueRange | None"]

_MOST_OPERANDS: Final = 8


def same_range(instruction: Instruction, range_of: RangeOf) -> ValueRange | None:
    """Elements of the first operand, moved or repeated."""
    return range_of(instruction.operands[0])


def union_of(first: int = 0) -> RangeRule:
    """Elements of the operands from number ``first`` on."""

    def rule(instruction: Instruction, range_of: RangeOf) -> ValueRange | None:
        operands = instruction.operands[first:]
        if len(operands) > _MOST_OPERANDS:
            return None
        found = []
        for operand in operands:
            known = range_of(operand)
            if known is None:
                return None
            found.append(known)
        return min(low for low, _ in found), max(high for _, high in found)

    return rule


def monotonic(combine: Callable[..., int]) -> RangeRule:
    """An op that is monotonic in each operand: its extremes are at the corners."""

    def rule(instruction: Instruction, range_of: RangeOf) -> ValueRange | None:
        ranges = []
        for operand in instruction.operands:
            known = range_of(operand)
            if known is None:
                return None
            ranges.append(known)
        corners = [combine(*corner) for corner in itertools.product(*ranges)]
        return min(corners), max(corners)

    return rule


def clamped(instruction: Instruction, range_of: RangeOf) -> ValueRange | None:
    """Between the least lower and the greatest upper bound."""
    low, high = range_of(instruction.operands[0]), range_of(instruction.operands[2])
    if low is None or high is None or low[0] > high[1]:
        return None
    return min(low[0], high[0]), high[1]

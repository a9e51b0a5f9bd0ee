"""Whether two values of a program are computed in the same way of the same values.

``x[x > 0] * y[x > 0]`` has two masks that are one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from hlojit.ir.blocks import Instruction
from hlojit.ir.graph import Value

_MOST: Final = 64
"""Pairs of values that are looked at."""
_LARGEST: Final = 4096
"""Elements of constants that are compared."""
_NEVER_THE_SAME: Final = frozenset({"stablehlo.rng", "stablehlo.rng_bit_generator", "stablehlo.custom_call"})


def are_same(one: Value, other: Value) -> bool:
    """Whether they certainly have the same elements; False where that is not seen."""
    open_ = [(one, other)]
    seen: set[tuple[Value, Value]] = set()
    while open_:
        pair = open_.pop()
        if pair[0] is pair[1] or pair in seen:
            continue
        seen.add(pair)
        a, b = (each.producer for each in pair)
        if a is None or b is None or len(seen) > _MOST or not _do_the_same(a, b):
            return False
        if [*a.results].index(pair[0]) != [*b.results].index(pair[1]):
            return False
        open_ += zip(a.operands, b.operands)
    return True


def _do_the_same(a: Instruction, b: Instruction) -> bool:
    if a.op is not b.op or len(a.operands) != len(b.operands) or not a.op.is_pure or a.op.name in _NEVER_THE_SAME:
        return False
    if a.regions or a.op.callees or [each.type for each in a.results] != [each.type for each in b.results]:
        return False
    if a.op.name == "stablehlo.constant":
        one, other = (np.asarray(each.attributes["value"].array) for each in (a, b))
        return one.size <= _LARGEST and one.tobytes() == other.tobytes()
    return str(a.attributes) == str(b.attributes)

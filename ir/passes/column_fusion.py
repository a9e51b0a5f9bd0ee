"""Reductions of columns join the row kernel over the same elements: gradients of norms in one kernel.

    dx     = ... reduce(x) ... reduce(g) ...            over rows      =>   one group over the rows of x and g, with
    dscale = reduce(g * (x - mean) * scale_of_row)      over columns        the roots dx and dscale

What only the columns read of the rows' results stays inside and is never written to memory.  It comes after all row groups
have grown: nothing reads a column's result row by row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.passes.fusion_cost import Role
from hlojit.ir.passes.row_fusion import reads_row_by_row

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value
    from hlojit.ir.passes.fusion_plan import FusionPlan, Group

MOST_COLUMNS: Final = 4
"""Reductions of columns in one group: each takes an accumulator for every column."""
MOST_READERS: Final = 32
"""Of one value, that are looked at."""
NARROWEST: Final = 32
"""Bits of an accumulator at least."""


def merge_columns(plan: FusionPlan) -> None:
    """Merge groups that reduce columns into row groups that read the same elements, or give them."""
    for group in sorted(plan.groups, key=lambda group: group.place):
        if group in plan.groups and group.rows and _is_short(plan, group):
            _take_in(plan, group)


def _is_short(plan: FusionPlan, group: Group) -> bool:
    """Whether the group has several rows of few bytes, and reductions that may be done in any order."""
    shape, dimensions = group.space
    assert dimensions is not None
    kept = len(shape) - len(dimensions)
    reductions = _reductions(plan, group)
    return (
        math.prod(shape[:kept]) > 1
        and math.prod(shape[kept:]) * _widest(reductions) <= plan.limits.longest_summed_row
        and _are_free(reductions)
    )


def _reductions(plan: FusionPlan, group: Group) -> list[Instruction]:
    return [member for member in group.members if plan.role_of(member) is Role.REDUCTION]


def _are_free(reductions: list[Instruction]) -> bool:
    return all(combiner_of(one.regions[0]) is not None for one in reductions)


def _widest(reductions: list[Instruction]) -> int:
    """Bytes of the largest accumulator."""
    bits = [result.tensor_type.element_type.bits for one in reductions for result in one.results]
    return max(NARROWEST, *bits) // 8


def _take_in(plan: FusionPlan, group: Group) -> None:
    """Take in groups of columns that read the group's results or operands, as long as one fits."""
    shape, dimensions = group.space
    assert dimensions is not None
    space = shape, tuple(range(len(shape) - len(dimensions)))
    columns = 0
    for other in sorted(_beside(plan, group, space), key=lambda other: other.place):
        reductions = _reductions(plan, other)
        columns += len(reductions)
        if columns > MOST_COLUMNS:
            return
        fits = math.prod(shape[len(space[1]) :]) * _widest(reductions) <= plan.limits.longest_summed_row
        if not (fits and _are_free(reductions) and _join(plan, group, other)):
            columns -= len(reductions)


def _beside(plan: FusionPlan, group: Group, space: tuple[tuple[int, ...], tuple[int, ...]]) -> list[Group]:
    """The groups of a space that read results of the group, or operands of its shape."""
    values: list[Value] = [result for root in group.roots for result in root.results]
    values += [value for value in group.inputs if value.tensor_type.shape == space[0]]
    found: dict[Group, None] = {}
    for value in values:
        if len(value.users) <= MOST_READERS:
            for user in value.users:
                plan.steps += 1
                found.update(dict.fromkeys(plan.groups_of.get(user, ())))
    found.pop(group, None)
    return [other for other in found if (other.space[0], tuple(sorted(other.space[1] or ()))) == space]


def _join(plan: FusionPlan, group: Group, other: Group) -> bool:
    """Make a group of columns a part of a row group, which does not read it; return whether that works."""
    if not reads_row_by_row(plan, group, other) or any(value.owner in other.roots for value in group.inputs):
        return False
    if other.place > group.place:
        return plan.join_groups(group, other)
    # The columns are reduced before the rows: the groups come together at either place, with the rows' space.
    space = group.space
    if any(value.owner in group.roots for value in other.inputs) or not plan.join_groups(other, group):
        return False
    other.space, other.rows = space, True
    return True

"""Reductions of columns join the row kernel over the same elements: gradients of norms in one kernel.

    dx     = ... reduce(x) ... reduce(g) ...            over rows      =>   one group over the rows of x and g, with
    dscale = reduce(g * (x - mean) * scale_of_row)      over columns        the roots dx and dscale

What only the columns read of the rows' results stays inside and is never written to memory.  Nothing in such a group reads
what a column was reduced to.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from hlojit.ir.passes.fusion_cost import Role
from hlojit.ir.passes.row_fusion import Space, has_rows, may_reduce_columns, reads_row_by_row

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value
    from hlojit.ir.passes.fusion_plan import FusionPlan, Group

MOST_COLUMNS: Final = 4
"""Reductions of columns that join one group: each takes an accumulator for every column."""
MOST_READERS: Final = 32
"""Of one value, that are looked at."""


def merge_columns(plan: FusionPlan) -> None:
    """Merge groups that reduce columns into groups of rows that read the same elements, or give what they read."""
    for group in sorted(plan.groups, key=lambda group: group.place):
        shape, dimensions = group.space
        if group not in plan.groups or dimensions is None or not has_rows(plan, group):
            continue
        kept = len(shape) - len(dimensions)
        if math.prod(shape[:kept]) > 1 and may_reduce_columns(plan, group, math.prod(shape[kept:])):
            _take_in(plan, group, (shape, tuple(range(kept))))


def _take_in(plan: FusionPlan, group: Group, space: Space) -> None:
    """Take in the groups of a space of columns that read the group's results or operands, as long as one fits."""
    assert space[1] is not None
    extent, columns = math.prod(space[0][len(space[1]) :]), 0
    for other in sorted(_beside(plan, group, space), key=lambda other: other.place):
        count = sum(plan.role_of(member) is Role.REDUCTION for member in other.members)
        if columns + count > MOST_COLUMNS:
            return
        if may_reduce_columns(plan, other, extent):
            joined = _join(plan, group, other)
            if joined is not None:
                group = joined
                columns += count


def _beside(plan: FusionPlan, group: Group, space: Space) -> list[Group]:
    """The groups of a space that read results of the group, or (of a row kernel) operands of its shape, or give these."""
    values: list[Value] = [result for root in group.roots for result in root.results]
    if group.rows:
        values += [value for value in group.inputs if value.tensor_type.shape == space[0]]
    found: dict[Group, None] = {}
    for value in values:
        owner: Instruction | None = value.producer
        users = value.users if len(value.users) <= MOST_READERS else ()
        for user in (*users, *(() if owner is None else (owner,))):
            plan.steps += 1
            found.update(dict.fromkeys(plan.groups_of.get(user, ())))
    found.pop(group, None)
    return [other for other in found if (other.space[0], tuple(sorted(other.space[1] or ()))) == space]


def _join(plan: FusionPlan, group: Group, other: Group) -> Group | None:
    """Make a group of columns and one of rows one; the group that is left, or None where that does not work."""
    space = group.space
    first, second = (group, other) if group.place < other.place else (other, group)
    if any(value.owner in second.roots for value in first.inputs):
        return None
    if not reads_row_by_row(plan, first, second, space) or not plan.join_groups(first, second):
        return None
    first.space, first.rows, first.columns = space, True, True
    return first

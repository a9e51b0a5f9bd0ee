"""Groups that walk over the same rows become one: softmax, layer norm and their kin in one kernel.

    max   = reduce(x)                          =>   one group over x's rows, whose only root is the quotient:
    e     = exponential(x - broadcast(max))         the row stays in cache between the steps
    sum   = reduce(e)
    y     = e / broadcast(sum)

The reductions are over the last dimensions (a row); the other groups work on all elements or on one value a row.
What only they read stays inside and is never written to memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.definition import Indexed
from hlojit.ir.ops.views import DimensionsView
from hlojit.ir.passes.fusion_cost import Role

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value
    from hlojit.ir.passes.fusion_plan import FusionPlan, Group

Space = tuple[tuple[int, ...], tuple[int, ...] | None]
"""The iteration space of a group."""
NARROWEST: Final = 32
"""Bits of an accumulator at least."""
SMALL: Final = 1 << 14
"""Elements of a program part that one core does best anyway, whatever its rows."""


def merge_rows(plan: FusionPlan) -> None:
    """Merge groups along their dependencies where all of them walk over the rows of one reduction.

    Groups are visited in the order of their places.  Each reduction starts or joins a row group, which takes in the
    groups that read it.
    """
    for group in sorted(plan.groups, key=lambda group: group.place):
        if group in plan.groups and group.space[1] is not None and has_rows(plan, group):
            _grow(plan, group)


def has_rows(plan: FusionPlan, group: Group) -> bool:
    """Whether the group reduces the last dimensions, and rows are many enough or all is small."""
    shape, dimensions = group.space
    assert dimensions is not None
    kept = len(shape) - len(dimensions)
    if sorted(dimensions) != list(range(kept, len(shape))) or not dimensions:
        return False
    rows, row = math.prod(shape[:kept]), math.prod(shape[kept:])
    return 0 < row <= plan.limits.longest_row and (rows >= plan.limits.fewest_rows or rows * row <= SMALL)


def _grow(plan: FusionPlan, group: Group) -> None:
    """Take in readers of the group's results, and readers of theirs, as long as one fits."""
    while True:
        readers: dict[Group, None] = {}
        for root in group.roots:
            for result in root.results:
                if len(result.users) <= plan.limits.roots:
                    for user in result.users:
                        readers.update(dict.fromkeys(plan.groups_of.get(user, ())))
        readers.pop(group, None)
        for reader in sorted(readers, key=lambda reader: reader.place):
            if _fits(plan, group, reader) and plan.join_groups(group, reader):
                group.rows = True
                group.columns |= reader.columns
                break
        else:
            return


def _fits(plan: FusionPlan, group: Group, reader: Group) -> bool:
    """Whether ``reader`` works on the group's elements or rows and reads its results row by row."""
    shape, dimensions = group.space
    assert dimensions is not None
    row_shape = shape[: len(shape) - len(dimensions)]
    other_shape, other_dimensions = reader.space
    if other_dimensions is None:
        if other_shape not in (shape, row_shape):
            return False
    elif (other_shape, sorted(other_dimensions)) != (shape, sorted(dimensions)):
        return False
    if group.columns or reader.columns:
        extent = math.prod(shape[len(row_shape) :])
        if not (may_reduce_columns(plan, group, extent) and may_reduce_columns(plan, reader, extent)):
            return False
    return reads_row_by_row(plan, group, reader, group.space)


def may_reduce_columns(plan: FusionPlan, group: Group, extent: int) -> bool:
    """Whether rows of so many elements are short enough to reduce columns beside them, and the group's reductions free."""
    reductions = [member for member in group.members if plan.role_of(member) is Role.REDUCTION]
    bits = [result.tensor_type.element_type.bits for one in reductions for result in one.results]
    row = extent * max([NARROWEST, *bits]) // 8
    return row <= plan.limits.longest_summed_row and all(combiner_of(one.regions[0]) is not None for one in reductions)


def reads_row_by_row(plan: FusionPlan, group: Group, reader: Group, space: Space) -> bool:
    """Whether ``reader`` reads all that it reads of a group's results at its own element or row, in the space of the rows."""
    shape, dimensions = space
    assert dimensions is not None
    row_shape = shape[: len(shape) - len(dimensions)]
    own = {plan.root_context(each) for each in ([shape, row_shape] if reader.rows else [reader.space[0]])}
    for root in group.roots:
        is_column = plan.role_of(root) is Role.REDUCTION and not reduces_rows(root, space)
        for result in root.results:
            if is_column and result in reader.inputs:
                return False
            if result in reader.inputs and not all(
                any(reader.members[user] == {one} for one in own)
                and _reads_by_rows(plan, user, result, (shape, row_shape))
                for user in result.users
                if user in reader.members
            ):
                return False
    return True


def reduces_rows(reduction: Instruction, space: Space) -> bool:
    """Whether a reduction is that of the rows, not of what lies across them."""
    assert space[1] is not None
    return sorted(DimensionsView.of(reduction).dimensions) == sorted(space[1])


def _reads_by_rows(
    plan: FusionPlan, user: Instruction, value: Value, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> bool:
    """Whether ``user`` reads, at an element, that element of ``value`` or the value of the element's row."""
    shape, row_shape = shapes
    found = value.tensor_type.shape
    role = plan.role_of(user)
    if role is Role.REDUCTION:
        return found == shape and value not in user.operands[len(user.results) :]
    if role is Role.POINTWISE:
        return found == user.results[0].tensor_type.shape
    lowering = user.op.lowering
    return (
        isinstance(lowering, Indexed)
        and lowering.broadcasts is not None
        and (found, user.results[0].tensor_type.shape) == (row_shape, shape)
        and tuple(lowering.broadcasts(user)) == tuple(range(len(row_shape)))
    )

"""What computes a product's operand element by element joins the product's group.

    %0 = stablehlo.convert %w                        =>   %2 = hlojit.fusion(%x, %w, %s) {kind = "anchor"} {
    %1 = stablehlo.multiply %0, broadcast(%s)               ^bb0(%x, %w, %s):
    %2 = stablehlo.dot_general %x, %1                         the same instructions
                                                          }

A product reads one of its operands in streams: once for a few rows, panel by panel for many (``streamed_side``).  What is
computed there - numbers decoded from narrow ones, scales multiplied - need not stand in memory.  The other operand is read
again for every panel: what computes it stays a loop.  A convolution whose windows leave the image copies it, and computes it
then.  Of groups that come together nothing is computed twice: nobody else
reads the operand, and what it is computed from is no larger than two arrays of its own size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlojit.ir.attributes import ConvDimensionNumbers
from hlojit.ir.formats import FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Kernel, Trait
from hlojit.ir.ops.views import ConvolutionView, DotView
from hlojit.ir.passes.anchored_fusion import MOST_ALIASES, is_anchor
from hlojit.ir.passes.fusion_cost import Role

if TYPE_CHECKING:
    from hlojit.ir.passes.fusion_plan import FusionPlan, Group

MOST_BYTES: Final = 2
"""That a prologue reads for each byte of the operand that it computes: a loop would read them, and write and read the operand."""


def take_in_prologues(plan: FusionPlan) -> None:
    """Have every product take in the loop that computes the operand that it streams, if there is one."""
    for anchor in plan.block:
        lowering = anchor.op.lowering
        if (
            not isinstance(lowering, Kernel)
            or lowering.name not in plan.limits.prologues
            or not is_anchor(plan, anchor)
        ):
            continue
        found = _loop_behind(plan, anchor)
        if found is not None:
            _take_in(plan, anchor, *found)


def streamed_side(product: Instruction) -> int | None:
    """The operand of a product or a convolution that its kernel reads in streams, None where there is none."""
    if isinstance(product.attributes.get("dimension_numbers"), ConvDimensionNumbers):
        return _side_of_convolution(product)
    numbers = DotView.of(product).numbers
    lhs, rhs = (value.tensor_type.shape for value in product.operands)
    summed = {*numbers.lhs_batching, *numbers.lhs_contracting}, {*numbers.rhs_batching, *numbers.rhs_contracting}
    rows, columns = (
        [extent for dimension, extent in enumerate(shape) if dimension not in taken and extent != 1]
        for shape, taken in zip((lhs, rhs), summed)
    )
    return 0 if rows and not columns else 1


def _side_of_convolution(convolution: Instruction) -> int | None:
    """Windows that leave the input read a padded copy of it, which is computed as well as copied.

    Windows of one element are products: of pixels and weights where the result's features are neighbours, of weights and
    pixels where its pixels are.
    """
    view = ConvolutionView.of(convolution)
    image, weights = (value.tensor_type for value in convolution.operands)
    if any(low > 0 or high > 0 for low, high in view.padding) or any(step > 1 for step in view.lhs_dilation):
        return 0
    if any(weights.shape[dimension] > 1 for dimension in view.numbers.kernel_spatial) or view.feature_groups > 1:
        return None
    result = convolution.result.tensor_type
    features = result.strides[view.numbers.output_feature] == 1
    one_row = image.size == image.shape[view.numbers.input_feature]
    return 1 if features and (one_row or weights.shape[view.numbers.kernel_output_feature] > 1) else 0


def _loop_behind(plan: FusionPlan, anchor: Instruction) -> tuple[Group, list[Instruction]] | None:
    """The loop that computes the streamed operand for the anchor alone, and the reshapes between them."""
    side = streamed_side(anchor)
    if side is None:
        return None
    value = anchor.operands[side]
    if not isinstance(value.tensor_type.element_type, (FloatFormat, IntegerType)):
        return None
    aliases: list[Instruction] = []
    while _has_one_reader(plan, value) and value.producer is not None:
        producer = value.producer
        groups = plan.groups_of.get(producer)
        if groups:
            return (groups[0], aliases) if _is_prologue(plan, groups, value) else None
        if Trait.BITCAST not in producer.op.traits or len(aliases) == MOST_ALIASES or producer.block is not plan.block:
            return None
        aliases.append(producer)
        value = producer.operands[0]
    return None


def _has_one_reader(plan: FusionPlan, value: Value) -> bool:
    return len(value.users) == 1 and next(iter(value.users)).block is plan.block


def _is_prologue(plan: FusionPlan, groups: list[Group], value: Value) -> bool:
    """Whether a loop may be computed where its only result is read."""
    group = groups[0]
    if len(groups) > 1 or group.kind != "loop" or [each.result for each in group.roots] != [value]:
        return False
    if not all(plan.role_of(each) in (Role.POINTWISE, Role.MOVEMENT, Role.SPLAT) for each in group.members):
        return False
    sizes = [each.tensor_type for each in group.inputs]
    size, nbytes = value.tensor_type.size, value.tensor_type.nbytes
    return any(each.size == size for each in sizes) and sum(each.nbytes for each in sizes) <= MOST_BYTES * nbytes


def _take_in(plan: FusionPlan, anchor: Instruction, first: Group, aliases: list[Instruction]) -> None:
    """Make all of a loop part of the anchor's group, which begins here where the anchor stands alone."""
    groups = plan.groups_of.get(anchor)
    members = tuple(groups[0].members) if groups else (anchor,)
    before = groups[0].inputs if groups else dict.fromkeys(anchor.operands)
    inside: set[object] = {*aliases, *first.members}
    inputs = {value: None for value in (*before, *first.inputs) if value.owner not in inside}
    if len(inputs) > plan.limits.operands or len(members) + len(inside) > plan.limits.instructions:
        return
    if plan.policy is not None and plan.policy.fuses_into(first.roots[0], members) is False:
        return
    group = groups[0] if groups else plan.start_anchor(anchor)
    here = group.members[anchor]
    for member, contexts in first.members.items():
        group.members[member] = group.members.get(member, contexts)
        plan.groups_of[member] = list(
            dict.fromkeys(group if each is first else each for each in plan.groups_of[member])
        )
    for member in aliases:
        group.members[member] = here
        plan.groups_of[member] = [group]
    group.inputs = inputs
    group.evaluations = sum(map(len, group.members.values()))
    del plan.groups[first]

"""``chlo.ragged_dot``: products of groups that divide one dimension of lhs into parts of different sizes.

The ragged dimension of lhs is one of three kinds, which decide what groups mean:

    free          lhs [b, m, k], rhs [g, b, k, n], group_sizes [b, g] -> [b, m, n]: each group of rows has an rhs of its own
    contracted    lhs [b, m, k], rhs [b, k, n],    group_sizes [b, g] -> [g, b, m, n]: each group of k gives a result of its own
    batched       lhs [b, m, k], rhs [b, k, n],    group_sizes [g]    -> [b, m, n]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hlojit.ir.attributes import DotDimensionNumbers, RaggedDotDimensionNumbers
from hlojit.ir.ops import ragged_products
from hlojit.ir.ops.attribute_kinds import ArrayOfKind, EnumKind, RecordKind
from hlojit.ir.ops.definition import AttributeSpec, Constraint, Expand, InferenceRequest, OpDefinition, Operand, define
from hlojit.ir.ops.products import dot_dimension_rules, elements_complaint, free_dimensions, precision_complaint
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    compatible_extents,
    compatible_shapes,
    in_range,
    inferred,
    operand_tensor,
    show,
    unique,
)
from hlojit.ir.types import Type, tensor


def ragged_numbers(call: OpCall) -> RaggedDotDimensionNumbers:
    """The dimension numbers of a ragged_dot."""
    found: RaggedDotDimensionNumbers = call.attributes["ragged_dot_dimension_numbers"]
    return found


def dense_numbers(call: OpCall) -> DotDimensionNumbers:
    """The dimension numbers of the product without its groups."""
    dims = ragged_numbers(call)
    return DotDimensionNumbers(dims.lhs_batching, dims.rhs_batching, dims.lhs_contracting, dims.rhs_contracting)


def ragged_dimension(call: OpCall) -> int:
    """The dimension of lhs that groups divide."""
    return ragged_numbers(call).lhs_ragged[0]


def ragged_is_free(call: OpCall) -> bool:
    """Whether groups divide a dimension of lhs that is neither batched nor contracted."""
    dims = ragged_numbers(call)
    return ragged_dimension(call) not in dims.lhs_batching + dims.lhs_contracting


def _one_ragged(call: OpCall) -> str | None:
    found = ragged_numbers(call).lhs_ragged
    if len(found) != 1:
        return f"lhs_ragged_dimensions {show(found)} must be one dimension"
    return in_range("lhs_ragged_dimensions", found, operand_tensor(call, 0).rank, "rank of lhs")


def _prefix(call: OpCall) -> tuple[int, ...]:
    """The dimensions of lhs that stand before the ragged one: each combination of them may have group sizes of its own."""
    dims, ragged = ragged_numbers(call), ragged_dimension(call)
    if ragged in dims.lhs_batching:
        return dims.lhs_batching[: dims.lhs_batching.index(ragged)]
    if ragged in dims.lhs_contracting:
        return dims.lhs_batching + dims.lhs_contracting[: dims.lhs_contracting.index(ragged)]
    free = free_dimensions(operand_tensor(call, 0).rank, dims.lhs_batching, dims.lhs_contracting)
    return dims.lhs_batching + tuple(d for d in free if d < ragged)


def _group_sizes(call: OpCall) -> str | None:
    sizes, shape = operand_tensor(call, 2), operand_tensor(call, 0).shape
    before = [shape[d] for d in _prefix(call)]
    if sizes.rank == 1 or (sizes.rank == len(before) + 1 and compatible_shapes(sizes.shape[:-1], before)):
        return None
    return f"group_sizes has type {sizes}, expected shape {show([*before, 'groups'])} or ('groups',)"


def _rhs_groups_are_dimensions(call: OpCall) -> str | None:
    dims = ragged_numbers(call)
    return in_range("rhs_group_dimensions", dims.rhs_group, operand_tensor(call, 1).rank, "rank of rhs") or unique(
        "rhs_group_dimensions with the batching and contracting ones of rhs",
        dims.rhs_group + dims.rhs_batching + dims.rhs_contracting,
    )


def _rhs_groups(call: OpCall) -> str | None:
    found = ragged_numbers(call).rhs_group
    if not ragged_is_free(call):
        return (
            f"rhs_group_dimensions {show(found)} must be none: the ragged dimension is no free one" if found else None
        )
    if len(found) != 1:
        return f"rhs_group_dimensions {show(found)} must be one dimension: the ragged dimension is a free one"
    groups, extent = operand_tensor(call, 2).shape[-1], operand_tensor(call, 1).shape[found[0]]
    if compatible_extents(groups, extent):
        return None
    return f"dimension {found[0]} of rhs has size {extent}, expected {groups}, the number of groups"


RAGGED_DOT_RULES: Final = (
    *dot_dimension_rules(dense_numbers),
    Constraint("precision_config", precision_complaint),
    Constraint("elements", elements_complaint),
    Constraint("ragged", _one_ragged),
    Constraint("group_sizes", _group_sizes),
    Constraint("group_dimensions", _rhs_groups_are_dimensions),
    Constraint("groups", _rhs_groups),
)


def ragged_dot_shape(call: OpCall) -> tuple[int, ...]:
    """Groups, where each gives a result; batching dimensions, then what is left of lhs, then of rhs."""
    lhs, rhs, dims = operand_tensor(call, 0).shape, operand_tensor(call, 1).shape, ragged_numbers(call)
    groups = operand_tensor(call, 2).shape[-1:] if ragged_dimension(call) in dims.lhs_contracting else ()
    rest = free_dimensions(len(rhs), dims.rhs_batching + dims.rhs_group, dims.rhs_contracting)
    return (
        *groups,
        *(lhs[d] for d in dims.lhs_batching),
        *(lhs[d] for d in free_dimensions(len(lhs), dims.lhs_batching, dims.lhs_contracting)),
        *(rhs[d] for d in rest),
    )


def _infer(request: InferenceRequest) -> Sequence[Type]:
    """The result in the element type of lhs, where none is written (another may be)."""
    return [tensor(ragged_dot_shape(request), operand_tensor(request, 0).element_type)]


RAGGED_DOT = define(
    OpDefinition(
        "chlo.ragged_dot",
        operands=(Operand("lhs"), Operand("rhs"), Operand("group_sizes")),
        attributes=(
            AttributeSpec("ragged_dot_dimension_numbers", RecordKind(RaggedDotDimensionNumbers)),
            AttributeSpec(
                "precision_config",
                ArrayOfKind(EnumKind("precision", ("DEFAULT", "HIGH", "HIGHEST"), "chlo")),
                optional=True,
            ),
        ),
        infer=checked(RAGGED_DOT_RULES, _infer),
        widens=True,
        constraints=(*RAGGED_DOT_RULES, inferred("result")),
        reference=ragged_products.evaluate,
        lowering=Expand(ragged_products.expand),
        summary="a product over groups of rows of different sizes",
    )
)

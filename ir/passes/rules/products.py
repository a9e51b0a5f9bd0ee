"""Rules on matrix products: ``dot_general`` names the dimensions it contracts, so transposes around it dissolve."""

from __future__ import annotations

from typing import Any

from hlojit.ir.attributes import DotAlgorithm, DotDimensionNumbers
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.views import DotView, TransposeView
from hlojit.ir.passes.rewriting import Effect, Rewriter, RuleSet
from hlojit.ir.passes.rules.matching import has_one_use, made_by

RULES = RuleSet("products")


@RULES.rule("dot_general", Effect.PERMITTED)
def dot_of_transposed(rewriter: Rewriter, dot: Instruction) -> Value | None:
    """A transposed operand is read in its original order, where that leaves the order of the free dimensions."""
    numbers = DotView.of(dot).numbers
    sides = [
        _original(dot.operands[0], numbers.lhs_batching, numbers.lhs_contracting),
        _original(dot.operands[1], numbers.rhs_batching, numbers.rhs_contracting),
    ]
    if sides[0] is None and sides[1] is None:
        return None
    lhs, lhs_batching, lhs_contracting = sides[0] or (dot.operands[0], numbers.lhs_batching, numbers.lhs_contracting)
    rhs, rhs_batching, rhs_contracting = sides[1] or (dot.operands[1], numbers.rhs_batching, numbers.rhs_contracting)
    renumbered = DotDimensionNumbers(lhs_batching, rhs_batching, lhs_contracting, rhs_contracting)
    product: Value = rewriter.create(
        "dot_general", [lhs, rhs], dot.result.type, dot.attributes | {"dot_dimension_numbers": renumbered}
    )
    return product


@RULES.rule("transpose", Effect.PERMITTED)
def transpose_of_dot(rewriter: Rewriter, transpose: Instruction) -> Value | None:
    """A transposed product orders its batch dimensions or exchanges its sides instead.

    The sides change places too where a transpose is left, if it then keeps the innermost dimension innermost.
    """
    dot = made_by(transpose.operands[0], "dot_general")
    if dot is None or not has_one_use(dot.result):
        return None
    numbers = DotView.of(dot).numbers
    permutation = TransposeView.of(transpose).permutation
    batch = len(numbers.lhs_batching)
    rank = len(permutation)
    lhs_free = dot.operands[0].tensor_type.rank - batch - len(numbers.lhs_contracting)
    rhs_free = rank - batch - lhs_free
    batch_order = [position for position in permutation if position < batch]
    exchanged = bool(lhs_free and rhs_free) and permutation[-1] == batch + lhs_free - 1
    if not exchanged and batch_order == list(range(batch)):
        return None
    # ``order``: the dimensions of the old result in the order in which the new dot produces them.
    sides = [list(range(batch, batch + lhs_free)), list(range(batch + lhs_free, rank))]
    order = [*batch_order, *(sides[1] + sides[0] if exchanged else sides[0] + sides[1])]
    left = tuple(order.index(position) for position in permutation)
    lhs_batching = tuple(numbers.lhs_batching[position] for position in batch_order)
    rhs_batching = tuple(numbers.rhs_batching[position] for position in batch_order)
    operands = dot.operands
    attributes: dict[str, Any] = dict(dot.attributes)
    if exchanged:
        operands = (operands[1], operands[0])
        renumbered = DotDimensionNumbers(rhs_batching, lhs_batching, numbers.rhs_contracting, numbers.lhs_contracting)
        _exchange_precision(attributes)
    else:
        renumbered = DotDimensionNumbers(lhs_batching, rhs_batching, numbers.lhs_contracting, numbers.rhs_contracting)
    attributes["dot_dimension_numbers"] = renumbered
    shape = dot.result.tensor_type.shape
    type = dot.result.tensor_type.with_shape([shape[position] for position in order])
    product: Value = rewriter.create("dot_general", operands, type, attributes)
    if left == tuple(range(rank)):
        return product
    moved: Value = rewriter.create("transpose", [product], transpose.result.type, {"permutation": left})
    return moved


def _original(
    value: Value, batching: tuple[int, ...], contracting: tuple[int, ...]
) -> tuple[Value, tuple[int, ...], tuple[int, ...]] | None:
    """The operand of a transpose with the dimension numbers for it, if its free dimensions keep their order."""
    transpose = made_by(value, "transpose")
    if transpose is None:
        return None
    permutation = TransposeView.of(transpose).permutation
    named = {*batching, *contracting}
    free = [permutation[dimension] for dimension in range(len(permutation)) if dimension not in named]
    if free != sorted(free):
        return None
    return (
        transpose.operands[0],
        tuple(permutation[dimension] for dimension in batching),
        tuple(permutation[dimension] for dimension in contracting),
    )


def _exchange_precision(attributes: dict[str, Any]) -> None:
    precision = attributes.get("precision_config")
    if isinstance(precision, tuple) and len(precision) == 2:
        attributes["precision_config"] = (precision[1], precision[0])
    algorithm = attributes.get("algorithm")
    if isinstance(algorithm, DotAlgorithm):
        attributes["algorithm"] = DotAlgorithm(
            algorithm.rhs_precision_type,
            algorithm.lhs_precision_type,
            algorithm.accumulation_type,
            algorithm.rhs_component_count,
            algorithm.lhs_component_count,
            algorithm.num_primitive_operations,
            algorithm.allow_imprecise_accumulation,
        )

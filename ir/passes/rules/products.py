"""Rules on matrix products: ``dot_general`` names the dimensions it contracts, so transposes around it dissolve."""

from __future__ import annotations

from typing import Any

from hlojit.ir.attributes import DotAlgorithm, DotDimensionNumbers
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.passes.rewriting import Effect, Rewriter, RuleSet
from hlojit.ir.passes.rules.matching import has_one_use, made_by

RULES = RuleSet("products")


@RULES.rule("dot_general", Effect.PERMITTED)
def dot_of_transposed(rewriter: Rewriter, dot: Instruction) -> Value | None:
    """A transposed operand is read in its original order, where that leaves the order of the free dimensions."""
    numbers = dot.attributes["dot_dimension_numbers"]
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
    """A transposed product exchanges its sides (or its batch dimensions) instead."""
    dot = made_by(transpose.operands[0], "dot_general")
    if dot is None or not has_one_use(dot.result):
        return None
    numbers = dot.attributes["dot_dimension_numbers"]
    permutation = transpose.attributes["permutation"]
    batch = len(numbers.lhs_batching)
    lhs_free = dot.operands[0].tensor_type.rank - batch - len(numbers.lhs_contracting)
    rank = len(permutation)
    if sorted(permutation[:batch]) != list(range(batch)):
        return None
    left = tuple(range(batch, batch + lhs_free))
    right = tuple(range(batch + lhs_free, rank))
    lhs_batching = tuple(numbers.lhs_batching[position] for position in permutation[:batch])
    rhs_batching = tuple(numbers.rhs_batching[position] for position in permutation[:batch])
    attributes: dict[str, Any] = dict(dot.attributes)
    operands = dot.operands
    if permutation[batch:] == (*right, *left) and left and right:
        operands = (operands[1], operands[0])
        renumbered = DotDimensionNumbers(rhs_batching, lhs_batching, numbers.rhs_contracting, numbers.lhs_contracting)
        _exchange_precision(attributes)
    elif permutation[batch:] == (*left, *right):
        renumbered = DotDimensionNumbers(lhs_batching, rhs_batching, numbers.lhs_contracting, numbers.rhs_contracting)
    else:
        return None
    attributes["dot_dimension_numbers"] = renumbered
    product: Value = rewriter.create("dot_general", operands, transpose.result.type, attributes)
    return product


def _original(
    value: Value, batching: tuple[int, ...], contracting: tuple[int, ...]
) -> tuple[Value, tuple[int, ...], tuple[int, ...]] | None:
    """The operand of a transpose with the dimension numbers for it, if its free dimensions keep their order."""
    transpose = made_by(value, "transpose")
    if transpose is None:
        return None
    permutation = transpose.attributes["permutation"]
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

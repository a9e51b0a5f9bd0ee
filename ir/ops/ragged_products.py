"""What ``chlo.ragged_dot`` means, and how it becomes dense products: a loop over the groups.

Rows behind the last group are zero.  A group's product is computed with all of lhs and chosen where the group lies, so that an
infinity in another group's rhs does no harm; contracted groups put zeros in place of all that is outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from hlojit.ir.attributes import DotDimensionNumbers, RaggedDotDimensionNumbers
from hlojit.ir.ops.definition import Array, ReferenceCall
from hlojit.ir.ops.products import as_result, dot_arrays, factors, free_dimensions
from hlojit.ir.ops.rules import operand_tensors
from hlojit.ir.types import TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

INDEX = "i64"


def _without(dimensions: Sequence[int], removed: int) -> tuple[int, ...]:
    """Dimensions of an array from which one was taken."""
    return tuple(d - (d > removed) for d in dimensions)


@final
@dataclass(frozen=True, slots=True)
class RaggedDot:
    """The dimensions of a ragged product by their roles."""

    numbers: RaggedDotDimensionNumbers
    rank: int
    """Of lhs."""

    @property
    def ragged(self) -> int:
        """The dimension of lhs that groups divide."""
        return self.numbers.lhs_ragged[0]

    @property
    def is_batched(self) -> bool:
        """Whether groups divide a batching dimension: then they change nothing."""
        return self.ragged in self.numbers.lhs_batching

    @property
    def is_contracted(self) -> bool:
        """Whether each group gives a result of its own."""
        return self.ragged in self.numbers.lhs_contracting

    @property
    def dense(self) -> DotDimensionNumbers:
        """The numbers of the product with one group's rhs, or without groups."""
        n = self.numbers
        batching, contracting = n.rhs_batching, n.rhs_contracting
        if n.rhs_group:
            batching, contracting = _without(batching, n.rhs_group[0]), _without(contracting, n.rhs_group[0])
        return DotDimensionNumbers(n.lhs_batching, batching, n.lhs_contracting, contracting)

    def outer(self) -> tuple[int, ...]:
        """Dimensions of lhs in front of the ragged one, for which groups may differ."""
        n = self.numbers
        if self.is_contracted:
            return n.lhs_batching + n.lhs_contracting[: n.lhs_contracting.index(self.ragged)]
        return n.lhs_batching + tuple(d for d in self._free() if d < self.ragged)

    def _free(self) -> tuple[int, ...]:
        return free_dimensions(self.rank, self.numbers.lhs_batching, self.numbers.lhs_contracting)

    def in_result(self, dimension: int) -> int:
        """Where a dimension of lhs that is not contracted is in the product's result."""
        return (self.numbers.lhs_batching + self._free()).index(dimension)

    def in_rhs(self, dimension: int) -> int:
        """Which dimension of rhs is batched or contracted with one of lhs."""
        n = self.numbers
        if dimension in n.lhs_batching:
            return n.rhs_batching[n.lhs_batching.index(dimension)]
        return n.rhs_contracting[n.lhs_contracting.index(dimension)]


def _roles(instruction: Instruction) -> RaggedDot:
    return RaggedDot(instruction.attributes["ragged_dot_dimension_numbers"], instruction.operands[0].tensor_type.rank)


# meaning


def evaluate(call: ReferenceCall, lhs: Array, rhs: Array, group_sizes: Array) -> Array:
    """Reference semantics."""
    instruction = call.instruction
    roles, result = _roles(instruction), instruction.result.tensor_type
    lhs, rhs = factors(instruction, lhs, rhs)
    if roles.is_batched:
        return as_result(instruction, dot_arrays(lhs, rhs, roles.dense))
    ends = np.cumsum(group_sizes.astype(np.int64), axis=-1)
    starts = ends - group_sizes
    count = group_sizes.shape[-1]
    if roles.is_contracted:
        places = [roles.in_rhs(d) for d in (*roles.outer(), roles.ragged)]
        parts = []
        for group in range(count):
            left = _inside(lhs.shape, roles.outer(), roles.ragged, starts[..., group], ends[..., group])
            right = _inside(rhs.shape, places[:-1], places[-1], starts[..., group], ends[..., group])
            parts.append(dot_arrays(np.where(left, lhs, 0), np.where(right, rhs, 0), roles.dense))
        return as_result(instruction, np.stack(parts)) if parts else np.zeros(result.shape)
    value = np.zeros(result.shape, lhs.dtype)
    places = [roles.in_result(d) for d in (*roles.outer(), roles.ragged)]
    for group in range(count):
        product = dot_arrays(lhs, np.take(rhs, group, axis=roles.numbers.rhs_group[0]), roles.dense)
        mask = _inside(value.shape, places[:-1], places[-1], starts[..., group], ends[..., group])
        value = np.where(mask, product, value)
    return as_result(instruction, value)


def _inside(shape: Sequence[int], outer: Sequence[int], ragged: int, start: Array, end: Array) -> Array:
    """Where an array of ``shape`` lies in a group, of which there may be one for each combination of outer indices."""
    places = np.arange(shape[ragged]).reshape([-1 if d == ragged else 1 for d in range(len(shape))])

    def spread(bound: Array) -> Array:
        if not bound.ndim:
            return bound
        # dimensions of the bounds stand in the order of ``outer``
        ordered = np.transpose(bound, np.argsort(outer))
        extents = iter(ordered.shape)
        return ordered.reshape([next(extents) if d in outer else 1 for d in range(len(shape))])

    return np.broadcast_to((spread(start) <= places) & (places < spread(end)), shape)


# expansion


def expand(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """A product without groups, or a loop over the groups."""
    if not all(type.is_static for type in operand_tensors(instruction)):
        return None
    roles = _roles(instruction)
    if roles.is_batched:
        lhs, rhs = instruction.operands[:2]
        return [_product(builder, instruction, roles, lhs, rhs, instruction.result.tensor_type)]
    return [_loop(builder, instruction, roles)]


def _product(
    builder: Any, instruction: Instruction, roles: RaggedDot, lhs: Value, rhs: Value, result: TensorType
) -> Value:
    attributes: dict[str, Any] = {"dot_dimension_numbers": roles.dense}
    if "precision_config" in instruction.attributes:
        attributes["precision_config"] = instruction.attributes["precision_config"]
    made = builder.create("stablehlo.dot_general", [lhs, rhs], attributes=attributes, result_types=[result])
    found: Value = made.result
    return found


def _ends(builder: Any, sizes: Value) -> Value:
    """Sums of the sizes up to and with each group."""
    type = sizes.tensor_type
    last, count = type.rank - 1, type.shape[-1]
    made = builder.create(
        "stablehlo.reduce_window",
        [sizes, builder.constant(0, type.with_shape(()))],
        attributes={
            "window_dimensions": tuple(count if d == last else 1 for d in range(type.rank)),
            "padding": tuple((count - 1, 0) if d == last else (0, 0) for d in range(type.rank)),
        },
        regions=[builder.combiner("stablehlo.add", type.element_type)],
    )
    found: Value = made.result
    return found


def _loop(builder: Any, instruction: Instruction, roles: RaggedDot) -> Value:
    lhs, rhs, given = instruction.operands
    result = instruction.result.tensor_type
    count = given.tensor_type.shape[-1]
    zeros: Value = builder.constant(0, result)
    if not count:
        return zeros
    sizes = builder.convert(given, INDEX)
    ends = _ends(builder, sizes)
    starts = builder.subtract(ends, sizes)

    def step(inner: Any, group: Value, made: Value, *captured: Value) -> list[Value]:
        left, right, first, last = captured
        bounds = [_group(inner, each, group, each.tensor_type.rank - 1) for each in (first, last)]
        one = _step_contracted if roles.is_contracted else _step_free
        following = one(inner, instruction, roles, (left, right), (group, made), bounds)
        return [inner.add(group, inner.constant(1, tensor((), INDEX))), following, *captured]

    values = builder.while_(
        [builder.constant(0, tensor((), INDEX)), zeros, lhs, rhs, starts, ends],
        lambda inner, group, *_: inner.compare(group, inner.constant(count, tensor((), INDEX)), "LT"),
        step,
    )
    found: Value = values[1]
    return found


def _group(builder: Any, value: Value, group: Value, dimension: int) -> Value:
    """What a group has of an array, without the dimension of groups."""
    shape = value.tensor_type.shape
    zero = builder.constant(0, tensor((), INDEX))
    starts = [group if d == dimension else zero for d in range(len(shape))]
    sizes = tuple(1 if d == dimension else extent for d, extent in enumerate(shape))
    part = builder.create("stablehlo.dynamic_slice", [value, *starts], attributes={"slice_sizes": sizes}).result
    found: Value = builder.reshape(part, (*shape[:dimension], *shape[dimension + 1 :]))
    return found


def _mask(builder: Any, shape: tuple[int, ...], outer: Sequence[int], ragged: int, bounds: Sequence[Value]) -> Value:
    places = builder.iota(tensor(shape, INDEX), ragged)
    # one size of a group for all rows has no dimensions
    dimensions = tuple(outer) if bounds[0].tensor_type.rank else ()
    start, end = (builder.broadcast_in_dim(bound, shape, dimensions) for bound in bounds)
    found: Value = builder.and_(builder.compare(start, places, "LE"), builder.compare(places, end, "LT"))
    return found


def _step_free(
    builder: Any,
    instruction: Instruction,
    roles: RaggedDot,
    sides: tuple[Value, Value],
    state: tuple[Value, Value],
    bounds: Sequence[Value],
) -> Value:
    """The result with a group's rows."""
    lhs, rhs = sides
    group, made = state
    own = _group(builder, rhs, group, roles.numbers.rhs_group[0])
    product = _product(builder, instruction, roles, lhs, own, made.tensor_type)
    places = [roles.in_result(d) for d in (*roles.outer(), roles.ragged)]
    mask = _mask(builder, made.tensor_type.shape, places[:-1], places[-1], bounds)
    found: Value = builder.select(mask, product, made)
    return found


def _step_contracted(
    builder: Any,
    instruction: Instruction,
    roles: RaggedDot,
    sides: tuple[Value, Value],
    state: tuple[Value, Value],
    bounds: Sequence[Value],
) -> Value:
    """The results with that of a group."""
    group, made = state
    dimensions = (*roles.outer(), roles.ragged)
    parts = []
    for side, places in zip(sides, (dimensions, [roles.in_rhs(d) for d in dimensions])):
        mask = _mask(builder, side.tensor_type.shape, places[:-1], places[-1], bounds)
        parts.append(builder.select(mask, side, builder.constant(0, side.tensor_type)))
    shape = made.tensor_type.shape
    left, right = parts
    product = _product(builder, instruction, roles, left, right, made.tensor_type.with_shape(shape[1:]))
    zero = builder.constant(0, tensor((), INDEX))
    starts = [group, *(zero for _ in shape[1:])]
    wide = builder.reshape(product, (1, *shape[1:]))
    found: Value = builder.create("stablehlo.dynamic_update_slice", [made, wide, *starts]).result
    return found

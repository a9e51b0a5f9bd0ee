"""Derivatives of ``gather`` and ``scatter``: one pulls by the other.

``gather`` moves slices that lie partly outside into the operand; ``scatter`` leaves such updates out.  So indices are moved
before cotangents are scattered, and cotangents of updates that were left out are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import GatherDimensionNumbers, ScatterDimensionNumbers
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.derivatives.kinds import (
    Chosen,
    Derivative,
    Into,
    Linear,
    Pushed,
    Tangents,
    instantiated,
    number,
    zeros,
)
from hlojit.ir.ops.derivatives.pointwise import MULTIPLY
from hlojit.ir.ops.derivatives.reductions import combiner_trait
from hlojit.ir.ops.views import GatherView, ScatterView
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block, Instruction, Value


def _last_starts(
    b: Any, indices: Value, shape: Sequence[int], sizes: Sequence[int], mapped: Sequence[int], vector: int
) -> Value:
    """For each index the largest for which the slice lies inside, in the shape of ``indices``."""
    bounds = np.array([shape[d] - sizes[d] for d in mapped], np.int64)
    rank = indices.tensor_type.rank
    type = indices.tensor_type
    if vector == rank:
        return number(b, int(bounds[0]), indices)
    along = b.constant(bounds, tensor((len(mapped),), type.element_type))
    made: Value = b.broadcast_in_dim(along, type.shape, (vector,))
    return made


def _moved_inside(b: Any, i: Instruction) -> Value:
    operand, indices = i.operands
    view = GatherView.of(i)
    mapped, vector = view.numbers.start_index_map, view.numbers.index_vector_dim
    last = _last_starts(b, indices, operand.tensor_type.shape, view.sizes, mapped, vector)
    made: Value = b.clamp(number(b, 0, indices), indices, last)
    return made


def scatter_add(b: Any, into: Value, indices: Value, updates: Value, numbers: ScatterDimensionNumbers) -> Any:
    """Add updates where indices say."""
    region = b.combiner("add", into.tensor_type.element_type)
    attributes = {"scatter_dimension_numbers": numbers}
    return b.create("scatter", [into, indices, updates], attributes=attributes, regions=[region]).result


def _pull_gather(b: Any, i: Instruction, t: Value) -> Sequence[Value | Into | None]:
    operand, _ = i.operands
    n = GatherView.of(i).numbers
    numbers = ScatterDimensionNumbers(
        n.offset_dims,
        n.collapsed_slice_dims,
        n.operand_batching_dims,
        n.start_indices_batching_dims,
        n.start_index_map,
        n.index_vector_dim,
    )
    if 0 in operand.tensor_type.shape or not t.tensor_type.size:
        return [zeros(b, operand.type), None]
    inside = _moved_inside(b, i)
    return [Into(lambda b, total: scatter_add(b, instantiated(b, total, operand.type), inside, t, numbers)), None]


GATHER = Linear(_pull_gather, operands=(0,))

# scatter


def _window_sizes(numbers: ScatterDimensionNumbers, shape: Sequence[int], updates: Sequence[int]) -> tuple[int, ...]:
    windows = iter(updates[d] for d in numbers.update_window_dims)
    outside = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    return tuple(1 if d in outside else next(windows) for d in range(len(shape)))


def _gathered(b: Any, i: Instruction, value: Value) -> Value:
    """What lies where the updates go, in their shape; anything where they lie outside."""
    numbers = ScatterView.of(i).numbers
    _, indices, updates = i.operands
    gathering = GatherDimensionNumbers(
        numbers.update_window_dims,
        numbers.inserted_window_dims,
        numbers.input_batching_dims,
        numbers.scatter_indices_batching_dims,
        numbers.scatter_dims_to_operand_dims,
        numbers.index_vector_dim,
    )
    sizes = _window_sizes(numbers, value.tensor_type.shape, updates.tensor_type.shape)
    attributes = {"dimension_numbers": gathering, "slice_sizes": sizes}
    made: Value = b.create("gather", [value, indices], attributes=attributes).result
    return made


def _inside(b: Any, i: Instruction) -> Value:
    """Whether updates lie inside, in their shape."""
    numbers = ScatterView.of(i).numbers
    operand, indices, updates = i.operands
    shape, type = operand.tensor_type.shape, updates.tensor_type
    sizes = _window_sizes(numbers, shape, type.shape)
    mapped, vector = numbers.scatter_dims_to_operand_dims, numbers.index_vector_dim
    last = _last_starts(b, indices, shape, sizes, mapped, vector)
    fits = b.and_(b.compare(indices, number(b, 0, indices), "GE"), b.compare(indices, last, "LE"))
    if vector < indices.tensor_type.rank:
        true = b.constant(True, tensor((), "i1"))
        fits = b.reduce([fits], [true], b.combiner("and", "i1"), dimensions=(vector,))
    places = [d for d in range(type.rank) if d not in numbers.update_window_dims]
    made: Value = b.broadcast_in_dim(fits, type.with_element_type("i1"), places)
    return made


def _pull_updates(b: Any, i: Instruction, t: Value, mask: Value | None = None) -> Value:
    found = _gathered(b, i, t)
    inside = _inside(b, i)
    inside = inside if mask is None else b.and_(inside, mask)
    made: Value = b.select(inside, found, number(b, 0, found))
    return made


def _pull_add(b: Any, i: Instruction, t: Value) -> Sequence[Value | None]:
    return [t, None, _pull_updates(b, i, t)]


def _again(b: Any, i: Instruction, operand: Value, updates: Value) -> Any:
    """The same updates of another operand, for elements of another type."""
    element = operand.tensor_type.element_type
    scalar = tensor((), element)
    region = b.region([scalar, scalar], lambda inner, old, new: new)
    return b.create("scatter", [operand, i.operands[1], updates], attributes=i.attributes, regions=[region]).result


def _winners(b: Any, i: Instruction) -> Value | None:
    """Whether an update is the one that stays, among those of one element; None where each has its own."""
    if ScatterView.of(i).unique_indices:
        return None
    operand, _, updates = i.operands
    type = updates.tensor_type
    names = b.reshape(b.iota(tensor((type.size,), "i32"), 0), type.shape)
    none = b.constant(-1, operand.tensor_type.with_element_type("i32"))
    made: Value = b.compare(_gathered(b, i, _again(b, i, none, names)), names, "EQ")
    return made


def _pull_set(b: Any, i: Instruction, t: Value) -> Sequence[Value | None]:
    _, _, updates = i.operands
    return [_again(b, i, t, zeros(b, updates.type)), None, _pull_updates(b, i, t, _winners(b, i))]


def _push_set(b: Any, i: Instruction, tangents: Tangents) -> Tangents:
    operand, _, updates = i.operands
    of_operand, _, of_updates = tangents
    first = zeros(b, operand.type) if of_operand is None else of_operand
    return [_again(b, i, first, zeros(b, updates.type) if of_updates is None else of_updates)]


SET = Pushed(_push_set, lambda b, i, cotangents, wanted: _pull_set(b, i, cotangents[0]))  # type: ignore[arg-type]


def _push_product(b: Any, i: Instruction, tangents: Tangents) -> Tangents:
    """For updates of elements of their own: the product rule, at each."""
    operand, indices, updates = i.operands
    of_operand, _, of_updates = tangents
    parts = []
    if of_operand is not None:
        parts.append(
            b.create(
                "scatter", [of_operand, indices, updates], attributes=i.attributes, regions=[i.regions[0].clone()]
            ).result
        )
    if of_updates is not None:
        change = b.multiply(_gathered(b, i, operand), of_updates)
        parts.append(scatter_add(b, zeros(b, operand.type), indices, change, ScatterView.of(i).numbers))
    return [parts[0] if len(parts) == 1 else b.add(*parts)]


def _pull_product(b: Any, i: Instruction, cotangents: Tangents, wanted: Sequence[bool]) -> Tangents:
    operand, indices, updates = i.operands
    (t,) = cotangents
    assert t is not None
    own = b.create("scatter", [t, indices, updates], attributes=i.attributes, regions=[i.regions[0].clone()]).result
    change = b.multiply(_gathered(b, i, operand), _pull_updates(b, i, t))
    return [own, None, change]


def _is_product(region: Block) -> bool:
    body = list(region)
    return (
        len(body) == 2
        and {*body[0].operands} == {*region.arguments}
        and body[0].op.derivative is MULTIPLY
        and body[1].operands == body[0].results
    )


def _scatter(instruction: Instruction) -> Derivative | str:
    region = instruction.regions[0]
    if len(instruction.operands) != 3:
        return "a scatter of several operands has no derivative"
    if 0 in (instruction.operands[0].tensor_type.size, instruction.operands[2].tensor_type.size):
        return Pushed(
            lambda b, i, tangents: [tangents[0]], lambda b, i, cotangents, wanted: [cotangents[0], None, None]
        )
    if combiner_trait(region) is Trait.ADDS:
        return Linear(_pull_add, operands=(0, 2))
    if len(region) == 1 and region.returned[0] is region.arguments[1]:
        return SET
    if _is_product(region) and ScatterView.of(instruction).unique_indices:
        return Pushed(_push_product, _pull_product)
    return "scatter has a derivative where it adds or sets elements, or multiplies by updates of unique_indices"


SCATTER = Chosen(_scatter)

"""Batches of control flow: where elements of a batch go different ways, all ways are gone and results chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.ops.batching.kinds import Lane
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block, Instruction, Value

Lanes = Sequence[Lane]


def _chosen(work: Any, b: Any, mask: Value, chosen: Value, other: Value) -> Value:
    """By a predicate for each element of the batch."""
    shape = chosen.tensor_type.shape
    spread = b.broadcast_in_dim(mask, tensor(shape, "i1"), (0,)) if len(shape) > 1 else mask
    made: Value = b.select(spread, chosen, other)
    return made


def branch(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """``if`` and ``case``."""
    if not lanes[0].batched:
        return _one_branch(work, i, lanes[0].value)
    results = [[work.spread(lane) for lane in work.region(work.builder, region, ())] for region in i.regions]
    b, index = work.builder, lanes[0].value
    if index.tensor_type.element_type.name == "i1":
        return [_chosen(work, b, index, true, false) for true, false in zip(*results)]
    found = results[-1]
    for number in range(len(results) - 1):
        mask = b.compare(index, b.constant(number, index.type), "EQ")
        found = [_chosen(work, b, mask, own, other) for own, other in zip(results[number], found)]
    return found


def _one_branch(work: Any, i: Instruction, index: Value) -> Sequence[Value]:
    def built(region: Block) -> Block:
        made: Block = work.builder.region(
            (), lambda inner: [work.spread(lane, inner) for lane in work.region(inner, region, ())]
        )
        return made

    found: Sequence[Value] = work.builder.create(i.op.name, [index], regions=[built(r) for r in i.regions]).results
    return found


def loop(work: Any, i: Instruction, lanes: Lanes) -> Sequence[Value]:
    """Turns go on as long as any element goes on; those that are done keep their state."""
    condition, body = i.regions
    batched = [lane.batched for lane in lanes]
    while True:
        grown = [a or c for a, c in zip(batched, work.batched_returns(body, batched))]
        differs = work.batched_returns(condition, grown)[0]
        grown = [True] * len(grown) if differs else grown
        if grown == batched:
            break
        batched = grown
    b = work.builder
    states = [work.spread(lane) if each else lane.value for lane, each in zip(lanes, batched)]

    def holds(inner: Any, values: Sequence[Value]) -> Lane:
        found: Lane = work.region(inner, condition, [Lane(v, each) for v, each in zip(values, batched)])[0]
        return found

    def test(inner: Any, *values: Value) -> Value:
        lane = holds(inner, values)
        if not lane.batched:
            return lane.value
        false = inner.constant(False, tensor((), "i1"))
        made: Value = inner.reduce([lane.value], [false], inner.combiner("or", "i1"), dimensions=(0,))
        return made

    def turn(inner: Any, *values: Value) -> list[Value]:
        made = work.region(inner, body, [Lane(v, each) for v, each in zip(values, batched)])
        new = [work.spread(lane, inner) if each else lane.value for lane, each in zip(made, batched)]
        lane = holds(inner, values)
        if not lane.batched:
            return new
        return [_chosen(work, inner, lane.value, after, before) for after, before in zip(new, values)]

    results: Sequence[Value] = b.while_(states, test, turn)
    return [v if each else work.spread(Lane(v, False)) for v, each in zip(results, batched)]

"""Derivatives of control flow: branches whose branches are differentiated, loops that keep or walk back their states.

A branch runs again in the reverse pass, where its cotangents are needed.  A loop in the reverse pass reads the states that the
forward one stored, one a turn, and runs the turn again from there; so the number of turns must be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.ops.derivatives.kinds import (
    Flow,
    Pull,
    PushingWork,
    RecordingWork,
    Tangents,
    instantiated,
    is_differentiable,
    own_values,
    zeros,
)
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block, Instruction, Value

_COUNTER = tensor((), "i32")


# branches


def _push_branch(work: PushingWork, i: Instruction) -> tuple[Sequence[Value], Tangents]:
    columns = [work.active_returns(region, ()) for region in i.regions]
    active = [any(column) for column in zip(*columns)]

    def built(region: Block) -> Block:
        def body(b: Any) -> list[Value]:
            values, tangents = work.region(b, region, (), ())
            found = zip(values, tangents, active)
            return values + [instantiated(b, t, value.type) for value, t, is_active in found if is_active]

        made: Block = work.builder.region((), body)
        return made

    results = work.builder.create(i.op.name, i.operands, regions=[built(region) for region in i.regions]).results
    count = len(i.results)
    moving = iter(results[count:])
    return results[:count], [next(moving) if is_active else None for is_active in active]


def _record_branch(work: RecordingWork, i: Instruction) -> tuple[Sequence[Value], Pull]:
    captured = work.captured(i)

    def pull(b: Any, cotangents: Tangents) -> Sequence[tuple[Value, Value]]:
        def built(region: Block) -> Block:
            def body(inner: Any) -> list[Value]:
                found = work.region_cotangents(inner, region, (), (), captured, cotangents)
                return [instantiated(inner, t, value.type) for t, value in zip(found, captured)]

            made: Block = b.region((), body)
            return made

        regions = [built(region) for region in i.regions]
        return list(zip(captured, b.create(i.op.name, i.operands, regions=regions).results))

    return i.results, pull


BRANCH = Flow(_push_branch, _record_branch)

# loops


def _active_states(work: Any, body: Block, active: list[bool]) -> list[bool]:
    """Which states depend on active ones after any number of turns."""
    while True:
        found = [a or r for a, r in zip(active, work.active_returns(body, active))]
        if found == active:
            return active
        active = found


def _push_loop(work: PushingWork, i: Instruction) -> tuple[Sequence[Value], Tangents]:
    condition, body = i.regions
    count = len(i.operands)
    tangents = [work.tangent(value) for value in i.operands]
    active = _active_states(work, body, [t is not None for t in tangents])
    b = work.builder
    carried = [instantiated(b, t, v.type) for t, v, a in zip(tangents, i.operands, active) if a]

    def spread(moving: Sequence[Value]) -> list[Value | None]:
        rest = iter(moving)
        return [next(rest) if a else None for a in active]

    def turn(inner: Any, *states: Value) -> list[Value]:
        values, pushed = work.region(inner, body, states[:count], spread(states[count:]))
        return values + [instantiated(inner, t, v.type) for t, v, a in zip(pushed, values, active) if a]

    def test(inner: Any, *states: Value) -> Value:
        made: Value = inner.inline(condition, states[:count])[0]
        return made

    results = b.while_([*i.operands, *carried], test, turn)
    return results[:count], spread(results[count:])


def _stored(b: Any, stack: Value, turn: Value, state: Value) -> Any:
    """The stack with a state in its place."""
    type = state.tensor_type
    starts = [turn] + [b.constant(0, _COUNTER)] * type.rank
    return b.dynamic_update_slice(stack, b.reshape(state, (1, *type.shape)), *starts)


def _loaded(b: Any, stack: Value, turn: Value) -> Any:
    _, *shape = stack.tensor_type.shape
    starts = [turn] + [b.constant(0, _COUNTER)] * len(shape)
    part = b.create("dynamic_slice", [stack, *starts], attributes={"slice_sizes": (1, *shape)}).result
    return b.reshape(part, shape)


def _below(turns: int, taken: Value | None = None) -> Any:
    """A condition: the counter is below a constant, and below the number of turns that were taken."""

    def test(b: Any, turn: Value, *states: Value) -> Value:
        known: Value = b.compare(turn, b.constant(turns, _COUNTER), "LT")
        return known if taken is None else b.and_(known, b.compare(turn, taken, "LT"))

    return test


def _forward_loop(
    b: Any, i: Instruction, kept: Sequence[int], turns: int, *, is_exact: bool
) -> tuple[Sequence[Value], Sequence[Value], Value | None]:
    """The loop with a stack for each state that is kept: states, stacks, and how many turns there were if that was not known."""
    condition, body = i.regions
    count = len(i.operands)
    stacks = []
    for number in kept:
        type = i.operands[number].tensor_type
        stacks.append(b.constant(0, tensor((turns, *type.shape), type.element_type)))

    def turn(inner: Any, number: Value, *values: Value) -> list[Value]:
        states, rest = values[:count], values[count:]
        grown = [_stored(inner, stack, number, states[k]) for stack, k in zip(rest, kept)]
        one = inner.constant(1, _COUNTER)
        return [inner.add(number, one), *inner.inline(body, states), *grown]

    def test(inner: Any, number: Value, *values: Value) -> Value:
        known: Value = _below(turns)(inner, number)
        return known if is_exact else inner.and_(known, inner.inline(condition, values[:count])[0])

    taken, *results = b.while_([b.constant(0, _COUNTER), *i.operands, *stacks], test, turn)
    return results[:count], results[count:], None if is_exact else taken


def _record_loop(work: RecordingWork, i: Instruction) -> tuple[Sequence[Value], Pull]:
    exact = work.trip_count(i)
    turns = work.most_turns(i) if exact is None else exact
    if turns is None:
        raise work.refuse(
            i,
            "reverse mode needs a bound for the number of turns of a loop, and this one's is known only when it runs; count "
            "from a constant to a constant, or use forward mode (jvp, jacfwd)",
        )
    body, count = i.regions[1], len(i.operands)
    captured = work.captured(i)
    active = _active_states(work, body, [work.is_active(value) for value in i.operands])
    kept = [k for k in range(count) if body.returned[k] is not body.arguments[k]]
    if turns == 0:
        return own_values(work.builder, i.operands), lambda b, cotangents: _given(i.operands, cotangents)
    results, stacks, taken = _forward_loop(work.builder, i, kept, turns, is_exact=exact is not None)
    moving = [k for k in range(count) if active[k]]

    def pull(b: Any, cotangents: Tangents) -> Sequence[tuple[Value, Value]]:
        first = [instantiated(b, cotangents[k], i.operands[k].type) for k in moving]
        totals = [zeros(b, value.type) for value in captured]

        def turn(inner: Any, number: Value, *values: Value) -> list[Value]:
            ran = inner.constant(turns, _COUNTER) if taken is None else taken
            back = inner.subtract(inner.subtract(ran, inner.constant(1, _COUNTER)), number)
            states = list(i.operands)
            for k, stack in zip(kept, stacks):
                states[k] = _loaded(inner, stack, back)
            given: list[Value | None] = [None] * count
            for k, value in zip(moving, values):
                given[k] = value
            made = work.region_cotangents(inner, body, states, active, captured, given)
            variables = [*(states[k] for k in moving), *captured]
            new = [instantiated(inner, t, v.type) for t, v in zip(made, variables)]
            sums = [inner.add(old, t) for old, t in zip(values[len(moving) :], new[len(moving) :])]
            return [inner.add(number, inner.constant(1, _COUNTER)), *new[: len(moving)], *sums]

        start = b.constant(0, _COUNTER)
        _, *found = b.while_([start, *first, *totals], _below(turns, taken), turn)
        return list(zip([*(i.operands[k] for k in moving), *captured], found))

    return results, pull


def _given(operands: Sequence[Value], cotangents: Tangents) -> Sequence[tuple[Value, Value]]:
    return [(value, t) for value, t in zip(operands, cotangents) if t is not None and is_differentiable(value.type)]


LOOP = Flow(_push_loop, _record_loop)

__all__ = ["BRANCH", "LOOP"]

"""Derivatives of loops, whose states the reverse pass walks back.

    s = f(s)  n times    =>    n times: keep s; s = f(s)            n times: s = kept[--n]; t = pull(f, s, t)

Where the number of turns has a bound that is known when the program is built, and the states take no more than ``MOST_KEPT``
bytes, the forward loop keeps them all.  Elsewhere the reverse pass runs the loop again, from states that it keeps at distances:
a block of turns at a time is run and kept, and walked back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

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

_COUNTER = tensor((), "i64")

MOST_KEPT: Final = 1 << 30
"""Bytes of the states of all turns that are kept."""
BLOCK_BYTES: Final = 1 << 22
"""Bytes of the states of a block of turns that is run again, and of the states from which blocks begin."""
BLOCK_TURNS: Final = (16, 1024)
"""Turns of a block, at least and at most."""


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


def _number(b: Any, value: int) -> Any:
    return b.constant(value, _COUNTER)


def _times(b: Any, count: Value, values: Sequence[Value], body: Callable[..., Sequence[Value]]) -> list[Value]:
    """``for n in range(count): values = body(b, n, *values)``."""

    def test(inner: Any, number: Value, *states: Value) -> Value:
        made: Value = inner.compare(number, count, "LT")
        return made

    def turn(inner: Any, number: Value, *states: Value) -> list[Value]:
        return [inner.add(number, _number(inner, 1)), *body(inner, number, *states)]

    return list(b.while_([_number(b, 0), *values], test, turn)[1:])


@final
class _Loop:
    """One loop whose reverse pass is built."""

    def __init__(self, work: RecordingWork, i: Instruction):
        self.work = work
        self.condition, self.body = i.regions
        self.operands = i.operands
        count = len(i.operands)
        self.captured = work.captured(i)
        self.active = _active_states(work, self.body, [work.is_active(value) for value in i.operands])
        self.moving = [k for k in range(count) if self.active[k]]
        self.changing = [k for k in range(count) if self.body.returned[k] is not self.body.arguments[k]]

    def bytes_of(self, numbers: Sequence[int]) -> int:
        """What states take."""
        return sum(self.operands[k].tensor_type.nbytes for k in numbers)

    def stacks(self, b: Any, numbers: Sequence[int], turns: int) -> list[Value]:
        """A place for each turn of each of these states."""
        types = [self.operands[k].tensor_type for k in numbers]
        return [b.constant(0, tensor((turns, *type.shape), type.element_type)) for type in types]

    def all_states(self, numbers: Sequence[int], values: Sequence[Value]) -> list[Value]:
        """The states, of which those that do not change are read from outside."""
        states = list(self.operands)
        for k, value in zip(numbers, values, strict=True):
            states[k] = value
        return states

    def forward(self, b: Any, values: Sequence[Value]) -> list[Value]:
        """One turn of the states that change."""
        made = b.inline(self.body, self.all_states(self.changing, values))
        return [made[k] for k in self.changing]

    def start(self, b: Any, cotangents: Tangents) -> list[Value]:
        """The cotangents with which the reverse pass begins, and sums of those of captured values."""
        first = [instantiated(b, cotangents[k], self.operands[k].type) for k in self.moving]
        return [*first, *(zeros(b, value.type) for value in self.captured)]

    def back(self, b: Any, states: Sequence[Value], values: Sequence[Value]) -> list[Value]:
        """The reverse pass of one turn that began with ``states``."""
        count = len(self.moving)
        given: list[Value | None] = [None] * len(states)
        for k, value in zip(self.moving, values[:count]):
            given[k] = value
        made = self.work.region_cotangents(b, self.body, states, self.active, self.captured, given, values[count:])
        variables = [*(states[k] for k in self.moving), *self.captured]
        return [instantiated(b, t, v.type) for t, v in zip(made, variables)]

    def read(self) -> list[int]:
        """The changing states that the reverse pass reads."""
        types = [self.operands[k].type for k in self.changing]
        cotangents = [value.type for value in (*(self.operands[k] for k in self.moving), *self.captured)]
        block, b = self.work.scratch([*types, *cotangents])
        own, rest = block.arguments[: len(types)], block.arguments[len(types) :]
        b.return_(*self.back(b, self.all_states(self.changing, own), rest))
        used = self.work.used_arguments(block)
        return [k for k, argument in zip(self.changing, own) if argument in used]

    def ended(self, found: Sequence[Value]) -> list[tuple[Value, Value]]:
        """The pairs of values and cotangents that the reverse pass gives."""
        return list(zip([*(self.operands[k] for k in self.moving), *self.captured], found, strict=True))


# states that are kept


def _record_kept(loop: _Loop, kept: Sequence[int], turns: int, *, is_exact: bool) -> tuple[Sequence[Value], Pull]:
    count, b = len(loop.operands), loop.work.builder

    def turn(inner: Any, number: Value, *values: Value) -> list[Value]:
        states, rest = values[:count], values[count:]
        grown = [_stored(inner, stack, number, states[k]) for stack, k in zip(rest, kept)]
        return [inner.add(number, _number(inner, 1)), *inner.inline(loop.body, states), *grown]

    def test(inner: Any, number: Value, *values: Value) -> Value:
        known: Value = inner.compare(number, _number(inner, turns), "LT")
        return known if is_exact else inner.and_(known, inner.inline(loop.condition, values[:count])[0])

    taken, *made = b.while_([_number(b, 0), *loop.operands, *loop.stacks(b, kept, turns)], test, turn)
    results, stacks = made[:count], made[count:]

    def pull(b: Any, cotangents: Tangents) -> Sequence[tuple[Value, Value]]:
        ran = _number(b, turns) if is_exact else taken

        def turn(inner: Any, number: Value, *values: Value) -> Sequence[Value]:
            back = inner.subtract(inner.subtract(ran, _number(inner, 1)), number)
            states = list(loop.operands)
            for k, stack in zip(kept, stacks):
                states[k] = _loaded(inner, stack, back)
            return loop.back(inner, states, values)

        return loop.ended(_times(b, ran, loop.start(b, cotangents), turn))

    return results, pull


# states that are computed again


@final
@dataclass(frozen=True)
class _Blocks:
    """Turns in blocks of ``size``; states are kept where each ``every``-th block begins."""

    size: int
    turns: Value
    count: Value
    every: Value

    @classmethod
    def of(cls, b: Any, turns: Value, size: int) -> _Blocks:
        """At most ``size`` states are kept between blocks as well."""
        count = _ratio_up(b, turns, _number(b, size))
        every = b.maximum(_ratio_up(b, count, _number(b, size)), _number(b, 1))
        return cls(size, turns, count, every)

    def length(self, b: Any, number: Value, blocks: Value | None = None) -> Value:
        """The turns of a block, or of several from it on, without those behind the end."""
        most = _number(b, self.size) if blocks is None else b.multiply(blocks, _number(b, self.size))
        made: Value = b.minimum(most, b.subtract(self.turns, b.multiply(number, _number(b, self.size))))
        return made


def _ratio_up(b: Any, x: Value, y: Value) -> Any:
    return b.divide(b.add(x, b.subtract(y, _number(b, 1))), y)


def _record_again(loop: _Loop) -> tuple[Sequence[Value], Pull]:
    b = loop.work.builder

    def turn(inner: Any, number: Value, *states: Value) -> list[Value]:
        return [inner.add(number, _number(inner, 1)), *inner.inline(loop.body, states)]

    def test(inner: Any, number: Value, *states: Value) -> Value:
        made: Value = inner.inline(loop.condition, states)[0]
        return made

    turns, *results = b.while_([_number(b, 0), *loop.operands], test, turn)

    def pull(b: Any, cotangents: Tangents) -> Sequence[tuple[Value, Value]]:
        fewest, most = BLOCK_TURNS
        size = min(max(BLOCK_BYTES // max(loop.bytes_of(loop.changing), 1), fewest), most)
        blocks = _Blocks.of(b, turns, size)
        kept = _kept_between(b, loop, blocks)

        def block_back(inner: Any, number: Value, *values: Value) -> Sequence[Value]:
            block = inner.subtract(inner.subtract(blocks.count, _number(inner, 1)), number)
            return _block_back(inner, loop, blocks, kept, block, values)

        return loop.ended(_times(b, blocks.count, loop.start(b, cotangents), block_back))

    return results, pull


def _kept_between(b: Any, loop: _Loop, blocks: _Blocks) -> list[Value]:
    """The states where groups of blocks begin."""
    count = len(loop.changing)

    def group(inner: Any, number: Value, *values: Value) -> list[Value]:
        states, stacks = values[:count], values[count:]
        grown = [_stored(inner, stack, number, state) for stack, state in zip(stacks, states)]
        first = inner.multiply(number, blocks.every)
        length = blocks.length(inner, first, blocks.every)
        after = _times(inner, length, states, lambda b, n, *s: loop.forward(b, s))
        return [*after, *grown]

    start = [loop.operands[k] for k in loop.changing]
    groups = _ratio_up(b, blocks.count, blocks.every)
    return _times(b, groups, [*start, *loop.stacks(b, loop.changing, blocks.size)], group)[count:]


def _block_back(
    b: Any, loop: _Loop, blocks: _Blocks, kept: Sequence[Value], block: Value, values: Sequence[Value]
) -> list[Value]:
    count = len(loop.changing)
    group = b.divide(block, blocks.every)
    behind = b.subtract(block, b.multiply(group, blocks.every))
    states = [_loaded(b, stack, group) for stack in kept]
    skipped = b.multiply(behind, _number(b, blocks.size))
    states = _times(b, skipped, states, lambda b, n, *s: loop.forward(b, s))
    length = blocks.length(b, block)

    def keep(inner: Any, number: Value, *values: Value) -> list[Value]:
        own, stacks = values[:count], values[count:]
        grown = [_stored(inner, stack, number, state) for stack, state in zip(stacks, own)]
        return [*loop.forward(inner, own), *grown]

    stacks = _times(b, length, [*states, *loop.stacks(b, loop.changing, blocks.size)], keep)[count:]

    def turn(inner: Any, number: Value, *given: Value) -> Sequence[Value]:
        place = inner.subtract(inner.subtract(length, _number(inner, 1)), number)
        own = [_loaded(inner, stack, place) for stack in stacks]
        return loop.back(inner, loop.all_states(loop.changing, own), given)

    return _times(b, length, values, turn)


def _record_loop(work: RecordingWork, i: Instruction) -> tuple[Sequence[Value], Pull]:
    exact = work.trip_count(i)
    turns = work.most_turns(i) if exact is None else exact
    if turns == 0:
        return own_values(work.builder, i.operands), lambda b, cotangents: _given(i.operands, cotangents)
    loop = _Loop(work, i)
    if turns is not None:
        kept = loop.changing
        if turns * loop.bytes_of(kept) > BLOCK_BYTES:
            kept = loop.read()
        if turns * loop.bytes_of(kept) <= MOST_KEPT:
            return _record_kept(loop, kept, turns, is_exact=exact is not None)
    return _record_again(loop)


def _given(operands: Sequence[Value], cotangents: Tangents) -> Sequence[tuple[Value, Value]]:
    return [(value, t) for value, t in zip(operands, cotangents) if t is not None and is_differentiable(value.type)]


LOOP = Flow(_push_loop, _record_loop)

__all__ = ["LOOP"]

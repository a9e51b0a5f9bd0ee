"""How often the body of a loop runs: of ``while`` and of ``for``, over what is counted and what Python iterates over."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.ir.blocks import Block
from hlojit.ir.graph import Value
from hlojit.tracing.calls.specializing import NeedsValues
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.branches import join
from hlojit.tracing.flow.joining import Ending, Shelf
from hlojit.tracing.flow.loops import Length, Loop, Steps, Unsettled
from hlojit.tracing.flow.regions import region
from hlojit.tracing.flow.walks import Walk, walk_of
from hlojit.tracing.rewriting import UNDEFINED, RunBody, Site, State
from hlojit.tracing.tracer import Tracer

if TYPE_CHECKING:
    from hlojit.tracing.flow.runtime import TracedRuntime

SHORT: Final = 8
"""Rounds that are traced one by one without looking."""
MOST_TRACED: Final = 1024
"""Rounds that are traced one by one at most."""
LARGE: Final = 400
"""Instructions of all rounds together from which on a body is compiled as a loop."""
_PEELED: Final = 3
"""Rounds in front of a loop, in which variables may still change their types."""


class TooLong(TracingError):
    """What loops are together, whose rounds are traced one by one since they cannot be compiled as loops."""


def while_loop(runtime: TracedRuntime, site: Site, condition: Any, state: State) -> Generator[Any, Any, State]:
    """A ``while`` whose test has been traced."""
    is_unknown = type(condition) is Tracer and runtime.ops.known(condition) is None
    loop, chosen = Loop(runtime, site, state, ()), runtime.truth(site, condition)
    del state

    def step(state: State, extras: Sequence[Value]) -> Steps:
        going, after = yield RunBody(state)
        return going, after, []

    try:
        return (yield from loop.run(chosen, step, settle=True, runs=not is_unknown))
    except TooLong:
        raise
    except Exception as error:
        if is_unknown:
            raise
        # Python can run it as well.
        raise runtime.unroll(site) from error


def for_loop(runtime: TracedRuntime, site: Site, iterable: Any, state: State) -> Generator[RunBody, State, State]:
    """A ``for``."""
    # Handed on, not kept: an array that is seen here as well could not be written in the loop.
    handed = [state]
    del state
    walk = None if site in runtime.unrolled else walk_of(iterable)
    if walk is None:
        return (yield from _one_by_one(runtime, site, iterable, handed.pop()))
    if isinstance(walk.count, Tracer):
        return (yield from _traced(runtime, site, walk, walk.count, handed.pop()))
    try:
        return (yield from _known(runtime, site, walk, handed.pop()))
    except TooLong:
        raise
    except Exception as error:
        if walk.count <= MOST_TRACED:
            raise runtime.unroll(site) from error
        error.add_note(
            f"{site} this loop of {walk.count} rounds is compiled as a loop: its number of the round is known only when the "
            "function runs"
        )
        raise


def _traced(
    runtime: TracedRuntime, site: Site, walk: Walk, count: Tracer, state: State
) -> Generator[RunBody, State, State]:
    """A number of rounds that depends on arguments; it is asked for where the body cannot be that of a loop."""
    loop, condition = _counted(runtime, site, walk, 0, state)
    del state
    try:
        return (yield from loop.run(condition, _step(runtime, site, walk, 0), settle=True))
    except Exception as error:
        parameters = runtime.ops.parameters_behind(count)
        if parameters:
            raise NeedsValues(parameters) from error
        raise


def _known(runtime: TracedRuntime, site: Site, walk: Walk, state: State) -> Generator[RunBody, State, State]:
    """A number of rounds that is known; as many are traced one by one as it takes until the variables keep their types."""
    whole = False
    for position in range(walk.count):
        flag = _flag(site, state)
        if flag is True:
            break
        is_traced = isinstance(flag, Tracer)
        if not whole or is_traced:
            loop, condition = _counted(runtime, site, walk, position, state)
            checks = len(runtime.ops.checks.made)
            rest = walk.count - position
            shelf = Shelf(state)
            del state
            try:
                step = _step(runtime, site, walk, position)
                settle = is_traced or position >= _PEELED
                large = 0 if is_traced else LARGE // rest
                return (yield from loop.run(condition, step, settle=settle, large=large, runs=not is_traced))
            except Unsettled as found:
                whole = found.is_small
                del runtime.ops.checks.made[checks:]
            del loop
            state = shelf.state()
        state = yield RunBody(_begun(site, state), walk.at(position))
    return state


def _counted(runtime: TracedRuntime, site: Site, walk: Walk, position: int, state: State) -> tuple[Loop, Value]:
    """The loop from a round on, and whether it runs at all."""
    ops = runtime.ops
    first = ops.full(position, np.dtype(np.int64))
    count = ops.value(walk.count, np.dtype(np.int64))
    loop = Loop(runtime, site, state, [first], None if site.exit_flag else count)
    if not site.exit_flag and isinstance(walk.count, int):
        loop.length = Length(position, walk.count - position)
    return loop, _goes_on(runtime, site, first, count, _flag(site, state))


def _step(runtime: TracedRuntime, site: Site, walk: Walk, first: int) -> Any:
    def step(state: State, extras: Sequence[Value]) -> Steps:
        ops, (number,) = runtime.ops, extras
        count = ops.value(walk.count, np.dtype(np.int64))
        ops.ranges.note(number, first, ops.ranges.of(count)[1] - 1)
        item = walk.at(Tracer(ops.wrap(number).window, ops, weak=int))
        after = yield RunBody(state, item)
        following = ops.builder.add(number, ops.full(1, np.dtype(np.int64)))
        return _goes_on(runtime, site, following, count, _flag(site, after)), after, [following]

    return step


def _goes_on(runtime: TracedRuntime, site: Site, number: Value, count: Value, flag: Any) -> Value:
    b = runtime.ops.builder
    going = b.compare(number, count, "LT")
    if flag is False:
        return going
    left = b.create("not", [runtime.truth(site, flag)]).result
    return b.create("and", [going, left]).result


def _flag(site: Site, state: State) -> Any:
    """Whether the loop has been left by ``break`` or ``return``."""
    if not site.exit_flag:
        return False
    flag = state[site.names.index(site.exit_flag)]
    return False if flag is UNDEFINED else flag


def _begun(site: Site, state: State) -> State:
    """A state where a body begins."""
    return tuple(False if name == site.exit_flag else value for name, value in zip(site.names, state))


def _one_by_one(
    runtime: TracedRuntime, site: Site, iterable: Iterable[Any], state: State
) -> Generator[RunBody, State, State]:
    """What Python iterates over; rounds behind a ``break`` on a traced condition run where it has not been made."""
    for item in iterable:
        flag = _flag(site, state)
        if flag is True:
            break
        if isinstance(flag, Tracer):
            state = yield from _round_unless(runtime, site, flag, item, state)
        else:
            state = yield RunBody(_begun(site, state), item)
    return state


def _round_unless(
    runtime: TracedRuntime, site: Site, flag: Tracer, item: Any, state: State
) -> Generator[RunBody, State, State]:
    left = runtime.truth(site, flag)
    endings = []
    for runs in (False, True):
        with region(runtime, site, Block(())) as made:
            after = (yield RunBody(_begun(site, state), item)) if runs else state
            values = {
                name: value for name, value in zip(site.names, after) if name in site.carried or name in site.live_after
            }
            values[site.exit_flag] = _flag(site, after)
            endings.append(Ending(made, values))
            if not made.ended:
                endings[-1].look(runtime)
    joined = join(runtime, site, left, endings, dict(zip(site.names, state)))
    return tuple(joined.get(name, UNDEFINED) for name in site.names)

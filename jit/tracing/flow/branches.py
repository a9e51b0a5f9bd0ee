"""``if``, conditional expressions, ``and`` and ``or`` on traced conditions."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hlojit.ir.blocks import Block
from hlojit.ir.graph import Value
from hlojit.ir.passes.graph_facts import has_own_effect
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.changes import Changes
from hlojit.tracing.flow.joining import (
    Carried,
    Ending,
    guard,
    note_aliases,
    note_shared,
    outer_of,
    storages_of,
    tracers_of,
)
from hlojit.tracing.flow.journal import is_same
from hlojit.tracing.flow.regions import behind, code_of, region
from hlojit.tracing.rewriting import RETURN_VALUE, RETURNED, UNDEFINED, VALUE, Site, State
from hlojit.tracing.tracer import Tracer

if TYPE_CHECKING:
    from hlojit.tracing.flow.runtime import TracedRuntime


def branches(runtime: TracedRuntime, site: Site, condition: Any, before: State) -> Generator[State, State, State]:
    """Both branches of an ``if``, one behind the other."""
    chosen = runtime.truth(site, condition)
    endings = []
    for _ in range(2):
        with region(runtime, site, Block(())) as made:
            after = yield before
            ending = Ending(made, _relevant(site, after))
            if not made.ended:
                ending.look(runtime)
        endings.append(ending)
    joined = join(runtime, site, chosen, endings, dict(zip(site.names, before)))
    return tuple(joined.get(name, UNDEFINED) for name in site.names)


def expression(runtime: TracedRuntime, site: Site, condition: Any) -> Generator[bool, Any, Any]:
    """``a if condition else b``."""
    chosen = runtime.truth(site, condition)
    endings = []
    for first in (True, False):
        with region(runtime, site, Block(())) as made:
            value = yield first
            ending = Ending(made, {VALUE: value})
            if not made.ended:
                ending.look(runtime)
        endings.append(ending)
    return join(runtime, site, chosen, endings).get(VALUE, UNDEFINED)


def short_circuit(runtime: TracedRuntime, site: Site, first: Any, *, is_and: bool) -> Generator[bool, Any, Any]:
    """``first and rest``, ``first or rest``: the rest runs where the first does not decide."""
    decides = runtime.truth(site, first)
    endings = []
    for runs in (is_and, not is_and):
        with region(runtime, site, Block(())) as made:
            value = (yield True) if runs else first
            ending = Ending(made, {VALUE: value})
            if not made.ended:
                ending.look(runtime)
        endings.append(ending)
    return join(runtime, site, decides, endings).get(VALUE, UNDEFINED)


def _relevant(site: Site, state: State) -> dict[str, Any]:
    """The variables that are read behind, without an early result that is none on this path."""
    found = {name: value for name, value in zip(site.names, state) if name in site.live_after}
    if found.get(RETURNED, True) is False and RETURN_VALUE in found:
        found[RETURN_VALUE] = UNDEFINED
    return found


def join(
    runtime: TracedRuntime,
    site: Site,
    chosen: Value,
    endings: Sequence[Ending],
    before: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """What the variables are behind the branches; the first one is taken where ``chosen`` is true."""
    alive = [each for each in endings if not each.region.ended]
    if not alive:
        # Which path it is says what is raised.
        none = _carry(runtime, site, chosen, endings, [])
        runtime.end_path()
        return none
    kept: dict[str, Any] = {}
    carried: list[Carried] = []
    changes = Changes(runtime, endings)
    before = {**before, **changes.before}
    for name in endings[0].values:
        values = [each.values[name] for each in alive]
        bound = [value for value in values if value is not UNDEFINED]
        if not bound:
            continue
        first = bound[0]
        is_one = len(bound) == len(values) and all(is_same(first, value) for value in bound[1:])
        if is_one and (len(alive) == len(endings) or is_same(first, before.get(name, UNDEFINED))):
            kept[name] = first
            continue
        own = [each for each in alive if each.values[name] is not UNDEFINED]
        each = Carried(name, site, [each.leaves[name] for each in own], [each.forms[name] for each in own])
        each.may_be_unbound = name != RETURN_VALUE and not all(one.is_always_bound(name) for one in alive)
        if each.may_be_unbound and not each.forms:
            raise TracingError(
                f"{site} {site.label(name)} is bound on one path only, and used behind it; give it a value before"
            )
        carried.append(each)
    found = kept | _carry(runtime, site, chosen, endings, carried)
    _note_containers(runtime, site, alive, {each.name: found[each.name] for each in carried})
    changes.put(found)
    return found


def _note_containers(runtime: TracedRuntime, site: Site, alive: Sequence[Ending], made: Mapping[str, Any]) -> None:
    """Note what the containers in carried variables may be."""
    for name, value in made.items():
        copies = runtime.entangled.containers(value)
        for ending in alive:
            runtime.entangled.copied(copies, ending.containers.get(name, ()), f"{site} {site.label(name)}")


def _carry(
    runtime: TracedRuntime, site: Site, chosen: Value, endings: Sequence[Ending], carried: Sequence[Carried]
) -> dict[str, Any]:
    ops = runtime.ops
    location = ops.builder.location
    written = list(dict.fromkeys(storage for each in endings for storage in each.region.frame.written))
    given: list[list[Value]] = []
    for ending in endings:
        with behind(ops, ending.region.frame):
            ended = ending.region.ended
            given.append(
                [v for each in carried for v in each.values(ops, None if ended else ending.leaves.get(each.name))]
            )
            given[-1] += [ending.bound(ops, each.name) for each in carried if each.may_be_unbound]
    has_code = any(each.region.frame.code is not None for each in endings)
    for ending, values in zip(endings, given):
        frame = ending.region.frame
        with behind(ops, frame) as builder:
            values += [frame.written.get(storage, storage.value) for storage in written]
            builder.return_(*values, *([code_of(ops, frame)] if has_code else []))
    ops.builder.location = location
    blocks = [each.region.frame.block for each in endings]
    if not (carried or written or has_code or any(has_own_effect(each) for block in blocks for each in block.walk())):
        return {}
    results = list(ops.builder.create("stablehlo.if", [chosen], regions=blocks).results)
    code = results.pop() if has_code else None
    found, made = _taken_up(runtime, site, endings, carried, results)
    place = len(made)
    for each in carried:
        if each.may_be_unbound:
            guard(each.name, tracers_of(found[each.name]), results[place])
            place += 1
    for storage, value in zip(written, results[place:]):
        ops.store(storage, value)
    if code is not None:
        ops.checks.follow(ops.builder, code)
    return found


def _taken_up(
    runtime: TracedRuntime, site: Site, endings: Sequence[Ending], carried: Sequence[Carried], results: Sequence[Value]
) -> tuple[dict[str, Any], list[Tracer]]:
    """The carried variables as results of the instruction."""
    ops, place = runtime.ops, 0
    found: dict[str, Any] = {}
    tracers: dict[str, list[Tracer]] = {}
    same: dict[tuple[int, ...], Any] = {}
    for each in carried:
        own = results[place : place + len(each.forms)]
        place += len(own)
        made = [form.tracer(ops, value) for form, value in zip(each.forms, own)]
        # Two names of one array on every path stay two names of one.
        objects = tuple(id(ending.values[each.name]) for ending in endings)
        found[each.name] = same.setdefault(objects, each.made(made))
        tracers[each.name] = made
    for ending in endings:
        leaves = {name: ending.leaves[name] for name in tracers if name in ending.leaves}
        for name, own_leaves in leaves.items():
            note_aliases(site, name, tracers[name], storages_of(own_leaves), outer_of(own_leaves), ending.region.frame)
        unique = {id(found[name]): name for name in leaves}.values()
        note_shared(site, [(name, *pair) for name in unique for pair in zip(tracers[name], storages_of(leaves[name]))])
    return found, [tracer for each in tracers.values() for tracer in each]

"""``while`` on a traced condition, and ``for`` over what is long or of unknown length."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import numpy as np
from hlojit.ir.blocks import Block, clone_instruction
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.arrays.storage import Storage
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.bodies import Body
from hlojit.tracing.flow.changes import Changing
from hlojit.tracing.flow.entangled import Container
from hlojit.tracing.flow.growing import Growing
from hlojit.tracing.flow.joining import (
    Carried,
    Ending,
    Start,
    guard,
    note_aliases,
    note_shared,
    outer_of,
    storages_of,
)
from hlojit.tracing.flow.journal import Entry, is_same
from hlojit.tracing.flow.mutations import named_in_frames, references
from hlojit.tracing.flow.regions import CODE_TYPE, behind, code_of, region
from hlojit.tracing.rewriting import RETURN_VALUE, UNDEFINED, RunBody, Site, State
from hlojit.tracing.state import Form
from hlojit.tracing.tracer import Tracer

if TYPE_CHECKING:
    from hlojit.tracing.flow.runtime import TracedRuntime

_TRUTH: Final = tensor((), "i1")

ROUNDS: Final = 6
"""Of finding out what a loop carries, beside one for each variable."""

Steps = Generator[RunBody, Any, tuple[Any, State, list[Value]]]
Step = Callable[[State, Sequence[Value]], Steps]
"""Runs a body from a state and further values: gives whether to go on (traced or not), and both as they are behind it."""


class Unsettled(Exception):
    """The body is to be run in front of the loop: the variables are others behind it than before it, or it is small."""

    def __init__(self, *, is_small: bool = False):
        super().__init__()
        self.is_small = is_small


class Length(NamedTuple):
    """Of a loop whose rounds are known."""

    first: int
    """The number of its first round."""
    rounds: int


@final
class Loop:
    """One loop: finds out what it carries, records its body for that, and makes the instruction."""

    def __init__(
        self, runtime: TracedRuntime, site: Site, state: State, extras: Sequence[Value], count: Value | None = None
    ):
        """``count``: the loop runs as long as the first of ``extras`` is below it, and ends in no other way."""
        self.runtime = runtime
        self.count = count
        self.ops = runtime.ops
        self.site = site
        self.extras = list(extras)
        """Values that are no variables: the number of the round."""
        self.carried: dict[str, Carried] = {}
        self.written: list[Storage] = []
        self.start: dict[str, Start] = {}
        self.unchanged: dict[str, Any] = {}
        """Variables that mostly stay what they are, as long as the body has not been seen to bind them: those that only functions
        inside assign, and arrays that are updated in place."""
        for name, value in zip(site.names, state):
            if value is not UNDEFINED and (name in site.carried or name in site.live_after):
                if name in site.by_calls or (name in site.by_updates and _is_array(value)):
                    self.unchanged[name] = value
                else:
                    self._begin(name, value)
        self.runs = False
        self.links: dict[tuple[str, int], set[Container]] = {}
        """What the containers of variables may be where a round begins, by their numbers in the variables."""
        self.shared: dict[tuple[str, int], Container] = {}
        """One for each that several variables hold at the end of a round."""
        self.things: dict[int, Changing] = {}
        """What the body changes in lists, dictionaries and objects of outside."""
        self.length: Length | None = None
        self.growing: dict[int, Growing] = {}
        """Lists that each round appends to."""

    def _begin(self, name: str, value: Any) -> None:
        start = self.start[name] = Start(self.runtime, value)
        self.carried[name] = Carried(name, self.site, [start.leaves], [start.forms])
        self.carried[name].may_be_unbound = start.bound is not None

    # ------------------------------------------------------------- the protocol

    def run(
        self, condition: Value, step: Step, *, settle: bool, large: int = 0, runs: bool = False
    ) -> Generator[RunBody, Any, State]:
        """Record the loop; ``runs`` says that there is at least one round.

        ``settle``: variables whose type changes take one that holds both, else ``Unsettled`` is raised, as it is of a body of
        at most ``large`` instructions.
        """
        self.runs = runs
        tries = 0
        while tries < ROUNDS + len(self.site.names) + sum(len(each.slots) for each in self.things.values()) + 3 * len(
            self.growing
        ):
            tries += 1
            checks = len(self.ops.checks.made)
            body = yield from self._body(step)
            if large and sum(1 for _ in body.block) <= large:
                raise Unsettled(is_small=True)
            if not self._grow(body, settle):
                return self._end(condition, body)
            del self.ops.checks.made[checks:]
            # Its arrays may be those of the next record: nobody could write them as long as they are seen.
            del body
        shown = ", ".join(f"{name}: {' and '.join(map(str, each.forms))}" for name, each in self.carried.items())
        raise TracingError(f"{self.site} the types of the loop's variables do not settle ({shown})")

    def _body(self, step: Step) -> Generator[RunBody, Any, Body]:
        types = [value.type for value in self.extras]
        types += [form.tensor_type for each in self.carried.values() for form in each.forms]
        types += [_TRUTH for _ in self._guarded]
        types += [storage.value.tensor_type for storage in self.written]
        # The first one says whether to go on; the last one is there if something is checked.
        block = Block([_TRUTH, *types, CODE_TYPE])
        values = iter(block.arguments[1:])
        extras = [next(values) for _ in self.extras]
        number = self.runtime.entangled.number
        with region(self.runtime, self.site, block, may_end=not self.runs) as made:
            own: dict[str, Any] = {}
            tracers: dict[str, list[Tracer]] = {}
            for name, each in self.carried.items():
                tracers[name] = [form.tracer(self.ops, next(values)) for form in each.forms]
                own[name] = each.made(tracers[name])
            self._note_start(tracers)
            for name in self._guarded:
                guard(name, tracers[name], next(values))
            given = {storage: next(values) for storage in self.written}
            for storage, value in given.items():
                self.ops.store(storage, value)
            self._entangle(own)
            for thing in self.things.values():
                thing.begin(made.journal, own)
            arrays = {
                name: [each.window.storage for each in several if not each.is_scalar]
                for name, several in tracers.items()
            }
            state = self._passed(own)
            grown = {name: own[name] for each in self.growing.values() for name in each.names}
            del own, tracers
            going, after, extras = yield from step(state, extras)
            del state
            left = dict(zip(self.site.names, after))
            for growing in () if made.ended else self.growing.values():
                left |= growing.filled(grown, block.arguments[1])
            body = Body(made, block, given, extras, Ending(made, left), arrays, number)
            if not made.ended:
                body.ending.look(self.runtime)
                body.going = self.runtime.truth(self.site, going)
        return body

    @property
    def _guarded(self) -> list[str]:
        """Variables that may not be bound where a round begins."""
        return [name for name, each in self.carried.items() if each.may_be_unbound]

    def _passed(self, own: dict[str, Any]) -> State:
        """The variables where a round begins: what the one before left, if that is read."""
        site = self.site
        own = self.unchanged | own
        return tuple(
            False if name == site.exit_flag else own.get(name, UNDEFINED) if name in site.carried else UNDEFINED
            for name in site.names
        )

    def _note_start(self, tracers: dict[str, list[Tracer]]) -> None:
        """In the first round the arrays are those of before the loop."""
        for name, made in tracers.items():
            start = self.start.get(name)
            if start is not None:
                note_aliases(self.site, name, made, start.storages, start.outer, None)
        self._share(tracers, {name: start.storages for name, start in self.start.items()})

    def _share(self, tracers: dict[str, list[Tracer]], storages: Mapping[str, Sequence[Storage | None]]) -> None:
        named = [(name, *pair) for name, made in tracers.items() for pair in zip(made, storages.get(name, ()))]
        note_shared(self.site, named)

    # ------------------------------------------------------------ what is carried

    def _grow(self, body: Body, settle: bool) -> bool:
        """Take up what the body changes beyond what was carried; whether there was something."""
        found = [storage for storage, value in body.frame.written.items() if value is not body.given.get(storage)]
        new = [storage for storage in found if storage not in self.written]
        self.written += new
        changed = bool(new)
        if body.ending.region.ended:
            return changed
        for name in self.site.names:
            if self._takes_up(name, body.ending, settle):
                changed = True
        changed = self._take_changes(body, settle) or changed
        return self._links(body) or changed

    def _take_changes(self, body: Body, settle: bool) -> bool:
        """Take up what the body changes in things of outside."""
        changed, ending = False, body.ending
        seen: set[Any] = set()
        for key, entry in ending.region.journal.entries.items():
            if key in self.growing or self._may_grow(entry):
                changed = self._take_appended(body, key, entry, seen) or changed
                continue
            thing = self.things.setdefault(key, Changing(entry))
            for name, value in thing.new(entry).items():
                self._begin(name, value)
                changed = True
            for name, part in thing.slots.items():
                if name not in ending.values:
                    ending.take(self.runtime, name, entry.after[part])
                changed = self._widens(name, ending, settle) or changed
        return changed

    def _may_grow(self, entry: Entry) -> bool:
        """Whether a list is appended to, by a loop of known length, and is nothing else to its body."""
        thing = entry.thing
        if self.length is None or not isinstance(thing, list) or len(entry.after) <= len(thing):
            return False
        return named_in_frames(thing) in self.site.appended and references(thing) == 1

    def _take_appended(self, body: Body, key: int, entry: Entry, seen: set[Any]) -> bool:
        """Take up what a round appends; ``seen`` as ``Growing.require_apart`` has it."""
        assert self.length is not None
        if key not in self.growing:
            self.growing[key] = Growing(self.runtime, entry, self.length.rounds, self.length.first)
        growing = self.growing[key]
        before, appended = growing.names, list(entry.after.values())[growing.length :]
        growing.require_apart(body, entry, appended, seen)
        if not growing.takes(appended):
            return False
        for name in before:
            del self.carried[name], self.start[name]
        for name, array in growing.begin():
            self._begin(name, array)
        return True

    def _links(self, body: Body) -> bool:
        """Take up what containers of variables may be where a round begins, as rounds leave them; whether that is new."""
        places: dict[Container, tuple[str, int]] = {}
        changed = False
        for name in self.carried:
            for place, container in enumerate(body.ending.containers.get(name, ())):
                links = self.links.setdefault((name, place), set())
                outer = {each for each in container.origins if each.number <= body.number}
                for each in container.origins - outer:
                    first = places.setdefault(each, (name, place))
                    if first != (name, place):
                        # Two variables hold one: what is made of them has this place as an origin.
                        outer.add(self.shared.setdefault(first, each))
                        self.links.setdefault(first, set()).add(self.shared[first])
                changed = changed or not outer <= links
                links |= outer
        return changed

    def _entangle(self, made: Mapping[str, Any]) -> None:
        """Containers of variables are made anew, in the body and behind it: of those of before, and of what rounds leave."""
        for name, value in made.items():
            copies, label = self.runtime.entangled.containers(value), f"{self.site} {self.site.label(name)}"
            if name in self.start:
                self.runtime.entangled.copied(copies, self.start[name].containers, label)
            for place, copy in enumerate(copies):
                for origin in self.links.get((name, place), ()):
                    self.runtime.entangled.copied([copy], [origin], label)

    def _takes_up(self, name: str, ending: Ending, settle: bool) -> bool:
        site = self.site
        if name not in site.live_after and name not in site.carried:
            return False
        value = ending.values[name]
        if name in self.unchanged:
            if is_same(value, self.unchanged[name]):
                return False
            self._begin(name, self.unchanged.pop(name))
            return True
        known = self.carried.get(name)
        if value is UNDEFINED:
            if known is None or name == RETURN_VALUE or known.may_be_unbound:
                return False
            known.may_be_unbound = True
            return True
        if known is not None:
            return self._widens(name, ending, settle)
        if not settle:
            raise Unsettled
        self.carried[name] = Carried(name, site, [ending.leaves[name]], [ending.forms[name]])
        if name != RETURN_VALUE:
            if not ending.forms[name]:
                raise TracingError(f"{site} {site.label(name)} is bound in the loop only; give it a value before")
            self.carried[name].may_be_unbound = True
        return True

    def _widens(self, name: str, ending: Ending, settle: bool) -> bool:
        """Have what is carried hold what a round leaves, too."""
        known = self.carried[name]
        try:
            wider = Carried(name, self.site, [known.first, ending.leaves[name]], [known.forms, ending.forms[name]])
        except TracingError:
            if not settle:
                raise Unsettled from None
            raise
        wider.may_be_unbound = known.may_be_unbound or (name != RETURN_VALUE and not ending.is_always_bound(name))
        if wider.forms == known.forms and wider.may_be_unbound == known.may_be_unbound:
            return False
        if not settle and any(a != b for a, b in zip(map(_kind, wider.forms), map(_kind, known.forms))):
            raise Unsettled
        self.carried[name] = wider
        return True

    # -------------------------------------------------------------------- the end

    def _end(self, condition: Value, body: Body) -> State:
        """Make the instruction."""
        ops, location = self.ops, self.ops.builder.location
        body.require_no_alias(self.site, self.carried, self.written)
        with behind(ops, body.frame):
            values = [value for each in self.carried.values() for value in self._left(each, body)]
            values += [body.ending.bound(ops, name) for name in self._guarded]
        has_code = body.frame.code is not None
        is_counted = self.count is not None and body.going is not None
        if not has_code:
            body.block.arguments.pop()
        with behind(ops, body.frame) as builder:
            going = ops.full(False, np.dtype(bool)) if body.going is None else body.going
            if is_counted:
                # The condition compares: whoever looks at the loop sees how often it runs.
                going = body.block.arguments[0]
            values += [body.frame.written.get(storage, storage.value) for storage in self.written]
            extras = body.extras if body.going is not None else body.block.arguments[1 : 1 + len(self.extras)]
            builder.return_(going, *extras, *values, *([code_of(ops, body.frame)] if has_code else []))
        ops.builder.location = location
        start = [condition, *self.extras]
        # Whether a variable is bound is carried as well: it is not asked here.
        carries, ops.carries = ops.carries, True
        for name, each in self.carried.items():
            start += each.values(ops, self.start[name].leaves if name in self.start else None)
        ops.carries = carries
        start += [self._bound_before(name) for name in self._guarded]
        start += [storage.value for storage in self.written]
        if has_code:
            start.append(ops.builder.constant(0, CODE_TYPE))
        blocks = [self._test(start, has_code, is_counted), body.block]
        results = iter(ops.builder.create("stablehlo.while", start, regions=blocks).results[1 + len(self.extras) :])
        return self._taken_up(body, results, has_code)

    def _taken_up(self, body: Body, results: Iterator[Value], has_code: bool) -> State:
        """The variables behind the loop."""
        ops = self.ops
        tracers: dict[str, list[Tracer]] = {}
        found = dict(self.unchanged)
        for name, each in self.carried.items():
            tracers[name] = [form.tracer(ops, next(results)) for form in each.forms]
            found[name] = each.made(tracers[name])
        for name in self._guarded:
            guard(name, tracers[name], next(results))
        for storage in self.written:
            ops.store(storage, next(results))
        if has_code:
            ops.checks.follow(ops.builder, next(results))
        if not self.runs or body.passes_on:
            self._note_start(tracers)
        self._note_end(tracers, body)
        self._put(found)
        live = self.site.live_after
        return tuple(found.get(name, UNDEFINED) if name in live else UNDEFINED for name in self.site.names)

    def _put(self, found: Mapping[str, Any]) -> None:
        """Have things of outside hold what the loop leaves."""
        self._entangle({name: found[name] for name in self.carried})
        for thing in self.things.values():
            thing.put(found)
        for growing in self.growing.values():
            growing.extend(found, self.start)

    def _bound_before(self, name: str) -> Value:
        start = self.start.get(name)
        if start is None or start.bound is None:
            return self.ops.full(start is not None, np.dtype(bool))
        return start.bound

    def _left(self, each: Carried, body: Body) -> list[Value]:
        return each.values(self.ops, None if body.ending.region.ended else body.ending.leaves.get(each.name))

    def _test(self, start: Sequence[Value], has_code: bool, is_counted: bool) -> Block:
        block = Block([value.type for value in start])
        builder = Builder(block, location=self.ops.builder.location)
        going = block.arguments[0]
        if is_counted and self.count is not None:
            going = builder.compare(block.arguments[1], _within(builder, self.count), "LT")
        if has_code:
            none = builder.constant(0, CODE_TYPE)
            going = builder.create("and", [going, builder.compare(block.arguments[-1], none, "EQ")]).result
        builder.return_(going)
        return block

    def _note_end(self, tracers: dict[str, list[Tracer]], body: Body) -> None:
        if body.ending.region.ended:
            return
        leaves = {name: body.ending.leaves[name] for name in tracers if name in body.ending.leaves}
        for name, each in leaves.items():
            note_aliases(self.site, name, tracers[name], storages_of(each), outer_of(each), body.frame)
        self._share(tracers, {name: storages_of(each) for name, each in leaves.items()})


def _within(builder: Builder, number: Value) -> Value:
    """A number as a region has it: constants are its own."""
    producer = number.producer
    if producer is None or producer.name != "stablehlo.constant":
        return number
    return builder.insert(clone_instruction(producer, {})).result


def _is_array(value: Any) -> bool:
    return type(value) is Tracer and not value.is_scalar and value.weak is None


def _kind(form: Form) -> Any:
    return form.tensor_type, form.weak, form.is_scalar

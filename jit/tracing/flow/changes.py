"""What branches and loops change in things of outside, joined and carried as variables are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.joining import Ending
from hlojit.tracing.flow.journal import Contents, Entry, Journal, Thing, contents_of, put
from hlojit.tracing.rewriting import UNDEFINED

if TYPE_CHECKING:
    from hlojit.tracing.flow.runtime import TracedRuntime


@final
class Changes:
    """Takes up what is changed on any path as a variable of all of them, and puts it back when they are joined."""

    def __init__(self, runtime: TracedRuntime, endings: Sequence[Ending]):
        self.before: dict[str, Any] = {}
        """Of all that is changed on some path."""
        self._put: list[tuple[Entry, Contents]] = []
        alive = [each for each in endings if not each.region.ended]
        entries = {key: entry for each in reversed(alive) for key, entry in each.region.journal.entries.items()}
        for key, entry in entries.items():
            after = [_after(each, key, entry.thing) for each in alive]
            _require_alike(entry, after)
            now = contents_of(entry.thing)
            for part in after[0]:
                own = [each.region.journal.entries.get(key) for each in alive]
                if any(each is not None and part in each.changed for each in own):
                    self.before[entry.slot(part)] = now.get(part, UNDEFINED)
                    for ending, held in zip(alive, after):
                        if entry.slot(part) not in ending.values:
                            ending.take(runtime, entry.slot(part), held[part])
            self._put.append((entry, after[0]))
        for each in endings:
            each.values = dict.fromkeys(self.before, UNDEFINED) | each.values

    def put(self, found: Mapping[str, Any]) -> None:
        """Behind the branches: ``found`` holds the variables, and with them what is changed."""
        for entry, after in self._put:
            put(entry.thing, {part: found.get(entry.slot(part), held) for part, held in after.items()})


@final
class Changing:
    """One thing of outside that the body of a loop changes."""

    def __init__(self, entry: Entry):
        self._site, self._thing = entry.site, entry.thing
        self.slots: dict[str, Any] = {}
        """What of it is carried, by how messages call it."""

    def begin(self, journal: Journal, values: Mapping[str, Any]) -> None:
        """Where a round begins it holds what the one before left."""
        journal.note(self._site, self._thing, self._thing)
        self.put(values)

    def put(self, values: Mapping[str, Any]) -> None:
        """Have it hold what is carried."""
        put(self._thing, contents_of(self._thing) | {part: values[name] for name, part in self.slots.items()})

    def new(self, entry: Entry) -> dict[str, Any]:
        """What a round changed that was not carried, with what it was before the loop."""
        now = contents_of(self._thing)
        if list(now) != list(entry.after):
            before, after = (_shown(list(each), isinstance(self._thing, list)) for each in (now, entry.after))
            raise TracingError(
                f"{entry.site} {entry.name} has {before} before a round of the loop and {after} behind it; a compiled loop goes "
                "on with the same ones: make an array of the whole length before the loop, and write its elements"
            )
        new = {entry.slot(part): part for part in entry.changed if entry.slot(part) not in self.slots}
        self.slots |= new
        return {name: now[part] for name, part in new.items()}


def _after(ending: Ending, key: int, thing: Thing) -> Contents:
    entry = ending.region.journal.entries.get(key)
    return contents_of(thing) if entry is None else entry.after


def _require_alike(entry: Entry, after: Sequence[Contents]) -> None:
    first = list(after[0])
    for other in map(list, after[1:]):
        if other != first:
            shown = " on one path, and ".join(_shown(each, isinstance(entry.thing, list)) for each in (first, other))
            ways = (
                "select with a mask (x[x > 0]), or fill an array (np.zeros(n)) and count"
                if isinstance(entry.thing, list)
                else "give it the same ones on both"
            )
            raise TracingError(
                f"{entry.site} {entry.name} has {shown} on another; which path is taken is known only when the compiled function "
                f"runs: {ways}"
            )


def _shown(parts: Sequence[Any], is_list: bool) -> str:
    if is_list:
        return f"{len(parts)} element{'' if len(parts) == 1 else 's'}"
    return f"({', '.join(map(repr, parts))})"

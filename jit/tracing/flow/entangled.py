"""Lists, dictionaries and objects that are one on some path, and that the trace has as several.

    x = a if c > 0 else b       # lists: x is a third one here
    x[0] = 1                    # which of them has changed?  Refused as long as `a` or `b` is seen

Behind a branch or a loop a variable that holds containers is made anew of what the paths gave.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, final

from hlojit.tracing.calls.containers import Parted, flatten, level
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.mutations import Known
from hlojit.tracing.rewriting import Site
from hlojit.tracing.tracer import Tracer


@final
class Mark:
    """One container, without keeping arrays in it alive: who else sees one decides what may be written."""

    def __init__(self, thing: Any):
        self.identity = id(thing)
        witness = next((leaf for leaf in flatten(thing)[0] if type(leaf) is Tracer and not leaf.is_scalar), None)
        self._thing = thing if witness is None else None
        """Held, so that no other takes the identity."""
        self._witness = None if witness is None else weakref.ref(witness)

    @property
    def may_live(self) -> bool:
        """Whether it may be that what has this identity is still the same."""
        return self._witness is None or self._witness() is not None


def marks(value: Any) -> list[Mark]:
    """The containers in a value that can be changed, itself among them, in the order in which it is flattened."""
    return [Mark(thing) for thing in _changeable(value)]


Repeated: TypeAlias = tuple[str, int, str, int]
"""A variable, and the number of a container in it, which is the container of that number in the other one."""


def repeated(containers: Mapping[str, Sequence[Mark]], names: Iterable[str]) -> set[Repeated]:
    """The containers that are in variables several times."""
    seen: dict[int, tuple[str, int]] = {}
    found: set[Repeated] = set()
    for name in names:
        for place, mark in enumerate(containers.get(name, ())):
            first = seen.setdefault(mark.identity, (name, place))
            if first != (name, place):
                found.add((name, place, *first))
    return found


def _changeable(value: Any) -> Iterator[Any]:
    opened = level(value)
    if opened is None:
        return
    if not isinstance(value, (tuple, Parted, type(None))):
        yield value
    for child in opened[1]:
        yield from _changeable(child)


@final
class Entangled:
    """Of one trace; what a region noted is forgotten with it."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Mark, Mark, str]] = []

    def copied(self, site: Site, name: str, pairs: Iterable[tuple[Mark, Mark]]) -> None:
        """A variable's containers, each behind that of before which it is on one path, or in the first round."""
        for source, copy in pairs:
            self._note(
                source,
                copy,
                f"{site} {site.label(name)} is on one path what was there before, so it is not known what else a change of it "
                "changes; make it a copy there (list(...), dict(...), copy.copy)",
            )

    def shared(self, site: Site, pairs: Iterable[Repeated], copies: Mapping[str, Sequence[Mark]]) -> None:
        """Variables that hold the same container on a path."""
        for name, place, other, first in pairs:
            if name in copies and other in copies:
                self._note(
                    copies[other][first],
                    copies[name][place],
                    f"{site} {site.label(name)} and {site.label(other)} hold one container on a path, so it is not known what a "
                    "change of it changes; make one of them a copy (list(...), dict(...), copy.copy)",
                )

    def _note(self, one: Mark, other: Mark, why: str) -> None:
        if one.identity != other.identity:
            self._pairs.append((one, other, why))

    @contextmanager
    def region(self) -> Iterator[None]:
        """What is noted in it means nothing outside."""
        outer = len(self._pairs)
        try:
            yield
        finally:
            del self._pairs[outer:]

    def require_alone(self, thing: Any) -> None:
        """Raise ``TracingError`` where something else is seen that may be this thing."""
        seen: Known | None = None
        for one, other, why in self._pairs:
            if id(thing) in (one.identity, other.identity) and one.may_live and other.may_live:
                seen = seen or Known.now()
                if seen.has(one.identity if id(thing) == other.identity else other.identity):
                    raise TracingError(why)

"""Lists, dictionaries and objects that are one on some path, and that the trace has as several.

    x = a if c > 0 else b       # lists: x is a third one here, which may be a or b
    x[0] = 1                    # which of them has changed?  Refused as long as `a` or `b` is seen

Behind a branch or a loop a variable that holds containers is made anew of what the paths gave.  Each container knows its origins:
what it may be.  Two may be one if they have an origin in common.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

from hlojit.tracing.calls.containers import Parted, flatten, level
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.mutations import Known
from hlojit.tracing.tracer import Tracer


@final
class Container:
    """One that can be changed, without keeping arrays in it alive: who else sees one decides what may be written."""

    def __init__(self, thing: Any, number: int):
        self.identity = id(thing)
        self.number = number
        """Of this trace, growing: what was there before something else has a smaller one."""
        self.origins: set[Container] = {self}
        self.why = ""
        """The message of a change."""
        witness = next((leaf for leaf in flatten(thing)[0] if type(leaf) is Tracer and not leaf.is_scalar), None)
        self._thing = thing if witness is None else None
        """Held, so that no other takes the identity."""
        self._witness = None if witness is None else weakref.ref(witness)

    @property
    def may_live(self) -> bool:
        """Whether it may be that what has this identity is still the same."""
        return self._witness is None or self._witness() is not None


@final
class Entangled:
    """The containers of one trace of which copies were made."""

    def __init__(self) -> None:
        self._noted: dict[int, Container] = {}
        self.number = 0
        """How many have been noted."""

    def containers(self, value: Any) -> list[Container]:
        """Those in a value, itself among them, in the order in which it is flattened."""
        return [self._container(thing) for thing in _changeable(value)]

    def _container(self, thing: Any) -> Container:
        found = self._noted.get(id(thing))
        if found is None or not found.may_live:
            self.number += 1
            found = self._noted[id(thing)] = Container(thing, self.number)
        return found

    def copied(self, copies: Sequence[Container], sources: Iterable[Container], label: str) -> None:
        """The containers of a variable, each of which is one of ``sources`` on a path, or in a round."""
        for copy, source in zip(copies, sources):
            if copy is not source:
                copy.origins |= source.origins
                copy.why = (
                    f"{label} may be another one that is seen here, depending on the path that is taken, so it is not known what "
                    "a change of one of them changes; make it a copy (list(...), dict(...), copy.copy)"
                )

    def require_alone(self, thing: Any) -> None:
        """Raise ``TracingError`` where something else is seen that may be this thing."""
        own = self._noted.get(id(thing))
        if own is None or not own.may_live:
            return
        seen: Known | None = None
        for other in self._noted.values():
            if other is not own and other.may_live and other.origins & own.origins:
                # What a function returns is changed no more where it has returned.
                seen = seen or Known.now(returned=False)
                if seen.has(other.identity):
                    raise TracingError(own.why or other.why)


def _changeable(value: Any) -> Iterator[Any]:
    opened = level(value)
    if opened is None:
        return
    if not isinstance(value, (tuple, Parted, type(None))):
        yield value
    for child in opened[1]:
        yield from _changeable(child)

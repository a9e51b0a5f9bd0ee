"""What a process makes once, when it is first needed.

    runtime = Once(Runtime)
    runtime()               # made by the first call
    runtime.made            # None before that

Threads that want it meanwhile wait for the one that makes it (``hlojit.ir.in_flight``).  No lock is held: a signal handler that
comes in between makes one of its own, which is then everybody's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, final

from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.in_flight import InFlight, Role

_Made = TypeVar("_Made")

_works = InFlight()


@final
class Once(Generic[_Made]):
    """Calls ``make`` for the first who asks; see the module's docstring."""

    def __init__(self, make: Callable[[], _Made], begin: Callable[[_Made], object] = lambda made: None):
        """``begin`` is called with the one that everybody gets: to register it somewhere, say."""
        self._make = make
        self._begin = begin
        self._kept: dict[str, _Made] = {}

    @property
    def made(self) -> _Made | None:
        """What was made, if it was."""
        return self._kept.get("made")

    def __call__(self) -> _Made:
        """What there is one of."""
        while (found := self._kept.get("made")) is None:
            with _works.turn(self) as role:
                if role is not Role.AFTER and not self._kept:
                    self._add()
        return found

    def _add(self) -> None:
        # Others, inside already, may be waiting for this turn.
        with fork_gate.inside_for_another:
            made = self._make()
            if self._kept.setdefault("made", made) is made:
                self._begin(made)

"""Plugins that a traced function brings in scope itself, by ``with using(...)`` or by calling a function with ``plugins=``.

One program is compiled in one environment, and its records are looked up by name.  So what is in scope where an
instruction is made is added to the environment in which the function was called.  Where both have something of one name and
mean different things, no environment does for both, and the function is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import final

from hlojit.ir.environment import Contribution, Snapshot
from hlojit.tracing.errors import TracingError


@final
class Scopes:
    """The environment that the program of one traced function needs."""

    def __init__(self, outer: Snapshot):
        self.outer = outer
        self.needed = outer
        """That of the call, with what the function has brought."""
        self._latest = outer

    def enter(self, here: Snapshot) -> None:
        """Something is made while ``here`` is in scope; raises ``TracingError`` if it means other things than the rest."""
        if here is self._latest:
            return
        self._latest = here
        if here.identity == self.needed.identity:
            return
        extra = [each for each in here.contributions.values() if not self._has(each)]
        if extra:
            for each in extra:
                self._check(each)
            self.needed = Snapshot(self.needed.environment, self.needed, map(self._named_apart, extra))

    def _has(self, contribution: Contribution) -> bool:
        return any(each.identity == contribution.identity for each in self.needed.contributions.values())

    def _check(self, contribution: Contribution) -> None:
        for kind, records in contribution.tables.items():
            present = self.needed.table(kind)
            for name, record in records.items():
                if name in present and present[name] != record:
                    owner = self.needed.contributions.get(self.needed.owners.get((kind, name), ""))
                    other = f"the plugin {owner.origin}" if owner is not None else "hlojit"
                    raise TracingError(
                        f"the {kind} {name!r} means two things in one program: here it is that of the plugin "
                        f"{contribution.origin}, which is in scope inside of the traced function (using(...), "
                        f"or plugins= of a jitted function that it calls), and elsewhere that of {other}; call the functions one "
                        "after the other, outside of a traced one, or give one of the two another name"
                    )

    def _named_apart(self, contribution: Contribution) -> Contribution:
        """One environment has one plugin of a name, and these two are different ones."""
        name, number = contribution.owner, 2
        while name in self.needed.contributions:
            name, number = f"{contribution.owner} ({number})", number + 1
        return replace(contribution, owner=name)

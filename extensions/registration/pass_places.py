"""Places of plugins' passes that name nothing: said once each, as a ``PluginWarning``, when a program is compiled.

    PluginWarning: pass 'nova-tile' (hlojit-nova 0.1.0): targets names the back end 'nvoa', which nobody registers; did you
    mean 'nova'?

A pass may be placed by one of a package that is not installed, or for its device: that is no error.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Final

from hlojit.extensions.backends.registered import BACKENDS, PASSES, RegisteredPass
from hlojit.extensions.kernels.table import complaints_of_kernels
from hlojit.ir.environment import Snapshot, tables
from hlojit.ir.errors import PluginWarning
from hlojit.ir.near_names import did_you_mean
from hlojit.ir.passes.pass_manager import PHASES, Pass
from hlojit.ir.passes.registry import BUILTIN_PASSES
from hlojit.ir.warn import warn

_looked_at: Final[weakref.WeakSet[Snapshot]] = weakref.WeakSet()
"""States of the tables that have been looked through."""
_said: Final[set[str]] = set()


def warn_of_places(pipeline: Iterable[Pass]) -> None:
    """Warn of what passes of the current environment name and nobody has; ``pipeline`` are the passes to run."""
    scope = tables()
    if scope in _looked_at:
        return
    _looked_at.add(scope)
    passes: dict[str, RegisteredPass] = dict(scope.table(PASSES))
    for message in complaints_of_kernels(scope):
        _say(message)
    if not passes:
        return
    known: dict[str, set[str]] = {}
    placed: list[Pass | type[Pass]] = [*BUILTIN_PASSES, *pipeline, *(each.pass_ for each in passes.values())]
    for one in placed:
        known.setdefault(one.name, set()).add(one.phase)
    for each in passes.values():
        for message in _complaints(each, known, scope):
            _say(message)


def _say(message: str) -> None:
    if message not in _said:
        _said.add(message)
        warn(message, PluginWarning)


def _complaints(found: RegisteredPass, passes: dict[str, set[str]], scope: Snapshot) -> Iterator[str]:
    pass_ = found.pass_
    what = f"pass {pass_.name!r} ({found.source})"
    backends = scope.table(BACKENDS)
    for name in pass_.targets:
        if name not in backends:
            yield f"{what}: targets names the back end {name!r}, which nobody registers{did_you_mean(name, backends)}"
    for attribute in ("before", "after"):
        for name in getattr(pass_, attribute):
            if name not in passes:
                yield f"{what}: {attribute} names the pass {name!r}, which nobody registers{did_you_mean(name, passes)}"
            elif all(_is_against_phases(pass_.phase, attribute, phase) for phase in passes[name]):
                yield (
                    f"{what}: {attribute} names the pass {name!r}, which runs in the phase {min(passes[name])!r}; "
                    f"{pass_.name!r} runs in {pass_.phase!r}, and phases come first"
                )


def _is_against_phases(phase: str, attribute: str, other: str) -> bool:
    here, there = PHASES.index(phase), PHASES.index(other)
    return here > there if attribute == "before" else here < there

"""By what plugins count in the key of a compiled program: what of theirs can take part in its compilation, by content.

    plugin_shares(text, "cpu")        # {"nova": "1f0c...", ...}, empty where no plugin has anything to do with the program

Third-party code takes part in a compilation in three ways.  Passes and kernels for the back end, and a back end itself, see
every program.  Records of ops, element types and custom calls are looked up by name, and a name is found in the program - or
in the hands of code that builds instructions: a pass, a back end, the expansion of an op or of a call.  Where such code takes
part everything that is registered may come into the program, and all of it counts.  Where none does, a plugin whose names the
program does not have is idle: its content need not be looked at, and what of it has no content keeps nothing from the cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hlojit.extensions import Kernel, Pass, PluginRecord
from hlojit.extensions.backends.registered import BACKENDS
from hlojit.extensions.registration.checks import holds_elsewhere
from hlojit.ir.environment import CUSTOM_CALLS, ELEMENT_TYPES, OPS, Contribution, tables
from hlojit.ir.fingerprint import fingerprint
from hlojit.ir.formats import IntegerType


@dataclass(frozen=True, slots=True)
class _Share:
    """What of a plugin's a compilation for one back end may come upon."""

    record: PluginRecord
    passes: list[Pass]
    kernels: list[Kernel]
    brings_back_end: bool
    names_formats: bool
    """Whether the program has a name of the plugin's element types."""
    names_code: bool
    """Whether it has one of the plugin's ops or custom calls, which may expand to anything."""

    @property
    def builds(self) -> bool:
        """Whether code of the plugin's may put instructions into the program."""
        return bool(self.passes) or self.brings_back_end or self.names_code

    @property
    def takes_part(self) -> bool:
        """Whether code of the plugin's may run at all."""
        return self.builds or bool(self.kernels) or self.names_formats


def plugin_shares(program: str, backend: str) -> dict[str, str]:
    """Name and identity of the plugins that count for a program, given as its text; raises ``NotKeyable``."""
    scope = tables()
    others = {
        name: each
        for name, each in sorted(scope.contributions.items())
        if not each.built_in and not each.failure and isinstance(each.record, PluginRecord)
    }
    if not others:
        return {}
    searched, owner = _without_data(program), scope.owners.get((BACKENDS, backend), "")
    # A back end of theirs may ask for what is meant for other ones.
    for_all = owner in others
    found = {name: _share(each, searched, backend, owner, for_all) for name, each in others.items()}
    if not any(each.takes_part for each in found.values()):
        return {}
    anything = any(each.builds for each in found.values())
    return {name: _identity(share, anything=anything) for name, share in found.items()}


def _share(contribution: Contribution, program: str, backend: str, owner: str, for_all: bool) -> _Share:
    """``owner`` brings the back end; ``for_all``: passes and kernels for other ones count, too."""
    record: PluginRecord = contribution.record
    formats, ops, calls = (contribution.tables.get(kind, {}) for kind in (ELEMENT_TYPES, OPS, CUSTOM_CALLS))
    return _Share(
        record,
        [each for each in record.passes if for_all or not each.targets or backend in each.targets],
        [each for each in record.kernels if for_all or each.backend == backend],
        owner == record.name,
        any(isinstance(each, IntegerType) or _has(program, _words(name)[-1:]) for name, each in formats.items()),
        any(_has(program, [name.removeprefix("func.")]) for name in ops)
        or any(_has(program, target.split("*")) for target in calls),
    )


def _identity(share: _Share, *, anything: bool) -> str:
    """The identity of a plugin where third-party code takes part; ``anything``: and may build instructions."""
    record = share.record
    counts: tuple[list[Any], ...]
    if anything:
        counts = (record.formats, record.ops, share.passes, record.custom_calls, share.kernels)
    elif share.takes_part:
        # Kernels and codecs build no instructions; they may know the plugin's own types and ops by name.
        counts = (record.formats, record.ops, [], [], share.kernels)
    else:
        counts = ([], [], [], [], [])
    everything = (record.formats, record.ops, record.passes, record.custom_calls, record.kernels)
    if [len(each) for each in counts] == [len(each) for each in everything]:
        return fingerprint(counts)
    # Nobody is expected to ask for the rest.  Who does, by a name that he makes up, finds what was registered.
    stated = (record.name, record.package, record.version, record.identity if holds_elsewhere(record) else "")
    return fingerprint((counts, stated))


# --------------------------------------------------------------------------------------------------- names in programs


def _has(program: str, pieces: Iterable[str]) -> bool:
    """Whether a program may have a name that consists of these pieces; an escape or a number may hide any name."""
    return "\\" in program or all(piece in program or piece.startswith("0x") for piece in pieces)


def _words(name: str) -> list[str]:
    """The words of a type's name, which a program may write with blanks between them: ``complex< acme6 >``."""
    return re.findall(r"\w+", name)


def _without_data(program: str) -> str:
    """A program without the bytes of its constants, which are most of a text and name nothing: ``dense<"0x0000803F">``."""
    first, *rest = program.split('"0x')
    return "".join((first, *(piece[max(piece.find('"'), 0) :] for piece in rest)))

"""Errors of plugins say which package brought what they are about: put in where an error leaves hlojit.

    custom call target 'nova.silu': the expansion failed: KeyError('unit 7')
    custom call target 'nova.silu' (hlojit-nova 0.1.0): the expansion failed: KeyError('unit 7')

Code that finds a mistake knows an op's name, a target's or a format's; whose it is stands in the tables.  What a notebook or
script registered has no package, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hlojit.ir.environment import Snapshot, tables
from hlojit.ir.errors import PluginError


@contextmanager
def plugins_named() -> Iterator[None]:
    """Name packages in the ``PluginError`` that leaves the block."""
    try:
        yield
    except PluginError as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (with_sources(error.args[0], tables()),)
        raise


def with_sources(message: str, scope: Snapshot) -> str:
    """The message with the package behind the name that it begins with."""
    for (kind, name), owner in scope.owners.items():
        contribution = scope.contributions.get(owner)
        record = contribution.record if contribution is not None else None
        if contribution is None or contribution.built_in or not getattr(record, "package", ""):
            continue
        for begin in (f"{kind} {name!r}", f"the {kind} {name!r}"):
            if message.startswith(begin) and not message.startswith(f"{begin} ({contribution.source})"):
                return f"{begin} ({contribution.source}){message.removeprefix(begin)}"
    return message

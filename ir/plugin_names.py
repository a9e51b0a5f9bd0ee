"""Errors of plugins say which package brought what they are about: put in where an error leaves hlojit.

    custom call target 'nova.silu': the expansion failed: KeyError('unit 7')
    custom call target 'nova.silu' (hlojit-nova 0.1.0): the expansion failed: KeyError('unit 7')

Code that finds a mistake knows an op's name, a target's or a format's; whose it is stands in the tables.  What a notebook or
script registered has no package, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hlojit.ir.environment import ELEMENT_TYPES, Snapshot, tables
from hlojit.ir.errors import HlojitError


@contextmanager
def plugins_named() -> Iterator[None]:
    """Name packages in the error that leaves the block."""
    try:
        yield
    except HlojitError as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (with_sources(error.args[0], tables()),)
        raise


def with_sources(message: str, scope: Snapshot | None = None) -> str:
    """The message with the package behind the name that it begins with; by default as the tables are now."""
    scope = scope or tables()
    for (kind, name), owner in scope.owners.items():
        contribution = scope.contributions.get(owner)
        record = contribution.record if contribution is not None else None
        if contribution is None or contribution.built_in or not getattr(record, "package", ""):
            continue
        for begin in _beginnings(kind, name):
            rest = message.removeprefix(begin)
            if (
                message.startswith(begin)
                and not rest.startswith(f" ({contribution.source})")
                and not rest[:1].isalnum()
            ):
                return f"{begin} ({contribution.source}){rest}"
    return message


def _beginnings(kind: str, name: str) -> Iterator[str]:
    yield f"{kind} {name!r}"
    yield f"the {kind} {name!r}"
    if kind == ELEMENT_TYPES:
        for function in ("decode", "encode", "scaling"):
            yield f"the {function} function of {name}"

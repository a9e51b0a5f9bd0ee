"""Names that may be meant where an unknown one is given."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A clause with near names, or nothing: ``; did you mean 'nova-tile'?``."""
    near = difflib.get_close_matches(name, sorted(set(known)), n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """A message for a name that is in no table, with near ones."""
    known = sorted(known)
    return f"unknown {kind} {name!r}; known: {', '.join(known) or 'none'}{did_you_mean(name, known)}"

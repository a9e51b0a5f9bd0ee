"""Names that may be meant where an unknown one is given."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A clause with near names, in whatever case, or nothing: ``; did you mean 'nova-tile'?``."""
    spelled: dict[str, list[str]] = {}
    for each in sorted(set(known)):
        spelled.setdefault(each.lower(), []).append(each)
    folded = difflib.get_close_matches(name.lower(), spelled, n=3)
    whole = [each for each in spelled if each.endswith(f".{name.lower()}")]  # an op without its dialect
    folded = [*whole, *(each for each in folded if each not in whole)]
    near = [each for found in folded for each in spelled[found] if each != name][:3]
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """A message for a name that is in no table, with near ones."""
    known = sorted(known)
    return f"unknown {kind} {name!r}; known: {', '.join(known) or 'none'}{did_you_mean(name, known)}"

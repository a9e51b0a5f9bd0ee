"""The ways in which one kernel can be made, for whoever chooses among them by measuring.

A plan that has alternatives lists them, in an order that depends on the instruction and the machine alone; the first is what is
taken where nobody measures.  A name means the same as long as hlojit's version is the same::

    first, *others = candidates(instruction, target)
    code = emit_kernel(instruction, target, dialect, "symbol", candidate=others[0].name)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

MOST_CANDIDATES: Final = 8
"""Of one kernel: the best by the plan's estimate."""
LIBRARY: Final = "library"
"""The name of a library's call in the place of a kernel, by the way that it takes first."""
MOST_WAYS: Final = 4
"""Of a library, which are candidates: ``library``, ``library 2``, ..."""


@final
@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to make a kernel.  Those that combine in the same ``order`` compute the same bits."""

    name: str
    order: str = ""


def library_name(way: int) -> str:
    """Of a candidate that is a library's call; ``way`` counts from 0."""
    return f"{LIBRARY} {way + 1}" if way else LIBRARY


def library_way(name: str) -> int | None:
    """The way of a library's call, or None for candidates that are kernels."""
    word, _, number = name.partition(" ")
    return (int(number) - 1 if number else 0) if word == LIBRARY else None

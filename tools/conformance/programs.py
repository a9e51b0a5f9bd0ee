"""A program of a suite, and what became of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OP: re.Pattern[str] = re.compile(
    r"\b(?:stablehlo|chlo|shape|tensor|arith|interpreter|tosa|sparse_tensor)\.[a-z_0-9]+\b(?!\s*[<(]?\s*=)"
)
_NOT_OPS = frozenset({"stablehlo.constant", "stablehlo.return", "stablehlo.channel_handle", "stablehlo.token"})
_ATTRIBUTE: re.Pattern[str] = re.compile(r"[#!](?:stablehlo|chlo)\.[a-z_0-9]+")


@dataclass(frozen=True)
class Program:
    """One program: ``task`` says what is done with it (``tasks.py``), ``name`` is file and number of the module in it."""

    suite: str
    name: str
    task: str
    text: str = ""
    labels: tuple[str, ...] = ()
    """What a task needs besides the text; where there is no text, they stand in the table of ops."""

    def ops(self) -> tuple[str, ...]:
        """The ops that it contains, without constants and returns, each once."""
        if not self.text:
            return self.labels
        found = set(_OP.findall(_ATTRIBUTE.sub(" ", self.text)))
        return tuple(sorted(found - _NOT_OPS))


@dataclass(frozen=True)
class Outcome:
    """What became of a program.  ``kind`` is empty if it passed, otherwise what happened, and ``reason`` says it in words.

    ``refused`` (a valid program), ``unsupported``, ``wrong`` (a result), ``accepted`` (an invalid program), ``error`` (any other
    exception), ``crash`` (the process ended), ``hang``.
    """

    program: Program
    reason: str = ""
    kind: str = ""
    seconds: float = 0.0
    ops: tuple[str, ...] = ()
    cannot_pass: str = ""
    """Why the program cannot pass, if it did not and that is known (``reasons.py``)."""

    @property
    def is_failure(self) -> bool:
        """Whether the program did not pass, and there is no reason for that."""
        return bool(self.kind) and not self.cannot_pass

    @property
    def passed(self) -> bool:
        return not self.kind

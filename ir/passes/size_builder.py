"""Pointwise rules on sizes: a ``ScalarBuilder`` whose scalars are size expressions.

What ``stablehlo.add`` is of two sizes is the rule of its record; so no op is named here, and a plugin's op on integers computes
sizes as well.  Sizes are taken to fit the type that the program computes them in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlojit.ir.sizes import Size, apply


class NotASize(Exception):
    """The rule does what sizes do not: floats, bits, shifts."""


@dataclass(frozen=True, slots=True)
class SizeScalar:
    """A size in a rule's hands."""

    kind: str
    size: Size


_DIRECT = {"add": "add", "sub": "subtract", "mul": "multiply", "sdiv": "divide", "srem": "remainder"}
_DIRECT |= {"udiv": "divide", "urem": "remainder"}
_LOGICAL = {"and_": "and", "or_": "or", "xor": "xor"}


class SizeBuilder:
    """Implements what rules on integers ask of a ``ScalarBuilder``."""

    def constant(self, kind: str, value: float) -> SizeScalar:
        """A number."""
        if kind[0] != "i" or value != int(value):
            raise NotASize
        return SizeScalar(kind, int(value))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _DIRECT:
            return lambda a, b: SizeScalar(a.kind, apply(_DIRECT[name], a.size, b.size))
        if name in _LOGICAL:
            return lambda a, b: self._logical(_LOGICAL[name], a, b)
        if name in ("sext", "zext", "trunc"):
            return lambda a, kind: self._resized(name, a, kind)
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotASize(name)

    def _resized(self, name: str, a: SizeScalar, kind: str) -> SizeScalar:
        if kind == "i1" or (name == "sext" and a.kind == "i1"):
            raise NotASize
        return SizeScalar(kind, a.size)

    def _logical(self, operation: str, a: SizeScalar, b: SizeScalar) -> SizeScalar:
        if a.kind != "i1":
            raise NotASize
        return SizeScalar("i1", apply(operation, a.size, b.size))

    def icmp(self, predicate: str, a: SizeScalar, b: SizeScalar) -> SizeScalar:
        """A comparison; sizes are no numbers beyond the range of their type, signed or not."""
        first, second = a.size, b.size
        kind = predicate[-2:] if predicate not in ("eq", "ne") else predicate
        if kind in ("gt", "le"):
            first, second = second, first
        found = apply("equal" if kind in ("eq", "ne") else "less", first, second)
        return SizeScalar("i1", apply("xor", found, 1) if kind in ("ne", "ge", "le") else found)

    def select(self, condition: SizeScalar, a: SizeScalar, b: SizeScalar) -> SizeScalar:
        """One of two."""
        return SizeScalar(a.kind, apply("select", condition.size, a.size, b.size))

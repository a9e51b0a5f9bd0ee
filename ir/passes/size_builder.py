"""Pointwise rules on sizes: a ``ScalarBuilder`` whose scalars are size expressions.

What ``stablehlo.add`` is of two sizes is the rule of its record; so no op is named here, and a plugin's op on integers computes
sizes as well.

Sizes are numbers without end, those of the program wrap.  They are the same as long as what is computed fits its type, which is
required of the call: ``require(size, low, high)`` is told of every size that a rule reads as a number of its type.  Numbers that
are known wrap at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlojit.ir.sizes import Size, SizeExpression, apply


class NotASize(Exception):
    """The rule does what sizes do not: floats, bits."""


Requirement = Callable[[SizeExpression, int, int], None]
"""``require(size, low, high)``: the size is taken to lie between these, both included."""


@dataclass(frozen=True, slots=True)
class SizeScalar:
    """A size in a rule's hands; in ``kind`` it is what is left of it in that many bits."""

    kind: str
    size: Size


_RING = {"add": "add", "sub": "subtract", "mul": "multiply"}
"""Of these the low bits follow from the low bits, whatever the sign."""
_QUOTIENTS = {"sdiv": "divide", "srem": "remainder", "udiv": "divide", "urem": "remainder"}
_LOGICAL = {"and_": "and", "or_": "or", "xor": "xor"}


def limits(bits: int, *, signed: bool) -> tuple[int, int]:
    """The least and the largest number of so many bits."""
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def within(size: Size, low: int, high: int, require: Requirement) -> Size:
    """The number between ``low`` and ``high`` with the same low bits; a size that is not known is taken to be one."""
    if isinstance(size, int):
        return (size - low) % (high - low + 1) + low
    require(size, low, high)
    return size


class SizeBuilder:
    """Implements what rules on integers ask of a ``ScalarBuilder``; ``signed`` says what operands are compared as."""

    def __init__(self, require: Requirement, *, signed: bool):
        self._require = require
        self._signed = signed

    def constant(self, kind: str, value: float) -> SizeScalar:
        """A number."""
        if kind[0] != "i" or value != int(value):
            raise NotASize
        return SizeScalar(kind, int(value))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _RING:
            return lambda a, b: SizeScalar(a.kind, apply(_RING[name], a.size, b.size))
        if name in _QUOTIENTS:
            return lambda a, b: SizeScalar(a.kind, apply(_QUOTIENTS[name], *self._numbers(name[0] == "s", a, b)))
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
        return SizeScalar(kind, a.size if name == "trunc" else self._numbers(name == "sext", a)[0])

    def _numbers(self, signed: bool, *scalars: SizeScalar) -> list[Size]:
        """The sizes, which are taken to fit as numbers with or without a sign."""
        return [
            scalar.size
            if scalar.kind == "i1"
            else within(scalar.size, *limits(int(scalar.kind[1:]), signed=signed), self._require)
            for scalar in scalars
        ]

    def lshr(self, a: SizeScalar, amount: SizeScalar) -> SizeScalar:
        """A quotient of a number without sign, which simplification has made a shift."""
        if not isinstance(amount.size, int):
            raise NotASize
        return SizeScalar(a.kind, apply("divide", self._numbers(False, a)[0], 1 << amount.size))

    def _logical(self, operation: str, a: SizeScalar, b: SizeScalar) -> SizeScalar:
        if a.kind != "i1" and operation == "and" and isinstance(b.size, int) and b.size & (b.size + 1) == 0 <= b.size:
            # Such a mask gives the remainder of a number without sign.
            return SizeScalar(a.kind, apply("remainder", self._numbers(False, a)[0], b.size + 1))
        if a.kind != "i1":
            raise NotASize
        return SizeScalar("i1", apply(operation, a.size, b.size))

    def icmp(self, predicate: str, a: SizeScalar, b: SizeScalar) -> SizeScalar:
        """A comparison."""
        same = predicate in ("eq", "ne")
        first, second = self._numbers(self._signed if same else predicate[0] == "s", a, b)
        kind = predicate if same else predicate[-2:]
        if kind in ("gt", "le"):
            first, second = second, first
        found = apply("equal" if kind in ("eq", "ne") else "less", first, second)
        return SizeScalar("i1", apply("xor", found, 1) if kind in ("ne", "ge", "le") else found)

    def select(self, condition: SizeScalar, a: SizeScalar, b: SizeScalar) -> SizeScalar:
        """One of two."""
        return SizeScalar(a.kind, apply("select", condition.size, a.size, b.size))

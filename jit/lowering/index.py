"""Symbolic index expressions: a constant plus multiples of atoms, simplified by the ranges of the atoms.

Atoms are loop variables, run-time values with known bounds, and quotients and remainders of expressions.  Expressions
are immutable and canonical: two that simplify to the same sum are equal and hash alike, so that they serve as keys of
memoized elements.

>>> x = variable("x", 0, 4095)
>>> (x // 64) * 64 + x % 64
x
>>> a, b = variable("a", 0, 63), variable("b", 0, 63)
>>> (a * 64 + b) // 64, (a * 64 + b) % 64
(a, b)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

_NO_VARIABLES: Final[frozenset[str]] = frozenset()


class Atom(ABC):
    """What an expression is a sum of.  ``key`` identifies it; ``low <= value <= high`` always holds."""

    __slots__ = ("high", "key", "low", "variables")

    key: str
    low: int
    high: int
    variables: frozenset[str]

    @abstractmethod
    def substitute(self, mapping: Mapping[str, Index]) -> Index:
        """The atom with variables replaced."""

    def __repr__(self) -> str:
        return self.key


@final
class Variable(Atom):
    """A loop variable.  Its name must be unique among the expressions that meet."""

    __slots__ = ()

    def __init__(self, name: str, low: int, high: int):
        self.key = name
        self.low = low
        self.high = high
        self.variables = frozenset((name,))

    def substitute(self, mapping: Mapping[str, Index]) -> Index:
        return mapping[self.key] if self.key in mapping else Index(0, ((self, 1),))


@final
class RunTime(Atom):
    """A value known only when the kernel runs, clamped into its range; the emitter keeps its scalar under the key."""

    __slots__ = ()

    def __init__(self, key: str, low: int, high: int, variables: frozenset[str] = _NO_VARIABLES):
        self.key = key
        self.low = low
        self.high = high
        self.variables = variables

    def substitute(self, mapping: Mapping[str, Index]) -> Index:
        return Index(0, ((self, 1),))


@final
class Quotient(Atom):
    """``numerator // divisor``, rounded down."""

    __slots__ = ("divisor", "numerator")

    def __init__(self, numerator: Index, divisor: int):
        self.numerator = numerator
        self.divisor = divisor
        self.key = f"({numerator.key})//{divisor}"
        self.low = numerator.low // divisor
        self.high = numerator.high // divisor
        self.variables = numerator.variables

    def substitute(self, mapping: Mapping[str, Index]) -> Index:
        return self.numerator.substitute(mapping) // self.divisor


@final
class Remainder(Atom):
    """``numerator % divisor``, never negative."""

    __slots__ = ("divisor", "numerator")

    def __init__(self, numerator: Index, divisor: int):
        self.numerator = numerator
        self.divisor = divisor
        self.key = f"({numerator.key})%{divisor}"
        self.low = 0
        self.high = divisor - 1
        self.variables = numerator.variables

    def substitute(self, mapping: Mapping[str, Index]) -> Index:
        return self.numerator.substitute(mapping) % self.divisor


Term = tuple[Atom, int]


@final
class Index:
    """``constant + sum(coefficient * atom)``.  Make them with ``variable``, ``constant`` and the operators."""

    __slots__ = ("_hash", "constant", "high", "key", "low", "terms", "variables")

    def __init__(self, constant: int, terms: tuple[Term, ...] = ()):
        """``terms`` must be sorted by key, without zeros and repetitions (internal; use the operators)."""
        self.constant = constant
        self.terms = terms
        low = high = constant
        for atom, coefficient in terms:
            if coefficient > 0:
                low += coefficient * atom.low
                high += coefficient * atom.high
            else:
                low += coefficient * atom.high
                high += coefficient * atom.low
        self.low = low
        self.high = high
        parts = [atom.key if coefficient == 1 else f"{coefficient}*{atom.key}" for atom, coefficient in terms]
        if constant or not terms:
            parts.append(str(constant))
        self.key = "+".join(parts)
        self._hash = hash(self.key)
        if not terms:
            self.variables = _NO_VARIABLES
        elif len(terms) == 1:
            self.variables = terms[0][0].variables
        else:
            self.variables = frozenset().union(*(atom.variables for atom, _ in terms))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.key

    @property
    def is_constant(self) -> bool:
        """Whether the expression is a known number."""
        return not self.terms

    @property
    def is_affine(self) -> bool:
        """Whether the expression is linear in variables and run-time values, without divisions."""
        return all(isinstance(atom, (Variable, RunTime)) for atom, _ in self.terms)

    def coefficient(self, name: str) -> int | None:
        """The multiple of a variable in the sum; None if a division (or run-time value) depends on the variable."""
        if name not in self.variables:
            return 0
        found = 0
        for atom, coefficient in self.terms:
            if atom.key == name:
                found = coefficient
            elif name in atom.variables:
                return None
        return found

    def atoms(self) -> Iterable[Atom]:
        """All atoms, those inside quotients and remainders too."""
        stack: list[Index] = [self]
        while stack:
            for atom, _ in stack.pop().terms:
                yield atom
                if isinstance(atom, (Quotient, Remainder)):
                    stack.append(atom.numerator)

    def substitute(self, mapping: Mapping[str, Index]) -> Index:
        """Replace variables by expressions and simplify."""
        if not any(name in self.variables for name in mapping):
            return self
        total = Index(self.constant)
        for atom, coefficient in self.terms:
            total = total + atom.substitute(mapping) * coefficient
        return total

    # ------------------------------------------------------------ operators

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.constant + other, self.terms) if other else self
        if not other.terms:
            return Index(self.constant + other.constant, self.terms) if other.constant else self
        if not self.terms:
            return Index(self.constant + other.constant, other.terms)
        merged: dict[str, Term] = {atom.key: (atom, coefficient) for atom, coefficient in self.terms}
        for atom, coefficient in other.terms:
            present = merged.get(atom.key)
            merged[atom.key] = (atom, coefficient + (present[1] if present else 0))
        return _normalized(self.constant + other.constant, merged)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index | int) -> Index:
        return self + -other

    def __rsub__(self, other: int) -> Index:
        return -self + other

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        if factor == 0:
            return Index(0)
        return Index(self.constant * factor, tuple((atom, coefficient * factor) for atom, coefficient in self.terms))

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Index:
        _check_divisor(divisor)
        if divisor == 1:
            return self
        if self.low // divisor == self.high // divisor:
            return Index(self.low // divisor)
        whole, rest = self._split(divisor)
        if whole.terms or whole.constant:
            return whole + rest // divisor
        for step in _steps(self.terms, divisor):
            big, small = self._split(step)
            if small.low >= 0 and small.high < step:
                return big // (divisor // step)
        if len(self.terms) == 1 and self.terms[0][1] == 1:
            atom = self.terms[0][0]
            if isinstance(atom, Quotient):
                return (atom.numerator + self.constant * atom.divisor) // (atom.divisor * divisor)
            if isinstance(atom, Remainder) and atom.divisor % divisor == 0 and self.constant == 0:
                return (atom.numerator // divisor) % (atom.divisor // divisor)
        return Index(0, ((Quotient(self, divisor), 1),))

    def __mod__(self, divisor: int) -> Index:
        _check_divisor(divisor)
        if divisor == 1:
            return Index(0)
        if self.low // divisor == self.high // divisor:
            return self - divisor * (self.low // divisor)
        whole, rest = self._split(divisor)
        if whole.terms or whole.constant:
            return rest % divisor
        for step in _steps(self.terms, divisor):
            big, small = self._split(step)
            if small.low >= 0 and small.high < step:
                return (big % (divisor // step)) * step + small
        if len(self.terms) == 1 and self.terms[0][1] == 1 and self.constant == 0:
            atom = self.terms[0][0]
            if isinstance(atom, Remainder) and atom.divisor % divisor == 0:
                return atom.numerator % divisor
        return Index(0, ((Remainder(self, divisor), 1),))

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """``(whole, rest)`` with ``self == divisor * whole + rest``; rest keeps the terms that are no multiples."""
        whole = tuple((atom, c // divisor) for atom, c in self.terms if c % divisor == 0)
        rest = tuple((atom, c) for atom, c in self.terms if c % divisor)
        return Index(self.constant // divisor, whole), Index(self.constant % divisor, rest)


def _check_divisor(divisor: int) -> None:
    if divisor <= 0:
        raise ValueError(f"an index is divided by {divisor}; divisors are positive")


def _steps(terms: Sequence[Term], divisor: int) -> list[int]:
    """Common factors of some coefficients with the divisor, largest first, 1 left out."""
    factors = {math.gcd(coefficient, divisor) for _, coefficient in terms}
    return sorted((factor for factor in factors if factor > 1), reverse=True)


def _normalized(constant: int, merged: dict[str, Term]) -> Index:
    """Join quotients and remainders of one numerator, drop zeros, sort."""
    for key, (atom, coefficient) in list(merged.items()):
        if coefficient == 0 or not isinstance(atom, Remainder) or key not in merged:
            continue
        # c*(E % n) + c*n*(E // n) = c*E
        quotient = atom.numerator // atom.divisor
        partner = quotient.terms[0][0].key if len(quotient.terms) == 1 and quotient.constant == 0 else ""
        if partner and quotient.terms[0][1] == 1 and merged.get(partner, (atom, 0))[1] == coefficient * atom.divisor:
            del merged[key], merged[partner]
            return _normalized(constant, merged) + atom.numerator * coefficient
        # c*(E % n) + c*n*((E // n) % m) = c*(E % (n*m))
        for other_key, (other, other_coefficient) in merged.items():
            if (
                isinstance(other, Remainder)
                and other_coefficient == coefficient * atom.divisor
                and other.numerator == quotient
            ):
                del merged[key], merged[other_key]
                joined = atom.numerator % (atom.divisor * other.divisor)
                return _normalized(constant, merged) + joined * coefficient
    return Index(constant, tuple(merged[key] for key in sorted(merged) if merged[key][1]))


def constant(value: int) -> Index:
    """A known index."""
    return Index(value)


def variable(name: str, low: int, high: int) -> Index:
    """A loop variable with its inclusive range; a range of one value is a constant."""
    return Index(low) if low == high else Index(0, ((Variable(name, low, high), 1),))


def as_index(value: Index | int) -> Index:
    """An expression from an expression or a number."""
    return value if isinstance(value, Index) else Index(value)


def linear_index(index: Sequence[Index | int], strides: Sequence[int]) -> Index:
    """The element's position in a buffer: the sum of index times stride."""
    total = Index(0)
    for position, stride in zip(index, strides, strict=True):
        total = total + as_index(position) * stride
    return total


def delinearized(position: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """The index in a row-major array of ``shape`` of the element at ``position``."""
    index: list[Index] = []
    for dimension in reversed(range(len(shape))):
        extent = max(1, shape[dimension])
        index.append(position % extent if dimension else position)
        position = position // extent
    return tuple(reversed(index))

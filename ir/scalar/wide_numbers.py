"""Numbers with bits to spare, so that formulas of several steps are rounded once, at their end.

    root = (x * x + y * y).sqrt()           # x, y: numbers
    return root.rounded()

What ends in f32 is computed in f64 (``Single``); what ends in f64 as an unevaluated sum of two f64 (``Double``), by the
error-free transformations of Dekker and Knuth; errors of the operations of pairs are those that Joldes, Muller and
Popescu proved ("Tight and rigorous error bounds for basic building blocks of double-word arithmetic", 2017): a few units
in the place 2**-104.  Formulas are written once, against ``Number``.

Infinities and NaN do not survive in pairs: formulas are given finite arguments, and exceptional results chosen afterwards.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np
from hlojit.ir.scalar.expression import Term, where

if TYPE_CHECKING:
    from collections.abc import Sequence

_Floats = TypeVar("_Floats", Term, np.ndarray[Any, Any])


def two_sum(a: _Floats, b: _Floats) -> tuple[_Floats, _Floats]:
    """A + b, rounded, and what the rounding lost (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fast_two_sum(a: Term, b: Term) -> tuple[Term, Term]:
    """``two_sum`` for an ``a`` that is zero or not smaller than ``b``."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Term, b: Term) -> tuple[Term, Term]:
    """A * b, rounded, and what the rounding lost."""
    product = a * b
    return product, a.fma(b, -product)


class Number(abc.ABC):
    """A real number that is known to more bits than the result needs."""

    __slots__ = ("high",)

    def __init__(self, high: Term):
        self.high = high

    @abc.abstractmethod
    def __add__(self, other: Number | Term | float) -> Number: ...

    @abc.abstractmethod
    def __mul__(self, other: Number | Term | float) -> Number: ...

    @abc.abstractmethod
    def __truediv__(self, other: Number) -> Number: ...

    @abc.abstractmethod
    def __neg__(self) -> Number: ...

    @abc.abstractmethod
    def sqrt(self) -> Number:
        """Square root; of zero zero."""

    @abc.abstractmethod
    def scaled(self, power_of_two: Term | float) -> Number:
        """The number times a power of two."""

    @abc.abstractmethod
    def rounded(self) -> Term:
        """The nearest f64."""

    @abc.abstractmethod
    def parts(self) -> tuple[Term, Term | float]:
        """What was rounded to f64, and what that lost."""

    def __sub__(self, other: Number | Term | float) -> Number:
        return self + (-other)

    def __rsub__(self, other: Term | float) -> Number:
        return (-self) + other

    __radd__ = __add__
    __rmul__ = __mul__

    def square(self) -> Number:
        """The number times itself."""
        return self * self


@final
class Single(Number):
    """One f64."""

    __slots__ = ()

    @staticmethod
    def _term(other: Number | Term | float) -> Term | float:
        return other.high if isinstance(other, Number) else other

    def __add__(self, other: Number | Term | float) -> Single:
        return Single(self.high + self._term(other))

    def __mul__(self, other: Number | Term | float) -> Single:
        return Single(self.high * self._term(other))

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Single:
        return Single(self.high / other.high)

    def __neg__(self) -> Single:
        return Single(-self.high)

    def sqrt(self) -> Single:
        """Square root."""
        return Single(self.high.sqrt())

    def scaled(self, power_of_two: Term | float) -> Single:
        """The number times a power of two."""
        return self * power_of_two

    def rounded(self) -> Term:
        """The number itself."""
        return self.high

    def parts(self) -> tuple[Term, Term | float]:
        """The number and zero."""
        return self.high, 0.0


@final
class Double(Number):
    """``high + low``, where ``high`` is the sum rounded."""

    __slots__ = ("low",)

    def __init__(self, high: Term, low: Term):
        super().__init__(high)
        self.low = low

    @classmethod
    def summed(cls, a: Term, b: Term) -> Double:
        """A sum of two f64, exactly."""
        return cls(*two_sum(a, b))

    @classmethod
    def multiplied(cls, a: Term, b: Term) -> Double:
        """A product of two f64, exactly while it is not near the smallest numbers."""
        return cls(*two_product(a, b))

    @classmethod
    def with_rest(cls, high: Term, rest: Term) -> Double:
        """High + rest for a rest that is not larger."""
        return cls(*fast_two_sum(high, rest))

    def __add__(self, other: Number | Term | float) -> Double:
        if isinstance(other, Double):
            total, lost = two_sum(self.high, other.high)
            low, lower = two_sum(self.low, other.low)
            high, rest = fast_two_sum(total, lost + low)
            return Double.with_rest(high, lower + rest)
        assert not isinstance(other, Number)
        term = other if isinstance(other, Term) else self.high.constant(other)
        total, lost = two_sum(self.high, term)
        return Double.with_rest(total, lost + self.low)

    def __mul__(self, other: Number | Term | float) -> Double:
        if isinstance(other, Double):
            product, lost = two_product(self.high, other.high)
            return Double.with_rest(product, lost + self.low.fma(other.high, self.high * other.low))
        assert not isinstance(other, Number)
        term = other if isinstance(other, Term) else self.high.constant(other)
        product, lost = two_product(self.high, term)
        return Double.with_rest(product, self.low.fma(term, lost))

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Double:
        assert isinstance(other, Double)
        quotient = self.high / other.high
        rest = (-quotient).fma(other.high, self.high) + (-quotient).fma(other.low, self.low)
        return Double.with_rest(quotient, rest / other.high)

    def __neg__(self) -> Double:
        return Double(-self.high, -self.low)

    def sqrt(self) -> Double:
        """Square root; of zero zero."""
        root = self.high.sqrt()
        rest = (-root).fma(root, self.high) + self.low
        doubled = root + root
        return Double.with_rest(root, rest / where(doubled.equals(0.0), 1.0, doubled))

    def scaled(self, power_of_two: Term | float) -> Double:
        """The number times a power of two."""
        return Double(self.high * power_of_two, self.low * power_of_two)

    def rounded(self) -> Term:
        """The nearest f64."""
        return self.high + self.low

    def parts(self) -> tuple[Term, Term | float]:
        """Both parts."""
        return self.high, self.low


def number(term: Term, *, like: Number | bool) -> Number:
    """An f64 as a number: a pair if ``like`` is one, or true."""
    pair = isinstance(like, Double) if isinstance(like, Number) else like
    return Double(term, term.constant(0.0)) if pair else Single(term)


def choose(condition: Term, a: Number, b: Number) -> Number:
    """``a`` where the condition holds, else ``b``."""
    high = where(condition, a.high, b.high)
    if isinstance(a, Double) and isinstance(b, Double):
        return Double(high, where(condition, a.low, b.low))
    return Single(high)


def sum_exactly(terms: Sequence[Term]) -> tuple[Term, Term]:
    """A sum of f64 as if computed with three times as many bits, by Ogita, Rump and Oishi's ``SumK`` with K = 3."""
    values = list(terms)
    for _ in range(2):
        for position in range(1, len(values)):
            values[position], values[position - 1] = two_sum(values[position], values[position - 1])
    rest = values[0]
    for value in values[1:-1]:
        rest = rest + value
    return fast_two_sum(values[-1], rest)

"""Operators for scalars, so that numeric rules read like formulas.

    x = Term(b, value)
    y = (x * x + 1.0).sqrt()
    z = where(x < 0.0, -y, y)
    return z.value

Python numbers become constants of the other operand's kind.  ``+ - *`` are float or wrapping integer operations
by kind; ``<`` and kin compare floats (false for NaN) or signed integers.  Every operator is exactly one builder call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from hlojit.ir.scalar.builder import Scalar, ScalarBuilder

MANTISSA_BITS = {"f32": 23, "f64": 52}
EXPONENT_BIAS = {"f32": 127, "f64": 1023}
INTEGER_KIND = {"f32": "i32", "f64": "i64"}
FLOAT_KIND = {"i32": "f32", "i64": "f64"}


@final
class Term:
    """A scalar together with its builder."""

    __slots__ = ("b", "is_float", "kind", "value")

    def __init__(self, b: ScalarBuilder, value: Scalar):
        self.b = b
        self.value = value
        self.kind = value.kind
        self.is_float = self.kind in MANTISSA_BITS

    def of(self, other: Term | float) -> Scalar:
        """The other operand as a scalar of this kind."""
        return other.value if isinstance(other, Term) else self.b.constant(self.kind, other)

    def constant(self, value: float) -> Term:
        """A constant of this kind."""
        return Term(self.b, self.b.constant(self.kind, value))

    # arithmetic
    def __add__(self, other: Term | float) -> Term:
        operation = self.b.fadd if self.is_float else self.b.add
        return Term(self.b, operation(self.value, self.of(other)))

    __radd__ = __add__

    def __sub__(self, other: Term | float) -> Term:
        operation = self.b.fsub if self.is_float else self.b.sub
        return Term(self.b, operation(self.value, self.of(other)))

    def __rsub__(self, other: float) -> Term:
        return self.constant(other) - self

    def __mul__(self, other: Term | float) -> Term:
        operation = self.b.fmul if self.is_float else self.b.mul
        return Term(self.b, operation(self.value, self.of(other)))

    __rmul__ = __mul__

    def __truediv__(self, other: Term | float) -> Term:
        return Term(self.b, self.b.fdiv(self.value, self.of(other)))

    def __rtruediv__(self, other: float) -> Term:
        return self.constant(other) / self

    def __neg__(self) -> Term:
        return Term(self.b, self.b.fneg(self.value)) if self.is_float else 0 - self

    # integers and conditions
    def __and__(self, other: Term | int) -> Term:
        return Term(self.b, self.b.and_(self.value, self.of(other)))

    def __or__(self, other: Term | int) -> Term:
        return Term(self.b, self.b.or_(self.value, self.of(other)))

    def __xor__(self, other: Term | int) -> Term:
        return Term(self.b, self.b.xor(self.value, self.of(other)))

    def __invert__(self) -> Term:
        return self ^ (1 if self.kind == "i1" else -1)

    def __lshift__(self, other: Term | int) -> Term:
        return Term(self.b, self.b.shl(self.value, self.of(other)))

    def __rshift__(self, other: Term | int) -> Term:
        """Arithmetic shift."""
        return Term(self.b, self.b.ashr(self.value, self.of(other)))

    def logical_shift(self, other: Term | int) -> Term:
        """Shift right, filling with zeros."""
        return Term(self.b, self.b.lshr(self.value, self.of(other)))

    # comparisons
    def _compare(self, float_predicate: str, integer_predicate: str, other: Term | float) -> Term:
        if self.is_float:
            return Term(self.b, self.b.fcmp(float_predicate, self.value, self.of(other)))
        return Term(self.b, self.b.icmp(integer_predicate, self.value, self.of(other)))

    def __lt__(self, other: Term | float) -> Term:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Term | float) -> Term:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Term | float) -> Term:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Term | float) -> Term:
        return self._compare("oge", "sge", other)

    def equals(self, other: Term | float) -> Term:
        """``==`` (false for NaN)."""
        return self._compare("oeq", "eq", other)

    def differs(self, other: Term | float) -> Term:
        """``!=`` (true for NaN)."""
        return self._compare("une", "ne", other)

    def not_below(self, other: Term | float) -> Term:
        """``>=`` or NaN."""
        return self._compare("uge", "sge", other)

    def above_or_nan(self, other: Term | float) -> Term:
        """``>`` or NaN."""
        return self._compare("ugt", "sgt", other)

    def is_nan(self) -> Term:
        """Whether a float is NaN."""
        return Term(self.b, self.b.fcmp("uno", self.value, self.value))

    # float functions
    def fma(self, factor: Term | float, addend: Term | float) -> Term:
        """Self * factor + addend, rounded once."""
        return Term(self.b, self.b.fma(self.value, self.of(factor), self.of(addend)))

    def abs(self) -> Term:
        """Magnitude of a float."""
        return Term(self.b, self.b.fabs(self.value))

    def sqrt(self) -> Term:
        """Square root."""
        return Term(self.b, self.b.sqrt(self.value))

    def round(self) -> Term:
        """Nearest integer as a float, ties to even."""
        return Term(self.b, self.b.round_even(self.value))

    def truncate(self) -> Term:
        """Integer part as a float."""
        return Term(self.b, self.b.truncate(self.value))

    def floor(self) -> Term:
        """Largest integer not above, as a float."""
        return Term(self.b, self.b.floor(self.value))

    def with_sign_of(self, sign: Term) -> Term:
        """The magnitude with another float's sign."""
        return Term(self.b, self.b.copysign(self.value, sign.value))

    # representation
    def bits(self) -> Term:
        """The bits of a float, as an integer."""
        return Term(self.b, self.b.bitcast(self.value, INTEGER_KIND[self.kind]))

    def as_float(self) -> Term:
        """The float that has these bits."""
        return Term(self.b, self.b.bitcast(self.value, FLOAT_KIND[self.kind]))

    def to_float(self, kind: str) -> Term:
        """The value of a signed integer as a float."""
        return Term(self.b, self.b.sitofp(self.value, kind))

    def widen(self) -> Term:
        """f32 to f64."""
        return Term(self.b, self.b.fpext(self.value))

    def narrow(self) -> Term:
        """f64 to f32."""
        return Term(self.b, self.b.fptrunc(self.value))

    def polynomial(self, coefficients: Sequence[float]) -> Term:
        """Horner's rule with fused multiply-add, lowest power first."""
        b, x, constant = self.b, self.value, self.b.constant
        total = constant(self.kind, coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = b.fma(total, x, constant(self.kind, coefficient))
        return Term(b, total)


def where(condition: Term, a: Term | float, b: Term | float) -> Term:
    """``a`` where the condition holds, else ``b``; one of the two must be a term."""
    kind_giver = a if isinstance(a, Term) else b
    assert isinstance(kind_giver, Term)
    builder = condition.b
    return Term(builder, builder.select(condition.value, kind_giver.of(a), kind_giver.of(b)))


def minimum(a: Term, bound: Term | float) -> Term:
    """The smaller of two; NaN in ``a`` stays."""
    return where(a > bound, bound, a)


def maximum(a: Term, bound: Term | float) -> Term:
    """The larger of two; NaN in ``a`` stays."""
    return where(a < bound, bound, a)


def power_of_two(exponent: Term) -> Term:
    """2**n for an integer term n of a normal result, by building the bits."""
    kind = FLOAT_KIND[exponent.kind]
    return ((exponent + EXPONENT_BIAS[kind]) << MANTISSA_BITS[kind]).as_float()


def rare(condition: Term, slow: Callable[..., Scalar], arguments: Sequence[Term], fast: Term) -> Term:
    """``slow(b, *arguments)`` in the lanes where the condition holds, ``fast`` elsewhere.

    A builder that has ``rare(condition, slow, arguments, fast)`` evaluates the slow rule only if some lane needs it.
    """
    b = condition.b
    scalars = tuple(argument.value for argument in arguments)
    method = getattr(b, "rare", None)
    if method is not None:
        return Term(b, method(condition.value, slow, scalars, fast.value))
    return Term(b, b.select(condition.value, slow(b, *scalars), fast.value))

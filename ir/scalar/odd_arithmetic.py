"""Sums, products, quotients and square roots in f64, rounded to odd: rounding them again, to fewer bits, rounds the exact result.

A result that f64 does not hold becomes that of its two neighbours whose last bit is odd.  No number of two bits less, and no
tie between such numbers, is odd, so that a later rounding in whatever direction sees on which side the exact result lies
(Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).

Right as long as neither results nor their errors leave the range of f64's normal numbers.
"""

from __future__ import annotations

from hlojit.ir.scalar.builder import Scalar, ScalarBuilder


def add(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """x + y: the error of a rounded sum is a float (Knuth)."""
    total = b.fadd(x, y)
    part = b.fsub(total, x)
    error = b.fadd(b.fsub(x, b.fsub(total, part)), b.fsub(y, part))
    return _odd(b, total, error)


def subtract(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """x - y."""
    return add(b, x, b.fneg(y))


def multiply(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """x * y."""
    product = b.fmul(x, y)
    return _odd(b, product, b.fma(x, y, b.fneg(product)))


def divide(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """x / y: what the quotient lacks has the sign of the remainder over the divisor."""
    quotient = b.fdiv(x, y)
    rest = b.fma(b.fneg(quotient), y, x)
    return _odd(b, quotient, b.copysign(b.fabs(rest), _product_of_signs(b, rest, y)))


def sqrt(b: ScalarBuilder, x: Scalar) -> Scalar:
    """The square root of x."""
    root = b.sqrt(x)
    return _odd(b, root, b.fma(b.fneg(root), root, x))


def _product_of_signs(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    return b.bitcast(b.xor(b.bitcast(x, "i64"), b.bitcast(y, "i64")), "f64")


def _odd(b: ScalarBuilder, rounded: Scalar, error: Scalar) -> Scalar:
    """A rounded result of which the exact one differs by the error, to odd; errors that are no number are of no such result."""
    zero, one = b.constant("i64", 0), b.constant("i64", 1)
    bits = b.bitcast(rounded, "i64")
    inexact = b.and_(b.fcmp("one", error, b.constant("f64", 0.0)), b.icmp("eq", b.and_(bits, one), zero))
    same_sign = b.icmp("sge", b.xor(bits, b.bitcast(error, "i64")), zero)
    beside = b.select(same_sign, b.add(bits, one), b.sub(bits, one))
    return b.bitcast(b.select(inexact, beside, bits), "f64")

"""log, log2, log1p.

x = 2**e * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2).  f32 uses a polynomial in f; f64 the series of atanh in
s = f / (2 + f), which is shorter and keeps f itself exact.
"""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.expression import MANTISSA_BITS, Term, where

ROOT_HALF_BITS = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}
LEAST_NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}
LIFT = {"f32": 32.0, "f64": 64.0}
LN2 = {"f32": c.LN2_F32, "f64": c.LN2_F64}
INFINITY = float("inf")


def split_exponent(x: Term) -> tuple[Term, Term]:
    """A positive normal x as (e as an integer, m) with x = 2**e * m and sqrt(1/2) <= m < sqrt(2)."""
    width = MANTISSA_BITS[x.kind]
    offset = x.bits() - ROOT_HALF_BITS[x.kind]
    mantissa = (offset & ((1 << width) - 1)) + ROOT_HALF_BITS[x.kind]
    return offset >> width, mantissa.as_float()


def log_mantissa(f: Term) -> tuple[Term, Term]:
    """(half_square, rest) with log(1 + f) = f - half_square + rest, in f64."""
    half_square = f * 0.5 * f
    s = f / (f + 2.0)
    z = s * s
    return half_square, s * (half_square + z * z.polynomial(c.LOG_F64))


def log_tail(f: Term, more: Term | None = None) -> Term:
    """log(1 + f) - f, plus what is given."""
    if f.kind == "f32":
        square = f * f
        cube = square * f
        polynomial = f.polynomial(c.LOG_F32)
        cubic = cube * polynomial if more is None else cube.fma(polynomial, more)
        return square.fma(-0.5, cubic)
    half_square, rest = log_mantissa(f)
    return (rest if more is None else rest + more) - half_square


def log_of_parts(e: Term, f: Term, correction: Term | None = None) -> Term:
    """The sum e * ln 2 + log(1 + f), plus a small correction."""
    high, low = LN2[f.kind]
    small = e * low if correction is None else e.fma(low, correction)
    return e.fma(high, log_tail(f, small) + f)


def log_with_rest(x: Term) -> tuple[Term, Term]:
    """Log of a positive number as a sum of two f64, to about 2**-60 of its value."""
    e, m = exponent_and_mantissa(x)
    return log_of_parts_with_rest(e, m - 1.0)


def log_of_parts_with_rest(e: Term, f: Term, correction: Term | None = None) -> tuple[Term, Term]:
    """``log_of_parts`` as a sum of two f64."""
    half_square, rest = log_mantissa(f)
    rest = rest - (f * 0.5).fma(f, -half_square)
    part = f - half_square
    part_low = (f - part) - half_square + rest
    part_low = part_low if correction is None else part_low + correction
    whole = e * LN2["f64"][0]
    total = whole + part
    # whole is 0 or larger than part
    return total, e.fma(LN2["f64"][1], (part - (total - whole)) + part_low)


def exponent_and_mantissa(x: Term) -> tuple[Term, Term]:
    """``split_exponent`` of a positive number that may be denormal, the exponent as a float."""
    denormal = x < LEAST_NORMAL[x.kind]
    exponent, m = split_exponent(where(denormal, x * 2.0 ** LIFT[x.kind], x))
    e = exponent.to_float(x.kind)
    return where(denormal, e - LIFT[x.kind], e), m


def log_of_sum(high: Term, low_quotient: Term, doublings: Term | float = 0.0) -> Term:
    """log(high + low) + doublings * ln 2 for a normal positive sum; ``low_quotient`` is low / high."""
    exponent, m = split_exponent(high)
    return log_of_parts(exponent.to_float(high.kind) + doublings, m - 1.0, low_quotient)


def exceptions(x: Term, result: Term) -> Term:
    """What a logarithm gives for zero, negative numbers, infinity and NaN."""
    result = where(x.above_or_nan(0.0), result, float("nan"))
    result = where(x.equals(0.0), -INFINITY, result)
    return where(x.not_below(INFINITY), x, result)


def log(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Natural logarithm."""
    term = Term(b, x)
    e, m = exponent_and_mantissa(term)
    return exceptions(term, log_of_parts(e, m - 1.0)).value


def log1p(b: ScalarBuilder, x: Scalar) -> Scalar:
    """log(1 + x), accurate near zero."""
    term = Term(b, x)
    u = term + 1.0
    # 1 + x = u + lost exactly, whichever of the two is larger
    lost = where(term < 1.0, term - (u - 1.0), 1.0 - (u - term))
    exponent, m = split_exponent(u)
    e = exponent.to_float(x.kind)
    # without a shift of the exponent f is x itself: nothing was lost
    direct = exponent.equals(0)
    f = where(direct, term, m - 1.0)
    correction = where(direct, 0.0, lost / u)
    result = log_of_parts(e, f, correction)
    tiny = 2.0 ** -(MANTISSA_BITS[x.kind] + 2)
    result = where(term.abs() < tiny, term, result)
    result = where(term.above_or_nan(-1.0), result, float("nan"))
    result = where(term.equals(-1.0), -INFINITY, result)
    return where(term.not_below(INFINITY), term, result).value


def log2(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Logarithm to base 2; powers of two are exact."""
    term = Term(b, x)
    e, m = exponent_and_mantissa(term)
    f = m - 1.0
    small = log_tail(f)
    y = f + small
    y_low = (f - y) + small
    high, low = c.INVERSE_LN2_F32 if x.kind == "f32" else c.INVERSE_LN2
    result = y.fma(high, e + y_low.fma(high, y * low))
    return exceptions(term, result).value

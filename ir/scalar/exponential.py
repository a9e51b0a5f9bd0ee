"""exp, exp2, expm1 and logistic.

x = n ln 2 + r with |r| <= ln(2)/2; a polynomial gives exp(r), and n is added to the exponent bits.  Results below the
normal range are built 2**lift too large and multiplied down, which rounds them once.
"""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.expression import MANTISSA_BITS, Term, maximum, minimum, power_of_two, where

EXP = {"f32": c.EXP_F32, "f64": c.EXP_F64}
EXP2 = {"f32": c.EXP2_F32, "f64": c.EXP2_F64}
EXPM1 = {"f32": c.EXPM1_F32, "f64": c.EXPM1_F64}
LN2 = {"f32": c.LN2_F32, "f64": c.LN2_F64}
ROUNDING = {"f32": 1.5 * 2.0**23, "f64": 1.5 * 2.0**52}
"""Adding this to a small float leaves its nearest integer in the low bits."""
OVERFLOW = {"f32": 88.72283172607422, "f64": 709.782712893384}
"""The largest argument whose exponential is finite."""
TINY = {"f32": -104.0, "f64": -746.0}
"""Below this the exponential rounds to zero."""
LOWEST_NORMAL = {"f32": -87.0, "f64": -708.0}
"""Above this the exponential is normal."""
LIFT = {"f32": 64, "f64": 128}


def reduce_by_ln2(x: Term) -> tuple[Term, Term, Term]:
    """Nearest n to x / ln 2: (n as a float, bits whose low part is n, remainder x - n ln 2)."""
    high, low = LN2[x.kind]
    shifted = x.fma(c.INVERSE_LN2[0], ROUNDING[x.kind])
    n = shifted - ROUNDING[x.kind]
    return n, shifted.bits(), n.fma(-low, n.fma(-high, x))


def scale_lifted(mantissa: Term, shifted: Term, small: Term) -> Term:
    """Mantissa * 2**n, where ``small`` says that the result may be below the normal range."""
    kind, lift = mantissa.kind, LIFT[mantissa.kind]
    total = mantissa.bits() + (shifted << MANTISSA_BITS[kind])
    total = where(small, total + (lift << MANTISSA_BITS[kind]), total)
    result = total.as_float()
    return where(small, result * 2.0**-lift, result)


def exp_of_reduced(r: Term) -> Term:
    """Exp of a remainder |r| <= ln(2)/2."""
    return (r * r).fma(r.polynomial(EXP[r.kind]), r) + 1.0


def exp_negative(x: Term) -> Term:
    """Exp for x <= 0 that is not NaN (a NaN gives anything)."""
    x = maximum(x, TINY[x.kind])
    _, shifted, r = reduce_by_ln2(x)
    return scale_lifted(exp_of_reduced(r), shifted, x < LOWEST_NORMAL[x.kind])


def exp_normal(x: Term) -> Term:
    """Exp for x whose exponential is a normal number."""
    _, shifted, r = reduce_by_ln2(x)
    return (exp_of_reduced(r).bits() + (shifted << MANTISSA_BITS[x.kind])).as_float()


def half_exp(x: Term) -> Term:
    """exp(x) / 2 for x >= 0; infinite only if the half is."""
    _, shifted, r = reduce_by_ln2(x)
    return (exp_of_reduced(r).bits() + ((shifted - 1) << MANTISSA_BITS[x.kind])).as_float()


def exp(b: ScalarBuilder, x: Scalar) -> Scalar:
    """e**x."""
    term = Term(b, x)
    result = exp_negative(term)
    # above the largest argument, and for NaN
    return where(term.above_or_nan(OVERFLOW[x.kind]), term * float("inf"), result).value


def exp2(b: ScalarBuilder, x: Scalar) -> Scalar:
    """2**x."""
    term = Term(b, x)
    kind = x.kind
    bias, digits = {"f32": (126.0, 150.0), "f64": (1022.0, 1075.0)}[kind]
    clamped = maximum(term, -digits - 1.0)
    shifted = clamped + ROUNDING[kind]
    r = clamped - (shifted - ROUNDING[kind])
    mantissa = r.fma(r.polynomial(EXP2[kind]), 1.0)
    result = scale_lifted(mantissa, shifted.bits(), clamped < -bias)
    return where(term.not_below(bias + 2.0), term * float("inf"), result).value


def expm1_term(x: Term) -> Term:
    """e**x - 1."""
    kind = x.kind
    low = {"f32": -18.0, "f64": -38.0}[kind]
    clamped = minimum(maximum(x, low), OVERFLOW[kind] + 1.0)
    n, _, r = reduce_by_ln2(clamped)
    # halves, so that n = 128 or 1024 does not overflow
    scale = power_of_two(n_minus_one(n))
    part = (r * r).fma(r.polynomial(EXPM1[kind]), r)
    result = part.fma(scale, scale - 0.5) * 2.0
    result = where(x > OVERFLOW[kind], float("inf"), result)
    result = where(n.equals(0.0), part, result)
    return where(x.is_nan(), x, result.with_sign_of(x))


def n_minus_one(n: Term) -> Term:
    """An integral float as an integer, less one."""
    return (n + (ROUNDING[n.kind] - 1.0)).bits() - n.constant(ROUNDING[n.kind]).bits()


def expm1(b: ScalarBuilder, x: Scalar) -> Scalar:
    """e**x - 1, accurate near zero."""
    return expm1_term(Term(b, x)).value


def logistic(b: ScalarBuilder, x: Scalar) -> Scalar:
    """1 / (1 + e**-x)."""
    term = Term(b, x)
    e = exp_negative(-term.abs())
    numerator = where(term < 0.0, e, 1.0)
    denominator = e + 1.0
    lost = e - (denominator - 1.0)
    # one Newton step on the quotient leaves the error of e and one rounding
    reciprocal = 1.0 / denominator
    quotient = numerator * reciprocal
    rest = (-quotient).fma(lost, (-quotient).fma(denominator, numerator))
    return where(term.is_nan(), term, rest.fma(reciprocal, quotient)).value

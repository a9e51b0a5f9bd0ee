"""asin, acos, atan, atan2."""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.expression import Term, where

ASIN = {"f32": c.ASIN_F32, "f64": c.ASIN_F64}
ATAN = {"f32": c.ATAN_F32, "f64": c.ATAN_F64}
HALF_PI = {"f32": c.HALF_PI_F32, "f64": c.HALF_PI_F64}
INFINITY = float("inf")


def _small_atan(t: Term) -> tuple[Term, Term]:
    """(t, w) with atan(t) = t + w for |t| <= 1."""
    square = t * t
    return t, t * square * square.polynomial(ATAN[t.kind])


def atan(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Inverse tangent: of the reciprocal above 1."""
    term = Term(b, x)
    high, low, *_ = HALF_PI[x.kind]
    magnitude = term.abs()
    inverted = magnitude > 1.0
    t, w = _small_atan(where(inverted, 1.0 / magnitude, magnitude))
    result = where(inverted, high - (t + (w - low)), t + w)
    return result.with_sign_of(term).value


def atan2(b: ScalarBuilder, y: Scalar, x: Scalar) -> Scalar:
    """Angle of the point (x, y), with the quadrants and signed zeros of C."""
    over, under = Term(b, y), Term(b, x)
    high, low, *_ = HALF_PI[x.kind]
    steep = over.abs() > under.abs()
    larger = where(steep, over.abs(), under.abs())
    smaller = where(steep, under.abs(), over.abs())
    quotient = smaller / larger
    # infinite / infinite and 0 / 0
    quotient = where(smaller.equals(larger), 1.0, quotient)
    quotient = where(smaller.equals(0.0), 0.0, quotient)
    t, w = _small_atan(quotient)
    left = under.bits() < 0
    # angle = base + t or base - t: 0 + t, pi/2 - t, pi/2 + t (left, steep), pi - t (left)
    sign_bit = where(steep ^ left, under.bits().constant(-(1 << (31 if x.kind == "f32" else 63))), 0)
    t, w = ((part.bits() ^ sign_bit).as_float() for part in (t, w))
    base_low = where(steep, under.constant(low), where(left, under.constant(2 * low), 0.0))
    base = where(steep, under.constant(high), where(left, under.constant(2 * high), 0.0))
    result = base + (t + (w + base_low))
    result = result.abs().with_sign_of(over)
    return where(over.is_nan() | under.is_nan(), over + under, result).value


def _asin_parts(magnitude: Term) -> tuple[Term, Term, Term]:
    """(far, s, w): asin(|x|) = s + w below 1/2; elsewhere (far) s + w is half of acos(|x|)."""
    far = magnitude > 0.5
    z = where(far, (1.0 - magnitude) * 0.5, magnitude * magnitude)
    s = where(far, z.sqrt(), magnitude)
    return far, s, s * z * z.polynomial(ASIN[magnitude.kind])


def asin(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Inverse sine; NaN outside [-1, 1]."""
    term = Term(b, x)
    high, low, *_ = HALF_PI[x.kind]
    far, s, w = _asin_parts(term.abs())
    # pi/2 - 2s, and what the rounding lost where its value is above the result's binade
    rest = s.fma(-2.0, high)
    lost = s.fma(-2.0, high - rest)
    result = where(far, rest + (w.fma(-2.0, low) + lost), s + w)
    return result.with_sign_of(term).value


def acos(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Inverse cosine; NaN outside [-1, 1]."""
    term = Term(b, x)
    high, low, *_ = HALF_PI[x.kind]
    far, s, w = _asin_parts(term.abs())
    left = term < 0.0
    middle = high - (s.with_sign_of(term) + (w.with_sign_of(term) - low))
    outer = (s + w) * 2.0
    outer_left = s.fma(-2.0, 2 * high) - w.fma(2.0, -2 * low)
    return where(far, where(left, outer_left, outer), middle).value

"""sin and cos."""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.exponential import ROUNDING
from hlojit.ir.scalar.expression import Term, rare, where

HALF_PI = {"f32": c.HALF_PI_F32, "f64": c.HALF_PI_F64}
SIN = {"f32": c.SIN_F32, "f64": c.SIN_F64}
COS = {"f32": c.COS_F32, "f64": c.COS_F64}
SMALL_ENOUGH = {"f32": 1e5, "f64": 1e9}
"""Up to here three parts of pi/2 are enough."""


def reduce_moderate(x: Term) -> tuple[Term, Term]:
    """(bits whose low two are the quadrant, x - n pi/2) for a moderate x, by Cody and Waite's method with three parts.

    The first fused step is exact, the second rounds relative to its result, the third adds what the parts left.
    """
    shifted = x.fma(c.TWO_OVER_PI, ROUNDING[x.kind])
    n = shifted - ROUNDING[x.kind]
    r = x
    for part in HALF_PI[x.kind]:
        r = n.fma(-part, r)
    return shifted.bits(), r


def sine_of_reduced(r: Term, square: Term) -> Term:
    """sin r for |r| <= pi/4."""
    return (square * r).fma(square.polynomial(SIN[r.kind]), r)


def cosine_of_reduced(square: Term) -> Term:
    """cos r for |r| <= pi/4, from r**2."""
    return (square * square).fma(square.polynomial(COS[square.kind]), square.fma(-0.5, 1.0))


def select_quadrant(quadrant: Term, r: Term) -> Term:
    """sin(r + quadrant pi/2): the sign bit comes from bit 1 of the quadrant, the function from bit 0."""
    square = r * r
    value = where((quadrant & 1).equals(0), sine_of_reduced(r, square), cosine_of_reduced(square))
    top = 30 if r.kind == "f32" else 62
    sign = (quadrant & 2) << top
    return (value.bits() ^ sign).as_float()


def sin_moderate(x: Term, turn: int) -> Term:
    """sin(x + turn pi/2) for moderate x."""
    quadrant, r = reduce_moderate(x)
    return select_quadrant(quadrant + turn if turn else quadrant, r)


def sin(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Sine of an angle in radians."""
    term = Term(b, x)
    return where(term.equals(0.0), term, sin_moderate(term, 0)).value


def cos(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Cosine of an angle in radians."""
    term = Term(b, x)
    return sin_moderate(term, 1).value

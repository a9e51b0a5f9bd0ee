"""erf, erfc, erf_inv."""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.exponential import EXP, exp_normal, reduce_by_ln2, scale_lifted
from hlojit.ir.scalar.expression import Term, minimum, where
from hlojit.ir.scalar.logarithm import log_of_sum

INFINITY = float("inf")
ERF = {
    "f32": (c.ERF_SMALL_F32, 0.925, c.ERF_LARGE_F32, 1.25, 3.95),
    "f64": (c.ERF_SMALL_F64, 1.0, c.ERF_LARGE_F64, 2.0, 5.95),
}
"""Polynomial near zero, up to where; polynomial of log(erfc), its centre, from where the result is one."""
ERFC = {"f32": (c.ERFC_F32, 10.6), "f64": (c.ERFC_F64, 27.3)}
"""Polynomial of the scaled function; from where the result is zero."""
ERF_INV = {
    "f32": (c.ERF_INV_SMALL_F32, 2.5, 5.0, c.ERF_INV_LARGE_F32, 3.0),
    "f64": (c.ERF_INV_SMALL_F64, 3.125, 6.25, c.ERF_INV_LARGE_F64, 4.0),
}
"""Polynomial in w = -log(1 - x**2), its centre, up to where; polynomial in sqrt(w), its centre."""


def erf(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Error function: x times a polynomial in x**2 near zero, 1 - exp(polynomial) elsewhere."""
    term = Term(b, x)
    small, border, large, centre, saturation = ERF[x.kind]
    magnitude = term.abs()
    square = term * term
    near = term.fma(square.polynomial(small), term)
    exponent = (minimum(magnitude, saturation) - centre).polynomial(large)
    far = (1.0 - exp_normal(exponent)).with_sign_of(term)
    return where(magnitude > border, far, near).value


def _erfc_far(x: Term) -> Term:
    """Erfc for x >= 0.47: exp(-x**2) * d * q(d) with d = 1 / (1 + x); every factor as a sum of two."""
    kind = x.kind
    coefficients, saturation = ERFC[kind]
    x = minimum(x, saturation)
    below = x + 1.0
    d = 1.0 / below
    d_low = (-d).fma(x - (below - 1.0), (-d).fma(below, 1.0)) * d
    shifted_d = d - 0.375
    rest = shifted_d * shifted_d.polynomial(coefficients[1:])
    q = rest + coefficients[0]
    q_low = rest - (q - coefficients[0])
    square = x * x
    square_low = x.fma(x, -square)
    _, shifted, reduced = reduce_by_ln2(-square)
    r = reduced - square_low
    tail = (r * r).fma(r.polynomial(EXP[kind]), r)
    e = tail + 1.0
    e_low = (tail - (e - 1.0)) + ((reduced - r) - square_low)
    scale = d * q
    scale_low = q_low.fma(d, q.fma(d_low, d.fma(q, -scale)))
    product = e.fma(scale, e_low.fma(scale, e * scale_low))
    return scale_lifted(product, shifted, square > {"f32": 75.0, "f64": 680.0}[kind])


def erfc(b: ScalarBuilder, x: Scalar) -> Scalar:
    """1 - erf(x), accurate where it is small."""
    term = Term(b, x)
    magnitude = term.abs()
    square = term * term
    near = (1.0 - term) - term * square.polynomial(ERF[x.kind][0])
    far = _erfc_far(magnitude)
    far = where(term < 0.0, 2.0 - far, far)
    # NaN takes the polynomial
    return where(magnitude > 0.47, far, near).value


def erf_inv(b: ScalarBuilder, x: Scalar) -> Scalar:
    """The inverse of erf; infinite at -1 and 1, NaN outside."""
    term = Term(b, x)
    small, centre, border, large, large_centre = ERF_INV[x.kind]
    # exactly rounded, so that the tails keep their accuracy
    complement = (-term).fma(term, 1.0)
    inside = complement > 0.0
    w = -log_of_sum(where(inside, complement, 0.5), term.constant(0.0))
    near = (w - centre).polynomial(small)
    far = (w.sqrt() - large_centre).polynomial(large)
    result = term * where(w < border, near, far)
    outside = where(complement.equals(0.0), term * INFINITY, float("nan"))
    return where(inside, result, outside).value

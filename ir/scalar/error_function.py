"""erf."""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.exponential import exp_normal
from hlojit.ir.scalar.expression import Term, minimum, where

ERF = {
    "f32": (c.ERF_SMALL_F32, 0.925, c.ERF_LARGE_F32, 1.25, 3.95),
    "f64": (c.ERF_SMALL_F64, 1.0, c.ERF_LARGE_F64, 2.0, 5.95),
}
"""Polynomial near zero, up to where; polynomial of log(erfc), its centre, from where the result is one."""


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

"""tanh."""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.exponential import exp_normal
from hlojit.ir.scalar.expression import Term, minimum, where

TANH = {"f32": (c.TANH_F32, 0.625, 9.1), "f64": (c.TANH_F64, 0.55, 19.1)}
"""Polynomial, up to where it holds, and from where the result is one."""


def tanh(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Hyperbolic tangent: an odd polynomial near zero, 1 - 2 / (exp(2|x|) + 1) elsewhere."""
    term = Term(b, x)
    polynomial, border, saturation = TANH[x.kind]
    magnitude = term.abs()
    square = term * term
    near = (term * square).fma(square.polynomial(polynomial), term)
    clamped = minimum(magnitude, saturation)
    far = 1.0 - 2.0 / (exp_normal(clamped + clamped) + 1.0)
    # NaN takes the polynomial
    return where(magnitude >= border, far, near).with_sign_of(term).value

"""tanh, sinh, cosh and their inverses.

Odd functions take an odd polynomial near zero, so that small arguments keep their relative accuracy, and exponentials
or logarithms elsewhere.
"""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.exponential import exp_normal, half_exp
from hlojit.ir.scalar.expression import Term, minimum, where
from hlojit.ir.scalar.logarithm import log_of_sum

INFINITY = float("inf")
TANH = {"f32": (c.TANH_F32, 0.625, 9.1), "f64": (c.TANH_F64, 0.55, 19.1)}
"""Polynomial, up to where it holds, and from where the result is one."""
SINH = {"f32": c.SINH_F32, "f64": c.SINH_F64}
ASINH = {"f32": c.ASINH_F32, "f64": c.ASINH_F64}
ATANH = {"f32": c.ATANH_F32, "f64": c.ATANH_F64}
COSH_OVERFLOW = {"f32": 89.41598510742188, "f64": 710.4758600739439}
"""The largest argument whose hyperbolic cosine is finite."""
SQUARE_DOMINATES = {"f32": 2.0**14, "f64": 2.0**28}
"""From here on sqrt(x**2 + 1) is x."""


def odd_polynomial(x: Term, square: Term, coefficients: tuple[float, ...]) -> Term:
    """X + x**3 * q(x**2)."""
    return (x * square).fma(square.polynomial(coefficients), x)


def tanh(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Hyperbolic tangent: an odd polynomial near zero, 1 - 2 / (exp(2|x|) + 1) elsewhere."""
    term = Term(b, x)
    polynomial, border, saturation = TANH[x.kind]
    magnitude = term.abs()
    near = odd_polynomial(term, term * term, polynomial)
    clamped = minimum(magnitude, saturation)
    far = 1.0 - 2.0 / (exp_normal(clamped + clamped) + 1.0)
    # NaN takes the polynomial
    return where(magnitude >= border, far, near).with_sign_of(term).value


def sinh(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Hyperbolic sine."""
    term = Term(b, x)
    magnitude = term.abs()
    near = odd_polynomial(term, term * term, SINH[x.kind])
    half = half_exp(minimum(magnitude, COSH_OVERFLOW[x.kind]))
    far = where(magnitude > COSH_OVERFLOW[x.kind], INFINITY, half - 0.25 / half)
    return where(magnitude >= 1.0, far, near).with_sign_of(term).value


def cosh(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Hyperbolic cosine."""
    magnitude = Term(b, x).abs()
    half = half_exp(minimum(magnitude, COSH_OVERFLOW[x.kind]))
    result = half + 0.25 / half
    return where(magnitude.above_or_nan(COSH_OVERFLOW[x.kind]), magnitude * INFINITY, result).value


def _add_root(x: Term, one: float) -> tuple[Term, Term]:
    """X + sqrt(x**2 + one) for one = 1 or -1 and x**2 >= 1/4: the rounded sum and what it lost, divided by it."""
    square = x * x
    square_low = x.fma(x, -square)
    inside = square + one
    # exact whichever of the two is larger
    shifted = inside - square
    inside_low = (square - (inside - shifted)) + (one - shifted) + square_low
    root = inside.sqrt()
    error = (-root).fma(root, inside) + inside_low
    # root misses the true root by error / (2 root)
    large, small = (x, root) if one < 0 else (root, x)
    total = large + small
    lost = small - (total - large)
    return total, error.fma(0.5, lost * root) / (root * total)


def asinh(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Inverse hyperbolic sine."""
    term = Term(b, x)
    magnitude = term.abs()
    near = odd_polynomial(term, term * term, ASINH[x.kind])
    huge = magnitude > SQUARE_DOMINATES[x.kind]
    total, correction = _add_root(magnitude, 1.0)
    far = log_of_sum(where(huge, magnitude, total), where(huge, 0.0, correction), where(huge, term.constant(1.0), 0.0))
    result = where(magnitude >= 0.5, far, near).with_sign_of(term)
    return where(magnitude.equals(INFINITY), term, result).value


def acosh(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Inverse hyperbolic cosine; NaN below 1."""
    term = Term(b, x)
    huge = term > SQUARE_DOMINATES[x.kind]
    total, correction = _add_root(term, -1.0)
    result = log_of_sum(where(huge, term, total), where(huge, 0.0, correction), where(huge, term.constant(1.0), 0.0))
    result = where(term > 1.0, result, where(term.equals(1.0), term.constant(0.0), float("nan")))
    return where(term.not_below(INFINITY), term, result).value


def atanh(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Inverse hyperbolic tangent; infinite at -1 and 1, NaN outside."""
    term = Term(b, x)
    magnitude = term.abs()
    near = odd_polynomial(term, term * term, ATANH[x.kind])
    above = magnitude + 1.0
    above_low = magnitude - (above - 1.0)
    below = 1.0 - magnitude
    quotient = above / below
    rest = (-quotient).fma(below, above) + above_low
    far = log_of_sum(quotient, rest / above) * 0.5
    far = where(magnitude.equals(1.0), INFINITY, far)
    far = where(magnitude > 1.0, float("nan"), far)
    return where(magnitude >= 0.5, far, near).with_sign_of(term).value

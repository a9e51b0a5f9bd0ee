"""How far a result may be from JAX's: by op and element type, in ULP, each with its reason.

``ulp`` counts numbers of the type between a result and JAX's; of complex numbers it is in units of the last place of the larger
part.  Where sums of many terms are rounded in another order, what cancels makes any number of ULP of a result; there
``of_largest`` counts ULP at the largest magnitude of the whole result.  What the table does not name must be equal, and so
must integers and predicates everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Tolerance:
    """Results within ``ulp`` of JAX's, or within ``of_largest`` ULP of the result's largest magnitude, are right."""

    ulp: int
    reason: str
    of_largest: int = 0


@dataclass(frozen=True)
class Row:
    """``groups`` and ``types`` are regular expressions: of the harness's group (mostly the primitive) and of NumPy's name."""

    groups: str
    types: str
    tolerance: Tolerance


EXACT: Final = Tolerance(0, "the op moves, compares or selects, is exact by IEEE 754, or computes with integers")

_NARROW: Final = r"float16|bfloat16"
_WIDE: Final = r"float32|float64"
_COMPLEX: Final = r"complex64|complex128"
_ANY: Final = rf"{_NARROW}|{_WIDE}|{_COMPLEX}"
_FUNCTIONS: Final = (
    r"acos|acosh|asin|asinh|atan|atan2|atanh|cbrt|cos|cosh|erf|erfc|exp|exp2|expm1|integer_pow|log|log1p|logistic|"
    r"pow|rsqrt|sin|sinh|sqrt|tan|tanh|bessel_i0e|bessel_i1e|abs|sign|div|mul|random_uniform"
)
_FACTORIZATIONS: Final = (
    r"triangular_solve|cholesky|lu|qr|householder_product|custom_linear_solve|tridiagonal_solve|eigh?|svd|schur|hessenberg|"
    r"tridiagonal"
)

TABLE: Final = (
    Row(
        _FUNCTIONS,
        _NARROW,
        Tolerance(1, "both round a result of f32, which differ in its last bits, so that ties fall to either side"),
    ),
    Row("atanh", "float64", Tolerance(128, "JAX's is up to 117 ULP from the exact value (by mpmath), ours 1")),
    Row("bessel_i1e", _WIDE, Tolerance(8, "JAX's is up to 8 ULP from the exact value (by mpmath), ours less than 1")),
    Row(
        _FUNCTIONS,
        _WIDE,
        Tolerance(4, "ours and JAX's are each within 3 ULP of the exact value and err to either side of it"),
    ),
    Row(
        "pow",
        _COMPLEX,
        Tolerance(256, "JAX's exp(y log x) rounds an exponent that may be large, ours carries what it loses"),
    ),
    Row(
        _FUNCTIONS,
        _COMPLEX,
        Tolerance(
            8, "JAX's formulas lose some bits (stored tables of StableHLO show ours within 3 ULP of the exact value)"
        ),
    ),
    Row(
        r"lgamma|digamma",
        _ANY,
        Tolerance(
            4,
            "near a root what cancels leaves its rounding (f64 lgamma: JAX's is up to 17,116 ULP from the exact value)",
            of_largest=4,
        ),
    ),
    Row(
        r"cumsum|cumprod|cumlogsumexp|reduce|reduce_window_add|reduce_window_mul|reduce_sum|reduce_prod|add_any",
        _ANY,
        Tolerance(4, "sums and products are rounded in another order (the specification leaves it open)", of_largest=4),
    ),
    Row(
        r"dot_general|conv_general_dilated|ragged_dot",
        _ANY,
        Tolerance(4, "sums of products are rounded in another order, and may be fused multiply-adds", of_largest=8),
    ),
    Row("fft", _ANY, Tolerance(4, "sums of products with roots of unity, in another order", of_largest=8)),
    Row(
        r"cholesky|triangular_solve|custom_linear_solve",
        _NARROW,
        Tolerance(4, "ours are computed in f32 and rounded once, JAX's after every step", of_largest=4),
    ),
    Row(
        _FACTORIZATIONS,
        _ANY,
        Tolerance(4, "sums of products in another order, divided by what may be small", of_largest=64),
    ),
    Row(
        r"igamma|igammac|random_gamma_grad|regularized_incomplete_beta|erf_inv|zeta|polygamma",
        _ANY,
        Tolerance(
            128,
            "series and continued fractions of many steps, each of which adds the rounding of its logarithms and powers",
            of_largest=32,
        ),
    ),
)
"""The first row that fits holds."""

DYNAMIC: Final = Tolerance(4, "functions and sums as in the table; the oracle rounds every op by itself", of_largest=8)
"""For programs with unknown sizes beside the interpreter of the specification."""


def tolerance(group: str, dtype: str) -> Tolerance:
    """The tolerance for results of type ``dtype`` (NumPy's name) of a group of harnesses."""
    for row in TABLE:
        if re.fullmatch(row.groups, group) and re.fullmatch(row.types, dtype):
            return row.tolerance
    return EXACT

"""How far a result may be from JAX's: by op and element type, in ULP, each with its reason.

Where JAX's is farther than that, the exact value decides (``oracles.py``): ours must be as near to it.  How far both are from
exact values is measured by ``tools/harness_accuracy.py``; see docs/harness-accuracy.md.

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
    r"acos|acosh|asin|asinh|atan|atan2|atanh|cbrt|cos|cosh|erf|erfc|erf_inv|exp|exp2|expm1|integer_pow|log|log1p|logistic|"
    r"pow|rsqrt|sin|sinh|tan|tanh|abs"
)

TABLE: Final = (
    Row(
        _FUNCTIONS + "|lgamma|digamma|bessel_i0e|bessel_i1e|igamma|igammac|regularized_incomplete_beta",
        _NARROW,
        Tolerance(
            1,
            "a result of f32 is rounded once more, so that ties fall to either side; ours are 0.5 ULP from the exact value",
        ),
    ),
    Row(
        _FUNCTIONS,
        _WIDE,
        Tolerance(
            2, "the bound that docs/numerics.md states; JAX's are up to 117 ULP off (f64 atanh) and 984,000 (f32 erfc)"
        ),
    ),
    Row(
        "div",
        _WIDE,
        Tolerance(
            1, "ours is rounded correctly; JAX's divides some f32 by a reciprocal, 1.03 ULP from the exact value"
        ),
    ),
    Row(
        "integer_pow",
        _COMPLEX,
        Tolerance(5, "JAX writes products and a quotient of complex numbers, whose roundings add up: ours to 4.1 ULP"),
    ),
    Row(
        rf"{_FUNCTIONS}|sqrt|sign|div|mul",
        _COMPLEX,
        Tolerance(
            3,
            "ours are within 2.5 ULP where JAX writes formulas out, else within 1.6; JAX's up to 44 ULP off (c128 log)",
        ),
    ),
    Row(
        "scatter_mul",
        _COMPLEX,
        Tolerance(
            1,
            "products of complex numbers: ours are the plain formula, each operation rounded, to 0.52 ULP; JAX's fused "
            "multiply-adds",
        ),
    ),
    Row(
        r"lgamma|digamma",
        "float32",
        Tolerance(
            1, "ours are computed in f64, 0.5 ULP from the exact value; JAX's are up to 1,390 ULP off beside zeros"
        ),
    ),
    Row(
        r"lgamma|digamma",
        "float64",
        Tolerance(6, "the bound that docs/numerics.md states; JAX's lgamma is up to 17,116 ULP from the exact value"),
    ),
    Row(
        "bessel_i1e",
        _WIDE,
        Tolerance(
            4, "the bound that docs/numerics.md states; JAX's is up to 8.3 ULP from the exact value in f32, 3.8 in f64"
        ),
    ),
    Row(
        "bessel_i0e",
        _WIDE,
        Tolerance(
            4,
            "JAX writes two polynomials out, whose products and sums its compiler contracts and hlojit rounds one by one, to the "
            "reference's bits: ours to 5.4 ULP, JAX's to 3.6, and 4 apart",
        ),
    ),
    Row(
        r"cumsum|cumprod|cumlogsumexp|reduce|reduce_window_add|reduce_window_mul|reduce_sum|reduce_prod",
        _ANY,
        Tolerance(
            4,
            "sums and products are rounded in another order, which the specification leaves open: up to 2.1 ULP each",
            of_largest=2,
        ),
    ),
    Row(
        r"dot_general|conv_general_dilated",
        _ANY,
        Tolerance(
            4,
            "sums of products are rounded in another order, and may be fused multiply-adds: each up to 3 ULP at the largest",
            of_largest=4,
        ),
    ),
    Row(
        "fft",
        _ANY,
        Tolerance(
            4, "sums of products with roots of unity, in another order: each up to 2.5 ULP at the largest", of_largest=4
        ),
    ),
    Row(
        "triangular_solve",
        _NARROW,
        Tolerance(2, "ours are computed in f32 and rounded once, JAX's after every step", of_largest=2),
    ),
    Row(
        r"igamma|igammac|regularized_incomplete_beta",
        _WIDE,
        Tolerance(
            32,
            "JAX writes series and continued fractions of many steps out, and the roundings of its logarithms and powers add up: "
            "ours to 46 ULP, 11 at the largest",
            of_largest=12,
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

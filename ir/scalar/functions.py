"""All transcendental functions, ready for the op table: ``exp(b, x)``, ``pow(b, x, y)``, ``atan2(b, y, x)``, ...

Each takes f32 or f64 scalars and emits vectorizable code without calls; at most 2 units in the last place (4 for pow,
erf_inv, lgamma and digamma) from the true value over the whole range, denormals, infinities and NaN included.  In f64 the
error of lgamma and digamma is 6 units below zero, that of gamma 5, and 7 below zero; only beside the zeros of digamma below
-64 is it one of the terms that cancel there.
"""

from __future__ import annotations

from hlojit.ir.scalar.error_function import erf, erf_inv, erfc
from hlojit.ir.scalar.exponential import exp, exp2, expm1, logistic
from hlojit.ir.scalar.gamma import digamma, gamma, lgamma
from hlojit.ir.scalar.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from hlojit.ir.scalar.inverse_trigonometric import acos, asin, atan, atan2
from hlojit.ir.scalar.logarithm import log, log1p, log2
from hlojit.ir.scalar.power import cbrt, pow, rsqrt
from hlojit.ir.scalar.trigonometric import cos, sin, tan
from hlojit.ir.scalar.zeta import bessel_i1e, polygamma, zeta

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bessel_i1e",
    "cbrt",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erf_inv",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "gamma",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "logistic",
    "polygamma",
    "pow",
    "rsqrt",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "zeta",
]

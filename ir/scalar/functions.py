"""All transcendental functions, ready for the op table: ``exp(b, x)``, ``pow(b, x, y)``, ...

Each takes f32 or f64 scalars and emits vectorizable code without calls; at most 2 units in the last place (4 for pow)
from the true value over the whole range, denormals, infinities and NaN included.
"""

from __future__ import annotations

from hlojit.ir.scalar.error_function import erf
from hlojit.ir.scalar.exponential import exp, exp2, expm1, logistic
from hlojit.ir.scalar.hyperbolic import tanh
from hlojit.ir.scalar.logarithm import log, log1p, log2
from hlojit.ir.scalar.power import pow, rsqrt  # noqa: A004 - the op's name
from hlojit.ir.scalar.trigonometric import cos, sin

__all__ = ["cos", "erf", "exp", "exp2", "expm1", "log", "log1p", "log2", "logistic", "pow", "rsqrt", "sin", "tanh"]

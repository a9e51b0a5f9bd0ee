"""How a quantile of the gamma distribution changes with its shape parameter.

    dx/da = -(dP/da) / (dP/dx), where P(a, x) is the share below x

For shape parameters below 10,000 by the power series of P, else by Cornish's and Fisher's expansion of the quantile around the
normal distribution's.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hlojit.tracing.control_flow import while_loop
from hlojit.tracing.scipy_functions.special_ufuncs import one_op

_LARGE: Final = 1e4
_STEPS: Final = 8
"""Of finding the normal quantile; each has two digits more."""


def log_gamma_derivative(logarithm: Any, a: Any) -> Any:
    """The derivative of the quantile's logarithm, at quantiles that are given by these; f64."""
    is_large = a >= _LARGE
    near = np.where(is_large, 1.0, a)
    by_series = _by_series(np.where(is_large, 0.0, logarithm), near)
    far = np.where(is_large, a, _LARGE)
    x = np.exp(np.where(is_large, logarithm, np.log(_LARGE)))
    return np.where(is_large, _by_expansion(x, far) / x, by_series)


def _by_series(logarithm: Any, a: Any) -> Any:
    """The sum of x^n / (a (a+1) ... (a+n)) (digamma(a + n + 1) - log x)."""
    x = np.exp(logarithm)
    first, psi = 1 / a, one_op(a.context, "chlo.digamma", a + 1)

    def is_open(state: Any) -> Any:
        n, part, _, total = state
        return ((a + n <= x) | (part * (1 + np.abs(logarithm)) > 1e-17 * np.abs(total))).any()

    def following(state: Any) -> Any:
        n, part, psi, total = state
        part = part * x / (a + n)
        psi = psi + 1 / (a + n)
        return n + 1, part, psi, total + part * (psi - logarithm)

    return while_loop(is_open, following, (np.float64(1), first, psi, first * (psi - logarithm)))[3]


def _by_expansion(x: Any, a: Any) -> Any:
    small = 1 / np.sqrt(a)
    w = (x - a) * small
    z = w
    for _ in range(_STEPS):
        second, third, fourth = _terms(z)
        z = w - small * (second + small * (third - small * fourth))
    second, third, fourth = _terms(z)
    return 1 + 0.5 * small * z - 0.5 * small**3 * third + small**4 * fourth


def _terms(z: Any) -> tuple[Any, Any, Any]:
    square = z * z
    return (square - 1) / 3, z * (square - 7) / 36, (square * (3 * square + 7) - 16) / 810

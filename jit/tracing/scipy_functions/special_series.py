"""Polynomials and series of ``scipy.special``'s functions, over tracers of f8.

Coefficients of ``ndtri`` and ``i0e`` are those of Cephes (Stephen L. Moshier), which SciPy and NumPy use as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

# ------------------------------------------------------------------------------------------------------ polynomials


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """Horner's rule, the highest power first."""
    found: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        found = found * x + coefficient
    return found


def _chebyshev(coefficients: Sequence[float], x: Any) -> Any:
    """Clenshaw's recurrence for the sum of coefficients, the highest first, times Chebyshev polynomials of x / 2."""
    current: Any = coefficients[0]
    before: Any = 0.0
    last: Any = 0.0
    for coefficient in coefficients[1:]:
        last, before = before, current
        current = x * before - last + coefficient
    return 0.5 * (current - last)


# -------------------------------------------------------------------------------------------- the normal distribution

_NDTRI_MIDDLE: Final = (
    (-5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1, 1.39312609387279679503e1,
     -1.23916583867381258016e0),
    (1.0, 1.95448858338141759834e0, 4.67627912898881538453e0, 8.63602421390890590575e1, -2.25462687854119370527e2,
     2.00260212380060660359e2, -8.20372256168333339912e1, 1.59056225126211695515e1, -1.18331621121330003142e0),
)  # fmt: skip
_NDTRI_NEAR: Final = (
    (4.05544892305962419923e0, 3.15251094599893866154e1, 5.71628192246421288162e1, 4.40805073893200834700e1,
     1.46849561928858024014e1, 2.18663306850790267539e0, -1.40256079171354495875e-1, -3.50424626827848203418e-2,
     -8.57456785154685413611e-4),
    (1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1, 1.50425385692907503408e1,
     2.50464946208309415979e0, -1.42182922854787788574e-1, -3.80806407691578277194e-2, -9.33259480895457427372e-4),
)  # fmt: skip
_NDTRI_FAR: Final = (
    (3.23774891776946035970e0, 6.91522889068984211695e0, 3.93881025292474443415e0, 1.33303460815807542389e0,
     2.01485389549179081538e-1, 1.23716634817820021358e-2, 3.01581553508235416007e-4, 2.65806974686737550832e-6,
     6.23974539184983293730e-9),
    (1.0, 6.02427039364742014255e0, 3.67983563856160859403e0, 1.37702099489081330271e0, 2.16236993594496635890e-1,
     1.34204006088543189037e-2, 3.28014464682127739104e-4, 2.89247864745380683936e-6, 6.79019408009981274425e-9),
)  # fmt: skip


def ndtri(p: Any) -> Any:
    """Where the normal distribution reaches ``p``; infinite at 0 and 1, NaN beyond them."""
    limit = math.exp(-2)
    upper = p > 1 - limit
    y = np.where(upper, 1 - p, p)
    centred = y - 0.5
    square = centred * centred
    middle = centred + centred * (
        square * _polynomial(_NDTRI_MIDDLE[0], square) / _polynomial(_NDTRI_MIDDLE[1], square)
    )
    inside = (y > 0) & (y <= limit)
    root = np.sqrt(-2 * np.log(np.where(inside, y, 0.1)))
    inverse = 1 / root
    near, far = (inverse * _polynomial(p, inverse) / _polynomial(q, inverse) for p, q in (_NDTRI_NEAR, _NDTRI_FAR))
    tail = root - np.log(root) / root - np.where(root < 8, near, far)
    found = np.where(y > limit, math.sqrt(2 * math.pi) * middle, np.where(upper, tail, -tail))
    found = np.where(p == 0, -np.inf, np.where(p == 1, np.inf, found))
    return np.where((p >= 0) & (p <= 1), found, np.nan)


_ODD_FACTORIALS: Final = tuple((-1) ** k * math.prod(range(1, 2 * k, 2)) for k in range(14))
"""Of the asymptotic series of the normal distribution's tail."""


def log_tail(x: Any) -> Any:
    """The logarithm of the normal distribution at numbers below -14 (Abramowitz and Stegun, 26.2.12)."""
    far = np.minimum(x, -14.0)
    inverse = 1 / (far * far)
    series = _polynomial(_ODD_FACTORIALS[:0:-1], inverse) * inverse
    return -0.5 * far * far - np.log(-far) - 0.5 * math.log(2 * math.pi) + np.log1p(series)


# -------------------------------------------------------------------------------------------------- Bessel functions

_I0_NEAR: Final = (
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15,
    -1.1685332877993451e-14, 7.676185498604936e-14, -4.856446783111929e-13, 2.95505266312964e-12,
    -1.726826291441556e-11, 9.675809035373237e-11, -5.189795601635263e-10, 2.6598237246823866e-09,
    -1.300025009986248e-08, 6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165,
    -0.0005763755745385824, 0.0016394756169413357, -0.004324309995050576, 0.010546460394594998, -0.02373741480589947,
    0.04930528423967071, -0.09490109704804764, 0.17162090152220877, -0.3046826723431984, 0.6767952744094761,
)  # fmt: skip
_I0_FAR: Final = (
    -7.233180487874754e-18, -4.830504485944182e-18, 4.46562142029676e-17, 3.461222867697461e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16, 1.7725601330565263e-15, 3.8116806693526224e-15,
    -9.554846698828307e-15, -4.150569347287222e-14, 1.54008621752141e-14, 3.8527783827421426e-13,
    7.180124451383666e-13, -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11,
    1.1889147107846439e-11, 4.94060238822497e-10, 3.3962320257083865e-09, 2.266668990498178e-08,
    2.0489185894690638e-07, 2.8913705208347567e-06, 6.889758346916825e-05, 0.0033691164782556943, 0.8044904110141088,
)  # fmt: skip


def i0e(x: Any) -> Any:
    """The modified Bessel function of order 0, times exp(-|x|)."""
    size = np.abs(x)
    near = _chebyshev(_I0_NEAR, np.minimum(size, 8.0) / 2 - 2)
    distant = np.maximum(size, 8.0)
    return np.where(size <= 8, near, _chebyshev(_I0_FAR, 32 / distant - 2) / np.sqrt(distant))


# --------------------------------------------------------------------------------------------------- zeta and beta


def _eta_weights(count: int) -> list[float]:
    """Of Borwein's alternating sum for the zeta function: (-1)**k (d[k] - d[n]) / -d[n]."""
    terms = [
        count * math.factorial(count + k - 1) * 4**k // (math.factorial(count - k) * math.factorial(2 * k))
        for k in range(count + 1)
    ]
    sums = [sum(terms[: k + 1]) for k in range(count + 1)]
    return [(-1) ** k * (sums[-1] - sums[k]) / sums[-1] for k in range(count)]


_ETA: Final = _eta_weights(22)


def riemann_middle(s: Any) -> Any:
    """The zeta function between 0 and 1 (Borwein, 2000, algorithm 2: 22 terms leave 1e-17)."""
    total: Any = _ETA[0]
    for k, weight in enumerate(_ETA[1:], 2):
        total = total + weight * np.exp(-math.log(k) * s)
    return total / -np.expm1((1 - s) * math.log(2))


def riemann_left(s: Any, gamma: Any, zeta: Any) -> Any:
    """The zeta function below 0, from the gamma and zeta functions of ``1 - s``."""
    # The sine of pi s / 2 by the distance from the nearest even number, its zero, which is exact.
    zero = np.rint(0.5 * s)
    sine = np.where(np.remainder(zero, 2.0) == 0, 1.0, -1.0) * np.sin(0.5 * math.pi * (s - 2 * zero))
    return 2 * np.power(2 * math.pi, s - 1) * sine * gamma * zeta


_STIRLING: Final = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)


def _stirling_rest(x: Any) -> Any:
    """What the logarithm of gamma of 10 and more is beside (x - 1/2) log(x) - x + log(2 pi) / 2."""
    inverse = 1 / x
    return inverse * _polynomial(_STIRLING, inverse * inverse)


def log_beta_far(a: Any, b: Any, log_gamma: Any) -> Any:
    """The logarithm of the beta function for ``a`` of at least 10 and at least ``b``, of which ``log_gamma`` is that of gamma.

    As in Didonato and Morris (TOMS 708): the logarithms of gamma are taken apart, so that what cancels is not computed.
    """
    a = np.maximum(a, 10.0)
    ratio = b / a
    rest = _stirling_rest(a) - _stirling_rest(a + b)
    grown = np.log1p(ratio)
    small = log_gamma + ((rest + b - (a - 0.5) * grown) - b * np.log(a + b))
    distant = np.maximum(b, 10.0)
    exponent = (distant - 0.5) * np.log(ratio / (1 + ratio))
    large = ((0.5 * math.log(2 * math.pi) - 0.5 * np.log(a)) + (rest + _stirling_rest(distant)) + exponent) - a * grown
    return np.where(b >= 10, large, small)

"""What ``generate_coefficients.py`` makes: one entry per polynomial or constant of ``ir/scalar/coefficients.py``.

Weights turn the error of the fitted part into the relative error of the whole function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
from minimax import DIGITS, Fit, split
from mpmath import mp, mpf


def two_over_pi_words(count: int = 20) -> tuple[int, ...]:
    """Binary digits of 2/pi after the point, 64 a word."""
    with mp.workprec(64 * count + 64):
        digits = int(mpmath.floor(mpmath.ldexp(2 / mp.pi, 64 * count)))
    return tuple((digits >> (64 * (count - 1 - index))) & (2**64 - 1) for index in range(count))


def digamma_root() -> Any:
    """The positive zero of digamma."""
    return mp.findroot(lambda x: mp.psi(0, x), mpf("1.4616"))


LGAMMA_LEAST = 0.39
"""3 more than where, between its first two zeros, lgamma is about least."""


def lgamma_zeros(count: int = 16) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The zeros v of log|gamma(v - n)| below and above 0 for n = 2, 3, ..., in two parts.

    For n = 2 there is none above 0; LGAMMA_LEAST takes its place.
    """

    def zero(n: int, side: int) -> Any:
        if n < 4:
            start = {(2, -1): "-0.457", (3, -1): "-0.1436", (3, 1): "0.2523"}[n, side]
            return mp.findroot(lambda v: mp.log(abs(mp.gamma(v - n))), mpf(start))
        v = mpf(side) / mp.factorial(n)
        for _ in range(DIGITS):  # |v gamma(v - n)|, which should be |v|, hardly depends on v
            v = side * abs(v * mp.gamma(v - n))
        return v

    zeros = [
        zero(n, side) if (n, side) != (2, 1) else mpf(LGAMMA_LEAST) for n in range(2, 2 + count) for side in (-1, 1)
    ]
    high, low = zip(*(split(value, 53, 53) for value in zeros), strict=True)
    return high, low


def digamma_zeros(count: int = 64) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The zeros of digamma between 0 and -1, -1 and -2, ..., in two parts."""

    def zero(n: int) -> Any:
        return mp.findroot(lambda x: mp.psi(0, x), -n - (mp.atan(mp.log(n + mpf("1.5")) / mp.pi) / mp.pi + mpf("0.5")))

    high, low = zip(*(split(zero(n), 53, 53) for n in range(count)), strict=True)
    return high, low


def odd(function: Callable[[Any], Any], top: Any, count: int, kind: str) -> Fit:
    """Q in function(x) = x + x**3 * q(x**2) for |x| <= top."""

    def tail(t: Any) -> Any:
        x = mp.sqrt(t)
        return (function(x) - x) / x**3

    def weight(t: Any) -> Any:
        x = mp.sqrt(t)
        return x**3 / function(x)

    return Fit(tail, weight, mpf(0), mpf(top) ** 2, count, kind)


def relative(function: Callable[[Any], Any], low: Any, high: Any, count: int, kind: str) -> Fit:
    """A polynomial whose relative error is small."""
    return Fit(function, lambda x: 1 / function(x), mpf(low), mpf(high), count, kind)


def constants() -> dict[str, Callable[[], Any]]:
    """Constants in one or several parts (high part first)."""
    return {
        "LN2_F32": lambda: split(mp.ln(2), 15, 24),
        "LN2_F64": lambda: split(mp.ln(2), 42, 53),
        "INVERSE_LN2": lambda: split(1 / mp.ln(2), 53, 53),
        "TWO_OVER_LN2": lambda: split(2 / mp.ln(2), 53, 53),
        "ONE_THIRD": lambda: split(mpf(1) / 3, 53, 53),
        "INVERSE_LN2_F32": lambda: split(1 / mp.ln(2), 24, 24),
        "PI": lambda: float(mp.pi),
        "LOG_PI": lambda: float(mp.log(mp.pi)),
        "STIRLING_CONSTANT": lambda: float((mp.log(2 * mp.pi) - 1) / 2),
        "LGAMMA_LEAST": lambda: float(mp.log(abs(mp.gamma(mpf(LGAMMA_LEAST) - 3)))),
        "LGAMMA_ZEROS": lambda: lgamma_zeros()[0],
        "LGAMMA_ZEROS_LOW": lambda: lgamma_zeros()[1],
        "DIGAMMA_ZEROS": lambda: digamma_zeros()[0],
        "DIGAMMA_ZEROS_LOW": lambda: digamma_zeros()[1],
        "DIGAMMA_ROOT": lambda: split(digamma_root(), 53, 53),
        "HALF_PI_F32": lambda: split(mp.pi / 2, 24, 24, 24),
        "HALF_PI_F64": lambda: split(mp.pi / 2, 53, 53, 53),
        "TWO_OVER_PI": lambda: float(2 / mp.pi),
        # of Euler and Maclaurin's formula: B(2j) / (2j)!
        "BERNOULLI_QUOTIENTS": lambda: tuple(float(mp.bernoulli(2 * j) / mp.factorial(2 * j)) for j in range(1, 16)),
        # one zero word first, so that a window may begin before the point
        "TWO_OVER_PI_WORDS": lambda: (0, *two_over_pi_words()),
    }


def _exponential() -> dict[str, Fit]:
    half = mp.ln(2) / 2 * mpf("1.002")

    def tail(r: Any) -> Any:
        return (mp.expm1(r) - r) / r**2

    def tail_two(r: Any) -> Any:
        return mp.expm1(r * mp.ln(2)) / r

    return {
        # e**r = 1 + r + r**2 * q(r)
        "EXP_F32": Fit(tail, lambda r: r**2 / mp.exp(r), -half, half, 5, "f32"),
        "EXP_F64": Fit(tail, lambda r: r**2 / mp.exp(r), -half, half, 10, "f64"),
        # expm1(r) = r + r**2 * q(r)
        "EXPM1_F32": Fit(tail, lambda r: r**2 / mp.expm1(r), -half, half, 6, "f32"),
        "EXPM1_F64": Fit(tail, lambda r: r**2 / mp.expm1(r), -half, half, 11, "f64"),
        # 2**r = 1 + r * q(r)
        "EXP2_F32": Fit(tail_two, lambda r: r / 2**r, mpf("-0.501"), mpf("0.501"), 6, "f32"),
        "EXP2_F64": Fit(tail_two, lambda r: r / 2**r, mpf("-0.501"), mpf("0.501"), 11, "f64"),
        # the same, in f64, for f32 results
        "EXP2_SHORT": Fit(tail_two, lambda r: r / 2**r, mpf("-0.501"), mpf("0.501"), 6, "f64"),
    }


def _logarithm() -> dict[str, Fit]:
    low, high = mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1
    square = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mpf("1.001")

    def tail(f: Any) -> Any:
        return (mp.log1p(f) - f + f**2 / 2) / f**3

    def atanh_tail(order: int) -> Callable[[Any], Any]:
        # 2 atanh(s) / s = 2 + 2z/3 + 2z**2/5 + ..., z = s**2, divided by z**order after that many terms
        def value(z: Any) -> Any:
            s = mp.sqrt(z)
            known = sum(mpf(2) / (2 * k + 1) * z**k for k in range(order))
            return (2 * mp.atanh(s) / s - known) / z**order

        return value

    return {
        # log(1 + f) = f - f**2 / 2 + f**3 * q(f)
        "LOG_F32": Fit(tail, lambda f: f**3 / mp.log1p(f), low, high, 8, "f32"),
        # log((1 + s) / (1 - s)) = 2s + s**3 * q(s**2)
        "LOG_F64": Fit(atanh_tail(1), lambda z: z / 2, mpf(0), square, 7, "f64"),
        # = 2s + s**3 * (2/3 + s**2 * 2 * q(s**2))
        "LOG_LONG_F64": Fit(lambda z: atanh_tail(2)(z) / 2, lambda z: z**2, mpf(0), square, 8, "f64"),
        # log2(1 + f) = f * q(f), in f64, for f32 results
        "LOG2_SHORT": Fit(
            lambda f: mp.log1p(f) / f / mp.ln(2), lambda f: f * mp.ln(2) / mp.log1p(f), low, high, 13, "f64"
        ),
    }


def _hyperbolic() -> dict[str, Fit]:
    half = mpf("0.5")
    return {
        "TANH_F32": odd(mp.tanh, mpf("0.626"), 5, "f32"),
        "TANH_F64": odd(mp.tanh, mpf("0.551"), 11, "f64"),
        "SINH_F32": odd(mp.sinh, mpf(1), 4, "f32"),
        "SINH_F64": odd(mp.sinh, mpf(1), 7, "f64"),
        "ASINH_F32": odd(mp.asinh, half, 5, "f32"),
        "ASINH_F64": odd(mp.asinh, half, 12, "f64"),
        "ATANH_F32": odd(mp.atanh, half, 6, "f32"),
        "ATANH_F64": odd(mp.atanh, half, 13, "f64"),
    }


def _trigonometric() -> dict[str, Fit]:
    top = mp.pi / 4 * mpf("1.02")

    def cosine_tail(t: Any) -> Any:
        return (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t**2

    def cosine_weight(t: Any) -> Any:
        return t**2 / mp.cos(mp.sqrt(t))

    return {
        "SIN_F32": odd(mp.sin, top, 3, "f32"),
        "SIN_F64": odd(mp.sin, top, 6, "f64"),
        # cos(r) = 1 - r**2 / 2 + r**4 * q(r**2)
        "COS_F32": Fit(cosine_tail, cosine_weight, mpf(0), top**2, 3, "f32"),
        "COS_F64": Fit(cosine_tail, cosine_weight, mpf(0), top**2, 6, "f64"),
        "TAN_F32": odd(mp.tan, top, 7, "f32"),
        "TAN_F64": odd(mp.tan, top, 15, "f64"),
        "ATAN_F32": odd(mp.atan, mpf(1), 9, "f32"),
        "ATAN_F64": odd(mp.atan, mpf(1), 20, "f64"),
        "ASIN_F32": odd(mp.asin, mpf("0.5"), 5, "f32"),
        "ASIN_F64": odd(mp.asin, mpf("0.5"), 13, "f64"),
    }


def _gamma() -> dict[str, Fit]:
    def stirling(w: Any) -> Any:
        x = 1 / mp.sqrt(w)
        return (mp.loggamma(x) - ((x - mpf("0.5")) * (mp.log(x) - 1) + (mp.log(2 * mp.pi) - 1) / 2)) * x

    def digamma_far(w: Any) -> Any:
        x = 1 / mp.sqrt(w)
        return (mp.psi(0, x) - mp.log(x) + 1 / (2 * x)) / w

    def digamma_near(v: Any) -> Any:
        x = v + mpf("1.5")
        return mp.psi(0, x) / (x - root)

    root = digamma_root()
    half = mpf("0.5")
    return {
        # lgamma(2 + u) = u * q(u)
        "LGAMMA_NEAR": relative(lambda u: mp.loggamma(2 + u) / u, mpf("-0.65"), half, 20, "f64"),
        # lgamma(x) = (x - 1/2) * (log(x) - 1) + constant + q(1 / x**2) / x for x >= 8
        "LGAMMA_FAR": Fit(stirling, lambda w: mp.sqrt(w) / mp.loggamma(1 / mp.sqrt(w)), mpf(0), mpf(1) / 64, 6, "f64"),
        # digamma(1.5 + v) = (1.5 + v - root) * q(v)
        "DIGAMMA_NEAR": relative(digamma_near, -half, half, 23, "f64"),
        # digamma(x) = log(x) - 1 / (2x) + q(1 / x**2) / x**2 for x >= 8
        "DIGAMMA_FAR": Fit(digamma_far, lambda w: w / mp.psi(0, 1 / mp.sqrt(w)), mpf(0), mpf(1) / 64, 6, "f64"),
    }


def _error_function() -> dict[str, Fit]:
    def small(t: Any) -> Any:
        x = mp.sqrt(t)
        return mp.erf(x) / x - 1

    def small_weight(t: Any) -> Any:
        x = mp.sqrt(t)
        return x / mp.erf(x)

    def exponent(shift: Any) -> Callable[[Any], Any]:
        return lambda u: mp.log(mp.erfc(u + shift))

    def scaled(d: Any) -> Any:
        inverse = d + mpf("0.375")
        x = 1 / inverse - 1
        return mp.exp(x * x) * mp.erfc(x) / inverse

    def inverse_at(w: Any) -> Any:
        x = mp.sqrt(-mp.expm1(-w))
        return mp.erfinv(x) / x

    def inverse(centre: Any, *, root: bool) -> Callable[[Any], Any]:
        return lambda v: inverse_at((v + centre) ** 2 if root else v + centre)

    def by_place(low: Any, high: Any) -> tuple[Any, Any]:
        return 1 / (1 + mpf(high)) - mpf("0.375"), 1 / (1 + mpf(low)) - mpf("0.375")

    return {
        # erfc(x) = exp(-x**2) * d * q(d - 0.375) with d = 1 / (1 + x) for x >= 0.47
        "ERFC_F32": relative(scaled, *by_place("0.469", "10.7"), 11, "f32"),
        "ERFC_F64": relative(scaled, *by_place("0.469", "27.4"), 28, "f64"),
        # erf_inv(x) = x * q(w - centre) or x * q(sqrt(w) - centre) with w = -log(1 - x**2)
        "ERF_INV_SMALL_F32": relative(inverse(mpf("2.5"), root=False), mpf("-2.4999"), mpf("2.5"), 10, "f32"),
        "ERF_INV_LARGE_F32": relative(inverse(mpf(3), root=True), mp.sqrt(5) - 3, mpf("1.1"), 11, "f32"),
        "ERF_INV_SMALL_F64": relative(inverse(mpf("3.125"), root=False), mpf("-3.1249"), mpf("3.125"), 24, "f64"),
        "ERF_INV_LARGE_F64": relative(inverse(mpf(4), root=True), mpf("-1.5"), mpf("2.07"), 30, "f64"),
        # erf(x) = x + x * q(x**2)
        "ERF_SMALL_F32": Fit(small, small_weight, mpf(0), mpf("0.93") ** 2, 6, "f32"),
        "ERF_SMALL_F64": Fit(small, small_weight, mpf(0), mpf("1.001"), 13, "f64"),
        # erfc(x) = exp(q(x - 2)); erf = 1 - erfc
        "ERF_LARGE_F64": Fit(
            exponent(mpf("2.0")),
            lambda u: mp.erfc(u + mpf("2.0")),
            mpf("-1.001"),
            mpf("3.960"),
            18,
            "f64",
        ),
        # erfc(x) = exp(q(x - 1.25))
        "ERF_LARGE_F32": Fit(
            exponent(mpf("1.25")),
            lambda u: mp.erfc(u + mpf("1.25")),
            mpf("-0.33"),
            mpf("2.71"),
            7,
            "f32",
        ),
    }


def _bessel() -> dict[str, Fit]:
    def near(t: Any) -> Any:
        x = mp.sqrt(t)
        return mp.besseli(1, x) / x if x else mpf("0.5")

    def far(v: Any) -> Any:
        return mp.besseli(1, 1 / v) * mp.exp(-1 / v) / mp.sqrt(v)

    return {
        # i1(x) = x * q(x**2) for |x| <= 16
        "BESSEL_I1_NEAR": relative(near, mpf(0), mpf(256), 22, "f64"),
        # i1(x) = e**x / sqrt(x) * q(1 / x) for x >= 16
        "BESSEL_I1E_FAR": relative(far, mpf("1e-9"), mpf(1) / 16, 14, "f64"),
    }


def fits() -> dict[str, Fit]:
    """All polynomials."""
    return _exponential() | _logarithm() | _hyperbolic() | _trigonometric() | _error_function() | _gamma() | _bessel()

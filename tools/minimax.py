"""Polynomials that minimize their largest weighted error, with rounded coefficients.

Lawson's iteratively reweighted least squares on a Chebyshev grid.  The function values come from mpmath; a fit works on
the residual of the previous one, so double precision is enough to solve for it.  Coefficients are then rounded one by
one, lowest power first, and the remaining ones fitted again, so that rounding costs almost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf

Function = Callable[[Any], Any]
DIGITS = 50


@dataclass(frozen=True, slots=True)
class Fit:
    """A polynomial to find: minimize max |weight(x) * (polynomial(x) - function(x))| on [low, high]."""

    function: Function
    weight: Function
    low: Any
    high: Any
    count: int
    kind: str


def round_to(kind: str, value: Any) -> Any:
    """The nearest f32 or f64, as an mpf."""
    return mpf(float(np.float32(float(value)))) if kind == "f32" else mpf(float(value))


def horner(coefficients: list[Any], x: Any) -> Any:
    """The polynomial at x, lowest power first."""
    total = mpf(0)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def chebyshev_to_powers(series: np.ndarray[Any, Any], low: Any, high: Any) -> list[Any]:
    """Powers of x from a Chebyshev series in t = (2x - low - high) / (high - low)."""
    slope, shift = 2 / (high - low), -(low + high) / (high - low)

    def times_t(p: list[Any]) -> list[Any]:
        result = [shift * c for c in p] + [mpf(0)]
        for power, c in enumerate(p):
            result[power + 1] += slope * c
        return result

    total = [mpf(0)] * len(series)
    previous, current = [mpf(0)], [mpf(1)]
    for order, weight in enumerate(series):
        for power, c in enumerate(current):
            total[power] += mpf(float(weight)) * c
        doubled = times_t(current)
        following = doubled if order == 0 else [2 * c for c in doubled]
        if order:
            for power, c in enumerate(previous):
                following[power] -= c
        previous, current = current, following
    return total


class Problem:
    """The sampled fit: grid, values and weights."""

    def __init__(self, fit: Fit):
        self.fit = fit
        self.low, self.high = mpf(fit.low), mpf(fit.high)
        points = 16 * fit.count + 60
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        self.t = np.cos((2 * np.arange(points) + 1) * np.pi / (2 * points))
        self.grid = [middle + half * mpf(float(t)) for t in self.t]
        self.values = [fit.function(x) for x in self.grid]
        self.weights = [fit.weight(x) for x in self.grid]
        self.lawson = np.ones(points) / points

    def errors(self, coefficients: list[Any]) -> np.ndarray[Any, Any]:
        """Weighted residuals function - polynomial."""
        return np.array(
            [
                float(weight * (value - horner(coefficients, x)))
                for x, value, weight in zip(self.grid, self.values, self.weights)
            ]
        )

    def correct(self, coefficients: list[Any], fixed: int, *, reweight: int) -> list[Any]:
        """Add the polynomial x**fixed * q(x) that lessens the residuals most."""
        free = self.fit.count - fixed
        residual = self.errors(coefficients)
        scale = np.max(np.abs(residual)) or 1.0
        leading = np.array([float(weight * x**fixed) for x, weight in zip(self.grid, self.weights)])
        basis = np.polynomial.chebyshev.chebvander(self.t, free - 1) * leading[:, None]
        column_scale = np.max(np.abs(basis), axis=0)
        basis = basis / column_scale
        target = residual / scale
        lawson = self.lawson
        for step in range(reweight + 1):
            root = np.sqrt(lawson)
            series = np.linalg.lstsq(basis * root[:, None], target * root, rcond=1e-17)[0]
            if step < reweight:
                lawson = lawson * np.abs(target - basis @ series)
                lawson = lawson / np.sum(lawson)
        self.lawson = lawson
        powers = chebyshev_to_powers(series / column_scale, self.low, self.high)
        return coefficients[:fixed] + [c + mpf(scale) * p for c, p in zip(coefficients[fixed:], powers)]


def solve(fit: Fit) -> tuple[tuple[float, ...], float]:
    """Coefficients, lowest power first, and the largest weighted error after rounding."""
    with mp.workdps(DIGITS):
        problem = Problem(fit)
        coefficients = [mpf(0)] * fit.count
        for _ in range(5):
            coefficients = problem.correct(coefficients, 0, reweight=0)
        for _ in range(2):
            coefficients = problem.correct(coefficients, 0, reweight=25)
        for index in range(fit.count):
            coefficients[index] = round_to(fit.kind, coefficients[index])
            if index + 1 < fit.count:
                coefficients = problem.correct(coefficients, index + 1, reweight=0)
        return tuple(float(c) for c in coefficients), float(np.max(np.abs(problem.errors(coefficients))))


def split(value: Any, *bits: int) -> tuple[float, ...]:
    """Parts of a constant: each keeps ``bits`` significant bits, the sum approaches the value."""
    parts = []
    rest = mpf(value)
    for count in bits:
        if count == 53:
            part = mpf(float(rest))
        else:
            mantissa, exponent = mpmath.frexp(rest)
            part = mpmath.ldexp(mpmath.nint(mpmath.ldexp(mantissa, count)), exponent - count)
        parts.append(float(part))
        rest -= part
    return tuple(parts)

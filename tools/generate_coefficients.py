"""Fit the polynomials of the transcendental functions and write ``ir/scalar/coefficients.py``.

Every polynomial minimizes its largest weighted error (Lawson's iteratively reweighted least squares on a Chebyshev
grid).  The function values come from mpmath; a fit works on the residual of the previous one, so double precision is
enough to solve for it.  Coefficients are then rounded one by one, lowest power first, and the remaining ones fitted
again, so that rounding costs almost nothing.

    python tools/generate_coefficients.py            # all, rewrites the file
    python tools/generate_coefficients.py EXP_F32    # print one and its error
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf

sys.path.insert(0, str(Path(__file__).resolve().parent))

Function = Callable[[Any], Any]
DIGITS = 50
OUTPUT = Path(__file__).resolve().parent.parent / "ir" / "scalar" / "coefficients.py"


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
        return coefficients[:fixed] + [
            c + mpf(scale) * p for c, p in zip(coefficients[fixed:], powers)
        ]


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
    """Parts of a constant: each keeps ``bits`` significant bits (0: all of a double), the sum approaches the value."""
    parts = []
    rest = mpf(value)
    for count in bits:
        if count == 0 or count == 53:
            part = mpf(float(rest))
        else:
            mantissa, exponent = mpmath.frexp(rest)
            part = mpmath.ldexp(mpmath.nint(mpmath.ldexp(mantissa, count)), exponent - count)
        parts.append(float(part))
        rest -= part
    return tuple(parts)


def two_over_pi_words(count: int = 20) -> tuple[int, ...]:
    """Binary digits of 2/pi after the point, 64 a word."""
    with mp.workprec(64 * count + 64):
        digits = int(mpmath.floor(mpmath.ldexp(2 / mp.pi, 64 * count)))
    return tuple((digits >> (64 * (count - 1 - index))) & (2**64 - 1) for index in range(count))


def table() -> dict[str, Callable[[], tuple[Any, float]]]:
    """Every name of the generated file and how to make it: values and largest weighted error (0 for constants)."""
    from coefficient_recipes import constants, fits  # noqa: PLC0415 - needs mpmath's precision, set here

    result: dict[str, Callable[[], tuple[Any, float]]] = {}
    for name, make in constants().items():
        result[name] = lambda make=make: (make(), 0.0)  # type: ignore[misc]
    for name, fit in fits().items():
        result[name] = lambda fit=fit: solve(fit)  # type: ignore[misc]
    return result


def generate(name: str) -> tuple[Any, float]:
    """One entry of the generated file."""
    with mp.workdps(DIGITS):
        return table()[name]()


def write(path: Path = OUTPUT) -> None:
    """Make the whole file."""
    lines = [
        '"""Generated by tools/generate_coefficients.py; do not edit.',
        "",
        "Polynomials are given lowest power first; the comment is the base-2 logarithm of the largest weighted error.",
        '"""',
        "",
        "# ruff: noqa",
        "",
    ]
    with mp.workdps(DIGITS):
        for name, make in table().items():
            values, error = make()
            if error:
                lines.append(f"# {np.log2(error):.1f}")
            lines.append(f"{name} = (" if isinstance(values, tuple) else f"{name} = {values!r}")
            if isinstance(values, tuple):
                lines += [f"    {value!r}," for value in values] + [")"]
            print(name, f"{np.log2(error):.1f}" if error else "", flush=True)
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        for argument in sys.argv[1:]:
            values, error = generate(argument)
            print(argument, values, "log2 error", np.log2(error) if error else "-")
    else:
        write()

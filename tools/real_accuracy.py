"""Errors of the functions of real numbers in f32 and f64 against mpmath, on grids with the hard places.

    python tools/real_accuracy.py            # all; writes the table into docs/numerics.md, minutes
    python tools/real_accuracy.py lgamma     # prints one

The grid: zeros, denormal, tiny, ordinary and huge numbers of both signs, neighbours of integers and halves, of multiples of pi/2
and ln(2)/2, of overflow and of the functions' zeros; points at random, evenly and over all sizes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mpmath
import numpy as np
from hlojit.ir.scalar import coefficients, functions
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from mpmath import mpf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.complex_accuracy import unit_error
from tools.conformance.oracles import ELEMENTWISE

Array = np.ndarray[Any, Any]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "numerics.md"
TYPES: Final = {"f32": np.float32, "f64": np.float64}


@dataclass(frozen=True)
class Function:
    """A rule of ``ir/scalar/functions.py``, its exact values, and where it is measured."""

    rule: str
    exact: Callable[..., Any]
    low: float = -np.inf
    high: float = np.inf
    beside: tuple[float, ...] = ()


def hurwitz_zeta(s: Any, q: Any) -> Any:
    """mpmath's own, so that its way differs from Euler and Maclaurin's, by which the rule computes.

    mpmath holds the absolute error of the sum down, and the sum is near q**-s: the digits in front of that are added.
    """
    with mpmath.extradps(int(s * max(0, mpmath.log10(q)))):
        return mpmath.zeta(s, q)


def polygamma(n: Any, x: Any) -> Any:
    """mpmath takes orders as Python's integers only."""
    return mpmath.psi(int(n), x)


def _lgamma(x: Any) -> Any:
    return mpmath.log(abs(mpmath.gamma(x)))


def _plain(rule: str, low: float = -np.inf, high: float = np.inf) -> Function:
    return Function(rule, ELEMENTWISE[rule], low, high)


_LGAMMA_ZEROS: Final = tuple(v - (2 + place // 2) for place, v in enumerate(coefficients.LGAMMA_ZEROS) if place != 1)
FUNCTIONS: Final = {
    "chlo.acos": _plain("acos", -1, 1),
    "chlo.acosh": _plain("acosh", 1),
    "chlo.asin": _plain("asin", -1, 1),
    "chlo.asinh": _plain("asinh"),
    "chlo.atan": _plain("atan"),
    "chlo.atanh": _plain("atanh", -1, 1),
    "chlo.bessel_i1e": _plain("bessel_i1e", -1e10, 1e10),
    "chlo.cosh": _plain("cosh", -720, 720),
    "chlo.digamma": Function(
        "digamma", ELEMENTWISE["digamma"], -64, beside=(*coefficients.DIGAMMA_ZEROS[::4], 1.4616321)
    ),
    "chlo.erf": _plain("erf", -30, 30),
    "chlo.erf_inv": _plain("erf_inv", -1, 1),
    "chlo.erfc": _plain("erfc", -30, 28),
    "chlo.lgamma": Function("lgamma", _lgamma, -1e5, 1e300, beside=_LGAMMA_ZEROS),
    "chlo.polygamma": Function("polygamma", polygamma),
    "chlo.sinh": _plain("sinh", -720, 720),
    "chlo.zeta": Function("zeta", hurwitz_zeta),
    "hlojit.gamma": Function("gamma", mpmath.gamma, -180, 175),
    "stablehlo.atan2": _plain("atan2"),
    "stablehlo.cbrt": _plain("cbrt"),
    "stablehlo.cosine": _plain("cos"),
    "stablehlo.exponential": _plain("exp", -760, 720),
    "stablehlo.exponential_minus_one": Function("expm1", mpmath.expm1, -760, 720),
    "stablehlo.log": _plain("log", 0),
    "stablehlo.log_plus_one": Function("log1p", mpmath.log1p, -1),
    "stablehlo.logistic": _plain("logistic", -760, 760),
    "stablehlo.power": _plain("pow"),
    "stablehlo.rsqrt": _plain("rsqrt", 0),
    "stablehlo.sine": _plain("sin"),
    "stablehlo.tan": _plain("tan"),
    "stablehlo.tanh": _plain("tanh"),
}
"""By op."""


def _neighbours(values: Sequence[float], dtype: Any) -> Array:
    around = np.array(values, dtype)
    bits = around.view(f"i{around.itemsize}")[:, None] + np.arange(-2, 3, dtype=f"i{around.itemsize}")
    return bits.view(dtype).ravel()


def grid(function: Function, dtype: Any, count: int = 600) -> Array:
    """Arguments of one dimension."""
    info, random = np.finfo(dtype), np.random.default_rng(11)
    sizes = np.exp(random.uniform(np.log(float(info.smallest_subnormal)), np.log(float(info.max)), count))
    steps = [
        *np.arange(1, 24) / 2,
        *np.arange(1, 20) * np.pi / 2,
        *np.arange(1, 20) * np.log(2) / 2,
        *10.0 ** np.arange(2, 20),
    ]
    ends = [float(info.tiny), float(info.max) / 2, 88.7, 103.9, 709.78, 745.1, 0.47, 0.625, 1.35, 9.1, 17.3]
    hard = np.concatenate([_neighbours(steps, dtype), _neighbours([end for end in ends if end < info.max], dtype)])
    positive = np.concatenate(
        [sizes.astype(dtype), hard, random.exponential(3, count).astype(dtype), np.linspace(0, 1, 101, dtype=dtype)]
    )
    beside = _neighbours(function.beside, dtype)
    far = [zero + sign * 2.0**-k for zero in function.beside for sign in (-1, 1) for k in range(2, 40, 4)]
    points = np.unique(np.concatenate([positive, -positive, beside, np.array(far, dtype)]))
    inside: Array = points[np.isfinite(points) & (points > function.low) & (points < function.high) & (points != 0)]
    return inside


def pairs(rule: str, dtype: Any, count: int = 2500) -> list[Array]:
    """Arguments of two dimensions whose results are numbers."""
    random, largest = np.random.default_rng(12), 1.0
    largest = np.log(float(np.finfo(dtype).max))
    if rule == "pow":
        base = np.concatenate([np.exp(random.uniform(-largest, largest, count)), random.uniform(0.5, 2, count)])
        exponent = random.uniform(-1, 1, 2 * count) * largest / np.abs(np.log(base))
        return [base.astype(dtype), np.clip(exponent, -1e30, 1e30).astype(dtype)]
    if rule == "atan2":
        return [(random.normal(size=count) * np.exp(random.normal(size=count) * 10)).astype(dtype) for _ in range(2)]
    first = (
        random.integers(0, 30, 400).astype(dtype)
        if rule == "polygamma"
        else 1 + random.exponential(8, 400).astype(dtype)
    )
    return [first, np.exp(random.uniform(-1, 5, 400)).astype(dtype)]


def measured(function: Function, kind: str) -> tuple[float, tuple[float, ...]]:
    """The largest error in units in the last place, and where it is."""
    b, dtype = NumpyBuilder(), TYPES[kind]
    two = function.rule in ("pow", "atan2", "zeta", "polygamma")
    columns = pairs(function.rule, dtype) if two else [grid(function, dtype)]
    with np.errstate(all="ignore"):
        found = getattr(functions, function.rule)(b, *(b.value(kind, column) for column in columns)).array
    worst, where = 0.0, (0.0,)
    for value, *point in zip(found.tolist(), *(column.tolist() for column in columns), strict=True):
        with mpmath.workdps(60 if max(map(abs, point)) < 1e20 and min(map(abs, point)) > 1e-20 else 700):
            try:
                exact = function.exact(*map(mpf, point))
            except (ZeroDivisionError, ValueError, mpmath.mp.NoConvergence):
                continue  # poles
            error = unit_error(value, exact, kind)
        if error > worst:
            worst, where = error, tuple(point)
    return worst, where


def table() -> str:
    """Rows for the page, half of them beside the other half."""
    cells = []
    for name, function in FUNCTIONS.items():
        errors = [measured(function, kind) for kind in TYPES]
        print(name, *errors, flush=True)
        cells.append(f"| `{name}` | {errors[0][0]:.2f} | {errors[1][0]:.2f} ")
    half = -(-len(cells) // 2)
    rows = [
        left + (cells[half + place] if half + place < len(cells) else "| | | ")
        for place, left in enumerate(cells[:half])
    ]
    head = "| op | f32 | f64 | op | f32 | f64 |\n|---|---|---|---|---|---|\n"
    return head + "|\n".join(rows) + "|\n"


def main() -> None:
    """Print some errors, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("functions", nargs="*", help="default: all, and the table is written")
    options = parser.parse_args()
    for name, function in FUNCTIONS.items():
        if function.rule in options.functions:
            print(name, *(measured(function, kind) for kind in TYPES))
    if not options.functions:
        marked = re.compile(r"(<!-- tools/real_accuracy.py -->\n\n).*?(\n<!-- end -->)", re.DOTALL)
        PAGE.write_text(marked.sub(lambda found: found[1] + table() + found[2], PAGE.read_text()))


if __name__ == "__main__":
    main()

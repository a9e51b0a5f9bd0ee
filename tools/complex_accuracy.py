"""Errors of the functions of complex numbers, part by part, against mpmath on a grid with the hard places.

    python tools/complex_accuracy.py               # all, a line each: minutes
    python tools/complex_accuracy.py --kind f64 log1p asin

The grid: all pairs of zeros, denormal, tiny, ordinary and huge numbers, neighbours of one, multiples of pi/2, borders of
overflow; points on and near the unit circles around 0 and -1; points at random.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import mpmath
import numpy as np
from hlojit.ir.scalar.complex_functions import FUNCTIONS
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from mpmath import mpc, mpf

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """A float format: its dtypes, and how many bits and which exponents it has."""

    real: np.dtype[Any]
    complex: np.dtype[Any]
    bits: int
    least: int
    largest: int


FORMATS: Final = {
    "f32": Format(np.dtype(np.float32), np.dtype(np.complex64), 23, -126, 128),
    "f64": Format(np.dtype(np.float64), np.dtype(np.complex128), 52, -1022, 1024),
}

REFERENCES: Final[dict[str, Callable[[Any], Any]]] = {
    "acos": mpmath.acos,
    "acosh": mpmath.acosh,
    "asin": mpmath.asin,
    "asinh": mpmath.asinh,
    "atan": mpmath.atan,
    "atanh": mpmath.atanh,
    "cbrt": lambda z: mpmath.exp(mpmath.log(z) / 3) if z else z,
    "cos": mpmath.cos,
    "cosh": mpmath.cosh,
    "exp": mpmath.exp,
    "expm1": lambda z: mpmath.exp(z) - 1,
    "log": mpmath.log,
    "log1p": lambda z: mpmath.log(1 + z),
    "logistic": lambda z: 1 / (1 + mpmath.exp(-z)),
    "abs": lambda z: mpc(abs(z), 0),
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
    "sign": lambda z: z / abs(z),
    "sin": mpmath.sin,
    "sinh": mpmath.sinh,
    "sqrt": mpmath.sqrt,
    "square": lambda z: z * z,
    "tan": mpmath.tan,
    "tanh": mpmath.tanh,
}
POLES: Final = {
    "atan": (1j, -1j),
    "atanh": (1, -1),
    "log": (0,),
    "log1p": (-1,),
    "abs": (0,),
    "rsqrt": (0,),
    "sign": (0,),
}
GROWING: Final = {"exp", "expm1", "logistic", "cosh", "sinh", "tanh"}
"""Their growth is along the real axis; that of sines is along the imaginary one."""
SINES: Final = {"cos", "sin", "tan"}


def _numbers(kind: str) -> Array:
    info = np.finfo(FORMATS[kind].real)
    tiny, eps, top = float(info.tiny), float(info.eps), float(info.max)
    values = [0.0, float(info.smallest_subnormal), tiny, 3.3 * tiny, tiny**0.5, eps**2, eps, 1e-5, 1e-3, 0.1, 0.3, 0.5]
    values += [0.7, 0.5**0.5, 0.9, 1 - eps, 1 - eps / 2, 1.0, 1 + eps, 1.1, 2.0**0.5, 1.5, np.pi / 2, 2.0, 3.0, np.pi]
    values += [5.5, 10.0, 20.0, 37.7, 80.0, 88.0, 89.0, 100.3, 1e3, 1e5, top**0.5, 2 * top**0.5, top / 4, top / 2, top]
    if kind == "f64":
        values += [700.0, 709.5, 711.0, 745.0, 1400.0, 1e10, 1e16, 1e100, 1e-100, 1e-160, 1e-200]
    return np.array(values, FORMATS[kind].real)


def grid(kind: str, step: int = 1, random: int = 1500) -> Array:
    """Complex numbers: every ``step``-th of the pairs, and ``random`` points of each kind."""
    numbers = _numbers(kind)
    numbers = np.concatenate([numbers, -numbers])
    pairs = np.array([(x, y) for x in numbers for y in numbers], FORMATS[kind].real)[::step]
    rng = np.random.default_rng(1)
    plain = rng.normal(size=(random, 2)) * 3
    wide = np.exp(rng.normal(size=(random, 2)) * 8) * rng.choice([-1, 1], (random, 2))
    angles = rng.uniform(-np.pi, np.pi, random)
    circle = np.stack([np.cos(angles), np.sin(angles)], 1)
    beside = circle.copy()
    beside[:, 0] = circle[:, 0] * (1 + 1e-5 * rng.normal(size=random)) - rng.choice([0, 1], random)
    points = np.concatenate([pairs, plain, wide, circle, beside]).astype(FORMATS[kind].real)
    result = np.empty(len(points), FORMATS[kind].complex)
    result.real, result.imag = points[:, 0], points[:, 1]
    return result


def _digits(name: str, x: float, y: float) -> int:
    """Digits that mpmath needs: its own sums cancel where parts differ much in size."""
    sizes = [abs(part) for part in (x, y) if part]
    if not sizes or (min(sizes) > 1e-20 and max(sizes) < 60):
        return 80
    return 80 if name in ("sqrt", "square", "abs", "sign") and max(sizes) / min(sizes) < 1e60 else 700


def unit_error(value: float, exact: Any, kind: str) -> float:
    """Distance in units in the last place at the exact value; infinity beyond the range is exact."""
    format = FORMATS[kind]
    if np.isnan(value):
        return float("inf")
    if np.isinf(value):
        beyond = abs(exact) >= mpf(2) ** format.largest * (1 - mpf(2) ** -(format.bits + 2))
        return 0.0 if beyond and value * mpmath.sign(exact) > 0 else float("inf")
    exponent = mpmath.frexp(exact)[1] - 1 if exact else format.least
    return float(abs(mpf(value) - exact) / mpf(2) ** (max(exponent, format.least) - format.bits))


def errors(name: str, kind: str, points: Array, parts: Sequence[Array]) -> list[Array]:
    """The error of both parts at every point; on axes, where branches are cut, that of the magnitude."""
    found = [np.zeros(len(points)) for _ in parts]
    for position, point in enumerate(points):
        x, y = float(point.real), float(point.imag)
        growth = x if name in GROWING else y if name in SINES else 0.0
        if complex(point) in POLES.get(name, ()) or abs(growth) > 3000:
            continue
        with mpmath.workdps(_digits(name, x, y)):
            exact = REFERENCES[name](mpc(x, y))
            for number, wanted in enumerate((exact.real, exact.imag)):
                value = float(parts[number][position])
                cut = 0 in (x, y)
                pair = (abs(value), abs(wanted)) if cut else (value, wanted)
                found[number][position] = unit_error(*pair, kind)
    return found


def measured(name: str, kind: str, points: Array) -> list[tuple[float, Any]]:
    """The largest error of either part and where it is."""
    b = NumpyBuilder()
    with np.errstate(all="ignore"):
        scalars = FUNCTIONS[name](b, b.value(kind, points.real), b.value(kind, points.imag))
    parts = [np.broadcast_to(scalar.array, points.shape) for scalar in scalars]
    return [(float(found.max()), points[int(found.argmax())]) for found in errors(name, kind, points, parts)]


def main() -> None:
    """Print a line a function and format."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("functions", nargs="*", help="default: all")
    parser.add_argument("--kind", choices=sorted(FORMATS), action="append")
    parser.add_argument("--step", type=int, default=1, help="take every n-th pair of the grid")
    options = parser.parse_args()
    for kind in options.kind or sorted(FORMATS):
        points = grid(kind, options.step)
        for name in options.functions or REFERENCES:
            (real, at), (imag, there) = measured(name, kind, points)
            print(f"{name:10} {kind} real {real:8.3f} at {at!s:50} imaginary {imag:8.3f} at {there!s}", flush=True)


if __name__ == "__main__":
    main()

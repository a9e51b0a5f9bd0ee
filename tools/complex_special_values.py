"""The table of special values of complex functions in docs/numerics.md, beside those of NumPy and JAX.

    python tools/complex_special_values.py          # writes the table into the page; JAX where it is installed

Values are those of the rules from which all back ends' code comes.  NumPy and JAX are asked on a grid of zeros, ones, infinities
and NaN; a part differs if it is another infinity, NaN or not, or has another sign.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from hlojit.ir.scalar.complex_functions import FUNCTIONS
from hlojit.ir.scalar.numpy_builder import NumpyBuilder

Array = np.ndarray[Any, Any]
PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "numerics.md"
MARKED: Final = re.compile(r"(<!-- tools/complex_special_values.py -->\n\n).*?(\n<!-- end -->)", re.DOTALL)
INF, NAN = math.inf, math.nan

SHOWN: Final = (
    (0.0, 0.0),
    (-0.0, 0.0),
    (INF, 1.0),
    (-INF, 1.0),
    (1.0, INF),
    (INF, INF),
    (-INF, INF),
    (INF, NAN),
    (-INF, NAN),
    (NAN, INF),
    (NAN, 0.0),
)
"""The columns, in parts.  (1, NaN), (NaN, 1) and (NaN, NaN) are (NaN, NaN) for all of the functions."""
NUMPY: Final[dict[str, str | None]] = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atanh": "arctanh",
    "cbrt": None,
    "cos": "cos",
    "cosh": "cosh",
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "logistic": None,
    "rsqrt": None,
    "sign": "sign",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "square": "square",
    "tan": "tan",
    "tanh": "tanh",
}
"""By function: NumPy's name, if it has it."""


def numbers(parts: Any) -> Array:
    """Complex numbers of pairs of parts."""
    pairs = np.array(parts)
    result: Array = np.empty(len(pairs), np.complex128)
    result.real, result.imag = pairs[:, 0], pairs[:, 1]
    return result


def values(name: str, z: Array) -> Array:
    """A function's values by its rule."""
    b = NumpyBuilder()
    with np.errstate(all="ignore"):
        made: Any = FUNCTIONS[name](b, b.value("f64", z.real), b.value("f64", z.imag))
    result = np.empty_like(z)
    result.real, result.imag = (np.broadcast_to(part.array, z.shape) for part in made)
    return result


def _part(x: float) -> str:
    if math.isnan(x):
        return "NaN"
    quarters = x / (math.pi / 4)
    if math.isfinite(x) and x and abs(quarters - round(quarters)) < 1e-9:
        return ("-" if x < 0 else "") + {1: "π/4", 2: "π/2", 3: "3π/4", 4: "π"}[abs(round(quarters))]
    return f"{x:.3g}"


def row(name: str) -> str:
    """The cells of a function's values."""
    return " | ".join(f"{_part(w.real)}, {_part(w.imag)}" for w in values(name, numbers(SHOWN)).tolist())


def _differing(found: Array, wanted: Array) -> int:
    """How many numbers have a part that is another special value."""
    same = np.ones(found.shape, bool)
    for x, y in ((found.real, wanted.real), (found.imag, wanted.imag)):
        special = (np.isnan(x) == np.isnan(y)) & (np.isinf(x) == np.isinf(y)) & ((x == 0) == (y == 0))
        same &= special & (np.isnan(x) | (np.signbit(x) == np.signbit(y)))
    return int(np.count_nonzero(~same))


def _jax(name: str) -> Callable[[Array], Any] | None:
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    return jax.jit(getattr(jax.lax, name)) if hasattr(jax.lax, name) and name != "cbrt" else None


def table() -> str:
    """The whole table."""
    parts = [sign * part for part in (0.0, 1.0, INF) for sign in (1, -1)] + [NAN]
    grid = numbers(list(itertools.product(parts, parts)))
    columns = " | ".join(f"{_part(x)}, {_part(y)}" for x, y in SHOWN)
    lines = [f"| | {columns} | NumPy | JAX |", "|---" * (len(SHOWN) + 3) + "|"]
    for name, theirs in NUMPY.items():
        found = values(name, grid)
        counts = []
        for other in (getattr(np, theirs) if theirs else None, _jax(name)):
            with np.errstate(all="ignore"):
                counts.append("" if other is None else str(_differing(found, np.asarray(other(grid)))))
        lines.append(f"| `{name}` | {row(name)} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table into the page."""
    PAGE.write_text(MARKED.sub(lambda found: found[1] + table() + found[2], PAGE.read_text()))


if __name__ == "__main__":
    main()

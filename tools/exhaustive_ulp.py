"""Every f32 input of every unary function (or each ``--stride``-th) against float64: the largest error and where.

python tools/exhaustive_ulp.py                     # all functions, all 2**32 inputs: hours
python tools/exhaustive_ulp.py --stride 61 exp log # a sample, seconds
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special

sys.path.insert(0, str(Path(__file__).resolve().parent))
from vector_function import Array, VectorFunction, ulp_error

CHUNK = 1 << 20


def _positive_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """SciPy's value; NaN at zero, where its sign conventions differ from ours."""
    return lambda x: np.where(x == 0, np.nan, function(x))


@cache
def _compiled_f64(name: str) -> VectorFunction:
    return VectorFunction(name, "f64")


def _in_f64(name: str) -> Callable[..., Any]:
    """Our own f64 rule, which tests compare with mpmath: SciPy's is slow, or inexact beside zeros."""

    def function(x: Array) -> Array:
        return _compiled_f64(name)(x)

    return function


REFERENCES: dict[str, Callable[..., Any]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "cos": np.cos,
    "cosh": np.cosh,
    "digamma": _positive_only(_in_f64("digamma")),
    "erf": scipy.special.erf,
    "erf_inv": _in_f64("erf_inv"),
    "erfc": scipy.special.erfc,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "gamma": lambda x: np.where((x < 0) & (x == np.floor(x)), np.nan, scipy.special.gamma(x)),
    "lgamma": _in_f64("lgamma"),
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "logistic": scipy.special.expit,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "tan": np.tan,
    "tanh": np.tanh,
}
"""What each function should give, in float64."""

BOUNDS = dict.fromkeys(REFERENCES, 2.0) | {"erf_inv": 4.0, "lgamma": 4.0, "digamma": 4.0}
"""Promised errors in units in the last place."""


def inputs(start: int, stop: int, stride: int) -> Array:
    """The floats whose bits are start, start + stride, ... below stop."""
    return np.arange(start, stop, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)


def worst(name: str, stride: int) -> tuple[float, float, float, float]:
    """The largest error of a function over the inputs, the input, our value and the exact one."""
    function, reference = VectorFunction(name, "f32"), REFERENCES[name]
    record = (-1.0, 0.0, 0.0, 0.0)
    for start in range(0, 1 << 32, CHUNK * stride):
        x = inputs(start, min(1 << 32, start + CHUNK * stride), stride)
        result = function(x)
        with np.errstate(all="ignore"):
            exact = reference(x.astype(np.float64))
        error = ulp_error(result, exact)
        # a zero has the sign of the true function's limit; NaN has none
        wrong_zero = (result == 0) & (exact == 0) & (np.signbit(result) != np.signbit(exact))
        error = np.where(wrong_zero, np.inf, error)
        index = int(np.argmax(error))
        if error[index] > record[0]:
            record = (float(error[index]), float(x[index]), float(result[index]), float(exact[index]))
    return record


def main() -> int:
    """Print one line a function; the exit status says whether all keep their promise."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("functions", nargs="*", help="default: all")
    parser.add_argument("--stride", type=int, default=1, help="take each n-th input")
    options = parser.parse_args()
    failed = False
    for name in options.functions or REFERENCES:
        began = time.perf_counter()
        error, x, result, exact = worst(name, options.stride)
        verdict = "ok" if error <= BOUNDS[name] else "TOO LARGE"
        failed |= error > BOUNDS[name]
        print(
            f"{name:10} {error:8.3f} ULP at {x!r:26} got {result!r:26} exact {exact!r:24} "
            f"{time.perf_counter() - began:6.1f} s  {verdict}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

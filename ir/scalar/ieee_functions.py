"""The functions of ``math`` as compiled code has them: IEEE 754's infinities and NaN where Python's raise.

ieee_copy(lambda x: x / (1 + math.exp(-x)))     # a function whose exp of 8315 is infinity
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, Final

import numpy as np
from hlojit.ir.code_copies import renamed
from hlojit.ir.code_reads import cells, reads
from hlojit.ir.known_modules import known_version


def ieee_copy(function: Any) -> Any | None:
    """The function with other functions of ``math``, also where those that it calls use them; None if none does."""
    if not isinstance(function, FunctionType):
        return None
    copy = _copied(function, {})
    return copy if copy is not function else None


def _copied(python: FunctionType, known: dict[FunctionType, FunctionType]) -> FunctionType:
    """The function, or its copy.  One that calls itself, which no kernel does, calls the original."""
    if python not in known:
        known[python] = python
        captured = cells(python)
        changed = {}
        for path, value in reads(python, _is_whole).items():
            made = _replaced(value, known)
            root = path.partition(".")[0]
            # What a function imports itself has no name outside of it.
            if made is not value and (root in captured or root in python.__globals__):
                changed[path] = made
        if changed:
            known[python] = renamed(python, changed)
    return known[python]


def _replaced(value: Any, known: dict[FunctionType, FunctionType]) -> Any:
    if isinstance(value, FunctionType):
        return value if _is_library(value.__globals__) else _copied(value, known)
    if type(value) is type(math.exp):
        return _BY_FUNCTION.get(value, value)
    return value


def _is_whole(module: ModuleType) -> bool:
    return module is not math and known_version(module.__name__, vars(module)) is not None


def _is_library(scope: dict[str, Any]) -> bool:
    return known_version(scope.get("__name__"), scope) is not None


def _gamma(x: float) -> float:
    """Where Python raises: an overflow, a pole, or minus infinity."""
    return math.nan if x < 0 else math.copysign(math.inf, x)


def _lgamma(x: float) -> float:
    """Where Python raises: an overflow or a pole."""
    return math.inf


def _rounded(x: float) -> int:
    """An infinity or NaN as a 64-bit integer, as ``stablehlo.convert`` makes it."""
    limits = np.iinfo(np.int64)
    return 0 if math.isnan(x) else int(limits.max if x > 0 else limits.min)


_WHERE_IT_RAISES: Final[dict[str, Callable[..., Any]]] = {
    **{name: getattr(np, name) for name in ("sqrt", "exp", "expm1", "exp2", "log", "log2", "log10", "log1p")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "ldexp", "fmod")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.float_power,
    "gamma": _gamma,
    "lgamma": _lgamma,
    "floor": _rounded,
    "ceil": _rounded,
    "trunc": _rounded,
}


def _ieee(function: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def number(*values: Any) -> Any:
        try:
            found = function(*values)
        except (ValueError, OverflowError):
            found = otherwise(*values)
        # NumPy's numbers go on with IEEE arithmetic: a division by this one does not raise.
        return np.float64(found) if isinstance(found, float) else found

    return number


_BY_FUNCTION: Final = {
    getattr(math, name): _ieee(getattr(math, name), otherwise)
    for name, otherwise in _WHERE_IT_RAISES.items()
    if hasattr(math, name)  # exp2 came with Python 3.11
}

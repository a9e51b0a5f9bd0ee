"""Where in a vendor's own source something went wrong, for messages: `` at nova/passes.py:12``, or an empty text."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any, Final

from hlojit.ir.errors import HlojitError, repr_of

_OTHERS: Final = frozenset({"hlojit", "numpy", "numba", "llvmlite", "scipy", "ml_dtypes", "pluggy", "importlib"})
"""Packages whose lines say nothing about a vendor's mistake, beside the standard library's."""


def told(error: BaseException, function: Any = None) -> str:
    """What a vendor's function raised, and where: ``KeyError('tile') at nova/passes.py:12``.

    Of hlojit's own errors, which may have several lines, the place comes first.
    """
    at = raised_at(error, function)
    return f"{type(error).__name__}{at}: {error}" if isinstance(error, HlojitError) else f"{repr_of(error)}{at}"


def raised_at(error: BaseException, function: Any = None) -> str:
    """The innermost line of the vendor's that an exception came through; else where the ``function`` that was called begins.

    The latter is so where the call itself failed: a function that takes other arguments.
    """
    found, step = "", error.__traceback__
    while step is not None:
        frame = step.tb_frame
        if _is_vendors(frame.f_globals.get("__name__"), frame.f_code.co_filename):
            found = f" at {frame.f_code.co_filename}:{step.tb_lineno}"
        step = step.tb_next
    return found or written_at(function)


def place_of(function: Any) -> str:
    """Where a function begins that returned something odd, behind what it returned: `` (at nova/passes.py:12)``."""
    found = written_at(function)
    return found and f" ({found[1:]})"


def written_at(function: Any) -> str:
    """Where a function or method of the vendor's begins."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "py_func", function)
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    if code is None:
        return ""
    module = getattr(function, "__module__", None)
    return f" at {code.co_filename}:{code.co_firstlineno}" if _is_vendors(module, code.co_filename) else ""


def _is_vendors(module: object, file: str) -> bool:
    """Whether a line is neither hlojit's, nor NumPy's or another library's that vendors call, nor Python's own."""
    package = module.partition(".")[0] if isinstance(module, str) else ""
    return package not in _OTHERS and package not in sys.stdlib_module_names and not file.startswith("<frozen")

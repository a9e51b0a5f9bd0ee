"""Warnings that point at the caller's own line, however deep inside of hlojit they are found."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any

from hlojit.ir.errors import HlojitWarning

_OWN = __name__.partition(".")[0]


def warn(message: str, category: type[HlojitWarning]) -> None:
    """Warn at the first line on the stack that is not hlojit's."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (_OWN, "contextlib"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn_about(function: Callable[..., Any], message: str, category: type[HlojitWarning]) -> None:
    """Warn at the line where a function begins: of one that is called wherever the caller happens to be."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        warn(message, category)
        return
    module = getattr(function, "__module__", None)
    warnings.warn_explicit(message, category, code.co_filename, code.co_firstlineno, module)

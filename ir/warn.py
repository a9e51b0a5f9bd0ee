"""Warnings that point at the caller's own line, however deep inside of hlojit they are found."""

from __future__ import annotations

import sys
import warnings

from hlojit.ir.errors import HlojitWarning

_OWN = __name__.partition(".")[0]


def warn(message: str, category: type[HlojitWarning]) -> None:
    """Warn at the first line on the stack that is not hlojit's."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (_OWN, "contextlib"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)

"""Source text to syntax trees."""

from __future__ import annotations

import ast
from typing import Any, Final

_TIMES: Final = 20


def parsed(text: str, mode: str = "exec") -> Any:
    """``ast.parse``, again where CPython 3.11 mistakes the depth of another thread's tree for that of this one (gh-106905)."""
    for _ in range(_TIMES):
        try:
            return ast.parse(text, mode=mode)
        except SystemError:
            continue
    return ast.parse(text, mode=mode)

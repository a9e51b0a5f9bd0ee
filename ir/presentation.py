"""How a module looks as text: what ``str(module)`` calls.

The printer stands above the graph, which does not know it: the package ``hlojit.ir``, which is imported before any of
its modules, puts it in here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_printer: Callable[[Any], str] = object.__repr__


def present_by(printer: Callable[[Any], str]) -> None:
    """Have ``printer(module)`` make the text of modules."""
    global _printer
    _printer = printer


def text_of(module: Any) -> str:
    """The module's text."""
    return _printer(module)

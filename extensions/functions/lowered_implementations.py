"""What plugins registered with numba below its types: code for functions, attributes, conversions and constants.

``lower_builtin(math.sin, types.float32)`` replaces the code of a function that numba knows, and no type of the function that
calls it tells so.  The tables from which numba takes the code do: an entry for numba's own types by somebody else counts
where the function may use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import FunctionType
from typing import Any

from hlojit.ir.known_modules import known_version

_BY_NUMBA_ITSELF = frozenset({"_operator", "operator", "builtins"})
"""Modules of functions that numba's own code calls for others, whether or not a function names them."""


def foreign_lowerings(context: Any, functions: Collection[Any], attributes: Collection[str]) -> Iterator[str]:
    """Names of code from outside the known packages that a function may use which names these functions and attributes."""
    # Copies: whoever looks something up in them adds to them.
    for key, table in list(context._defns.items()):
        if isinstance(key, str) or getattr(key, "__module__", None) in _BY_NUMBA_ITSELF or _is_among(key, functions):
            yield from _foreign_entries(table)
    for tables in (context._getattrs, context._setattrs):
        for name, table in list(tables.items()):
            if name is None or name in attributes:
                yield from _foreign_entries(table)
    yield from _foreign_entries(context._casts)
    yield from _foreign_entries(context._get_constants)
    yield from _foreign_rewrites()


def _is_among(key: Any, functions: Collection[Any]) -> bool:
    try:
        return key in functions
    except Exception:  # keys compare as their owners like
        return any(key is each for each in functions)


def _foreign_entries(table: Any) -> Iterator[str]:
    for signature, implementation in table.versions:
        # Who registers for types of his own concerns only those who use them, and they are seen by the types.
        if all(_is_known(each if isinstance(each, type) else type(each)) for each in signature):
            yield from _foreign_names(implementation)


def _foreign_names(implementation: Any) -> Iterator[str]:
    for each in _written(implementation):
        if not _is_known(each):
            yield f"{each.__module__}.{getattr(each, '__qualname__', type(each).__qualname__)}"


def _written(implementation: Any) -> Iterator[Any]:
    """An implementation and what numba's decorators wrapped in it."""
    if not isinstance(implementation, FunctionType):
        yield type(implementation)
        return
    yield implementation
    for cell in implementation.__closure__ or ():
        if isinstance(cell.cell_contents, FunctionType) and cell.cell_contents.__module__:
            yield cell.cell_contents


def _foreign_rewrites() -> Iterator[str]:
    """Passes over numba's own form of functions: any function may be changed by them."""
    from numba.core.rewrites.registry import rewrite_registry

    for rewrites in rewrite_registry.rewrites.values():
        for each in rewrites:
            if not _is_known(each):
                yield f"{each.__module__}.{each.__qualname__}"


def _is_known(written: Any) -> bool:
    return known_version(written.__module__) is not None

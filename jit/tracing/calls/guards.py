"""What a traced function reads of outside of itself: what was compiled holds as long as these names mean the same objects.

Global variables, variables of enclosing functions and, of a bound method, attributes of its object; of Python functions of the
user's that it refers to, theirs as well.  Names count, not contents: an array that is written in place is a constant of the time
of tracing.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, final

import numpy as np

_LIBRARIES: Final = tuple(
    path
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    if path
)
_NOTHING: Final = object()


@final
class Guards:
    """The names that one function reads, and what they meant when it was looked at."""

    __slots__ = ("_cell_names", "cells", "names")

    def __init__(self, function: Callable[..., Any]):
        self.names: list[tuple[Mapping[str, Any], str, Any]] = []
        self.cells: list[tuple[CellType, Any]] = []
        self._cell_names: list[str] = []
        self._follow(function, set())

    def hold(self) -> bool:
        """Whether every name still means the same object."""
        for mapping, name, value in self.names:
            if mapping.get(name, _NOTHING) is not value:
                return False
        return all(_contents(cell) is value for cell, value in self.cells)

    @staticmethod
    def is_nothing(value: object) -> bool:
        """Whether this stands for a name that means nothing."""
        return value is _NOTHING

    def values(self) -> Iterator[tuple[str, Any]]:
        """What the names mean now."""
        for mapping, name, _ in self.names:
            yield name, mapping.get(name)
        for name, (cell, _) in zip(self._cell_names, self.cells):
            yield name, _contents(cell)

    def _follow(self, function: Any, seen: set[int]) -> None:
        holder = None
        while not isinstance(function, FunctionType):
            if isinstance(function, MethodType):
                holder, function = function.__self__, function.__func__
                continue
            # Of a partial, or of a jitted or decorated function.
            inner = getattr(function, "func", None) or getattr(function, "__wrapped__", None)
            if inner is None:
                return
            function = inner
        if id(function) in seen or function.__code__.co_filename.startswith(_LIBRARIES):
            return
        seen.add(id(function))
        names = set(_names(function.__code__))
        found: list[Any] = []
        for mapping in (function.__globals__, getattr(holder, "__dict__", {})):
            for name in sorted(names & mapping.keys()):
                # Nobody gives another module the name `np`, and every function has some.
                if not isinstance(mapping[name], ModuleType):
                    self.names.append((mapping, name, mapping[name]))
                    found.append(mapping[name])
        self._cell_names += function.__code__.co_freevars
        for cell in function.__closure__ or ():
            self.cells.append((cell, _contents(cell)))
            found.append(_contents(cell))
        for value in found:
            if callable(value) and not isinstance(value, (type, np.ufunc)):
                self._follow(value, seen)


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _NOTHING


def _names(code: CodeType) -> Iterator[str]:
    """The names that code and the functions inside of it look up."""
    yield from map(sys.intern, code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)

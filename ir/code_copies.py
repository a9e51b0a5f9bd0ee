"""Copies of Python functions that read other values from outside than the functions themselves.

renamed(swish, {"math.exp": np.exp})      # its code, with a ``math`` whose ``exp`` is NumPy's
"""

from __future__ import annotations

from types import CellType, FunctionType, ModuleType
from typing import Any

from hlojit.ir.code_reads import cells


def renamed(python: FunctionType, changed: dict[str, Any]) -> FunctionType:
    """A copy in which other values stand for what the function reads, by dotted name."""
    captured = cells(python)
    scope = dict(python.__globals__)
    for path, value in changed.items():
        root, *attributes = path.split(".")
        names = captured if root in captured else scope
        if not attributes:
            names[root] = value
            continue
        module = names[root] = _copied(names[root])
        for attribute in attributes[:-1]:
            inner = _copied(getattr(module, attribute))
            setattr(module, attribute, inner)
            module = inner
        setattr(module, attributes[-1], value)
    original = python.__closure__ or ()
    closure = tuple(
        CellType(captured[name]) if captured[name] is not before else cell
        for name, before, cell in zip(captured, cells(python).values(), original)
    )
    return like(python, FunctionType(python.__code__, scope, python.__name__, python.__defaults__, closure))


def _copied(module: Any) -> ModuleType:
    copy = ModuleType(module.__name__)
    vars(copy).update(vars(module))
    return copy


def like(python: FunctionType, copy: FunctionType, keyword_defaults: dict[str, Any] | None = None) -> FunctionType:
    """The copy, called as the original is and with its defaults of keyword-only parameters, unless others are given."""
    copy.__kwdefaults__ = python.__kwdefaults__ if keyword_defaults is None else keyword_defaults
    copy.__qualname__, copy.__module__ = python.__qualname__, python.__module__
    return copy

"""Which functions are rewritten when a rewritten one calls them: the user's own, whatever form they are called in."""

from __future__ import annotations

import functools
import inspect
import site
import sysconfig
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, TypeVar

from hlojit.ir.errors import ArgumentError
from hlojit.tracing.rewriting.rewrite import leave_alone, rewritten

_Function = TypeVar("_Function")

_INSTALLED: Final = ("site-packages", "dist-packages")


def as_is(function: _Function) -> _Function:
    """Leave a function alone: it runs as Python, and is traced, where jitted functions call it.  A decorator.

    For code whose control flow depends on Python values only, or that must not be looked into.  Functions that it calls are left
    alone with it.  Raises ``ArgumentError`` for what is no Python function.
    """
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType):
        raise ArgumentError(f"hlojit.as_is takes a Python function, not {function!r} of type {type(function).__name__}")
    leave_alone(code)
    return function


def substitute(function: Any) -> Any:
    """What is called in the place of anything callable: rewritten, if it is a function of the user's own."""
    if isinstance(function, FunctionType):
        return function if is_library(function) else rewritten(function).function
    if isinstance(function, MethodType):
        return _method(function.__func__, function.__self__, function)
    if type(function) is functools.partial:
        inner = substitute(function.func)
        if inner is function.func:
            return function
        return functools.partial(inner, *function.args, **function.keywords)
    if isinstance(function, type):
        return function
    return _method(inspect.getattr_static(type(function), "__call__", None), function, function)


def _method(function: Any, instance: Any, otherwise: Any) -> Any:
    if not isinstance(function, FunctionType) or is_library(function):
        return otherwise
    made = rewritten(function).function
    return otherwise if made is function else MethodType(made, instance)


def is_library(function: FunctionType) -> bool:
    """Whether a function is of the standard library, of an installed package, or ours."""
    module = function.__globals__.get("__name__")
    if isinstance(module, str) and module.partition(".")[0] == "hlojit":
        return True
    return _is_library_file(function.__code__.co_filename)


@functools.lru_cache(1024)
def _is_library_file(name: str) -> bool:
    if name.startswith("<frozen "):
        return True
    path = Path(name)
    if any(part in _INSTALLED for part in path.parts):
        return True
    return any(path.is_relative_to(folder) for folder in _library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    """Where Python's own modules and installed packages are."""
    keys = ("stdlib", "platstdlib", "purelib", "platlib")
    found = {sysconfig.get_path(key) for key in keys}
    found |= {path for path in (*site.getsitepackages(), site.getusersitepackages()) if path}
    return tuple(sorted(filter(None, found)))

"""Which functions are rewritten when a rewritten one calls them: the user's own, whatever form they are called in."""

from __future__ import annotations

import functools
import inspect
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeVar

from hlojit.ir.errors import ArgumentError
from hlojit.tracing.places import is_library_file
from hlojit.tracing.rewriting.rewrite import leave_alone, rewritten

_Function = TypeVar("_Function")


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
    return is_library_file(function.__code__.co_filename)

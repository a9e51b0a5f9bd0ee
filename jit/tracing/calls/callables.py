"""What ``jit`` is put on: a function, a method, a ``functools.partial``, an object with ``__call__``, a jitted function."""

from __future__ import annotations

import functools
import inspect
from types import CodeType
from typing import Any

from hlojit.ir.errors import ArgumentError
from hlojit.ir.location import UNKNOWN, FileLocation, Location
from hlojit.tracing.errors import TracingError


def signature_of(function: Any) -> inspect.Signature:
    """The parameters of what is to be jitted; raises an error that names it where that is impossible."""
    if not callable(function):
        raise ArgumentError(f"hlojit.jit takes a function, not {function!r} of type {type(function).__name__}")
    for each in (function, _call_of(function)):
        if inspect.isgeneratorfunction(each) or inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            raise TracingError(f"{name_of(function)} is a generator or coroutine; jit takes plain functions")
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise TracingError(
            f"the parameters of {name_of(function)} are not known ({error}); jit a function that calls it: "
            f"hlojit.jit(lambda x: {name_of(function)}(x))"
        ) from error


def name_of(function: Any) -> str:
    """How messages and programs call it; of an object, its class."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def _call_of(function: Any) -> Any:
    """The method that a call of an object calls."""
    return inspect.getattr_static(type(function), "__call__", None)


def place_of(function: Any) -> Location:
    """Where it is written, as far as that is known."""
    while isinstance(function, functools.partial):
        function = function.func
    inner = inspect.unwrap(function) if not hasattr(function, "__code__") else function
    for each in (inner, _call_of(inner)):
        code = getattr(each, "__code__", None)
        if isinstance(code, CodeType):
            return FileLocation(code.co_filename, code.co_firstlineno, 1)
    return UNKNOWN

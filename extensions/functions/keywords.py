"""Attributes of a call as parameters of a plugin's function: numba gets a copy of the function whose defaults they are.

def leaky(x, slope=0.01): ...       ->      def leaky(x, slope=0.25): ...
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from hlojit.ir.errors import PluginError
from hlojit.ir.near_names import did_you_mean


def with_keywords(function: Any, count: int, keywords: Mapping[str, Any], user: str) -> Any:
    """The function of ``count`` arguments whose other parameters have the values of ``keywords``.

    Raises ``PluginError`` for a keyword that the function does not take, and for a parameter that nothing gives.
    """
    python = getattr(function, "py_func", function)
    if not isinstance(python, FunctionType):
        raise PluginError(f"{user}: its function {function!r} takes no keywords, and the call has {_listed(keywords)}")
    code = python.__code__
    positional = code.co_varnames[: code.co_argcount]
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    takes = (*positional[max(count, code.co_posonlyargcount) :], *named)
    for name in keywords:
        if name not in takes:
            raise PluginError(
                f"{user}: {python.__qualname__} has no parameter {name!r} for the attribute of the call; it takes "
                f"{_listed(takes) or 'none'} by keyword{did_you_mean(name, takes)}"
            )
    defaults = dict(zip(reversed(positional), reversed(python.__defaults__ or ())))
    defaults |= {name: value for name, value in keywords.items() if name in positional}
    if not code.co_flags & inspect.CO_VARARGS:
        for name in positional[count:]:
            if name not in defaults:
                raise PluginError(
                    f"{user}: nothing gives the parameter {name!r} of {python.__qualname__}: the call has no such attribute"
                )
    # Defaults stand at the end: an array may have one too, which nobody uses.
    first = next((place for place, name in enumerate(positional) if name in defaults), len(positional))
    copy = FunctionType(
        code,
        python.__globals__,
        python.__name__,
        tuple(defaults.get(name) for name in positional[first:]),
        python.__closure__,
    )
    given = {name: value for name, value in keywords.items() if name in named}
    copy.__kwdefaults__ = {**(python.__kwdefaults__ or {}), **given} or None
    copy.__qualname__, copy.__module__ = python.__qualname__, python.__module__
    copy.__dict__.update(python.__dict__)
    return copy


def keyword_complaint(function: Any, count: int, keywords: Mapping[str, Any]) -> str:
    """Why Python cannot call a function with ``count`` arrays and these keywords, or an empty string."""
    try:
        described = inspect.signature(function)
    except (TypeError, ValueError):  # of a function in C, nobody knows
        return ""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    parameters = list(described.parameters.values())
    if not any(each.kind is each.VAR_KEYWORD for each in parameters):
        plain = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        positional = sum(each.kind is each.POSITIONAL_ONLY for each in parameters)
        takes = [
            *plain[max(0, count - positional) :],
            *(each.name for each in parameters if each.kind is each.KEYWORD_ONLY),
        ]
        for each in keywords:
            if each not in takes:
                return (
                    f"{name} has no parameter {each!r} for the attribute of the call; it takes {_listed(takes) or 'none'} by "
                    f"keyword{did_you_mean(each, takes)}"
                )
    try:
        described.bind(*range(count), **keywords)
    except TypeError as error:
        given = f"{count} array{'' if count == 1 else 's'}" + (f" and {_listed(keywords)}" if keywords else "")
        return f"{name}{described} cannot be called with {given}: {error}"
    return ""


def _listed(names: Any) -> str:
    return ", ".join(map(str, names))

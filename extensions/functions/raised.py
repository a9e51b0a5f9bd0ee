"""Exceptions of functions that numba compiled: errors of hlojit's that are what the function has raised, too.

try: f(x)                           # custom call target 'numba.d.a0ef': it raised ZeroDivisionError('division by zero') in d
except ZeroDivisionError: ...       # as well as ExecutionError
"""

from __future__ import annotations

import builtins
import functools
import re
from typing import Any, Final

from hlojit.ir.errors import ExecutionError

_RAISED: Final = re.compile(r": it raised (?P<name>\w+)\(")
_INDEX: Final = ": an index is out of range in "


def class_of(failure: str) -> type[ExecutionError]:
    """The class of what a failure is reported by: one of Python's own exceptions is known by its name."""
    found = _RAISED.search(failure)
    if found is not None:
        return _both(found["name"])
    return _both("IndexError") if _INDEX in failure else ExecutionError


def _reduced(error: BaseException) -> tuple[Any, ...]:
    return _again, (type(error).__qualname__.rpartition(".")[2], error.args)


def _again(name: str, arguments: tuple[Any, ...]) -> ExecutionError:
    """In another process."""
    return _both(name)(*arguments)


@functools.cache
def _both(name: str) -> type[ExecutionError]:
    raised = getattr(builtins, name, None)
    if not isinstance(raised, type) or not issubclass(raised, Exception) or issubclass(ExecutionError, raised):
        return ExecutionError
    try:
        # Messages are as they are: that of a KeyError would be quoted.
        members = {"__str__": Exception.__str__, "__module__": __name__, "__reduce__": _reduced}
        made = type("ExecutionError", (ExecutionError, raised), members)
    except TypeError:  # it holds more than a message
        return ExecutionError
    made.__qualname__ = f"ExecutionError.{name}"
    return made

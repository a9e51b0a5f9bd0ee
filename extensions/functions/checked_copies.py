"""What numba is given of a plugin's function: a copy whose helpers are compiled with the function's own checks.

    def square(x): return x * x
    def outer(x, scale=2.0): return square(x) * scale       # numba gets outer with square jitted, bounds checked

Helpers are the functions that a function names or captured, plain ones and those with ``numba.njit``, also as attributes of
a plugin's modules, and so on recursively.  What numba knows by itself (its ``@overload``) stays as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any, final

from hlojit.extensions.functions.linked_code import Unfit
from hlojit.extensions.functions.lost_numbers import POSITIONAL
from hlojit.ir.code_copies import like, renamed
from hlojit.ir.code_reads import reads
from hlojit.ir.known_modules import known_version


def checked_copy(function: Any) -> Any:
    """The function with its helpers compiled anew whenever numba asks; raises ``Unfit`` where one calls itself.

    numba's lock is held.
    """
    return copied_with(function, _checked_jit) if isinstance(function, FunctionType) else function


def copied_with(function: FunctionType, jit: Callable[[FunctionType], Any]) -> FunctionType:
    """The function, or a copy of it that names other helpers: all of them are compiled by ``jit``."""
    return _Copies(jit).function(function)


def _checked_jit(function: FunctionType) -> Any:
    from numba import njit

    return njit(error_model="numpy", boundscheck=True)(function)


def omitted(function: Any, count: int) -> Sequence[Any]:
    """numba's types of the parameters that have their defaults in a call with ``count`` arguments; raises ``Unfit``."""
    if not isinstance(function, FunctionType):
        return ()
    from numba import types as kinds

    code, defaults = function.__code__, function.__defaults__ or ()
    least, most = code.co_argcount - len(defaults), code.co_argcount
    if code.co_flags & inspect.CO_VARARGS and count >= least:
        return ()
    if not least <= count <= most:
        expected = f"{least}" if least == most else f"{least} or {most}" if most == least + 1 else f"{least} to {most}"
        raise Unfit(f"takes {expected} argument{'s' if most != 1 else ''}, not {count}")
    for name in _keyword_only(function):
        if name not in (function.__kwdefaults__ or {}):
            raise Unfit(f"has the keyword-only parameter {name}, which has no default")
    return [kinds.Omitted(value) for value in (_positional(function).__defaults__ or ())[count - least :]]


@final
class _Copies:
    """The copies of one function and its helpers."""

    def __init__(self, jit: Callable[[FunctionType], Any]) -> None:
        self.jit = jit
        self.jitted: dict[int, Any] = {}
        """By the address of the original; those live as long as the function does."""
        self.path: list[FunctionType] = []

    def function(self, python: FunctionType) -> FunctionType:
        """The function, or a copy that names other helpers."""
        if any(python is each for each in self.path):
            names = [each.__qualname__ for each in (*self.path, python)]
            raise Unfit(f"calls itself: {' -> '.join(names)}")
        self.path.append(python)
        read = reads(python, _is_known)
        changed = {path: made for path, value in read.items() if (made := self._value(value)) is not value}
        self.path.pop()
        return _positional(renamed(python, changed) if changed else python)

    def _value(self, value: Any) -> Any:
        if _is_dispatcher(value):
            python = value.py_func
        elif isinstance(value, FunctionType) and not _is_numbas(value):
            python = value
        else:
            return value
        if id(python) not in self.jitted:
            self.jitted[id(python)] = self.jit(self.function(python))
        return self.jitted[id(python)]


def _is_dispatcher(value: Any) -> bool:
    """Whether numba, for whatever machine, compiles a function when this is called."""
    return type(value).__module__.partition(".")[0] == "numba" and isinstance(
        getattr(value, "py_func", None), FunctionType
    )


def _is_known(module: ModuleType) -> bool:
    return known_version(module.__name__, vars(module)) is not None


def _is_numbas(function: FunctionType) -> bool:
    """Whether numba, or a package whose functions count by its version, says what the function does."""
    from numba.core.registry import cpu_target

    if known_version(function.__globals__.get("__name__"), function.__globals__) is not None:
        return True
    context: Any = cpu_target.typing_context
    context.refresh()
    return context._lookup_global(function) is not None


def _keyword_only(python: FunctionType) -> Sequence[str]:
    code = python.__code__
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]


def _positional(python: FunctionType) -> FunctionType:
    """The function with keyword-only parameters, which numba does not know, behind the others; they are named in calls."""
    code, given = python.__code__, python.__kwdefaults__ or {}
    names = _keyword_only(python)
    if not names or code.co_flags & inspect.CO_VARARGS:
        return python
    missing = [name for name in names if name not in given]
    if missing and (python.__defaults__ or given):
        raise Unfit(f"has the keyword-only parameter {missing[0]}, which has no default")
    flat = code.replace(co_argcount=code.co_argcount + len(names), co_kwonlyargcount=0)
    defaults = (*(python.__defaults__ or ()), *(given[name] for name in names if name in given))
    copy = FunctionType(flat, python.__globals__, python.__name__, defaults, python.__closure__)
    setattr(copy, POSITIONAL, code.co_argcount)
    return like(python, copy, {})

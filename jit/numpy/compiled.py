"""Makes the functions of a namespace out of the lines of ``hlojit.numpy.signatures``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hlojit.ir.near_names import did_you_mean
from hlojit.numpy import differences
from hlojit.numpy.signatures import ARRAYS, SEQUENCES

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Names:
    """The compiled functions of a namespace; one is made when it is first asked for."""

    def __init__(self, module: str, lines: str, home: Any):
        self._module = module
        self._home = home
        self._lines = {line.partition("(")[0]: line for line in lines.split("\n") if line}
        self._made: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        """All of them, sorted."""
        return sorted(self._lines)

    def function(self, name: str) -> Any:
        """One of them; ``AttributeError`` where there is none."""
        if name not in self._lines:
            instead = did_you_mean(name, self._lines)
            if callable(getattr(self._home, name, None)):
                numpys = f"{self._home.__name__}.{name}"
                instead = f": it is not in the array API standard; hlojit.jit takes functions that call {numpys}"
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}{instead}")
        if name not in self._made:
            # The first one wins: two threads that had one each would compile everything twice.
            self._made.setdefault(name, self._make(name))
        return self._made[name]

    def _make(self, name: str) -> Any:
        from hlojit.tracing import jit

        line = self._lines[name]
        target = getattr(differences, name, None) if self._home is np else None
        function = _written(line, target or getattr(self._home, name), "{0}", self._module)
        parameters = inspect.signature(function).parameters
        jitted = jit(function, static_argnames=[each for each in parameters if each not in ARRAYS])
        if SEQUENCES.isdisjoint(parameters):
            return jitted
        # Lists cannot be static arguments; the standard lets them stand here.
        return _written(line, jitted, "{0} if type({0}) is not list else as_tuple({0})", self._module)


def _as_tuple(given: Any) -> Any:
    return tuple(map(_as_tuple, given)) if isinstance(given, (list, tuple)) else given


def _written(line: str, target: Any, how: str, module: str) -> Callable[..., Any]:
    """A function of the line's signature that calls another one with the same arguments.

    A real one, as ``collections.namedtuple`` makes them, so that Python and the native dispatcher bind its arguments.
    """
    scope: dict[str, Any] = {"target": target, "as_tuple": _as_tuple, "__name__": module}
    exec(f"def {line}: pass", scope)
    name = line.partition("(")[0]
    passed = [
        (how if p.name in SEQUENCES else "{0}").format(p.name)
        if p.kind in _POSITIONAL
        else f"{p.name}=" + (how if p.name in SEQUENCES else "{0}").format(p.name)
        for p in inspect.signature(scope[name]).parameters.values()
    ]
    exec(f"def {line}: return target({', '.join(passed)})", scope)
    function: Callable[..., Any] = scope[name]
    function.__doc__ = f"``{name}`` of the array API standard, compiled once for each signature."
    function.__annotations__ = dict.fromkeys((*inspect.signature(function).parameters, "return"), Any)
    return function

"""Makes the functions of a namespace out of the lines of ``hlojit.numpy.signatures``."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any, Final

from hlojit.ir.near_names import did_you_mean
from hlojit.numpy import differences
from hlojit.numpy.signatures import ARRAYS
from hlojit.tracing import jit

_making = threading.Lock()
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
            if not instead and callable(getattr(self._home, name, None)):
                instead = f": it is not in the array API standard; hlojit.jit takes functions that call {self._home.__name__}.{name}"
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}{instead}")
        with _making:
            # Two threads that had one each would compile everything twice.
            if name not in self._made:
                self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Any:
        function = self._plain(name)
        static = [each for each in inspect.signature(function).parameters if each not in ARRAYS]
        return jit(function, static_argnames=static)

    def _plain(self, name: str) -> Callable[..., Any]:
        """The function before it is jitted: a real one of the standard's signature, so that calls bind natively."""
        line = self._lines[name]
        target = getattr(differences, name, None) if self._home is differences.np else None
        scope: dict[str, Any] = {"target": target or getattr(self._home, name), "__name__": self._module}
        # Our own table is what is executed, as ``collections.namedtuple`` does.
        exec(f"def {line}: pass", scope)
        parameters = inspect.signature(scope[name]).parameters.values()
        passed = [p.name if p.kind in _POSITIONAL else f"{p.name}={p.name}" for p in parameters]
        exec(f"def {line}: return target({', '.join(passed)})", scope)
        function: Callable[..., Any] = scope[name]
        function.__doc__ = f"``{name}`` of the array API standard, compiled once for each signature."
        return function

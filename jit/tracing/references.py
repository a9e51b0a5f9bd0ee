"""How functions that hlojit makes are pickled and copied: as Python's functions are, by the name under which a module has them.

    @hlojit.jit
    def f(x): ...             # pickled as "the f of this module"

    g = hlojit.jit(f0)        # f0 is pickled by its name, and jitted again where it is read

A copy is the function itself.  What has no name, such as a lambda, cannot be pickled, and pickle says so.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

_Self = TypeVar("_Self", bound="Referenced")


class Referenced:
    """A function that is pickled by its name, or is made again."""

    __slots__ = ()

    def _made_by(self) -> tuple[Any, ...]:
        """What makes another such function, as ``__reduce__`` returns it: a callable and its arguments, then perhaps a state."""
        raise NotImplementedError

    def __reduce__(self) -> str | tuple[Any, ...]:
        return qualified_name(self) or self._made_by()

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, memo: dict[int, Any]) -> _Self:
        return self


def qualified_name(function: Any) -> str | None:
    """The name under which a function's module has this very object; None where it has another, or none."""
    name = getattr(function, "__qualname__", None)
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    if not isinstance(name, str) or found is None:
        return None
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is function else None

"""Jitted functions as methods: ``instance.method`` is a partial of the function that also has the function's own methods.

layer.forward(x)            # native code comes here by itself, without this object (``hlojit.runtime.dispatcher``)
layer.forward.lower(x)      # the function's ``lower`` with the layer as the first argument
"""

from __future__ import annotations

import functools
from typing import Any, final


@final
class BoundFunction(functools.partial[Any]):
    """``function`` with ``instance`` as its first argument."""

    __slots__ = ()

    @property
    def __self__(self) -> Any:
        return self.args[0]

    @property
    def __func__(self) -> Any:
        return self.func

    @property
    def __name__(self) -> str:
        return str(self.func.__name__)

    def execute(self, /, *arguments: Any, **named: Any) -> Any:
        """As of the function."""
        return self.__func__.execute(*self.args, *arguments, **named)

    def lower(self, /, *arguments: Any, **named: Any) -> Any:
        """As of the function."""
        return self.__func__.lower(*self.args, *arguments, **named)

    def eval_shape(self, /, *arguments: Any, **named: Any) -> Any:
        """As of the function."""
        return self.__func__.eval_shape(*self.args, *arguments, **named)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundFunction):
            return NotImplemented
        return self.func is other.func and self.args[0] is other.args[0]

    def __hash__(self) -> int:
        return hash((id(self.func), id(self.args[0])))

    def __reduce__(self) -> Any:
        return BoundFunction, (self.func, *self.args)

    def __repr__(self) -> str:
        return f"<bound {self.func!r} of {self.args[0]!r}>"

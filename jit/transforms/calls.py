"""How a transformed function is called: in the trace in work, or compiled by itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, final

from hlojit.ir.errors import ArgumentError
from hlojit.tracing.calls.callables import name_of
from hlojit.tracing.decorator import jit
from hlojit.tracing.jitted_functions import JittedFunction
from hlojit.tracing.operations import Operations
from hlojit.tracing.references import Referenced
from hlojit.tracing.reports import reported

Body = Callable[..., Any]
"""``body(operations, *arguments, **named)`` builds into the trace in work."""


@final
class TransformedFunction(Referenced):
    """A function that builds into the trace in work, and is compiled once a signature where it is called by itself.

    ``made_by``: the transformation and its other arguments, by which it is made again where it is read from a pickle.
    """

    def __init__(self, body: Body, function: Callable[..., Any], made_by: tuple[Any, ...]):
        check_callable(function)
        self._body = body
        self._transformation = made_by
        self._function = function
        self._jitted: JittedFunction | None = None
        functools.update_wrapper(self, function, updated=())

    @reported
    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        operations = Operations.in_work.get()
        if operations is not None:
            return self._body(operations, *arguments, **named)
        if self._jitted is None:
            self._jitted = compiled(self, self._function)
        return self._jitted(*arguments, **named)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _made_by(self) -> tuple[Any, ...]:
        transformation, *others = self._transformation
        return transformation, (self._function, *others)

    def __repr__(self) -> str:
        return f"<hlojit transformation of {name_of(self._function)}>"


def check_callable(function: Any) -> None:
    """Raises ``ArgumentError`` for what is no function."""
    if not callable(function):
        raise ArgumentError(f"a function is transformed, and {function!r} is none")


def compiled(function: Callable[..., Any], like: Callable[..., Any]) -> JittedFunction:
    """``function`` jitted as ``like`` is, if that is."""
    if not isinstance(like, JittedFunction):
        return jit(function)
    return jit(
        function,
        static_argnames=tuple(sorted(like.static_argnames)),
        backend=like.backend,
        options=like.options,
        plugins=like.plugins,
    )


@functools.lru_cache(maxsize=256)
def _kept(body: Body, function: Callable[..., Any], options: tuple[Any, ...]) -> JittedFunction:
    def call(*arguments: Any) -> Any:
        operations = Operations.in_work.get()
        assert operations is not None, "it is traced"
        return body(operations, function, options, *arguments)

    call.__name__ = name_of(function)
    # Messages call the arguments as those who wrote the call do: primals, tangents.
    names = list(inspect.signature(body).parameters)[3:]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return jit(call)


def call(body: Body, function: Callable[..., Any], options: tuple[Any, ...], *arguments: Any) -> Any:
    """``body(operations, function, options, *arguments)``, compiled where nothing is traced; the last functions are kept."""
    check_callable(function)
    operations = Operations.in_work.get()
    if operations is not None:
        return body(operations, function, options, *arguments)
    return _kept(body, function, options)(*arguments)

"""Things of outside that give another value each time they are asked: iterators, queues, context variables.

A function that asks one while it is traced would be given one value for all calls.  Those that it makes itself are its own.
"""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Final, final

from hlojit.tracing.errors import TracingError
from hlojit.tracing.rewriting import Site

_KINDS: Final = (Iterator, queue.Queue, queue.SimpleQueue, ContextVar)


@final
class Passing:
    """Those that are there before a function is called."""

    def __init__(self, meanings: Iterable[tuple[str, Any]] = ()):
        """``meanings``: what the names mean that the function reads of outside, after how messages call them."""
        found = [(name, each) for name, each in meanings if isinstance(each, _KINDS)]
        self._names = {id(each): (name, each) for name, each in found}

    def require_own(self, site: Site, value: Any) -> None:
        """Raise ``TracingError`` where the function asks one of these."""
        known = self._names.get(id(value))
        if known is not None:
            raise TracingError(
                f"{site} {known[0]} ({type(value).__name__}) is there before the call, and would be asked once, while the "
                "function is traced: every call would have the same; ask it outside, and pass what it gives as an argument"
            )

    def checked(self, site: Site, function: Any, stand_in: Callable[..., Any]) -> Callable[..., Any]:
        """What is called for ``function``, which may be a method of one of these, or be given one."""
        if not self._names:
            return stand_in
        self.require_own(site, getattr(function, "__self__", None))
        return functools.partial(self._call, site, stand_in)

    def _call(self, site: Site, stand_in: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        for each in (*arguments, *named.values()):
            self.require_own(site, each)
        return stand_in(*arguments, **named)

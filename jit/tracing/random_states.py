"""Random numbers drawn while a function is traced: they would be the same in every call, and so they are refused.

Looked at are the generators of ``numpy.random`` and ``random`` themselves, and those that the function refers to: its global
names, what it closes over, its defaults and its static arguments.  A generator that the function makes of a seed draws the
same numbers with NumPy, too.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any, Final, final

import numpy as np
from hlojit.tracing.errors import TracingError

_POSITION_OF_NEW: Final = 623
"""Of NumPy's global generator when its module is loaded: at the end of words that nobody has made yet."""


@final
class RandomStates:
    """The states of the generators that a function may draw from, as they were when it was called."""

    def __init__(self, function: Callable[..., Any], static: Mapping[str, Any]):
        self._named = [(name, state, state()) for name, state in _generators(function, static)]
        self._numpy = _numpy_state()
        self._python = random.getstate()

    def require_unused(self) -> None:
        """Raise ``TracingError`` if a number was drawn."""
        used = [name for name, state, before in self._named if not _equal(state(), before)]
        now = _numpy_state()
        if not _equal(now, self._numpy) and not (self._numpy is None and _is_new(now)):
            used.append("np.random")
        if random.getstate() != self._python:
            used.append("random")
        if used:
            raise TracingError(
                f"numbers were drawn from {' and '.join(used)} while the function was traced: every call would have the same; "
                "draw them outside and pass them as an argument, draw inside by a key that is an argument, with hlojit.random "
                "(key = hlojit.random.key(0)), or make the generator inside of a seed: np.random.default_rng(0)"
            )


def _numpy_state() -> Any:
    """The state of NumPy's global generator, whose module is loaded when somebody names it first; None before."""
    return sys.modules["numpy.random"].get_state(legacy=False) if "numpy.random" in sys.modules else None


def _is_new(state: Any) -> bool:
    """Whether nothing was drawn since the module was loaded."""
    return bool(state["state"]["pos"] == _POSITION_OF_NEW and not state["has_gauss"])


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)


def _generators(function: Callable[..., Any], static: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The names of generators, and what tells their states; NumPy's module is loaded when somebody names it first."""
    numpys = sys.modules.get("numpy.random")
    for name, value in _referred(function, static):
        if isinstance(value, random.Random):
            yield name, value.getstate
        elif numpys is not None and isinstance(value, numpys.Generator):
            yield name, lambda value=value: value.bit_generator.state  # type: ignore[misc]
        elif numpys is not None and isinstance(value, numpys.RandomState):
            yield name, lambda value=value: value.get_state(legacy=False)  # type: ignore[misc]


def _referred(function: Callable[..., Any], static: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from static.items()
    inner: Any = getattr(function, "__func__", function)
    holder = getattr(function, "__self__", None)
    if holder is not None:
        yield from ((f"self.{name}", value) for name, value in getattr(holder, "__dict__", {}).items())
    code = getattr(inner, "__code__", None)
    if not isinstance(code, CodeType):
        return
    for name, cell in zip(code.co_freevars, inner.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue
    yield from ((name, inner.__globals__[name]) for name in code.co_names if name in inner.__globals__)
    yield from (("a default", value) for value in inner.__defaults__ or ())
    yield from (inner.__kwdefaults__ or {}).items()

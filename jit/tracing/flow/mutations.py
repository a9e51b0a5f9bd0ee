"""Changes of Python's own objects in a branch or in the body of a loop.

The program cannot undo ``names.append(x)`` where the branch is not taken, nor repeat it with each iteration.  What was there
before a region was entered is changed by way of its journal, or not at all; what the region makes is its own.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final, final

import numpy as np
from hlojit.tracing.calls.pytrees import cached_names
from hlojit.tracing.rewriting import RETURN_VALUE, is_library
from hlojit.tracing.rewriting.plan import HOOKS
from hlojit.tracing.tracer import Tracer

_RECORDER: Final = "hlojit.tracing.recorder"
_MOST: Final = 20_000
"""Objects that are looked at; where there are more, all count as known."""
CHANGING: Final = frozenset(
    "append extend insert remove pop clear sort reverse add discard update setdefault popitem appendleft extendleft popleft "
    "rotate intersection_update difference_update symmetric_difference_update __setitem__ __delitem__ __iadd__".split()
)
"""Methods of Python's containers that change them."""
CONTAINERS: Final = (list, dict, set, bytearray, deque)


@final
class Known:
    """What can be reached from the variables of the user's functions that are running."""

    def __init__(self, identities: set[int] | None, kept: list[Any]):
        self._identities = identities
        self._kept = kept
        """Held, so that no new object takes an identity."""
        self._held = [_identities(thing) for thing in kept]

    @property
    def things(self) -> Sequence[Any]:
        """Everything that can be reached."""
        return self._kept

    def __contains__(self, thing: object) -> bool:
        return self.has(id(thing))

    def has(self, identity: int) -> bool:
        """Whether what has this identity is among it."""
        return self._identities is None or identity in self._identities

    @property
    def is_all(self) -> bool:
        """Whether there is so much that everything counts as known."""
        return self._identities is None

    def changed(self) -> Iterator[Any]:
        """Containers that hold other things now than they did then; what is only computed once and kept is no change."""
        for thing, held in zip(self._kept, self._held):
            if held is not None and held != _identities(thing) and not self._is_cache(thing, len(held)):
                yield thing

    def _is_cache(self, thing: Any, parts: int) -> bool:
        """Whether all that is new are values of cached properties."""
        owner = next((each for each in self._kept if getattr(each, "__dict__", None) is thing), None)
        new = [*thing][parts // 2 :] if isinstance(thing, dict) else []
        return owner is not None and bool(new) and set(new) <= set(cached_names(type(owner)))

    @classmethod
    def now(cls, *, returned: bool = True) -> Known:
        """What there is at this moment, with what functions that still run have ``returned`` on another path."""
        found: set[int] = set()
        kept: list[Any] = []
        open_ = [value for frame in _frames() for value in _variables(frame, returned=returned)]
        while open_:
            thing = open_.pop()
            if isinstance(thing, _PLAIN) or type(thing) is Tracer or id(thing) in found:
                continue
            if len(found) > _MOST:
                return cls(None, [])
            found.add(id(thing))
            kept.append(thing)
            open_ += _parts(thing)
        return cls(found, kept)


def references(thing: Any) -> int:
    """How many variables, containers and objects hold a thing, as far as ``Known`` looks."""
    values = [value for frame in _frames() for value in _variables(frame)]
    known = Known.now()
    if known.is_all:
        return sys.maxsize
    return sum(each is thing for each in (*values, *(part for held in known.things for part in _parts(held))))


def named_in_frames(thing: Any) -> str:
    """What the innermost function of the user's calls it, or what holds it; empty if it has no name there."""
    for frame in _frames():
        variables = frame.f_locals
        name = next((name for name, value in variables.items() if value is thing), "")
        name = name or next(
            (f"{name}{path}" for name, value in variables.items() for path in _paths_to(thing, value)), ""
        )
        _forget(frame, variables)
        if name:
            return name
    return ""


def _paths_to(thing: Any, holder: Any) -> Iterator[str]:
    """How Python spells a thing that another one holds."""
    if isinstance(holder, dict):
        yield from (f"[{key!r}]" for key, value in holder.items() if value is thing)
    elif isinstance(holder, (list, tuple)):
        yield from (f"[{number}]" for number, value in enumerate(holder) if value is thing)
    elif not isinstance(holder, _PLAIN) and type(holder) is not Tracer:
        attributes = getattr(holder, "__dict__", {})
        yield from (f".{name}" for name, value in attributes.items() if value is thing)


def _identities(thing: Any) -> Sequence[int] | None:
    """Of what a container holds; None of what is no container that can be changed."""
    if not isinstance(thing, CONTAINERS):
        return None
    if isinstance(thing, (set, bytearray)) or len(thing) > _MOST:
        return (len(thing),)
    return [*map(id, thing), *(map(id, thing.values()) if isinstance(thing, dict) else ())]


_PLAIN: Final = (str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic, np.dtype, ModuleType, type)


def _frames() -> Iterator[FrameType]:
    """Those of the functions that are traced: behind the recorder there is the caller."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name == _RECORDER:
            return
        if name.partition(".")[0] not in ("hlojit", "numpy", "contextlib"):
            yield frame
        frame = frame.f_back


def _variables(frame: FrameType, *, returned: bool = True) -> Iterator[Any]:
    if frame.f_code.co_flags & 1:
        variables = frame.f_locals
        yield from [value for name, value in variables.items() if returned or name != RETURN_VALUE]
        _forget(frame, variables)
    globals_ = frame.f_globals
    yield from [globals_[name] for name in frame.f_code.co_names if name in globals_]


def _forget(frame: FrameType, variables: Mapping[str, Any]) -> None:
    """Before Python 3.13 the dictionary of variables stays with the frame, and would keep arrays alive."""
    if type(variables) is dict and HOOKS in frame.f_code.co_freevars:
        variables.clear()


def _parts(thing: Any) -> Iterator[Any]:
    if isinstance(thing, dict):
        yield from thing.values()
    elif isinstance(thing, (list, tuple, set, frozenset, deque)):
        yield from thing
    elif isinstance(thing, MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, FunctionType):
        if not is_library(thing):
            yield from [each.cell_contents for each in thing.__closure__ or () if _is_bound(each)]
    elif type(thing).__module__.partition(".")[0] not in ("hlojit", "numpy", "numba", "llvmlite"):
        attributes = getattr(thing, "__dict__", None)
        if attributes is not None:
            yield attributes


def _is_bound(cell: Any) -> bool:
    try:
        return bool(cell.cell_contents is not None)
    except ValueError:
        return False

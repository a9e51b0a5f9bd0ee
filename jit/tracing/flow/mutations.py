"""Changes of Python's own objects in a branch or in the body of a loop.

The program cannot undo ``names.append(x)`` where the branch is not taken, nor repeat it with each iteration.  Lists,
dictionaries and objects that were there before a region was entered must not be changed in it; those that the region makes are
its own.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final, final

import numpy as np
from hlojit.tracing.rewriting import is_library
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

    def __contains__(self, thing: object) -> bool:
        return self._identities is None or id(thing) in self._identities

    @classmethod
    def now(cls) -> Known:
        """What there is at this moment."""
        found: set[int] = set()
        kept: list[Any] = []
        open_ = [value for frame in _frames() for value in _variables(frame)]
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


def _variables(frame: FrameType) -> Iterator[Any]:
    if frame.f_code.co_flags & 1:
        variables = frame.f_locals
        yield from list(variables.values())
        if type(variables) is dict and HOOKS in frame.f_code.co_freevars:
            # Before Python 3.13 the dictionary stays with the frame, and would keep arrays alive.
            variables.clear()
    globals_ = frame.f_globals
    yield from [globals_[name] for name in frame.f_code.co_names if name in globals_]


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
        yield from getattr(thing, "__dict__", {}).values()


def _is_bound(cell: Any) -> bool:
    try:
        return bool(cell.cell_contents is not None)
    except ValueError:
        return False

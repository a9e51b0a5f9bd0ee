"""Calls that would happen once, while a function is traced, where NumPy code makes them at every call: they are refused.

Clocks, files, the generators of random numbers that the whole process shares, and NumPy's states for floating-point errors.
"""

from __future__ import annotations

import builtins
import datetime
import io
import os
import random
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.rewriting import Site

_ONCE: Final = "is called once, while the function is traced, and every call would have the same; call it outside"
_CLOCK: Final = f"{_ONCE}, and pass the time as an argument (compiled code is timed outside as well)"
_FILE: Final = f"{_ONCE}, and pass what was read as an argument"
_WRITTEN: Final = "would write once, while the function is traced; return the array, and write it outside"
_DRAWN: Final = (
    "draws numbers while the function is traced: every call would have the same; draw them outside and pass them as an argument, "
    "draw inside by a key that is an argument, with hlojit.random (key = hlojit.random.key(0)), or make the generator inside of "
    "a seed: np.random.default_rng(0)"
)
_CLOCKS: Final = (
    "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns localtime gmtime"
)

_REFUSED: Final[dict[Any, str]] = {
    **{getattr(time, name): _CLOCK for name in _CLOCKS.split()},
    **dict.fromkeys((builtins.open, builtins.input, np.load, np.loadtxt, np.genfromtxt, np.fromfile, np.memmap), _FILE),
    **dict.fromkeys((np.save, np.savez, np.savez_compressed, np.savetxt), _WRITTEN),
    **dict.fromkeys((os.urandom, uuid.uuid1, uuid.uuid4, secrets.token_bytes, secrets.randbelow), _DRAWN),
}
_NOW: Final = frozenset({"now", "today", "utcnow"})
_HANDLED: Final = frozenset({"raise", "call", "print", "log"})


def refuse(site: Site, function: Any) -> None:
    """Raise ``TracingError`` of a call that would happen once."""
    try:
        reason = _REFUSED.get(function)
    except TypeError:
        return
    reason = reason or _of_owner(function)
    if reason:
        raise TracingError(f"{site} {_name(function)} {reason}")


def _of_owner(function: Any) -> str:
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if owner is None:
        return _FILE if name.startswith("read_") and str(function.__module__).startswith("pandas.") else ""
    if isinstance(owner, type):
        return _CLOCK if issubclass(owner, datetime.date) and name in _NOW else ""
    if owner is getattr(random, "_inst", None) or owner is _shared_generator():
        return _DRAWN
    if isinstance(owner, io.IOBase) and name.startswith("write") and owner in (sys.stdout, sys.stderr):
        return "would write once, while the function is traced; use print"
    return ""


def _shared_generator() -> Any:
    """NumPy's global generator, whose module is loaded when somebody names it first."""
    module = sys.modules.get("numpy.random.mtrand")
    return getattr(module, "_rand", _NOTHING)


_NOTHING: Final = object()


def _name(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if owner is not None and owner is _shared_generator():
        return f"np.random.{function.__name__}"
    if function is builtins.open:
        return "open"
    module = str(getattr(function, "__module__", "") or "").partition(".")[0].replace("numpy", "np")
    if isinstance(owner, type):
        return f"{owner.__name__}.{function.__name__}"
    if owner is getattr(random, "_inst", None):
        module = "random"
    return f"{module}.{function.__name__}" if module not in ("", "builtins") else str(function.__name__)


# ------------------------------------------------------------------------------------------------ floating-point errors


def with_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """``np.errstate`` or ``np.seterr``, which may say no more than that nothing is heard of such errors."""

    def call(*arguments: Any, **named: Any) -> Any:
        states = dict(zip(("all", "divide", "over", "under", "invalid"), arguments)) | named
        require_silent(states, f"np.{function.__name__}")
        return function(*arguments, **named)

    return call


def require_silent(states: Mapping[str, Any], what: str) -> None:
    """Raise where floating-point errors are to be handled: a compiled function gives infinities and NaN, and no warnings."""
    for name, state in states.items():
        if state in _HANDLED:
            raise TracingError(
                f"{what}({name}={state!r}): a compiled function does not notice floating-point errors; test the values "
                "(if not np.isfinite(y).all(): raise ...), or say 'ignore' or 'warn'"
            )

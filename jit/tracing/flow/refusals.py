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
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
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
_ASKED: Final = f"{_ONCE}, and pass what it gives as an argument"
_OF_THE_SYSTEM: Final = (
    "getrandom popen system listdir scandir stat lstat times getenv getpid getppid getcwd getloadavg read write"
)
_OF_PATHS: Final = frozenset(
    "read_text read_bytes write_text write_bytes open exists is_file is_dir stat lstat iterdir glob rglob cwd home".split()
)
_CLOCKS: Final = (
    "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns thread_time thread_time_ns "
    "clock_gettime clock_gettime_ns localtime gmtime ctime asctime strftime"
)

_REFUSED: Final[dict[Any, str]] = {
    **{getattr(time, name): _CLOCK for name in _CLOCKS.split() if hasattr(time, name)},
    **{getattr(os, name): _ASKED for name in _OF_THE_SYSTEM.split() if hasattr(os, name)},
    **dict.fromkeys((os.path.exists, os.path.isfile, os.path.isdir, os.path.getsize, os.path.getmtime), _ASKED),
    **dict.fromkeys(
        (subprocess.run, subprocess.call, subprocess.check_call, subprocess.check_output, subprocess.Popen), _ASKED
    ),
    **dict.fromkeys((threading.get_ident, threading.get_native_id, threading.current_thread), _ASKED),
    **dict.fromkeys((builtins.open, builtins.input, np.load, np.loadtxt, np.genfromtxt, np.fromfile, np.memmap), _FILE),
    **dict.fromkeys((np.save, np.savez, np.savez_compressed, np.savetxt), _WRITTEN),
    **dict.fromkeys((os.urandom, uuid.uuid1, uuid.uuid4), _DRAWN),
    **dict.fromkeys((secrets.token_bytes, secrets.token_hex, secrets.token_urlsafe, secrets.randbelow), _DRAWN),
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


def of_today(function: Any) -> Callable[..., Any] | None:
    """``np.datetime64``, which refuses "now" and "today"; None for other functions."""
    return _date if function is np.datetime64 else None


def _date(*arguments: Any, **named: Any) -> Any:
    if arguments and arguments[0] in ("now", "today"):
        raise TracingError(f"np.datetime64({arguments[0]!r}) {_CLOCK}")
    return np.datetime64(*arguments, **named)


def _of_owner(function: Any) -> str:
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if owner is None:
        return _FILE if name.startswith("read_") and str(function.__module__).startswith("pandas.") else ""
    if isinstance(owner, type):
        if issubclass(owner, Path):
            return _ASKED if name in _OF_PATHS else ""
        return _CLOCK if issubclass(owner, datetime.date) and name in _NOW else ""
    if (
        owner is getattr(random, "_inst", None)
        or owner is _shared_generator()
        or isinstance(owner, random.SystemRandom)
    ):
        return _DRAWN
    if owner is os.environ or (isinstance(owner, Path) and name in _OF_PATHS):
        return _ASKED
    if isinstance(owner, io.IOBase) and name.startswith("write") and owner in (sys.stdout, sys.stderr):
        return "would write once, while the function is traced; use print"
    return _FILE if isinstance(owner, io.IOBase) and name.startswith(("read", "write")) else ""


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

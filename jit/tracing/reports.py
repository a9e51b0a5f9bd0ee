"""Errors as whoever calls a jitted function gets them: with the line, and with the user's own frames only.

    try:
        ...
    except Exception as error:
        report(error)
        raise            # alone: so Python adds no frame of ours again

What the function raises itself is its own affair, and stays as it is; ``HLOJIT_TRACEBACK=full`` shows all frames.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from hlojit.ir.location import CallSiteLocation, FileLocation, FusedLocation, Location, NameLocation
from hlojit.ir.switches import TRACEBACK
from hlojit.tracing.places import Place, frames_from, is_library_file, is_own
from hlojit.tracing.rewriting.parsing import parsed
from hlojit.tracing.rewriting.tracebacks import without_hooks

_P = ParamSpec("_P")
_R = TypeVar("_R")

_PASSED: Final = frozenset({"hlojit.tracing.plugin_ops", "contextlib"})
"""Modules whose functions are in nobody's way, by their names."""
_RAISES: Final = dis.opmap["RAISE_VARARGS"]


def report(error: BaseException) -> None:
    """Give an error that is on its way the line where it happened, and take the frames of ours from its traceback."""
    whole = list(_entries(without_hooks(error.__traceback__)))
    shown = [
        each
        for each in whole
        # Functions that are made of a text have no file.
        if not is_own(each.tb_frame.f_code.co_filename) and each.tb_frame.f_globals.get("__name__") not in _PASSED
    ]
    users = [each for each in shown if not is_library_file(each.tb_frame.f_code.co_filename)] or shown
    is_users = bool(users) and whole[-1] is users[-1] and _is_raise(users[-1])
    place = _place_in(error) or (Place.of_entry(users[-1]) if users else _caller())
    if not is_users and place is not None:
        _say(error, place)
    if TRACEBACK.choice(("short", "full")) == "full":
        return
    if _in_notebook():
        if is_users and place is not None:
            error.add_note(f"raised at {str(place).rstrip(' :')}")
        users = []
    error.__traceback__ = _linked(users)
    _forget_ours(error)


def reported(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function whose errors are reported to whoever calls it."""

    @functools.wraps(function)
    def call(*arguments: _P.args, **named: _P.kwargs) -> _R:
        try:
            return function(*arguments, **named)
        except Exception as error:
            report(error)
            raise

    return call


def traceback_at(place: Place) -> TracebackType | None:
    """A traceback that ends at a line of source."""
    line = linecache.getline(place.file, place.line)
    text = line.rstrip("\n")
    tree = parsed("raise error")
    for each in ast.walk(tree):
        if "lineno" in each._attributes:
            # The whole line, so that no part of it is underlined.
            each.lineno = each.end_lineno = place.line  # type: ignore[attr-defined]
            each.col_offset = len(text) - len(text.lstrip())  # type: ignore[attr-defined]
            each.end_col_offset = len(text.encode())  # type: ignore[attr-defined]
    code = compile(tree, place.file, "exec").replace(co_name=place.function, co_qualname=place.function)
    try:
        exec(code, {"error": _Marker()})
    except _Marker as made:
        return made.__traceback__.tb_next if made.__traceback__ is not None else None
    raise AssertionError


class _Marker(Exception):
    pass


# ------------------------------------------------------------------------------------------------------------- places


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _linked(entries: Sequence[TracebackType]) -> TracebackType | None:
    found: TracebackType | None = None
    for each in reversed(entries):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found


def _is_raise(entry: TracebackType) -> bool:
    """Whether a frame was left by a ``raise`` or ``assert`` in its own source."""
    return entry.tb_frame.f_code.co_code[entry.tb_lasti] == _RAISES


def _caller() -> Place | None:
    """The line that called the function."""
    for frame in frames_from(sys._getframe(2)):
        name = frame.f_code.co_filename
        if not is_own(name) and not is_library_file(name):
            return Place.of_frame(frame)
    return None


def _place_in(error: BaseException) -> Place | None:
    """The line of the instruction that could not be compiled."""
    faults = getattr(error, "faults", ())
    location = getattr(faults[0] if faults else error, "location", None)
    for each in _files(location) if isinstance(location, Location) else ():
        return Place.at(each.file, each.line)
    return None


def _files(location: Location) -> Iterator[FileLocation]:
    if isinstance(location, FileLocation):
        yield location
    elif isinstance(location, NameLocation):
        yield from _files(location.child)
    elif isinstance(location, CallSiteLocation):
        yield from _files(location.callee)
    elif isinstance(location, FusedLocation):
        for each in location.locations:
            yield from _files(each)


def _in_notebook() -> bool:
    """Whether IPython shows the error, with some lines of source around each frame; the message has the line that matters."""
    module = sys.modules.get("IPython")
    return module is not None and module.get_ipython() is not None


# ----------------------------------------------------------------------------------------------------------- messages


def _say(error: BaseException, place: Place) -> None:
    """Put the line in front of the message."""
    said = str(error)
    location = getattr(error, "location", None)
    short = said.removesuffix(f"\n  at {location}")
    text = place.says(re.sub(rf"\n  at {re.escape(place.file)}:{place.line}(:\d+)?$", "", short))
    if error.args == (said,):
        error.args = (text,)
    if str(error) != text:
        try:
            error.__class__ = _saying(type(error))  # type: ignore[arg-type]  # mypy: classes are hashable
        except TypeError:
            error.add_note(f"at {str(place).rstrip(' :')}")
        else:
            error.__dict__["__hlojit_text__"] = text


@functools.cache
def _saying(kind: type[BaseException]) -> type[BaseException]:
    """A class of errors as it is, of which each has a text of its own."""

    def __str__(self: Any) -> str:
        return str(self.__dict__["__hlojit_text__"])

    def __reduce__(self: Any) -> Any:
        return kind, self.args

    own: dict[str, Any] = {"__slots__": (), "__str__": __str__, "__reduce__": __reduce__}
    own |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), own)


def _forget_ours(error: BaseException) -> None:
    """Drop causes that are nobody's but ours: the message says what they said."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is None:
        return
    entries = [each for each in _entries(cause.__traceback__) if not is_own(each.tb_frame.f_code.co_filename)]
    if entries:
        cause.__traceback__ = _linked(entries)
        return
    error.__cause__, error.__suppress_context__ = None, True

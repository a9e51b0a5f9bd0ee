"""Every error that hlojit raises on purpose, under one base class.

A message says what went wrong, where (the place in the user's own source), why, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from hlojit.ir.location import UNKNOWN, Location


class HlojitError(Exception):
    """Base class of all of hlojit's own exceptions."""


def repr_of(error: BaseException) -> str:
    """``repr(error)``, or the class of one of somebody else's whose ``__repr__`` fails: what is said about an error must not."""
    try:
        return repr(error)
    except Exception:
        return f"<{type(error).__name__}, whose text cannot be had>"


def text_of(error: BaseException) -> str:
    """``str(error)``, or ``repr_of(error)`` where that says nothing."""
    try:
        return str(error) or repr_of(error)
    except Exception:
        return repr_of(error)


def short_repr(value: object, limit: int = 120) -> str:
    """``repr(value)`` on one line, cut where it is long; objects whose ``__repr__`` fails are called by their class."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


class HlojitWarning(UserWarning):
    """Base class of all of hlojit's own warnings."""


class PluginWarning(HlojitWarning):
    """Something that a plugin says has no effect, or a plugin could not be loaded; the message names it."""


class RetracingWarning(HlojitWarning):
    """A jitted function is compiled for ever new shapes, types or static arguments; the message names what changes."""


class ParseError(HlojitError):
    """StableHLO text that cannot be read.

    ``str(error)`` shows file, line, column, the source line and a caret below the offending character.
    """

    def __init__(self, message: str, *, source_name: str = "<string>", line: int = 0, column: int = 0, text: str = ""):
        self.message = message
        self.source_name = source_name
        self.line = line
        self.column = column
        self.text = text
        super().__init__(self.render())

    def render(self) -> str:
        """Return the message with its position, the source line and a caret."""
        head = f"{self.source_name}:{self.line}:{self.column}: {self.message}"
        if not self.text:
            return head
        return f"{head}\n  {self.text}\n  {' ' * (self.column - 1)}^"


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule: what ``verify`` collects and what ``VerificationError`` lists."""

    op: str
    label: str
    message: str
    location: Location = UNKNOWN

    def __str__(self) -> str:
        label = f" ({self.label})" if self.label else ""
        place = "" if self.location is UNKNOWN else f"\n    at {self.location}"
        return f"{self.op}{label}: {self.message}{place}"


class VerificationError(HlojitError):
    """A module that breaks rules of the specification; ``faults`` holds every one of them."""

    def __init__(self, faults: Sequence[Fault]):
        self.faults = tuple(faults)
        count = len(self.faults)
        head = f"{count} fault{'s' if count != 1 else ''} in the program:"
        super().__init__("\n".join([head, *(f"  {fault}" for fault in self.faults)]))


class TypeInferenceError(HlojitError):
    """The operand types or attributes of one op admit no result type."""

    def __init__(self, message: str, label: str = ""):
        self.label = label
        self.message = message
        super().__init__(f"({label}): {message}" if label else message)


class UnsupportedError(HlojitError):
    """A valid program asks for something that the chosen back end does not do.

    A plugin's function raises ``UnsupportedError(reason)`` for what it does not take; who called it fills in the rest
    (``about``).  ``backend`` is empty where code that is common to all back ends raises it; the driver fills in the chosen one.
    """

    @overload
    def __init__(self, reason: str, /) -> None: ...

    @overload
    def __init__(self, op: str, backend: str, reason: str, location: Location = UNKNOWN) -> None: ...

    def __init__(self, op: str, backend: str = "", reason: str | None = None, location: Location = UNKNOWN):
        self.op, self.reason = ("", op) if reason is None else (op, reason)
        self.backend = backend
        self.location = location
        place = "" if location is UNKNOWN else f"\n  at {location}"
        by = f" by the back end {backend!r}" if backend else ""
        what = f"{self.op} is not supported" if self.op else "not supported"
        super().__init__(f"{what}{by}: {self.reason}{place}")

    def about(self, op: str, backend: str = "", location: Location = UNKNOWN) -> UnsupportedError:
        """The same with what it does not say itself; the error itself where it says all."""
        place = location if self.location is UNKNOWN else self.location
        said = self.op or op, self.backend or backend, place
        return (
            self if said == (self.op, self.backend, self.location) else UnsupportedError(*said[:2], self.reason, place)
        )


class ArgumentError(HlojitError, TypeError):
    """A compiled function was called with arguments that do not match its signature."""


class ExecutionError(HlojitError, RuntimeError):
    """A compiled program could not be run to its end."""


class PluginError(HlojitError):
    """A plugin broke its contract; the message names the package."""

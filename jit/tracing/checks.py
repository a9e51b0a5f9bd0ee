"""What is checked while a traced function runs, because NumPy or Python would raise: one number says which check failed.

The compiled program returns it beside its results: 0, or the number of the first check that failed; the call raises then, and
nothing is written into arguments.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Value
from hlojit.ir.location import FileLocation, Location
from hlojit.ir.types import tensor
from hlojit.tracing.places import Place, frames_from
from hlojit.tracing.reports import traceback_at


@final
@dataclass(frozen=True)
class Check:
    """One check: what is raised, and where it stands."""

    error: type[Exception]
    message: str
    place: Place
    raised: BaseException | None = None
    """What a ``raise`` of the function named."""

    def exception(self, noted: tuple[Any, Any] | None = None) -> BaseException:
        """What the call raises, as if it were raised at its line.

        ``noted``: arguments and attributes of what was raised, where they hold values of the run.
        """
        made = _again(self.raised) if self.raised is not None else self.error(self.place.says(self.message))
        if noted is not None:
            made.args, attributes = noted
            made.__dict__.update(attributes)
        return made.with_traceback(traceback_at(self.place))


def place_of(location: Location) -> Place:
    """The user's line that is traced."""
    if not isinstance(location, FileLocation):
        return Place("<unknown>", 1, "")
    frames = (each for each in frames_from(sys._getframe(1)) if each.f_code.co_filename == location.file)
    frame = next((each for each in frames if each.f_lineno == location.line), None)
    if frame is not None:
        return Place.of_frame(frame)
    return Place.at(location.file, location.line)


def said_at(location: Location, what: str) -> str:
    """A message about a line that is traced."""
    return place_of(location).says(what)


def _again(exception: BaseException) -> BaseException:
    """An exception of the same class, arguments and attributes, without the places at which others were raised."""
    try:
        made = copy.copy(exception)
    except Exception:
        # Its class takes other arguments than it keeps.
        made = exception
    made.__cause__, made.__suppress_context__ = exception.__cause__, exception.__suppress_context__
    return made.with_traceback(None)


@final
class Checks:
    """Those of one function, in its order."""

    def __init__(self, made: list[Check] | None = None, outer: Checks | None = None) -> None:
        self.made: list[Check] = [] if made is None else made
        """Those of the whole function; regions have a running number of their own."""
        self.running: Value | None = None
        self.outer = outer
        """Those of the region around."""

    @property
    def before(self) -> list[Value]:
        """The numbers that say whether something has failed until here, in this region and in those around."""
        running = [] if self.running is None else [self.running]
        return running if self.outer is None else [*running, *self.outer.before]

    def add(self, builder: Builder, bad: Value, error: type[Exception], message: str) -> None:
        """Fail where an element of ``bad`` is true."""
        if bad.tensor_type.rank:
            start = builder.constant(np.bool_(False))
            attributes: Any = {"dimensions": tuple(range(bad.tensor_type.rank))}
            regions = [builder.combiner("or", bad.tensor_type.element_type)]
            bad = builder.create("reduce", [bad, start], attributes=attributes, regions=regions).result
        self._fail_where(builder, bad, Check(error, message, place_of(builder.location)))

    def add_exception(
        self,
        builder: Builder,
        exception: BaseException,
        noted: Callable[[int], Value] | None = None,
        place: Place | None = None,
    ) -> None:
        """Raise this where the program comes here; without a ``place`` that is the line that is traced.

        ``noted`` builds, for the number of the check, the number under which the call finds values that it is raised with.
        """
        check = Check(Exception, "", place or place_of(builder.location), exception)
        if noted is None:
            self._fail_where(builder, builder.constant(np.bool_(True)), check)
            return
        self.made.append(check)
        self.follow(builder, noted(len(self.made)))

    def _fail_where(self, builder: Builder, bad: Value, check: Check) -> None:
        self.made.append(check)
        number, none = (builder.constant(each, tensor((), "i32")) for each in (len(self.made), 0))
        self.follow(builder, builder.select(bad, number, none))

    def follow(self, builder: Builder, code: Value) -> None:
        """Have another number count where nothing failed before."""
        if self.running is None:
            self.running = code
            return
        none = builder.constant(0, tensor((), "i32"))
        self.running = builder.select(builder.compare(self.running, none, "NE"), self.running, code)

    def code(self, builder: Builder) -> Value:
        """The number of the first that failed, from 1; 0 if none did."""
        return builder.constant(0, tensor((), "i32")) if self.running is None else self.running

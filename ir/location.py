"""Where in the user's own source an instruction comes from."""

from __future__ import annotations

from dataclasses import dataclass


class Location:
    """Base of all locations; ``UNKNOWN`` is the one without information."""

    __slots__ = ()

    def __str__(self) -> str:
        return "unknown location"


UNKNOWN = Location()


@dataclass(frozen=True, slots=True)
class FileLocation(Location):
    """A position, or with ``end_*`` a range, in a source file (lines and columns count from 1)."""

    file: str
    line: int
    column: int
    end_line: int | None = None
    end_column: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class NameLocation(Location):
    """A name, such as an op's path in the traced program, around the place that it names."""

    name: str
    child: Location = UNKNOWN

    def __str__(self) -> str:
        return f"{self.name!r}" if self.child is UNKNOWN else f"{self.name!r} ({self.child})"


@dataclass(frozen=True, slots=True)
class CallSiteLocation(Location):
    """``callee`` as it was called at ``caller``."""

    callee: Location
    caller: Location

    def __str__(self) -> str:
        return f"{self.callee} called at {self.caller}"


@dataclass(frozen=True, slots=True)
class FusedLocation(Location):
    """Several places at once, as a rewrite leaves behind; ``metadata`` is MLIR attribute text."""

    locations: tuple[Location, ...]
    metadata: str = ""

    def __str__(self) -> str:
        return ", ".join(map(str, self.locations)) or "unknown location"

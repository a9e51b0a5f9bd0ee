"""The placement of a program as a table, for people and as data."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

from hlojit.partition.plan import Segment

_MOST_FOLDED: Final = 500
"""Rows of a table for people; longer ones are lines."""


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One instruction: what it is, where it runs, and why there.

    ``bytes_moved`` are those of its operands that come from another device; ``nanoseconds`` is the estimate that the
    placement was made with.  ``segment`` is the number of the program that it is part of, None for constants and for what the
    host runs.
    """

    instruction: str
    location: str
    device: str
    segment: int | None
    why: str
    bytes_moved: int
    nanoseconds: float


@final
@dataclass(frozen=True, slots=True)
class SegmentTime:
    """One segment: its device, its size, its estimate, and how long its latest run took (None: it did not run yet)."""

    number: int
    device: str
    instructions: int
    estimated: float
    measured: float | None


@final
class Placement:
    """``rows`` by instruction, ``segments`` by number; ``str`` and ``print`` show the table."""

    def __init__(self, name: str, rows: tuple[Row, ...], segments: tuple[Segment, ...]):
        self.name = name
        self.rows = rows
        self.segments = tuple(
            SegmentTime(each.number, str(each.place), len(each.instructions), each.nanoseconds, each.measured)
            for each in segments
        )

    @property
    def devices(self) -> dict[str, int]:
        """How many instructions each device has."""
        found: dict[str, int] = {}
        for row in self.rows:
            if row.segment is not None:
                found[row.device] = found.get(row.device, 0) + 1
        return found

    @property
    def bytes_moved(self) -> int:
        """Of all rows; a value that several instructions of a device read counts once for each of them."""
        return sum(row.bytes_moved for row in self.rows)

    def __rich__(self) -> Any:
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=f"placement of {self.name}")
        for column in ("instruction", "device", "segment", "why"):
            table.add_column(column, overflow="fold")
        for column in ("bytes moved", "estimated (us)"):
            table.add_column(column, justify="right")
        for row in self.rows:
            number = "" if row.segment is None else str(row.segment)
            table.add_row(
                escape(row.instruction),
                row.device,
                number,
                escape(row.why),
                str(row.bytes_moved or ""),
                f"{row.nanoseconds / 1e3:.1f}",
            )
        table.add_section()
        for each in self.segments:
            took = "has not run" if each.measured is None else f"took {each.measured / 1e3:.1f} us"
            what = f"{each.instructions} instruction{'s' if each.instructions != 1 else ''}, {took}"
            table.add_row(
                f"segment {each.number}", each.device, str(each.number), what, "", f"{each.estimated / 1e3:.1f}"
            )
        return table

    def __str__(self) -> str:
        if len(self.rows) > _MOST_FOLDED:
            return "\n".join(self._lines())
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=160, color_system=None).print(self.__rich__())
        return text.getvalue().rstrip()

    def _lines(self) -> Iterator[str]:
        """The table without columns that fold, which takes a millisecond for each row."""
        yield f"placement of {self.name}: instruction, device, segment, bytes moved, estimated (us), why"
        widths = max(len(row.instruction) for row in self.rows), max(len(row.device) for row in self.rows)
        for row in self.rows:
            number = "" if row.segment is None else row.segment
            yield (
                f"{row.instruction:{min(widths[0], 60)}}  {row.device:{widths[1]}}  {number:>6}  {row.bytes_moved or '':>10}  "
                f"{row.nanoseconds / 1e3:10.1f}  {row.why}"
            )
        for each in self.segments:
            took = "has not run" if each.measured is None else f"took {each.measured / 1e3:.1f} us"
            size, estimated = each.instructions, each.estimated / 1e3
            yield f"segment {each.number} on {each.device}: {size} instructions, estimated {estimated:.1f} us, {took}"

    def __repr__(self) -> str:
        said = ", ".join(f"{count} on {device}" for device, count in self.devices.items())
        return f"<Placement of {self.name}: {said}>"

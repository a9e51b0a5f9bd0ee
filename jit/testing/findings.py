"""The parts of a report: results of checks, what was found, timings."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Status(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not hold, and a program that shows it.

    ``message`` says what was expected and what was found; ``program`` is a Python script (or a text) to paste, as small as
    the reducer could make it in its time.
    """

    message: str
    program: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One check: ``group`` is what it is about (encodings, rounding, sort ...), ``name`` the check itself.

    ``count`` says how many comparisons it made; ``detail`` why it was skipped.
    """

    group: str
    name: str
    status: Status
    count: int = 1
    seconds: float = 0.0
    detail: str = ""
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Least times in nanoseconds of something of the plugin's and of what is built in; reported, never judged."""

    name: str
    nanoseconds: float
    baseline: str
    baseline_nanoseconds: float

    @property
    def ratio(self) -> float:
        """How many times as long as the baseline."""
        return self.nanoseconds / self.baseline_nanoseconds if self.baseline_nanoseconds else float("inf")


def grouped(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by group, in the order in which groups first appear."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    return groups

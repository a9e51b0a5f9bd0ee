"""The parts of a report: results of checks, what was found, timings."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FEW: Final = 8
"""Elements of which all may be NaN or infinite and still tell something, as an edge that is tried on purpose."""


class Status(enum.Enum):
    """How a check ended.

    It compared something, and that held or not (``PASSED``, ``FAILED``).  Or it compared nothing: what it needs was ``REFUSED``
    with a reason, ``RAISED`` wherever it was called, was ``UNREACHED``, or a program that a pass leaves as it is (``UNCHANGED``).
    Or it is not for what is checked (``SKIPPED``).
    """

    PASSED = "passed"
    FAILED = "failed"
    REFUSED = "refused"
    RAISED = "raised"
    UNREACHED = "not reached"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"

    @property
    def compared(self) -> bool:
        """Whether something was compared."""
        return self in (Status.PASSED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not hold, and a program that shows it.

    ``message`` says what was expected and what was found; ``program`` is a Python script (or a text) to paste, as small as
    the reducer could make it in its time.
    """

    message: str
    program: str = ""


@dataclass(frozen=True, slots=True)
class Compared:
    """How many comparisons a check made; ``lost`` of them of elements that should be NaN or infinite, which tell less.

    ``alike`` says why what keeps results of a call for the next one would not have been found; empty if it would.
    """

    count: int
    lost: int = 0
    alike: str = ""

    def __add__(self, other: Compared) -> Compared:
        return Compared(self.count + other.count, self.lost + other.lost, self.alike or other.alike)


@dataclass(frozen=True, slots=True)
class Result:
    """One check: ``group`` is what it is about (encodings, rounding, sort ...), ``name`` the check itself.

    ``count`` says how many comparisons it made, ``lost`` how many of them of NaN and infinities; ``detail`` why it made none, or,
    of one that passed, why what keeps results of a call for the next one would not have been found.
    ``backend`` computed what was compared, and ``subject`` is what was checked where a report is of several things; both may be
    empty.
    """

    group: str
    name: str
    status: Status
    count: int = 1
    seconds: float = 0.0
    detail: str = ""
    finding: Finding | None = None
    backend: str = ""
    subject: str = ""
    lost: int = 0

    @property
    def tells_little(self) -> bool:
        """Whether three quarters of what was compared are NaN or infinite, or more."""
        return self.status.compared and self.count > FEW and 4 * self.lost >= 3 * self.count


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


def shown_statuses(results: Sequence[Result]) -> list[Status]:
    """The columns of a table: passed and failed, and of the others those that occur."""
    found = {result.status for result in results}
    return [each for each in Status if each.compared or each in found]

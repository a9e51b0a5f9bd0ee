"""How a check runs: settings that all checks share, and the recorder that turns what happens into a report."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.versions import versions_text
from hlojit.testing.findings import Compared, Finding, Result, Status, Timing
from hlojit.testing.report import Report


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a check does.

    ``samples``: elements or pairs that are compared where all are too many; ``programs``: random programs; ``sizes``: how many
    sizes of arrays; ``reduction_seconds``: what making one finding's program smaller may take; ``most_findings``: findings
    whose programs are made smaller; ``run_seconds``: what one program's compilation and runs may take, behind which it counts
    as endless.
    """

    name: str
    samples: int
    programs: int
    sizes: int
    threads: int
    reduction_seconds: float
    most_findings: int = 5
    run_seconds: float = 60.0


BUDGETS = {
    "smoke": Budget("smoke", 256, 4, 2, 2, 2.0, 2),
    "quick": Budget("quick", 4096, 20, 4, 4, 10.0),
    "full": Budget("full", 65536, 300, 12, 8, 60.0, 20),
}
"""``smoke`` is for a test that runs often, ``quick`` for work at the desk (a minute or two), ``full`` for a release."""


def budget_of(name: str | Budget) -> Budget:
    """The budget of a name; raises ``HlojitError`` with the names that there are."""
    if isinstance(name, Budget):
        return name
    if name not in BUDGETS:
        raise HlojitError(f"there is no budget {name!r}; budgets are {', '.join(BUDGETS)}")
    return BUDGETS[name]


class Skipped(Exception):
    """Raised by a check that does not apply; its text says why."""

    status: ClassVar[Status] = Status.SKIPPED


class Refused(Skipped):
    """Raised by a check of what is refused, with the reason."""

    status = Status.REFUSED


class Raised(Skipped):
    """Raised by a check of what raises wherever it is called: nobody knows what it means."""

    status = Status.RAISED


class Unreached(Skipped):
    """Raised by a check that came to nothing that it could compare."""

    status = Status.UNREACHED


class Unchanged(Skipped):
    """Raised by a check of a pass that leaves the program as it is."""

    status = Status.UNCHANGED


class Found(Exception):
    """Raised by a check: something does not hold."""

    def __init__(self, message: str, program: str = ""):
        super().__init__(message)
        self.finding = Finding(message, program)


@dataclass
class Recorder:
    """Collects results; ``run`` performs one check and writes down how it ended."""

    kind: str
    subject: str
    budget: Budget
    seed: int = 0
    progress: bool | None = None
    groups: frozenset[str] = frozenset()
    """The groups of checks that are made; empty: all."""
    results: list[Result] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    doing: str = ""
    """The check that is being made."""

    def run(self, group: str, name: str, check: Callable[[], int | Compared | None], *, backend: str = "") -> bool:
        """Perform a check; whether it passed.

        ``check`` returns how many comparisons it made (None: one; ``Compared``) and raises ``Found`` or ``Skipped`` (or one of
        its kinds).  One that made none has not passed.  ``UnsupportedError`` is a refusal; any other exception is a finding of
        its own: nothing that is checked may raise what it does not say it raises.  ``backend`` names the one whose results are
        compared.
        """
        if not self.wants(group):
            return True
        start = time.perf_counter()
        self.doing = f"{group}: {name}"
        self.show("")
        status, count, lost, detail, finding = Status.PASSED, 1, 0, "", None
        try:
            made = check()
            compared = made if isinstance(made, Compared) else Compared(1 if made is None else int(made))
            count, lost, detail = compared.count, compared.lost, compared.alike
            if not count:
                status, detail = Status.UNREACHED, "nothing was compared"
        except Skipped as reason:
            status, count, detail = reason.status, 0, str(reason)
        except UnsupportedError as error:
            status, count, detail = Status.REFUSED, 0, str(error).partition("\n")[0]
        except Found as found:
            status, finding = Status.FAILED, found.finding
        except Exception as error:
            status, finding = Status.FAILED, Finding(_described(error))
        seconds = time.perf_counter() - start
        self.results.append(Result(group, name, status, count, seconds, detail, finding, backend, lost=lost))
        return status is Status.PASSED

    def wants(self, group: str) -> bool:
        """Whether checks of a group are made."""
        return not self.groups or group in self.groups

    @property
    def failures(self) -> int:
        """How many checks have failed so far."""
        return sum(each.status is Status.FAILED for each in self.results)

    @property
    def reduces(self) -> bool:
        """Whether another finding's program is made smaller."""
        return self.failures < self.budget.most_findings

    def report(self, **settings: Any) -> Report:
        """What was found; ``settings`` are said in it."""
        self.doing = ""
        self.show("")
        settings = {"versions": versions_text(), "budget": self.budget.name, "seed": self.seed} | settings
        seconds = time.perf_counter() - self.started
        return Report(self.kind, self.subject, tuple(self.results), tuple(self.timings), seconds, settings)

    def show(self, what: str) -> None:
        """One line that is written over again and again, on a terminal and after a second of work."""
        wanted = sys.stderr.isatty() if self.progress is None else self.progress
        if wanted and (self.progress or time.perf_counter() - self.started > 1.0):
            smaller = f", made smaller: {what}" if what else ""
            line = (
                f"{self.kind} {self.subject}: {len(self.results)} checks, {self.failures} failed {self.doing}{smaller}"
            )
            sys.stderr.write(f"\r\033[K{line[:118] if self.doing else ''}")
            sys.stderr.flush()


def _described(error: Exception) -> str:
    """An exception that nobody expected, with the place that raised it where the message does not say it."""
    if isinstance(error, HlojitError):
        return f"{type(error).__name__}: {error}"
    (*_, last) = traceback.extract_tb(error.__traceback__) or [None]
    where = f"\n  raised at {last.filename}:{last.lineno}" if last is not None else ""
    return f"{type(error).__name__}: {error}{where}"

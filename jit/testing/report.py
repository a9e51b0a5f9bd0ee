"""What a check found: results, findings with programs that show them, timings; as text, JSON and a page.

    report = check_format(ACME8)
    print(report)                       # a table and every finding
    report.raise_if_failed()            # for a test
    Path("conformance.html").write_text(report.html())

A ``Report`` is plain data.  Reports of several checks are put together with ``merged``.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hlojit.ir.errors import HlojitError
from hlojit.testing.coverage import Missing, missing_of
from hlojit.testing.findings import Finding, Result, Status, Timing

FORMAT_VERSION = 3
"""Of the JSON form; (1) had no coverage, (2) no programs that are unchanged; both are read."""


class ConformanceError(HlojitError):
    """What ``Report.raise_if_failed`` raises: the findings, or what is not shown, as text; ``report`` is the whole."""

    def __init__(self, report: Report):
        super().__init__(report.text(color=False))
        self.report = report


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a check of ``subject``, which is a ``kind`` (format, op, pass ...)."""

    kind: str
    subject: str
    results: tuple[Result, ...] = ()
    timings: tuple[Timing, ...] = ()
    seconds: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether something was shown of everything that was asked for, and nothing failed."""
        return self.verdict.startswith("conforms")

    @property
    def verdict(self) -> str:
        """``does not conform``; ``not shown``: nothing was compared; ``hardly shown``: of less than a quarter of the checks, or
        a pass changed less than four programs and less than a quarter; ``conforms as far as shown``: not of some parts; or
        ``conforms``.
        """
        if any(each.status is Status.FAILED for each in self.results):
            return "does not conform"
        missing = self.missing
        if any(each.is_essential for each in missing):
            return "not shown"
        if any(each.is_most for each in missing):
            return "hardly shown"
        return "conforms as far as shown" if missing else "conforms"

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What nothing was compared of, and why: all of it, a back end that was asked for, or a group of checks."""
        return tuple(missing_of(self.results))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What failed."""
        return tuple(each.finding for each in self.results if each.finding is not None)

    @property
    def counts(self) -> Counter[str]:
        """How many checks ``passed`` and ``failed``, and how many compared nothing: ``refused``, ``raised``, ``not reached``,
        ``unchanged``.

        ``skipped`` are those that are not for what was checked.
        """
        return Counter(each.status.value for each in self.results)

    @property
    def score(self) -> float:
        """The share of the checks that passed, of those that compared something: 1.0 is all; 0.0 if none did."""
        ran = [each for each in self.results if each.status.compared]
        return sum(each.status is Status.PASSED for each in ran) / len(ran) if ran else 0.0

    @property
    def coverage(self) -> float:
        """The share of the checks that compared something, of those that are for what was checked."""
        wanted = [each for each in self.results if each.status is not Status.SKIPPED]
        return sum(each.status.compared for each in wanted) / len(wanted) if wanted else 0.0

    @property
    def comparisons(self) -> str:
        """How many comparisons were made, and of how many nothing but NaN and infinities was expected."""
        total, lost = (sum(getattr(each, name) for each in self.results) for name in ("count", "lost"))
        return f"{total:,} comparisons" + (f" ({lost:,} of NaN or infinities)" if lost else "")

    @property
    def tells_little(self) -> tuple[Result, ...]:
        """Checks in which most of what was compared is NaN or infinite."""
        return tuple(each for each in self.results if each.tells_little)

    @property
    def called_alike(self) -> tuple[Result, ...]:
        """Checks in which what keeps results of a call for the next one would not have been found; their details say why."""
        return tuple(each for each in self.results if each.status is Status.PASSED and each.detail)

    @property
    def summary(self) -> str:
        """Verdict, how much was compared, and the score, in a line."""
        counts = self.counts
        ran = counts["passed"] + counts["failed"]
        rest = [f"{counts[each.value]} {each.value}" for each in Status if not each.compared and counts[each.value]]
        others = f" ({', '.join(rest)})" if rest else ""
        of = sum(each.status is not Status.SKIPPED for each in self.results)
        return (
            f"{self.verdict}: {self.coverage:.1%} of {of} checks compared something{others}; "
            f"{counts['passed']} of those {ran} passed ({self.score:.1%})"
        )

    def raise_if_failed(self) -> Report:
        """Raise ``ConformanceError`` with every finding, or if nothing was shown; returns the report if it is ``ok``."""
        if not self.ok:
            raise ConformanceError(self)
        return self

    # ------------------------------------------------------------------ forms

    def text(self, *, color: bool | None = None, width: int = 120) -> str:
        """A table by groups, and each finding with its program."""
        from hlojit.testing.report_text import report_text

        return report_text(self, color=bool(color), width=width)

    def json(self) -> str:
        """The report as JSON; ``Report.from_json`` reads it."""
        content = dataclasses.asdict(self) | {
            "format_version": FORMAT_VERSION,
            "score": self.score,
            "coverage": self.coverage,
            "verdict": self.verdict,
            "missing": [dataclasses.asdict(each) for each in self.missing],
            "ok": self.ok,
            "results": [dataclasses.asdict(each) | {"status": each.status.value} for each in self.results],
        }
        return json.dumps(content, indent=1, default=str)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read what ``json`` wrote; raises ``HlojitError`` for anything else."""
        try:
            content = json.loads(text)
            if content["format_version"] not in range(1, FORMAT_VERSION + 1):
                raise HlojitError(f"a report of version {content['format_version']}, not {FORMAT_VERSION}")
            results = tuple(
                Result(
                    each["group"],
                    each["name"],
                    Status(each["status"]),
                    each["count"],
                    each["seconds"],
                    each["detail"],
                    Finding(**each["finding"]) if each["finding"] else None,
                    each.get("backend", ""),
                    each.get("subject", ""),
                    each.get("lost", 0),
                )
                for each in content["results"]
            )
            timings = tuple(Timing(**each) for each in content["timings"])
            return cls(content["kind"], content["subject"], results, timings, content["seconds"], content["settings"])
        except (KeyError, TypeError, ValueError) as error:
            raise HlojitError(f"this is no report of hlojit.testing: {error!r}") from None

    def html(self) -> str:
        """A page of its own: nothing is loaded from elsewhere."""
        from hlojit.testing.report_html import report_html

        return report_html(self)

    def __str__(self) -> str:
        return self.text()


def merged(reports: Iterable[Report], *, kind: str, subject: str) -> Report:
    """Several reports as one; groups get the name of what was checked in front."""
    every = list(reports)
    results = tuple(
        dataclasses.replace(result, group=f"{report.subject}: {result.group}", subject=result.subject or report.subject)
        for report in every
        for result in report.results
    )
    timings = tuple(timing for report in every for timing in report.timings)
    settings: dict[str, Any] = {}
    for report in every:
        settings.update(report.settings)
    return Report(kind, subject, results, timings, sum(report.seconds for report in every), settings)

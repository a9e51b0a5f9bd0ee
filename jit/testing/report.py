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
from hlojit.testing.findings import Finding, Result, Status, Timing

FORMAT_VERSION = 1
"""Of the JSON form."""


class ConformanceError(HlojitError):
    """What ``Report.raise_if_failed`` raises: the findings as text; ``report`` is the whole."""

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
        """Whether nothing failed."""
        return not any(each.status is Status.FAILED for each in self.results)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What failed."""
        return tuple(each.finding for each in self.results if each.finding is not None)

    @property
    def counts(self) -> Counter[str]:
        """How many checks ``passed``, ``failed`` and were ``skipped``."""
        return Counter(each.status.value for each in self.results)

    @property
    def score(self) -> float:
        """The share of the checks that passed, of those that ran: 1.0 is all."""
        ran = [each for each in self.results if each.status is not Status.SKIPPED]
        return sum(each.status is Status.PASSED for each in ran) / len(ran) if ran else 1.0

    def raise_if_failed(self) -> Report:
        """Raise ``ConformanceError`` with every finding; returns the report if there is none."""
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
            "ok": self.ok,
            "results": [dataclasses.asdict(each) | {"status": each.status.value} for each in self.results],
        }
        return json.dumps(content, indent=1, default=str)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read what ``json`` wrote; raises ``HlojitError`` for anything else."""
        try:
            content = json.loads(text)
            if content["format_version"] != FORMAT_VERSION:
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
        dataclasses.replace(result, group=f"{report.subject}: {result.group}")
        for report in every
        for result in report.results
    )
    timings = tuple(timing for report in every for timing in report.timings)
    settings: dict[str, Any] = {}
    for report in every:
        settings.update(report.settings)
    return Report(kind, subject, results, timings, sum(report.seconds for report in every), settings)

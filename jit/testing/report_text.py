"""A report as text for a terminal or a log."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from hlojit.testing.findings import Status, grouped

if TYPE_CHECKING:
    from hlojit.testing.report import Report


def report_text(report: Report, *, color: bool, width: int) -> str:
    """A table by groups, each finding with its program, and timings."""
    from rich.console import Console

    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=color, no_color=not color, highlight=False)
    console.print(_table(report))
    number = 0
    for result in report.results:
        if result.finding is None:
            continue
        number += 1
        console.print(f"\n[bold red]{number}.[/] {_plain(result.group)} / {_plain(result.name)}", highlight=False)
        console.print(result.finding.message, markup=False)
        if result.finding.program:
            console.print(result.finding.program, markup=False, soft_wrap=True)
    if report.timings:
        console.print(_timings(report))
    counts = report.counts
    verdict = "conforms" if report.ok else "does not conform"
    console.print(
        f"{_plain(report.subject)} {verdict}: {counts['passed']} of {counts['passed'] + counts['failed']} checks passed "
        f"({report.score:.1%}), {counts['skipped']} skipped, {sum(each.count for each in report.results):,} comparisons, "
        f"{report.seconds:.1f} s"
    )
    return stream.getvalue()


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


def _table(report: Report) -> Any:
    from rich.table import Table

    table = Table("group", "passed", "failed", "skipped", "comparisons", "s", title=f"{report.kind} {report.subject}")
    for group, results in grouped(report.results).items():
        of = {status: sum(each.status is status for each in results) for status in Status}
        table.add_row(
            _plain(group),
            str(of[Status.PASSED]),
            f"[bold red]{of[Status.FAILED]}[/]" if of[Status.FAILED] else "0",
            str(of[Status.SKIPPED]),
            f"{sum(each.count for each in results):,}",
            f"{sum(each.seconds for each in results):.2f}",
        )
    return table


def _timings(report: Report) -> Any:
    from rich.table import Table

    table = Table("what", "µs", "beside", "µs", "ratio", title="timings (least of several; reported, not judged)")
    for timing in report.timings:
        table.add_row(
            _plain(timing.name),
            f"{timing.nanoseconds / 1e3:.1f}",
            _plain(timing.baseline),
            f"{timing.baseline_nanoseconds / 1e3:.1f}",
            f"{timing.ratio:.2f}",
        )
    return table

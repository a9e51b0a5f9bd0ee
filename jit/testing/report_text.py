"""A report as text for a terminal or a log."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.testing.findings import Result, Status, grouped, shown_statuses

if TYPE_CHECKING:
    from hlojit.testing.report import Report

_MOST_NAMED = 3


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
    for missing in report.missing:
        console.print(f"nothing compared: {missing}", markup=False, soft_wrap=True)
    for each in report.tells_little:
        told = f"tells little: {each.group} / {each.name}: {each.lost} of {each.count} elements are NaN or infinite"
        console.print(told, markup=False, soft_wrap=True)
    for reason, alike in _by_detail(report.called_alike).items():
        first = ", ".join(f"{each.group} / {each.name}" for each in alike[:_MOST_NAMED])
        more = f" and {len(alike) - _MOST_NAMED} more" if len(alike) > _MOST_NAMED else ""
        told = f"what keeps results for the next call would not be seen in {first}{more}: {reason}"
        console.print(told, markup=False, soft_wrap=True)
    summary = f"{report.subject} {report.summary}, {report.comparisons}, {report.seconds:.1f} s"
    console.print(summary, markup=False, soft_wrap=True)
    return stream.getvalue()


def _by_detail(results: Sequence[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for each in results:
        found.setdefault(each.detail, []).append(each)
    return found


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


def _table(report: Report) -> Any:
    from rich.table import Table

    shown = shown_statuses(report.results)
    table = Table("group", *(each.value for each in shown), "comparisons", "s", title=f"{report.kind} {report.subject}")
    for group, results in grouped(report.results).items():
        of = Counter(each.status for each in results)
        table.add_row(
            _plain(group),
            *(f"[bold red]{of[each]}[/]" if each is Status.FAILED and of[each] else str(of[each]) for each in shown),
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

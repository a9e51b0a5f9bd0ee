"""A report as a page: one file, without scripts, fonts or styles from elsewhere."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING

from hlojit.testing.findings import Result, Status, grouped, shown_statuses

if TYPE_CHECKING:
    from hlojit.testing.report import Report

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --open: #9a6700; --mute: #777; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { font-size: 1.1rem; } .good { color: var(--good); } .bad { color: var(--bad); }
.open { color: var(--open); } .mute { color: var(--mute); }
.bar { height: .6rem; border-radius: .3rem; background: var(--line); overflow: hidden; margin: .6rem 0 1.2rem; display: flex; }
.bar div { height: 100%; } .bar .good { background: var(--good); } .bar .bad { background: var(--bad); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; overflow-wrap: break-word;
  padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
details { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .8rem; margin: .6rem 0; }
summary { cursor: pointer; } pre { overflow-x: auto; background: #8881; padding: .6rem; border-radius: .3rem; font-size: 13px; }
p.message { white-space: pre-wrap; }
"""


def report_html(report: Report) -> str:
    """The page."""
    tone = {"conforms": "good", "does not conform": "bad"}.get(report.verdict, "open")
    verdict, _, rest = report.summary.partition(":")
    settings = " · ".join(f"{escape(str(name))} {escape(str(value))}" for name, value in report.settings.items())
    title = f"{escape(report.kind)} {escape(report.subject)}"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}: hlojit.testing</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            f'<p class="verdict"><span class="{tone}">{escape(verdict)}</span>:{escape(rest)}</p>',
            _bar(report),
            f'<p class="mute">{settings} · {report.comparisons} · {report.seconds:.1f} s</p>',
            _missing(report),
            _little(report),
            _alike(report),
            _groups(report),
            _findings(report),
            _timings(report),
            _without_comparison(report),
            "</body></html>",
        ]
    )


def _bar(report: Report) -> str:
    """How much passed, failed, and compared nothing, of what is for the subject."""
    counts = report.counts
    total = sum(count for name, count in counts.items() if name != Status.SKIPPED.value) or 1
    parts = (("good", counts["passed"]), ("bad", counts["failed"]))
    return (
        '<div class="bar">'
        + "".join(f'<div class="{name}" style="width: {count / total:.2%}"></div>' for name, count in parts)
        + "</div>"
    )


def _missing(report: Report) -> str:
    rows = "".join(f"<tr><td>{escape(each.what)}</td><td>{escape(each.reason)}</td></tr>" for each in report.missing)
    head = "<h2>Nothing compared</h2><table><tr><th>of</th><th>why</th></tr>"
    return f"{head}{rows}</table>" if rows else ""


def _little(report: Report) -> str:
    rows = "".join(
        f'<tr><td>{escape(each.group)}</td><td>{escape(each.name)}</td><td class="n">{each.lost:,} of {each.count:,}</td></tr>'
        for each in report.tells_little
    )
    head = "<h2>Checks that tell little</h2><p>Most of what was compared is NaN or infinite, where nothing else can be told.</p>"
    columns = '<table><tr><th>group</th><th>check</th><th class="n">NaN or infinite</th></tr>'
    return f"{head}{columns}{rows}</table>" if rows else ""


def _alike(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.group)}</td><td>{escape(each.name)}</td><td>{escape(each.detail)}</td></tr>"
        for each in report.called_alike
    )
    head = (
        "<h2>Checks with one outcome</h2><p>What keeps results of a call for the next one would not be seen here.</p>"
    )
    columns = "<table><tr><th>group</th><th>check</th><th>why</th></tr>"
    return f"{head}{columns}{rows}</table>" if rows else ""


def _groups(report: Report) -> str:
    shown = shown_statuses(report.results)
    rows = []
    for group, results in grouped(report.results).items():
        of = Counter(each.status for each in results)
        cells = "".join(
            f'<td class="n{" bad" if each is Status.FAILED and of[each] else ""}">{of[each]}</td>' for each in shown
        )
        comparisons = f'<td class="n">{sum(each.count for each in results):,}</td>'
        rows.append(f"<tr><td>{escape(group)}</td>{cells}{comparisons}</tr>")
    numbers = "".join(f'<th class="n">{name}</th>' for name in (*(each.value for each in shown), "comparisons"))
    head = f"<tr><th>group</th>{numbers}</tr>"
    return f"<h2>Checks</h2><table>{head}{''.join(rows)}</table>"


def _findings(report: Report) -> str:
    failed = [each for each in report.results if each.finding is not None]
    if not failed:
        return ""
    return "<h2>Findings</h2>" + "\n".join(map(_finding, failed))


def _finding(result: Result) -> str:
    assert result.finding is not None
    program = f"<pre>{escape(result.finding.program)}</pre>" if result.finding.program else ""
    return (
        f'<details open><summary><span class="bad">{escape(result.group)}</span> {escape(result.name)}</summary>'
        f'<p class="message">{escape(result.finding.message)}</p>{program}</details>'
    )


def _timings(report: Report) -> str:
    if not report.timings:
        return ""
    rows = "".join(
        f'<tr><td>{escape(each.name)}</td><td class="n">{each.nanoseconds / 1e3:.1f}</td><td>{escape(each.baseline)}</td>'
        f'<td class="n">{each.baseline_nanoseconds / 1e3:.1f}</td><td class="n">{each.ratio:.2f}</td></tr>'
        for each in report.timings
    )
    head = '<tr><th>what</th><th class="n">µs</th><th>beside</th><th class="n">µs</th><th class="n">ratio</th></tr>'
    return f'<h2>Timings</h2><p class="mute">Least of several; reported, not judged.</p><table>{head}{rows}</table>'


def _without_comparison(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.group)}</td><td>{escape(each.name)}</td><td>{escape(each.status.value)}</td>"
        f"<td>{escape(each.detail)}</td></tr>"
        for each in report.results
        if not each.status.compared
    )
    head = "<tr><th>group</th><th>check</th><th>how</th><th>why</th></tr>"
    return f"<h2>Checks that compared nothing</h2><table>{head}{rows}</table>" if rows else ""

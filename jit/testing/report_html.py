"""A report as a page: one file, without scripts, fonts or styles from elsewhere."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hlojit.testing.findings import Result, Status, grouped

if TYPE_CHECKING:
    from hlojit.testing.report import Report

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --mute: #777; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { font-size: 1.1rem; } .good { color: var(--good); } .bad { color: var(--bad); } .mute { color: var(--mute); }
.bar { height: .6rem; border-radius: .3rem; background: var(--bad); overflow: hidden; margin: .6rem 0 1.2rem; }
.bar div { height: 100%; background: var(--good); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
details { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .8rem; margin: .6rem 0; }
summary { cursor: pointer; } pre { overflow-x: auto; background: #8881; padding: .6rem; border-radius: .3rem; font-size: 13px; }
p.message { white-space: pre-wrap; }
"""


def report_html(report: Report) -> str:
    """The page."""
    counts = report.counts
    ran = counts["passed"] + counts["failed"]
    verdict = '<span class="good">conforms</span>' if report.ok else '<span class="bad">does not conform</span>'
    settings = " · ".join(f"{escape(str(name))} {escape(str(value))}" for name, value in report.settings.items())
    comparisons = sum(each.count for each in report.results)
    title = f"{escape(report.kind)} {escape(report.subject)}"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}: hlojit.testing</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            f'<p class="verdict">{verdict}: {counts["passed"]} of {ran} checks passed ({report.score:.1%}), '
            f"{counts['skipped']} skipped</p>",
            f'<div class="bar"><div style="width: {report.score:.2%}"></div></div>',
            f'<p class="mute">{settings} · {comparisons:,} comparisons · {report.seconds:.1f} s</p>',
            _groups(report),
            _findings(report),
            _timings(report),
            _skipped(report),
            "</body></html>",
        ]
    )


def _groups(report: Report) -> str:
    rows = []
    for group, results in grouped(report.results).items():
        of = {status: sum(each.status is status for each in results) for status in Status}
        failed = f'<span class="bad">{of[Status.FAILED]}</span>' if of[Status.FAILED] else "0"
        rows.append(
            f'<tr><td>{escape(group)}</td><td class="n">{of[Status.PASSED]}</td><td class="n">{failed}</td>'
            f'<td class="n">{of[Status.SKIPPED]}</td><td class="n">{sum(each.count for each in results):,}</td></tr>'
        )
    numbers = "".join(f'<th class="n">{name}</th>' for name in ("passed", "failed", "skipped", "comparisons"))
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


def _skipped(report: Report) -> str:
    skipped = [each for each in report.results if each.status is Status.SKIPPED]
    if not skipped:
        return ""
    rows = "".join(
        f"<tr><td>{escape(each.group)}</td><td>{escape(each.name)}</td><td>{escape(each.detail)}</td></tr>"
        for each in skipped
    )
    return f"<h2>Skipped</h2><table><tr><th>group</th><th>check</th><th>why</th></tr>{rows}</table>"

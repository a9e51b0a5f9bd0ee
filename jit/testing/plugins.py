"""``check_plugin``: everything that a registered plugin brings, each by its check.

report = check_plugin("acme")
write_report(report, Path("acme.html"))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hlojit.extensions import BlockFormat, registry
from hlojit.ir.errors import HlojitError
from hlojit.testing.backends import check_backend
from hlojit.testing.block_formats import check_block_format
from hlojit.testing.calls import check_custom_call
from hlojit.testing.cases import Case, cases_of
from hlojit.testing.formats import check_format
from hlojit.testing.kernels import check_kernel
from hlojit.testing.ops import check_op
from hlojit.testing.passes import check_pass
from hlojit.testing.recorder import Budget, Recorder, Skipped, Unreached, budget_of
from hlojit.testing.report import Report, merged


@dataclass(frozen=True)
class Part:
    """One thing that a plugin brings, and how the plugin says that it is tried."""

    plugin: str
    kind: str
    name: str
    record: Any
    cases: tuple[Case, ...] = ()

    def __str__(self) -> str:
        return f"{self.plugin}: {self.kind} {self.name}"


def parts_of(plugin: str) -> list[Part]:
    """What a registered plugin brings; raises ``HlojitError`` with the names that there are."""
    records = registry().load().records
    record = records.get(plugin)
    if record is None:
        raise HlojitError(f"no plugin {plugin!r} is registered; registered are {', '.join(sorted(records))}")
    if record.error:
        raise HlojitError(f"the plugin {plugin!r} could not be loaded:\n{record.error}")
    brought = [
        *(("format", str(row), row) for row in record.formats),
        *(("op", op.name, op) for op in record.ops),
        *(("pass", pass_.name, pass_) for pass_ in record.passes),
        *(("custom call", call.target, call) for call in record.custom_calls),
        *(("kernel", kernel.name, kernel) for kernel in record.kernels),
        *(("back end", backend.name, backend) for backend in record.backends),
    ]
    cases = cases_of(record.cases)
    unknown = sorted(set(cases) - {name for _, name, _ in brought})
    if unknown:
        raise HlojitError(f"{record.cases}.CASES has cases of {', '.join(unknown)}, which the plugin does not bring")
    return [Part(plugin, kind, name, item, tuple(cases.get(name, ()))) for kind, name, item in brought]


def check_part(part: Part, *, budget: str | Budget = "quick", seed: int = 0, progress: bool | None = None) -> Report:
    """The checks of one thing that a plugin brings; of what they need to be told more nothing is shown, and it says what."""
    said: dict[str, Any] = {"budget": budget, "seed": seed, "progress": progress}
    cases = part.cases or (Case(part.name),)
    reports = [_checked(part, said | case.arguments) for case in cases]
    if len(reports) == 1:
        return reports[0]
    joined = tuple(
        replace(result, group=f"case {number}: {result.group}")
        for number, report in enumerate(reports)
        for result in report.results
    )
    timings = tuple(timing for report in reports for timing in report.timings)
    return replace(reports[0], results=joined, timings=timings, seconds=sum(each.seconds for each in reports))


def _checked(part: Part, said: dict[str, Any]) -> Report:
    reason: Exception
    try:
        absent = _absence(part)
        if absent:
            reason = Skipped(absent)
        elif isinstance(part.record, BlockFormat):
            return check_block_format(part.record, **said)
        else:
            return _CHECKS[part.kind](part.record, **said)
    except (HlojitError, TypeError) as error:
        reason = Unreached(str(error))
    recorder = Recorder(part.kind, part.name, budget_of(said["budget"]), said["seed"], said["progress"])

    def stop() -> int:
        raise reason

    recorder.run("set-up", f"check_{part.kind.replace(' ', '_')}", stop)
    return recorder.report()


def _absence(part: Part) -> str:
    """Why something cannot be tried on this machine; empty if it can."""
    name = {"kernel": getattr(part.record, "backend", ""), "back end": part.name}.get(part.kind, "")
    if not name:
        return ""
    if name not in registry().backends:
        return f"there is no back end {name!r} here"
    reason = registry().backend(name).unavailable()
    return f"the back end {name!r} cannot be used here: {reason}" if reason else ""


def check_plugin(plugin: str, *, budget: str | Budget = "quick", seed: int = 0, progress: bool | None = None) -> Report:
    """One report of everything that a registered plugin brings, each tried as its cases say (``Case``)."""
    reports = [check_part(part, budget=budget, seed=seed, progress=progress) for part in parts_of(plugin)]
    return merged(reports, kind="plugin", subject=plugin)


def write_report(report: Report, path: Path) -> None:
    """Write a report as the file's ending says: ``.html``, ``.json``, or text."""
    forms: dict[str, Callable[[], str]] = {".html": report.html, ".json": report.json}
    path.write_text(forms.get(path.suffix, report.text)(), encoding="utf-8")


_CHECKS: dict[str, Callable[..., Report]] = {
    "format": check_format,
    "op": check_op,
    "pass": check_pass,
    "custom call": check_custom_call,
    "kernel": check_kernel,
    "back end": check_backend,
}

"""``check_plugin``: everything that a registered plugin brings, each by its check.

report = check_plugin("acme")
write_report(report, Path("acme.html"))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlojit.extensions import FloatFormat, registry
from hlojit.ir.errors import HlojitError
from hlojit.testing.backends import check_backend
from hlojit.testing.calls import check_custom_call
from hlojit.testing.formats import check_format
from hlojit.testing.kernels import check_kernel
from hlojit.testing.ops import check_op
from hlojit.testing.passes import check_pass
from hlojit.testing.recorder import Budget, Recorder, Skipped, budget_of
from hlojit.testing.report import Report, merged


@dataclass(frozen=True)
class Part:
    """One thing that a plugin brings."""

    plugin: str
    kind: str
    name: str
    record: Any

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
    return [
        *(Part(plugin, "format", str(row), row) for row in record.formats),
        *(Part(plugin, "op", op.name, op) for op in record.ops),
        *(Part(plugin, "pass", pass_.name, pass_) for pass_ in record.passes),
        *(Part(plugin, "custom call", call.target, call) for call in record.custom_calls),
        *(Part(plugin, "kernel", kernel.name, kernel) for kernel in record.kernels),
        *(Part(plugin, "back end", backend.name, backend) for backend in record.backends),
    ]


def check_part(part: Part, *, budget: str | Budget = "quick", seed: int = 0, progress: bool | None = None) -> Report:
    """The check of one thing that a plugin brings; what needs to be told more is reported as skipped, with what to do."""
    check = _CHECKS[part.kind]
    try:
        if isinstance(part.record, FloatFormat) or part.kind != "format":
            return check(part.record, budget=budget, seed=seed, progress=progress)
        reason = "check_format tries float formats"
    except HlojitError as error:
        reason = str(error)
    recorder = Recorder(part.kind, part.name, budget_of(budget), seed, progress)

    def skip() -> None:
        raise Skipped(reason)

    recorder.run("set-up", f"check_{part.kind.replace(' ', '_')}", skip)
    return recorder.report()


def check_plugin(plugin: str, *, budget: str | Budget = "quick", seed: int = 0, progress: bool | None = None) -> Report:
    """One report of everything that a registered plugin brings."""
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

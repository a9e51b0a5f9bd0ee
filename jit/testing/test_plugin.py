"""What ``pytest --pyargs hlojit.testing --plugin=NAME`` runs: a check for each thing that the plugin brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hlojit.testing.findings import Status
from hlojit.testing.plugins import Part, check_part, parts_of, write_report
from hlojit.testing.report import Report, merged

_REPORTS: dict[str, list[Report]] = {}


def pytest_generate_tests(metafunc: Any) -> None:
    """A test for each part of each plugin that is named."""
    if "part" in metafunc.fixturenames:
        parts = [part for name in metafunc.config.getoption("--plugin") for part in parts_of(name)]
        metafunc.parametrize("part", parts, ids=map(str, parts))


@pytest.fixture(scope="session", autouse=True)
def _report(request: Any) -> Any:
    """At the end one report of all, where ``--hlojit-report`` says."""
    yield
    path = request.config.getoption("--hlojit-report")
    every = [report for reports in _REPORTS.values() for report in reports]
    if path and every:
        write_report(merged(every, kind="plugin", subject=", ".join(_REPORTS)), Path(path))


def test_conforms(part: Part, request: Any) -> None:
    """One thing that a plugin brings holds what it promises."""
    budget, seed = (request.config.getoption(f"--hlojit-{name}") for name in ("budget", "seed"))
    report = check_part(part, budget=budget, seed=seed)
    _REPORTS.setdefault(part.plugin, []).append(report)
    if all(result.status is Status.SKIPPED for result in report.results):
        pytest.skip(str(report.missing[0]))
    report.raise_if_failed()

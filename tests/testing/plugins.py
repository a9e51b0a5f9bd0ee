"""Plugins of the kit's tests, written as a vendor writes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hlojit.extensions as ext
import numpy as np
from hlojit import testing
from hlojit.testing.recorder import Budget

TINY = Budget("tiny", samples=256, programs=1, sizes=1, threads=2, reduction_seconds=0.5, most_findings=1)
"""What most of the kit's own tests need."""


def plugin(name: str, *, api: tuple[int, int] = (1, 1), **hooks: Any) -> Any:
    """A plugin object: ``plugin("nova", passes=[...])``."""
    marked = {f"hlojit_{hook}": ext.hookimpl(lambda made=made: made) for hook, made in hooks.items()}
    return SimpleNamespace(__name__=name, hlojit_api=api, **marked)


def expect(report: testing.Report, *words: str) -> None:
    """The report has findings, one of which has all the words; what can be pasted compiles."""
    assert not report.ok
    texts = [finding.message + finding.program for finding in report.findings]
    assert any(all(word in text for word in words) for text in texts), texts
    for finding in report.findings:
        if finding.program.startswith("import"):
            compile(finding.program, "finding", "exec")


class Device(ext.Backend):
    """Evaluates a program by its meaning; subclasses get something wrong."""

    name = "kit-device"

    def capability(self, instruction: Any) -> ext.Capability:
        return ext.DECOMPOSE if ext.can_decompose(instruction) else ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        from hlojit.ir import evaluate

        return lambda *arrays: [np.array(each) for each in evaluate(module, *arrays)]

"""Collects golden cases from ``*.cases`` files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from .golden import assert_same_results, printed, read_cases, write_cases


def pytest_collect_file(parent: Any, file_path: Path) -> Any:
    """Files of cases are test modules of their own."""
    return CaseFile.from_parent(parent, path=file_path) if file_path.suffix == ".cases" else None


class CaseFile(pytest.File):
    """One file of golden cases."""

    def collect(self) -> Iterator[Any]:
        """An item for each case; with ``--update-golden`` one that rewrites the file."""
        if self.config.getoption("update_golden", default=False):
            yield UpdateItem.from_parent(self, name="update")
            return
        for case in read_cases(self.path)[1]:
            yield CaseItem.from_parent(self, name=case.name, case=case)


class CaseItem(pytest.Item):
    """One golden case."""

    def __init__(self, *, case: Any, **rest: Any):
        super().__init__(**rest)
        self.case = case

    def runtest(self) -> None:
        """Compare the program that comes out with the golden one, and what both compute."""
        module, fired = self.case.transform()
        text = printed(module)
        if text != self.case.after:
            raise WrongOutput(text)
        assert_same_results(self.case.parse(), module, {rule.effect for rule in fired})

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Show both programs where they differ."""
        if isinstance(excinfo.value, WrongOutput):
            return f"case {self.name} gave\n{excinfo.value}\nexpected\n{self.case.after}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the case stands."""
        return self.path, 0, f"case {self.name}"


class UpdateItem(pytest.Item):
    """Rewrites a file of cases with what the passes make now."""

    def runtest(self) -> None:
        """Transform every case and write the file."""
        head, cases = read_cases(self.path)
        write_cases(self.path, head, [replace(case, after=printed(case.transform()[0])) for case in cases])


class WrongOutput(Exception):
    """The passes made another program than the golden one."""

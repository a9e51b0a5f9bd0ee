"""Defects that were put in, over everything that a plugin may bring: the kit finds each, and shows it by a program."""

from __future__ import annotations

import pytest

from .plugins import expect
from .seeded_calls import CALLS, OPS, Check

DEFECTS: dict[str, tuple[Check, tuple[str, ...]]] = {**CALLS, **OPS}


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "off")


@pytest.mark.parametrize("name", DEFECTS)
def test_a_seeded_defect_is_found(name: str) -> None:
    check, words = DEFECTS[name]
    report = check()
    if words:
        expect(report, *words)
    assert not report.ok, report.text()

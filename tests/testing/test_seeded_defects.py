"""Defects that were put in, over everything that a plugin may bring: the kit finds each, and shows it by a program."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from .plugins import expect
from .seeded_calls import CALLS, OPS, Check
from .seeded_devices import DEVICES
from .seeded_kernels import KERNELS
from .seeded_passes import PASSES

DEFECTS: dict[str, tuple[Check, tuple[str, ...]]] = {**CALLS, **OPS, **KERNELS, **PASSES}
"""Checks by what is wrong, and words of the finding that is expected."""

FEW = ("layer norm", "functions", "square roots by Newton", "rotations")
"""Programs of the corpus in which these devices' defects show."""


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "off")


QUICK = (
    "a row that is not written",
    "a C function that reads behind its operand",
    "a C function that writes to its operand",
    "a handler that leaves a row",
    "a second result that is wrong for some numbers",
    "a result of another type than its rule says",
    "a kernel that spreads its bias wrongly",
    "a kernel that takes memory for zeros",
    "memory that is freed twice",
    "scratch memory that threads share",
    "a last tile that is not written",
    "a command that never ends",
    *PASSES,
)
"""Those that are tried whenever the tests are run."""


def marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", marked(DEFECTS))
def test_a_seeded_defect_is_found(name: str) -> None:
    found(*DEFECTS[name])


@pytest.mark.parametrize("name", marked(DEVICES))
def test_a_seeded_defect_of_a_device_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = importlib.import_module("hlojit.testing.corpus")  # a function of hlojit.testing has its name
    everything = corpus.typed_programs

    def few(taken: Any) -> Iterator[Any]:
        return (each for each in everything(taken) if each[0] in ("numbers of f32", "numbers of f64"))

    monkeypatch.setattr(corpus, "typed_programs", few)
    monkeypatch.setattr(corpus, "PROGRAMS", {name: corpus.PROGRAMS[name] for name in FEW})
    found(*DEVICES[name])


def found(check: Check, words: tuple[str, ...]) -> None:
    """The report says that something is wrong, with a finding that has the words."""
    report = check()
    assert not report.ok, report.text()
    if words:
        expect(report, *words)

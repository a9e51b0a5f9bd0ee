"""The page of NumPy's functions (docs/numpy-functions.md): every public name has a call, and the page says what comes of it."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
coverage: Any = pytest.importorskip("numpy_coverage")
PAGE = (ROOT / "docs" / "numpy-functions.md").read_text(encoding="utf-8")
CALLS = [call for calls in coverage.all_calls().values() for call in calls]
of_this_numpy = pytest.mark.skipif(f"NumPy {np.__version__} " not in PAGE, reason="the page is of another NumPy")


@of_this_numpy
def test_every_public_name_has_a_call() -> None:
    spaces = coverage.all_calls()
    for space, names in coverage.public_names().items():
        assert not names - {call.name for call in spaces[space]}


def _cases() -> list[Any]:
    """One of eight; all in the slow run."""
    return [
        pytest.param(call, id=call.name, marks=() if zlib.crc32(call.name.encode()) % 8 == 0 else pytest.mark.slow)
        for call in CALLS
    ]


@of_this_numpy
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", _cases())
def test_the_page_says_what_comes_of_a_call(call: Any) -> None:
    outcome = coverage.outcome_of(call)
    assert outcome.kind != "different", outcome.reason
    assert (outcome.kind == "refused") == (f"| `{call.text}` |" in PAGE), outcome.reason

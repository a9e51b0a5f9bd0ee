"""Work done by the real programs, counted, against the budgets in ``budgets.json``.

Times are noise on a shared machine; counts are not.  Kernels, bytes (what the launches' operands and results hold) and
allocations depend on the program and the compiler alone; page faults of a second call show whether memory is recycled.
A change that exceeds a budget must say why it is worth it when it raises the figure.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import hlojit
import hlojit.runtime
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from benchmarks.programs import REAL_PROGRAMS

BUDGETS: dict[str, dict[str, int]] = json.loads((Path(__file__).parent / "budgets.json").read_text())


def counts(name: str) -> dict[str, Any]:
    """Statistics of one call, after a first one that warms everything up."""
    program = REAL_PROGRAMS[name]()
    executable = hlojit.compile(program.text(), backend="cpu")
    arguments = program.flat_arguments()
    executable(*arguments)
    before = hlojit.runtime.statistics()
    executable(*arguments)
    after = hlojit.runtime.statistics()
    return {
        "kernels": after.kernels - before.kernels,
        "bytes_moved": after.bytes_moved - before.bytes_moved,
        "allocations": after.allocations - before.allocations,
        "page_faults": after.page_faults - before.page_faults,
        "arena_bytes": executable.spec.program.arena_bytes,
    }


def test_every_program_has_a_budget() -> None:
    assert set(BUDGETS) == set(REAL_PROGRAMS)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REAL_PROGRAMS))
def test_program_stays_within_its_budget(name: str) -> None:
    found = counts(name)
    exceeded = {key: (found[key], limit) for key, limit in BUDGETS[name].items() if found[key] > limit}
    assert not exceeded, f"{name}: (found, budget) {exceeded}"

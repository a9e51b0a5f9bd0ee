"""Whole programs as JAX exports them, through the CPU back end alone, against JAX's own results."""

from __future__ import annotations

import sys
from pathlib import Path

import hlojit
import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent))
from benchmarks.programs import REAL_PROGRAMS, Program


@pytest.fixture(scope="module", params=sorted(REAL_PROGRAMS))
def program(request: pytest.FixtureRequest) -> Program:
    return REAL_PROGRAMS[request.param]()


@pytest.mark.slow
def test_program_agrees_with_jax(program: Program) -> None:
    executable = hlojit.compile(program.text(), backend="cpu")
    assert isinstance(executable, hlojit.Executable), "native code, nothing on the reference interpreter"
    results = executable(*program.flat_arguments())
    results = results if isinstance(results, tuple) else (results,)
    expected = program.expected()
    assert len(results) == len(expected)
    for ours, theirs in zip(results, expected):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        scale = max(np.abs(theirs).max(), 1e-30)
        assert np.abs(ours.astype("f8") - theirs.astype("f8")).max() <= program.tolerance * scale

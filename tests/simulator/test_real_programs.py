"""The real programs of the benchmarks on the back end cuda against JAX: in small sizes, and, on a GPU, as they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import hlojit
import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))
from benchmarks.programs import (
    REAL_PROGRAMS,
    Program,
    gpt2_decode,
    gpt2_forward,
    heat_equation,
    mlp_adam,
    n_body,
    resnet50,
    scan_rnn,
)

PROGRAMS: dict[str, Callable[[], Program]] = {
    "gpt2_forward": lambda: gpt2_forward(layers=2, width=128, vocabulary=101, length=19),
    "gpt2_decode": lambda: gpt2_decode(layers=2, width=128, vocabulary=101, length=78),
    "resnet": lambda: resnet50(size=18, blocks=(1, 1)),
    "mlp_adam": lambda: mlp_adam(batch=17, sizes=(33, 24, 10)),
    "scan_rnn": lambda: scan_rnn(steps=5, batch=3, width=20),
    "heat_equation": lambda: heat_equation(size=33, steps=7),
    "n_body": lambda: n_body(bodies=19, steps=2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_agrees_with_jax(name: str) -> None:
    agree(PROGRAMS[name]())


@pytest.mark.gpu_only
@pytest.mark.parametrize("name", REAL_PROGRAMS)
def test_program_of_full_size_agrees_with_jax(name: str) -> None:
    agree(REAL_PROGRAMS[name]())


def agree(program: Program) -> None:
    results = hlojit.compile(program.text(), backend="cuda")(*program.flat_arguments())
    results = results if isinstance(results, tuple) else (results,)
    for ours, theirs in zip(results, program.expected(), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        scale = max(np.abs(theirs).max(), 1e-30)
        assert np.abs(ours.astype("f8") - theirs.astype("f8")).max() <= program.tolerance * scale

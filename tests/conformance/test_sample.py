"""A fixed sample of the harnesses that ship in the jax wheel: the first of every group and element type, and programs of our own.

``make conformance-jax`` runs all of them.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))
pytest.importorskip("jax")
pytest.importorskip("absl")
from tools.conformance import jax_harnesses
from tools.conformance.programs import Program
from tools.conformance.tasks import perform
from tools.conformance.tolerances import EXACT, TABLE, tolerance

GROUPS = (
    "abs acos add_any approx_top_k argmax bitcast_convert_type cbrt cholesky clamp concatenate conv_general_dilated convert_element_type cosh "
    "cumsum dot_general dynamic_slice dynamic_update_slice erf exp fft gather igamma iota lgamma lu pad pow qr reduce reduce_max reduce_precision "
    "reduce_window_add rev rng_bit_generator scatter_add select_and_gather_add select_and_scatter_add select_n sort top_k transpose "
    "triangular_solve"
).split()


@cache
def of_group() -> dict[str, list[Program]]:
    found: dict[str, list[Program]] = {}
    for program in jax_harnesses.programs():
        found.setdefault(program.labels[0], []).append(program)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_harnesses_of_jax(group: str) -> None:
    """The first and the middle one of a group."""
    programs = of_group()[group]
    for program in {program.name: program for program in (programs[0], programs[len(programs) // 2])}.values():
        assert perform(program, "cpu") == ("", ""), program.name


def test_every_tolerance_has_a_reason_and_is_met_by_a_group() -> None:
    for row in TABLE:
        assert len(row.tolerance.reason) > 40
        re.compile(row.groups), re.compile(row.types)
    assert tolerance("transpose", "float32") is EXACT and tolerance("exp", "int32") is EXACT
    assert tolerance("exp", "bfloat16").ulp == 1 and tolerance("atanh", "float64").ulp == 2
    assert tolerance("eigh", "float32") is EXACT and tolerance("random_uniform", "float64") is EXACT
    assert tolerance("dot_general", "float64").of_largest > 0


def test_the_exact_value_decides_where_jax_is_far() -> None:
    class Harness:
        group_name = "exp"

    x = np.array([1.0, 2.0])
    wanted = np.exp(x.astype(np.longdouble))
    far, near, failure = np.exp(x) * (1 + 1e-12), np.exp(x), ("wrong", "far apart")
    assert jax_harnesses.judged(Harness, near, far, wanted, failure) == ("", "")
    assert jax_harnesses.judged(Harness, far, near, wanted, failure)[0] == "wrong"
    unknown = np.array([wanted[0], np.nan])
    assert jax_harnesses.judged(Harness, near, far, unknown, failure) == failure

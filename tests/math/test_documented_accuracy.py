"""docs/numerics.md states the error of every transcendental function of the op table, real and complex."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.ir.formats import ComplexType
from hlojit.ir.ops.definition import Cost, OpDefinition, Pointwise, ops

pytest.importorskip("mpmath")
from tools import complex_special_values
from tools.complex_accuracy import REFERENCES
from tools.real_accuracy import FUNCTIONS, grid, measured

PAGE = Path(__file__).resolve().parents[2] / "docs" / "numerics.md"
registry().load()


def transcendental() -> list[OpDefinition]:
    """Ops with elementwise code that costs more than an instruction, but for divisions, roots, conversions, roundings and random words."""
    plain = r".*\.(divide|remainder|sqrt|convert|reduce_precision|next_after|mulhi|complex_function)"
    plain += r"|hlojit\.(odd_\w+|soft_\w+|round_stochastic|block_scale|threefry\d+)"
    expensive = [op for op in ops() if isinstance(op.lowering, Pointwise) and op.cost in (None, Cost.EXPENSIVE)]
    return [op for op in expensive if not re.fullmatch(plain, op.name)]


def test_every_transcendental_function_has_a_row() -> None:
    names = {op.name for op in transcendental()}
    assert names == set(FUNCTIONS)
    text = PAGE.read_text()
    table = text[text.index("<!-- tools/real_accuracy.py -->") : text.index("<!-- end -->")]
    assert set(re.findall(r"\| `([\w.]+)` \| [\d.]+ \| [\d.]+ ", table)) == names


def test_every_function_of_complex_numbers_has_a_row() -> None:
    text = PAGE.read_text()
    table = text[text.index("### Of complex numbers") : text.index("### Tolerances")]
    assert set(re.findall(r"\| `(\w+)` \| [\d.]+ \| [\d.]+ ", table)) == set(REFERENCES)
    rules = {op.name for op in transcendental() if ComplexType in op.parts}
    assert len(rules) > 10


def test_special_values_of_complex_functions_are_up_to_date() -> None:
    """But for the columns that other versions of NumPy and JAX may change."""
    table = complex_special_values.MARKED.search(PAGE.read_text())
    assert table is not None
    for name in complex_special_values.NUMPY:
        assert f"| `{name}` | {complex_special_values.row(name)} | " in table[0], "run tools/complex_special_values.py"


def test_a_function_is_measured_in_both_types() -> None:
    function = FUNCTIONS["stablehlo.cbrt"]
    assert np.any(grid(function, np.float32) < 0)
    assert all(0.4 < measured(function, kind)[0] < 0.6 for kind in ("f32", "f64"))

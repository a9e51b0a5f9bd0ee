"""Pointwise ops on the simulator: against the interpreter, and bit for bit against the CPU."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.ir.formats import FloatFormat, element_type
from hlojit.ir.interpreter import evaluate

from .pointwise_cases import Array, Case, cases_of, pointwise_ops

registry().load()
_POLES = ("chlo.digamma", "chlo.lgamma")
"""What these are at 0 and at negative integers is a matter of taste; SciPy's is not ours (``tests/math``)."""
CASES = [case for number, record in enumerate(pointwise_ops()) for case in cases_of(record, number)]


def test_every_pointwise_op_has_a_case() -> None:
    assert {case.record.name for case in CASES} == {record.name for record in pointwise_ops()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_op(case: Case) -> None:
    module, arguments = case.module(), case.arguments()
    found = hlojit.compile(module, backend="cuda")(*arguments)
    with np.errstate(all="ignore"):
        expected = evaluate(module, *arguments)
    operands = arguments[0], arguments[len(case.operands)]
    for ours, reference, other, operand in zip(
        found, expected, hlojit.compile(module, backend="cpu")(*arguments), operands
    ):
        assert ours.dtype == reference.dtype and ours.shape == reference.shape
        assert_bits(ours, other)
        has_poles = case.record.name in _POLES
        compared = (operand > 0) | (operand != np.floor(operand)) if has_poles else np.ones(ours.shape, bool)
        assert_close(ours[compared], reference[compared], case.result)


def assert_close(ours: Array, reference: Array, element: str) -> None:
    """Integers are equal, floats within some units in the last place, with the same infinities and NaNs."""
    row = element_type(element)
    if not isinstance(row, FloatFormat):
        np.testing.assert_array_equal(ours, reference)
        return
    wide = np.float64
    ours, reference = ours.astype(wide), reference.astype(wide)
    unit = 2.0**-row.mantissa_bits
    np.testing.assert_allclose(ours, reference, rtol=8 * unit if row.bits > 16 else unit, atol=1e-37, equal_nan=True)


def assert_bits(ours: Array, other: Array) -> None:
    """The same bits, but for those of NaN."""
    number = ours == ours
    np.testing.assert_array_equal(number, other == other)
    ours, other = np.where(number, ours, 0), np.where(number, other, 0)
    assert ours.astype(other.dtype).tobytes() == other.tobytes()

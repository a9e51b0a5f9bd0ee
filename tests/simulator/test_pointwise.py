"""Pointwise ops on the simulator: against the interpreter, and bit for bit against the CPU."""

from __future__ import annotations

import hlojit
import mpmath
import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.ir.formats import FloatFormat, element_type
from hlojit.ir.interpreter import evaluate

from .pointwise_cases import Array, Case, cases_of, pointwise_ops

registry().load()
_EXACT = {"chlo.digamma": mpmath.digamma, "chlo.lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x)))}
"""Beside the zeros that these have at negative numbers SciPy loses digits.  What they are at 0 and at negative integers is a
matter of taste, and SciPy's is not ours (``tests/math``)."""
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
        function = _EXACT.get(case.record.name)
        if function is None:
            assert_close(ours, reference, case.result)
            continue
        numbers = operand.astype(np.float64)
        regular = np.isfinite(numbers) & ((numbers > 0) | (numbers != np.floor(numbers)))
        exact = [float(function(mpmath.mpf(float(number)))) for number in numbers[regular]]
        with np.errstate(over="ignore"):
            assert_close(ours[regular], np.array(exact).astype(ours.dtype), case.result)
        special = ~np.isfinite(numbers)
        assert_close(ours[special], reference[special], case.result)


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

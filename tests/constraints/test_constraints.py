"""Every constraint of every record of hlojit's own has a program that breaks it."""

from __future__ import annotations

import pytest
from hlojit.ir.ops import BUILT_IN
from hlojit.ir.ops.definition import ops
from hlojit.ir.text.parser import parse_module
from hlojit.ir.verifier import collect_faults

from .breaking import breaking_tests
from .dialect_rows import ROWS as DIALECT_ROWS
from .internal_rows import ROWS as INTERNAL_ROWS
from .programs import Broken, text_of
from .quantized_rows import ROWS as QUANTIZED_ROWS
from .rows import ROWS as STABLEHLO_ROWS

ROWS = [*STABLEHLO_ROWS, *DIALECT_ROWS, *INTERNAL_ROWS, *QUANTIZED_ROWS]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.op}-{row.label}-{number}" for number, row in enumerate(ROWS)])
def test_constraint_is_reported(row: Broken) -> None:
    faults = collect_faults(parse_module(text_of(row)))
    short = row.op.removeprefix("stablehlo.")
    assert any((fault.op, fault.label) == (short, row.label) and row.expected in fault.message for fault in faults), (
        faults
    )
    assert not any("cannot be checked" in fault.message for fault in faults), faults


def test_every_constraint_of_every_record_has_a_program_that_breaks_it() -> None:
    known = breaking_tests()
    missing = sorted(
        f"{record.name} ({constraint.label})"
        for record in ops()
        if record.name in BUILT_IN
        for constraint in record.constraints
        if (record.name, constraint.label) not in known
    )
    assert missing == []


def test_every_constraint_has_a_label() -> None:
    assert [record.name for record in ops() if not all(constraint.label for constraint in record.constraints)] == []

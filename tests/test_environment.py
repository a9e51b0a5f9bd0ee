"""Snapshots of tables, and what is remembered with them."""

from __future__ import annotations

from dataclasses import replace

from hlojit.ir.environment import Bounded, tables
from hlojit.ir.ops.definition import op
from hlojit.ir.passes.fusion_cost import Role, _kind_of
from hlojit.ir.text.form_table import form_of


def test_what_is_remembered_is_bounded() -> None:
    known = Bounded[str, int](3)
    for number in range(10):
        assert known.keep(str(number), number) == number
        assert len(known) <= 3 and known[str(number)] == number


def test_what_is_worked_out_of_a_record_is_not_that_of_another_of_its_name() -> None:
    add = op("stablehlo.add")
    renamed = replace(op("stablehlo.reduce"), name=add.name)
    assert renamed == add, "records are equal by name"
    assert [_kind_of(each) for each in (add, renamed, add)] == [Role.POINTWISE, Role.REDUCTION, Role.POINTWISE]
    assert form_of(add) is not form_of(renamed)
    assert tables().fusion_roles is not tables().forms

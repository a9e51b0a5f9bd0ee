"""Which tests break which constraint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping


def breaking_tests() -> Mapping[tuple[str, str], list[str]]:
    """Files of tests in which a program breaks a constraint, by op and label."""
    from ..ops import constraint_rows, test_elemental_constraints, test_structural_constraints
    from . import dialect_rows, internal_rows, quantized_rows, rows

    found: dict[tuple[str, str], list[str]] = defaultdict(list)

    def add(op: str, label: str, file: str) -> None:
        name = op if "." in op else f"stablehlo.{op}"
        if file not in found[name, label]:
            found[name, label].append(file)

    for module in (rows, dialect_rows, internal_rows, quantized_rows):
        for row in module.ROWS:
            add(row.op, row.label, f"constraints/{module.__name__.rpartition('.')[2]}.py")
    for name, label, *_ in constraint_rows.ROWS:
        add(name, label, "ops/constraint_rows.py")
    for elemental in test_elemental_constraints.ROWS:
        add(elemental.op, elemental.label, "ops/test_elemental_constraints.py")
    for name, labels in test_structural_constraints.ELSEWHERE.items():
        for label in labels:
            add(name, label, "ops/test_structural_constraints.py")
    return found

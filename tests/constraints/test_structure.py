"""What the specification says of inputs and the records say by types: kinds of attributes, operands that are tensors."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hlojit.ir.attributes import StringAttr
from hlojit.ir.errors import HlojitError
from hlojit.ir.ops import BUILT_IN
from hlojit.ir.ops.attribute_kinds import ELEMENTS, GENERIC, IntegerKind, StringKind, SymbolKind
from hlojit.ir.ops.definition import AttributeSpec, OpDefinition
from hlojit.ir.text.parser import parse_module
from hlojit.ir.verifier import collect_faults

ROOT = Path(__file__).resolve().parent.parent.parent
LABELS = json.loads((ROOT / "tools" / "specification_labels.json").read_text())
RECORDS = [record for record in BUILT_IN.values() if record.name.startswith(("stablehlo.", "chlo."))]
ATTRIBUTES = [
    (record, spec) for record in RECORDS for spec in record.attributes if spec.kind is not GENERIC and spec.name
]
TAKE_ANYTHING = {
    "stablehlo.after_all", "stablehlo.composite", "stablehlo.custom_call", "stablehlo.infeed", "stablehlo.optimization_barrier",
    "stablehlo.return", "stablehlo.tuple", "stablehlo.while",
}  # fmt: skip
"""Ops whose operands may be tokens; all others, and their results, are checked."""


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("constraint_table", ROOT / "tools" / "constraint_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wrong_value(spec: AttributeSpec) -> str:
    """An attribute of another kind than the spec asks for."""
    if isinstance(spec.kind, (StringKind, SymbolKind)):
        return "[1 : i64]"
    if spec.kind is ELEMENTS or not isinstance(spec.kind, IntegerKind):
        return "2.5 : f32" if not _takes_floats(spec) else '"text"'
    return '"text"'


def _takes_floats(spec: AttributeSpec) -> bool:
    try:
        spec.kind.from_generic(StringAttr("text"))
    except HlojitError:
        return "float" in spec.kind.expected
    return False


@pytest.mark.parametrize(("record", "spec"), ATTRIBUTES, ids=[f"{r.mnemonic}-{s.name}" for r, s in ATTRIBUTES])
def test_attributes_of_another_kind_are_refused(record: OpDefinition, spec: AttributeSpec) -> None:
    text = f'func.func @main() {{ "{record.name}"() <{{{spec.name} = {wrong_value(spec)}}}> : () -> () func.return }}'
    with pytest.raises(HlojitError, match=f"attribute {spec.name} of {record.name}: expected"):
        parse_module(text)


@pytest.mark.parametrize(
    "record",
    [record for record in RECORDS if record.operands and record.name not in TAKE_ANYTHING],
    ids=lambda r: r.name,
)
def test_operands_that_are_no_tensors_are_faults(record: OpDefinition) -> None:
    """Tokens in place of every operand and result, without attributes and regions: whatever is said, something is."""
    operands = ", ".join("%a" for _ in record.operands)
    types = ", ".join("!stablehlo.token" for _ in record.operands)
    line = f'%0 = "{record.name}"({operands}) : ({types}) -> !stablehlo.token'
    try:
        module = parse_module(f"func.func @main(%a: !stablehlo.token) {{ {line} func.return }}")
    except HlojitError:
        return
    assert collect_faults(module)


def has_counts(record: OpDefinition) -> bool:
    """Whether a number of operands is too large for it, or an attribute or a region must not be missing."""
    needs = [spec for spec in record.attributes if not spec.optional]
    regions = [name for name in record.regions if not name.endswith("*")]
    return not any(operand.variadic for operand in record.operands) or bool(needs or regions)


@pytest.mark.parametrize(
    "record",
    [record for record in RECORDS if not record.name.endswith("return") and has_counts(record)],
    ids=lambda r: r.name,
)
def test_operands_attributes_and_regions_are_counted(record: OpDefinition) -> None:
    count = len(record.operands) + 1
    operands, types = ", ".join(["%a"] * count), ", ".join(["tensor<f32>"] * count)
    said = r"takes \d+ (operand|region)s?\b|attribute \w+ is missing"
    with pytest.raises(HlojitError, match=rf"{re.escape(record.name)}: ({said})"):
        parse_module(
            f'func.func @main(%a: tensor<f32>) {{ %0 = "{record.name}"({operands}) : ({types}) -> tensor<f32> func.return }}'
        )


@pytest.mark.parametrize("name", sorted(LABELS))
def test_every_constraint_of_the_specification_is_checked_or_noted(name: str) -> None:
    declared = {constraint.label for constraint in BUILT_IN[f"stablehlo.{name}"].constraints}
    missing = {f"C{number}" for number in range(1, LABELS[name][1] + 1)} - declared
    assert missing <= {label for op, label in tool().NOTES if op == name}


def test_notes_are_of_labels_that_the_specification_has() -> None:
    for name, label in tool().NOTES:
        assert int(label[1:]) <= LABELS[name][1]


def test_the_page_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "constraint_table.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr

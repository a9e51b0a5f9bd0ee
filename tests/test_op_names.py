"""Nobody decides by an op's name: what analyses and passes want to know of an op stands in its record.

Rewrite rules, expansions, builders and the front ends do name the ops that they match and build; they are listed here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hlojit.extensions import registry
from hlojit.ir.ops.definition import ops

ROOT = Path(__file__).resolve().parents[1]

MAY_NAME_OPS = {
    "ir/ops/": "records name themselves, and expansions the ops that they build",
    "ir/passes/rules/": "rewrite rules match and build ops",
    "ir/passes/rewriting.py": "dispatches rules by the ops that they name, and builds constants for them",
    "ir/passes/instruction_fusion.py": "builds fusions",
    "ir/passes/shape_refinement.py": "builds constants for shapes that are known",
    "ir/passes/selection_fusion.py": "builds fusions",
    "ir/passes/op_expander.py": "a back end lists the ops that it keeps",
    "ir/builder.py": "builds",
    "ir/text/": "spells: forms, short names of return and call",
    "ir/transforms/": "builds the regions of derivatives",
    "jit/plugin_shares.py": "looks for the names of plugins' ops in a program's text",
    "jit/tracing/": "builds what NumPy's functions mean",
    "jit/random/": "builds what distributions mean",
    "jit/testing/": "writes programs that are tried",
    "extensions/binding.py": "replaces custom calls",
    "extensions/calls/elementwise_calls.py": "builds what custom calls become",
}
"""Folders and files in which op names may stand, and why."""

MAY_COMPARE_NAMES = {
    **{place: why for place, why in MAY_NAME_OPS.items() if place != "ir/ops/"},
    "ir/ops/definition.py": "the table of records is by name",
    "ir/verifier.py": "asks whether a record is hlojit's own, which the table of these has by name",
    "ir/compare.py": "compares two programs: their ops must have the same names",
    "jit/lowering/structure.py": "the identity of a kernel",
    "jit/simt/kernels.py": "the table of kernels is by the names that lowerings give them",
    "ir/resolution.py": "exchanges records for those that now have the same names",
    "extensions/kernels/selection.py": "kernels are offered what their patterns name",
    "extensions/registration/registry.py": "plugins and what they bring are found by name",
    "extensions/registration/discovery.py": "plugins are found by name",
    "extensions/registration/record_checks.py": "says whether an op's name can be written in a program",
    "ir/passes/anchored_fusion.py": "a back end lists the kernels that take in what follows them",
    "ir/passes/prologue_fusion.py": "a back end lists the kernels that take in what computes their operands",
    "jit/cpu/instruction_costs.py": "the table of rules is by the names that lowerings give kernels",
    "jit/partition/partitioner.py": "finds what an error names among the instructions at its place",
    "ir/passes/fusion_cost.py": "remembers what a record can be in a fusion, by the name that it has in the table",
}

DIALECTS = ("stablehlo.", "chlo.", "func.", "sdy.")
OF_OPS = ("op", "record", "instruction", "producer", "owner", "user", "first", "last", "inner", "step", "lowering")
"""What a variable is called whose ``name`` is an op's (or a kernel's)."""


def sources() -> Iterator[Path]:
    for folder in ("ir", "extensions", "jit", "cuda"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def allowed(path: Path, places: dict[str, str]) -> bool:
    return path.relative_to(ROOT).as_posix().startswith(tuple(places))


def prose(tree: ast.AST) -> set[ast.AST]:
    """Strings that decide nothing: docstrings, notes behind a definition, what errors say."""
    statements = [node for node in ast.walk(tree) if isinstance(node, (ast.Expr, ast.Raise))]
    found: set[ast.AST] = {node.value for node in statements if isinstance(node, ast.Expr)}
    return found.union(*(ast.walk(node) for node in statements if isinstance(node, ast.Raise)))


def named_ops(text: str, known: frozenset[str]) -> Iterator[str]:
    """String literals that are the name of an op, or the beginning of one."""
    tree = ast.parse(text)
    ignored = prose(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in ignored:
            word = node.value
            if word in known or (word.startswith(DIALECTS) and " " not in word):
                yield f"line {node.lineno}: {word!r}"


def is_op_name(node: ast.AST) -> bool:
    """``instruction.op.name``, ``producer.name``, ``op.mnemonic`` ..."""
    if not isinstance(node, ast.Attribute) or node.attr not in ("name", "mnemonic"):
        return False
    of = node.value
    return node.attr == "mnemonic" or (
        (isinstance(of, ast.Attribute) and of.attr in ("op", "lowering"))
        or (isinstance(of, ast.Name) and of.id in OF_OPS)
    )


def decisions_by_name(text: str) -> Iterator[str]:
    """Comparisons of an op's name, and tables that it is looked up in."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            asked = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = [node.func.value] if node.func.attr in ("startswith", "endswith", "partition") else []
            asked = [*of, *(node.args if node.func.attr in ("get", "match", "fullmatch") else [])]
        elif isinstance(node, ast.Match):
            asked = [node.subject]
        else:
            continue
        if any(map(is_op_name, asked)):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_no_analysis_names_an_op() -> None:
    registry().load()
    known = frozenset(record.name for record in ops())
    faults = [
        f"{path.relative_to(ROOT)}, {fault}"
        for path in sources()
        if not allowed(path, MAY_NAME_OPS)
        for fault in named_ops(path.read_text(encoding="utf-8"), known)
    ]
    assert not faults, "\n".join(faults)


def test_nobody_decides_by_an_ops_name() -> None:
    faults = [
        f"{path.relative_to(ROOT)}, {fault}"
        for path in sources()
        if not allowed(path, MAY_COMPARE_NAMES)
        for fault in decisions_by_name(path.read_text(encoding="utf-8"))
    ]
    assert not faults, "\n".join(faults)


def test_every_exception_exists() -> None:
    assert [place for place in {**MAY_NAME_OPS, **MAY_COMPARE_NAMES} if not (ROOT / place).exists()] == []


@pytest.mark.parametrize(
    "line",
    [
        'if instruction.op.name == "x": pass',
        'if producer.name in ("x", "y"): pass',
        "rule = TABLE.get(owner.op.name)",
        "rule = TABLE[instruction.op.name]",
        'cheap = op.name.startswith("x")',
        'if lowering.name in ("convolution",): pass',
        'if part.op.mnemonic == "real": pass',
        "match instruction.op.name:\n    case 'x': pass",
    ],
)
def test_the_check_sees_a_decision_by_name(line: str) -> None:
    assert list(decisions_by_name(line))


def test_the_check_sees_names_and_lets_messages_be() -> None:
    known = frozenset({"hlojit.fusion"})
    assert list(named_ops('A = {"stablehlo.add", "hlojit.fusion"}\nB = f"stablehlo.{name}"', known)) == [
        "line 1: 'stablehlo.add'",
        "line 1: 'hlojit.fusion'",
        "line 2: 'stablehlo.'",
    ]
    assert not list(named_ops('"""stablehlo.add"""\nimport_path = "hlojit.ir.graph"', known))
    assert not list(decisions_by_name('raise Error(f"{instruction.op.name} fails")\nif function.name == "main": pass'))
